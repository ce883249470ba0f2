//! Threads, and the calls that are open in each.

use core::{
    arch::asm,
    intrinsics::{AtomicOrdering, atomic_cxchg},
};

use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    btf_maps::{Array, HashMap},
    macros::btf_map,
};
use tracer_common::bpf::{MAX_DEPTH, NEAR_THREADS, OpenCall, ThreadState, kind};
use tracer_common::loss::BpfLoss;

use crate::{maps, records};

/// Open calls of the threads whose place in it is free: looking an array up costs next to nothing.
#[btf_map]
static NEAR: Array<ThreadState, NEAR_THREADS> = Array::new();

/// Open calls of the other threads, by thread id. Entries are kept between calls (inserting and
/// deleting at each call costs 80 ns more) and removed when the thread ends.
#[btf_map]
static THREADS: HashMap<u32, ThreadState, 65536, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// An all-zero state to insert from: too large for the BPF stack.
#[btf_map]
static EMPTY_THREAD: Array<ThreadState, 1> = Array::new();

/// The open calls of the calling thread, created when it is seen first, which is reported.
#[inline(always)]
pub fn thread(pid_tgid: u64) -> Option<&'static mut ThreadState> {
    let tid = pid_tgid as u32;
    let near = near(tid)?;
    if near.tid == tid {
        return Some(near);
    }
    // A thread that has open calls here stays, though its place in the array may have become free.
    if let Some(far) = far(tid) {
        return Some(far);
    }
    if claim(near, tid) {
        records::emit_life(kind::CALLER, pid_tgid, 0, records::MemoryOwner::Own);
        return Some(near);
    }
    let empty = EMPTY_THREAD.get(0)?;
    // Another CPU cannot insert the same key: only the thread itself does.
    if THREADS.insert(tid, empty, 0).is_err() {
        maps::lost(BpfLoss::THREAD_TABLE_FULL);
        return None;
    }
    records::emit_life(kind::CALLER, pid_tgid, 0, records::MemoryOwner::Own);
    let far = far(tid)?;
    far.tid = tid;
    Some(far)
}

/// The open calls of thread `tid`, if it was seen before.
#[inline(always)]
pub fn known_thread(tid: u32) -> Option<&'static mut ThreadState> {
    match near(tid) {
        Some(near) if near.tid == tid => Some(near),
        _ => far(tid),
    }
}

/// Forgets thread `tid`, which has ended.
#[inline(always)]
pub fn forget_thread(tid: u32) {
    match near(tid) {
        Some(near) if near.tid == tid => {
            near.depth = 0;
            near.skipped = 0;
            near.marks = 0;
            near.stack = [0; 2];
            near.elsewhere_count = 0;
            for call in &mut near.elsewhere {
                call.sp = 0;
            }
            // Last: the place can be claimed from now on.
            near.tid = 0;
        }
        _ => {
            let _ = THREADS.remove(tid);
        }
    }
}

#[inline(always)]
fn near(tid: u32) -> Option<&'static mut ThreadState> {
    let state = NEAR.get_ptr_mut(tid & (NEAR_THREADS as u32 - 1))?;
    // SAFETY: beyond its `tid`, a state is only accessed by the thread that claimed it.
    Some(unsafe { &mut *state })
}

#[inline(always)]
fn far(tid: u32) -> Option<&'static mut ThreadState> {
    let state = THREADS.get_ptr_mut(tid)?;
    // SAFETY: the entry is only accessed by its own thread, which is running this program, and it
    // is removed only when that thread ends.
    Some(unsafe { &mut *state })
}

/// Takes a free place.
#[inline(always)]
fn claim(near: &mut ThreadState, tid: u32) -> bool {
    // SAFETY: the field is live and aligned; another CPU may try the same.
    let (_, claimed) = unsafe {
        atomic_cxchg::<u32, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(
            &raw mut near.tid,
            0,
            tid,
        )
    };
    claimed
}

/// The open call at `index` of a thread, 0 being the outermost; none outside `0..MAX_DEPTH`.
///
/// The mask is opaque to the compiler, which would otherwise turn a loop over indices into one over
/// pointers, whose bounds the verifier cannot follow.
#[inline(always)]
pub fn open_call(thread: &mut ThreadState, index: usize) -> Option<&mut OpenCall> {
    if index >= MAX_DEPTH {
        return None;
    }
    let mut masked = index as u64;
    // SAFETY: computes `masked & 15`, which changes nothing after the check above.
    unsafe { asm!("{0} &= 15", inout(reg) masked, options(pure, nomem, nostack)) };
    // SAFETY: the index is below `MAX_DEPTH`.
    Some(unsafe { thread.open.get_unchecked_mut(masked as usize) })
}

const _: () = assert!(MAX_DEPTH == 16, "the mask in `open_call`");

/// Counts the steps of a loop over open calls, of which there are no more than are kept.
///
/// The loops end by themselves, but verifiers before that of Linux 6.18 do not see it: the compiler
/// compares the index in a copied register, of which they learn nothing. This counter is opaque to the
/// compiler, which would otherwise derive it from the index, and a known number to every verifier.
pub struct Steps(u64);

impl Steps {
    #[inline(always)]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Whether another step may follow.
    #[inline(always)]
    pub fn next(&mut self) -> bool {
        // SAFETY: adds 1 to the counter.
        unsafe { asm!("{0} += 1", inout(reg) self.0, options(pure, nomem, nostack)) };
        self.0 <= MAX_DEPTH as u64
    }
}
