//! The offsets of the kernel's data that the BPF programs read, from the BTF of the running kernel.

use std::io;

use libbpf_rs::{
    Result,
    btf::{
        Btf, BtfType,
        types::{Composite, MemberAttr},
    },
};
use tracer_common::bpf::{PlaceOffsets, StackOffsets};

/// The offsets of the data of a task that is read.
#[derive(Clone, Copy)]
pub struct Task {
    /// Offset of `tgid` in `task_struct`.
    pub tgid: u64,
    /// Offset of `signal` in `task_struct`, which points at a `signal_struct`.
    pub signal: u64,
    /// Offset of `flags` in `signal_struct`.
    pub signal_flags: u64,
}

/// The offsets of tasks.
///
/// # Errors
///
/// When the kernel has other structures.
pub fn task(kernel: &Btf<'_>) -> Result<Task> {
    Ok(Task {
        tgid: offset(kernel, "task_struct", "tgid")?,
        signal: offset(kernel, "task_struct", "signal")?,
        signal_flags: offset(kernel, "signal_struct", "flags")?,
    })
}

/// The offsets by which a thread's own stack is found.
///
/// # Errors
///
/// When the kernel has other structures.
pub fn stack(kernel: &Btf<'_>) -> Result<StackOffsets> {
    /// Index of RLIMIT_STACK in the limits, two words each.
    const STACK: u64 = 3;
    Ok(StackOffsets {
        mm: offset(kernel, "task_struct", "mm")?,
        start_stack: offset(kernel, "mm_struct", "start_stack")?,
        fsbase: offset(kernel, "task_struct", "thread")?
            + offset(kernel, "thread_struct", "fsbase")?,
        limit: offset(kernel, "signal_struct", "rlim")? + 16 * STACK,
    })
}

/// The offsets by which the place of a probe is found.
///
/// # Errors
///
/// When the kernel has other structures.
pub fn place(kernel: &Btf<'_>) -> Result<PlaceOffsets> {
    Ok(PlaceOffsets {
        utask: offset(kernel, "task_struct", "utask")?,
        vaddr: offset(kernel, "uprobe_task", "vaddr")?,
        probe: offset(kernel, "uprobe_dispatch_data", "tu")?,
        offset: offset(kernel, "trace_uprobe", "offset")?,
    })
}

/// Whether programs may allocate memory of maps wherever they run: whether the kernel has the allocator for that (Linux
/// 6.1). A kernel without it warns in its log.
pub fn can_allocate_in_probes(kernel: &Btf<'_>) -> bool {
    kernel.type_by_name::<Composite<'_>>("bpf_mem_alloc").is_some()
}

fn offset(btf: &Btf<'_>, structure: &str, member: &str) -> Result<u64> {
    let missing = || {
        let text = format!("the kernel has no {structure}.{member}");
        libbpf_rs::Error::from(io::Error::new(io::ErrorKind::NotFound, text))
    };
    let found: Composite<'_> = btf.type_by_name(structure).ok_or_else(missing)?;
    let bits = find(btf, &found, member).ok_or_else(missing)?;
    Ok(u64::from(bits) / 8)
}

/// Offset in bits of a member, or of a member of a structure or union without a name.
fn find(btf: &Btf<'_>, structure: &Composite<'_>, name: &str) -> Option<u32> {
    structure.iter().find_map(|member| {
        let MemberAttr::Normal { offset } = member.attr else { return None };
        match member.name {
            Some(known) if !known.is_empty() => (known == name).then_some(offset),
            _ => {
                let inner: BtfType<'_> = btf.type_by_id(member.ty)?;
                Some(offset + find(btf, &Composite::try_from(inner).ok()?, name)?)
            }
        }
    })
}
