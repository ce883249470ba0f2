//! Whether a call is made on its thread's own stack.
//!
//! The kernel keeps the calls that are to return to it in one list for each thread, and takes a call whose stack
//! pointer is below that of a new one as left by `longjmp`. Where fibres have stacks of their own such a call is not
//! left: it would return to where the kernel knows of no call, and its process would be killed. So a call gets a return
//! probe on the thread's own stack alone.

use aya_ebpf::helpers::{bpf_probe_read_user, generated::bpf_get_current_task};
use tracer_common::bpf::{Elsewhere, MAX_ELSEWHERE, StackOffsets, ThreadState};

use crate::{
    maps::{self, kernel_word as word},
    threads,
};

/// The stack of a process's first thread lies alone, far above what is mapped.
const FIRST_STACK_BYTES: u64 = 64 << 20;
/// The size that glibc gives to a thread's stack where the limit is none.
const UNLIMITED_STACK_BYTES: u64 = 2 << 20;
/// The longest distance of a call from the calls that it makes.
const REACH_BYTES: u64 = 1 << 20;

/// Whether the calling thread's stack pointer `sp` is in the stack that it was created with.
#[inline(always)]
pub fn is_own(thread: &mut ThreadState, pid_tgid: u64, sp: u64) -> bool {
    let [begin, end] = thread.stack;
    (begin <= sp && sp < end) || find(thread, pid_tgid, sp).unwrap_or(false)
}

/// As [`is_own`], for a stack that was not seen before.
#[inline(always)]
fn find(thread: &mut ThreadState, pid_tgid: u64, sp: u64) -> Option<bool> {
    let config = maps::config()?;
    let StackOffsets { mm, start_stack, fsbase, limit } = config.stack;
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    let first = word(word(task + mm)? + start_stack)?;
    let is_first_thread = (pid_tgid >> 32) as u32 == pid_tgid as u32;
    if is_first_thread && first.wrapping_sub(sp) <= FIRST_STACK_BYTES {
        thread.stack = [first.saturating_sub(FIRST_STACK_BYTES), first];
        return Some(true);
    }
    if is_first_thread && !maps::has_stack_of_thread(pid_tgid) {
        return Some(false);
    }
    // A thread's own stack ends below its thread block, and is as long as the limit says, unless the thread that
    // created it asked for another size.
    let (block, most) = (word(task + fsbase)?, word(word(task + config.signal_offset)? + limit)?);
    let most = if most == u64::MAX { UNLIMITED_STACK_BYTES } else { most };
    let is_own = block.wrapping_sub(sp) <= most;
    if is_own {
        thread.stack = [block.saturating_sub(most), block];
    }
    Some(is_own)
}

/// Remembers a call on another stack, which has no return probe.
#[inline(always)]
pub fn remember(thread: &mut ThreadState, call: Elsewhere) {
    // One at the same place has returned.
    for known in &mut thread.elsewhere {
        if known.sp == call.sp {
            known.sp = 0;
        }
    }
    let place = thread.elsewhere_count as usize & (MAX_ELSEWHERE - 1);
    thread.elsewhere[place] = call;
    thread.elsewhere_count = thread.elsewhere_count.wrapping_add(1);
}

/// The innermost call on another stack that is open around the stack pointer `sp` and that `wanted` wants.
#[inline(always)]
pub fn around(
    thread: &mut ThreadState,
    sp: u64,
    wanted: impl Fn(&Elsewhere) -> bool,
) -> Option<Elsewhere> {
    if thread.elsewhere_count == 0 {
        return None;
    }
    let mut nearest = REACH_BYTES;
    let mut found = None;
    for call in &thread.elsewhere {
        let distance = call.sp.wrapping_sub(sp);
        // SAFETY: the helper checks the address.
        let is_open = || unsafe { bpf_probe_read_user(call.sp as *const u64) } == Ok(call.back);
        if call.sp != 0 && distance < nearest && wanted(call) && is_open() {
            nearest = distance;
            found = Some(*call);
        }
    }
    // A call on the thread's own stack can be nearer.
    let innermost = (thread.depth as usize).wrapping_sub(1);
    match threads::open_call(thread, innermost) {
        Some(open) if open.sp.wrapping_sub(sp) < nearest => None,
        _ => found,
    }
}
