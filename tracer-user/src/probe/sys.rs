//! System calls that no library wraps.

#![expect(unsafe_code, reason = "system calls that no library wraps")]

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use libbpf_rs::libbpf_sys as bpf;
use perf_event_open_sys::{self as perf, bindings as attr};

/// Opens the event of a tracepoint, uprobe events among them, for process `pid`. -1 is all processes: programs are then
/// run on every CPU, whichever CPU the event is for.
///
/// # Errors
///
/// Those of `perf_event_open(2)`.
pub fn open_tracepoint(id: u64, pid: i32) -> io::Result<OwnedFd> {
    let mut event = attr::perf_event_attr {
        type_: attr::PERF_TYPE_TRACEPOINT,
        size: size_of::<attr::perf_event_attr>() as u32,
        config: id,
        ..Default::default()
    };
    event.__bindgen_anon_1.sample_period = 1;
    event.__bindgen_anon_2.wakeup_events = 1;
    let flags = attr::PERF_FLAG_FD_CLOEXEC as _;
    let cpu = if pid == -1 { 0 } else { -1 };
    // SAFETY: the structure is whole, and tells its size.
    let fd = unsafe { perf::perf_event_open(&raw mut event, pid, cpu, -1, flags) };
    // SAFETY: a descriptor that nobody else has.
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}

/// Whether the kernel has `uprobe_multi` links whose filter is by process. At first it was by thread, which misses all
/// threads but the first (fixed in Linux 6.10, and in stable releases since).
pub fn has_uprobe_multi() -> bool {
    let kind = bpf::BPF_TRACE_UPROBE_MULTI;
    let Some(program) = load_nothing(kind) else { return false };
    // A kernel that has such links reports that a directory cannot be probed before it does anything. If the filter is
    // by process, it reports before that that there is no such process.
    link_to_directory(&program, kind, 0) == Some(libc::EBADF)
        && link_to_directory(&program, kind, u32::MAX) == Some(libc::EINVAL)
}

/// Whether such a link's program can run at entries and returns, and say at an entry whether there is to be a return
/// (Linux 6.13).
pub fn has_uprobe_sessions() -> bool {
    let kind = bpf::BPF_TRACE_UPROBE_SESSION;
    let program = load_nothing(kind);
    program.is_some_and(|program| link_to_directory(&program, kind, 0) == Some(libc::EBADF))
}

/// Tries to link a program to `/`, and returns the error.
fn link_to_directory(program: &OwnedFd, kind: bpf::bpf_attach_type, pid: u32) -> Option<i32> {
    let offset = 0;
    let mut options = bpf::bpf_link_create_opts {
        sz: size_of::<bpf::bpf_link_create_opts>() as _,
        ..Default::default()
    };
    options.__bindgen_anon_1.uprobe_multi = bpf::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_3 {
        path: c"/".as_ptr(),
        offsets: &raw const offset,
        cnt: 1,
        pid,
        ..Default::default()
    };
    let fd = program.as_raw_fd();
    // SAFETY: the options are whole, tell their size and point at what lives.
    let link = unsafe { bpf::bpf_link_create(fd, -1, kind, &raw const options) };
    if link < 0 {
        return Some(-link);
    }
    // SAFETY: a descriptor that nobody else has.
    drop(unsafe { OwnedFd::from_raw_fd(link) });
    None
}

/// Loads a BPF program that does nothing, for probes.
fn load_nothing(attach_type: bpf::bpf_attach_type) -> Option<OwnedFd> {
    // `r0 = 0; exit`, of which the second has no operands.
    let mut instructions = [bpf::bpf_insn::default(); 2];
    (instructions[0].code, instructions[1].code) = (0xb7, 0x95);
    let mut options = bpf::bpf_prog_load_opts {
        sz: size_of::<bpf::bpf_prog_load_opts>() as _,
        expected_attach_type: attach_type,
        ..Default::default()
    };
    // SAFETY: all pointers are to what lives, with their lengths.
    let program = unsafe {
        bpf::bpf_prog_load(
            bpf::BPF_PROG_TYPE_KPROBE,
            c"roctap_nothing".as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as _,
            &raw mut options,
        )
    };
    // SAFETY: a descriptor that nobody else has.
    (program >= 0).then(|| unsafe { OwnedFd::from_raw_fd(program) })
}

/// How many instructions the kernel verified to load a program; 0 if it does not say.
///
/// # Errors
///
/// Those of `bpf(2)`.
pub fn verified_instructions(program: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(program_info(program)?.verified_insns)
}

/// The number by which the kernel knows a program.
///
/// # Errors
///
/// Those of `bpf(2)`.
#[cfg(feature = "bpf-log")]
pub fn program_id(program: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(program_info(program)?.id)
}

fn program_info(program: BorrowedFd<'_>) -> io::Result<bpf::bpf_prog_info> {
    let mut info = bpf::bpf_prog_info::default();
    let mut bytes = size_of::<bpf::bpf_prog_info>() as u32;
    // SAFETY: there is room for as much as is said.
    let result =
        unsafe { bpf::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut bytes) };
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(info) }
}

/// The kernel features that the programs need, and since when Linux has them, in that order.
const NEEDED: [(&str, bpf::bpf_func_id); 4] = [
    ("reading user memory (Linux 5.5)", bpf::BPF_FUNC_probe_read_user),
    ("reading CLOCK_BOOTTIME (Linux 5.8)", bpf::BPF_FUNC_ktime_get_boot_ns),
    ("ring buffers (Linux 5.8)", bpf::BPF_FUNC_ringbuf_reserve),
    ("cookies of probes (Linux 5.15)", bpf::BPF_FUNC_get_attach_cookie),
];

/// The first feature that the programs need and the kernel lacks.
pub fn missing_feature() -> Option<&'static str> {
    let lacks = |helper| {
        // SAFETY: it takes no pointers but the last, which must be null.
        let has = unsafe {
            bpf::libbpf_probe_bpf_helper(bpf::BPF_PROG_TYPE_KPROBE, helper, std::ptr::null())
        };
        has == 0
    };
    NEEDED.into_iter().find(|&(_, helper)| lacks(helper)).map(|(name, _)| name)
}
