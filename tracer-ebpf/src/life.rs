//! Processes: forks, exec and the end of threads, from raw tracepoints, which need no tracefs.

use aya_ebpf::bindings::BPF_EXIST;
use aya_ebpf::helpers::{
    bpf_get_current_pid_tgid, bpf_probe_read_kernel, generated::bpf_get_current_task,
};
use core::ffi::c_void;
use tracer_common::bpf::{flag, follow, kind};
use tracer_common::loss::BpfLoss;

use crate::{
    maps,
    records::{MemoryOwner, emit_life, submit},
    threads::{self, forget_thread},
};

/// `clone(2)`: the new task is a thread of the same process.
const CLONE_THREAD: u64 = 0x10000;
/// `clone(2)`: it has the same memory.
const CLONE_VM: u64 = 0x100;
/// `signal_struct.flags`: all threads of the process end.
const SIGNAL_GROUP_EXIT: u32 = 4;

/// A task was created, before it runs: `task_newtask(task_struct *child, unsigned long flags)`.
#[unsafe(link_section = "raw_tp/task_newtask")]
#[unsafe(no_mangle)]
extern "C" fn task_created(ctx: *mut c_void) -> u32 {
    // SAFETY: the kernel hands a raw tracepoint program its argument array.
    let [child, clone_flags] = unsafe { *ctx.cast::<[u64; 2]>() };
    let pid_tgid = bpf_get_current_pid_tgid();
    let pid = (pid_tgid >> 32) as u32;
    let Some(parent) = maps::PROCESSES.get_ptr(pid) else { return 0 };
    let Some(config) = maps::config() else { return 0 };
    if clone_flags & CLONE_THREAD != 0 || config.follow == follow::NOBODY {
        return 0;
    }
    // SAFETY: the helper checks the address; the offset is from the running kernel's BTF.
    if let Ok(child_pid) =
        unsafe { bpf_probe_read_kernel((child + config.tgid_offset) as *const u32) }
    {
        // Traced from now on, so that the child's own children are seen whenever they come.
        // SAFETY: map values are live.
        let stack = if pid == pid_tgid as u32 { unsafe { *parent } } else { 1 };
        if maps::PROCESSES.insert(child_pid, stack, 0).is_err() {
            maps::lost(BpfLoss::LIFE_RING_FULL);
        }
        debug!(ctx, "process {} forks {}", pid, child_pid);
        let parents = maps::SHIMS.get_ptr(pid);
        // SAFETY: map values are live.
        if let Some(info) = parents.map(|info| unsafe { *info }) {
            // Its parent's shim is in the child as well, and records nothing there.
            let _ = maps::SHIMS.insert(child_pid, maps::ShimInfo { tables: 0, ..info }, 0);
        }
        let memory =
            if clone_flags & CLONE_VM != 0 { MemoryOwner::Shared } else { MemoryOwner::Own };
        emit_life(kind::FORK, pid_tgid, child_pid, memory);
    }
    0
}

/// A process replaced its program: `sched_process_exec(task_struct *, pid_t old_pid, linux_binprm *)`.
/// Its other threads are gone, and so are its open calls. A thread that was not the first one now has
/// the process's number.
#[unsafe(link_section = "raw_tp/sched_process_exec")]
#[unsafe(no_mangle)]
extern "C" fn task_executed(ctx: *mut c_void) -> u32 {
    // SAFETY: the kernel hands a raw tracepoint program its argument array.
    let [_, old_tid] = unsafe { *ctx.cast::<[u64; 2]>() };
    let pid_tgid = bpf_get_current_pid_tgid();
    let pid = (pid_tgid >> 32) as u32;
    let traced = maps::PROCESSES.get_ptr(pid).is_some();
    if traced {
        forget_thread(pid_tgid as u32);
        forget_thread(old_tid as u32);
        let _ = maps::SHIMS.remove(pid);
        let _ = maps::PROCESSES.insert(pid, 0, u64::from(BPF_EXIST));
    }
    if traced || maps::config().is_some_and(|config| config.follow == follow::EVERYONE) {
        emit_life(kind::EXEC, pid_tgid, old_tid as u32, MemoryOwner::Own);
    }
    0
}

/// A thread ends: its open calls are recorded as such and its state is dropped. That the first one of a process
/// ends without the others is reported.
#[unsafe(link_section = "raw_tp/sched_process_exit")]
#[unsafe(no_mangle)]
extern "C" fn task_ended(_ctx: *mut c_void) -> u32 {
    let pid_tgid = bpf_get_current_pid_tgid();
    let pid = (pid_tgid >> 32) as u32;
    if pid == pid_tgid as u32 && maps::PROCESSES.get_ptr(pid).is_some() && others_go_on() {
        emit_life(kind::FIRST_THREAD, pid_tgid, 0, MemoryOwner::Own);
    }
    let Some(thread) = threads::known_thread(pid_tgid as u32) else { return 0 };
    let mut at = 0;
    let mut steps = threads::Steps::new();
    while steps.next()
        && at < thread.depth as usize
        && let Some(open) = threads::open_call(thread, at)
    {
        open.record.header.flags |= flag::OPEN_AT_END;
        submit(&mut open.record, 0, 0);
        at += 1;
    }
    forget_thread(pid_tgid as u32);
    0
}

/// Whether the current thread ends by itself, and not with its process.
#[inline(always)]
fn others_go_on() -> bool {
    let Some(config) = maps::config() else { return false };
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    let signal = maps::kernel_word(task + config.signal_offset);
    let flags = signal.and_then(|signal| maps::kernel_word(signal + config.signal_flags_offset));
    flags.is_some_and(|flags| flags as u32 & SIGNAL_GROUP_EXIT == 0)
}
