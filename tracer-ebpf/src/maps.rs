//! The maps, and how records and losses get into them.

use core::{
    arch::asm,
    intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd},
};

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    btf_maps::{Array, ArrayOfMaps, HashMap, LruHashMap, PerCpuArray, RingBuf},
    helpers::{
        bpf_get_smp_processor_id, bpf_probe_read_kernel,
        generated::{bpf_get_current_task, bpf_ringbuf_query},
    },
    macros::btf_map,
};
use tracer_common::bpf::{
    Capture, Config, Frame, Loss, MAX_CAPTURES, MAX_DEPTH, NEAR_THREADS, Place, PlaceOffsets,
    ThreadState, kind,
};

use crate::life;

/// One ring buffer per CPU: a shared one doubles the cost of a record when two CPUs are busy. User
/// space sets the number of entries to that of the CPUs and fills them in.
#[btf_map]
pub static RINGS: ArrayOfMaps<RingBuf<(), 4096>, 1> = ArrayOfMaps::new();

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

/// Traced processes. The value is not used.
#[btf_map]
pub static PROCESSES: HashMap<u32, u32, 16384, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// What the shim of a process told.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Told {
    /// Where its code begins and ends.
    pub code: [u64; 2],
    /// The tables whose calls it records: [`tracer_common::calls::tables`].
    pub tables: u64,
}

/// What the shims told, by process.
#[btf_map]
pub static SHIMS: HashMap<u32, Told, 4096, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// A queue of a process.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct QueueKey {
    /// Address of the queue.
    pub queue: u64,
    /// The process.
    pub pid: u64,
}

/// The index behind the last packet that a doorbell of the queue announced, as far as is known.
#[btf_map]
pub static QUEUES: LruHashMap<QueueKey, u64, 16384> = LruHashMap::new();

/// Loss counters by cause.
#[btf_map]
static LOSSES: PerCpuArray<u64, { Loss::COUNT }> = PerCpuArray::new();

/// Calls numbered so far on each CPU.
#[btf_map]
static CALLS: PerCpuArray<u64, 1> = PerCpuArray::new();

/// What is captured of each function: [`Capture`], by [`Cookie::index`].
#[btf_map]
static CAPTURES: Array<u64, MAX_CAPTURES> = Array::new();

/// The same, by the place of the function's probe.
#[btf_map]
static PLACES: HashMap<Place, u64, MAX_CAPTURES, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// What user space sets before the programs are attached.
#[btf_map]
static CONFIG: Array<Config, 1> = Array::new();

/// The configuration.
#[inline(always)]
pub fn config() -> Option<&'static Config> {
    CONFIG.get(0)
}

/// What is captured of the function whose probe runs the program; `index` is that of its cookie.
#[inline(always)]
pub fn capture(index: u32) -> Option<Capture> {
    let config = config()?;
    let word = if config.by_place == 0 {
        CAPTURES.get(index)
    } else {
        let place = place(&config.place).map(|offset| Place { file: index.into(), offset });
        // SAFETY: map values are live; they are written before the place is probed.
        place.and_then(|place| unsafe { PLACES.get(place) })
    };
    if word.is_none() {
        lost(Loss::UNKNOWN_PLACE);
    }
    word.map(|word| Capture::from_u64(*word))
}

/// Offset in its file of the probe that runs the program, as the kernel itself remembers it.
#[inline(always)]
fn place(offsets: &PlaceOffsets) -> Option<u64> {
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    let word = |base: u64, offset: u64| {
        // SAFETY: the helper checks the address; the offset is from the running kernel's BTF.
        unsafe { bpf_probe_read_kernel(base.wrapping_add(offset) as *const u64) }.ok()
    };
    let dispatch = word(word(task, offsets.utask)?, offsets.vaddr)?;
    word(word(dispatch, offsets.probe)?, offsets.offset)
}

/// Counts one loss.
#[inline(always)]
pub fn lost(cause: Loss) {
    lost_many(cause, 1);
}

/// Counts losses. Atomic, since a uprobe can be preempted by another on the same CPU.
#[inline(always)]
pub fn lost_many(cause: Loss, count: u64) {
    if let Some(counter) = LOSSES.get_ptr_mut(cause.0) {
        // SAFETY: the pointer is to this CPU's live map value.
        unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, count) };
    }
}

/// A correlation id that no other call of the recording gets: the CPU's count, interleaved with
/// the CPU's number. Never 0.
#[inline(always)]
pub fn next_correlation_id() -> u64 {
    let (Some(counter), Some(config)) = (CALLS.get_ptr_mut(0), config()) else { return 0 };
    // Not relaxed: LLVM 22 then emits an addition that does not fetch, and uses its operand as the
    // result. SAFETY: the pointer is to this CPU's live map value.
    let count = unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(counter, 1) };
    count * config.cpus + u64::from(cpu()) + 1
}

#[inline(always)]
fn cpu() -> u32 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_get_smp_processor_id() as u32 }
}

/// The open calls of the calling thread, created when it is seen first, which is reported.
#[inline(always)]
pub fn thread(pid_tgid: u64) -> Option<&'static mut ThreadState> {
    let tid = pid_tgid as u32;
    if let Some(near) = near(tid) {
        if near.tid == tid {
            return Some(near);
        }
        if claim(near, tid) {
            life::emit(kind::CALLER, pid_tgid, 0, false);
            return Some(near);
        }
    }
    if let Some(far) = far(tid) {
        return Some(far);
    }
    let empty = EMPTY_THREAD.get(0)?;
    // Another CPU cannot insert the same key: only the thread itself does.
    if THREADS.insert(tid, empty, 0).is_err() {
        lost(Loss::THREAD_TABLE_FULL);
        return None;
    }
    life::emit(kind::CALLER, pid_tgid, 0, false);
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
            near.highest_sp = 0;
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
pub fn frame(thread: &mut ThreadState, index: usize) -> Option<&mut Frame> {
    if index >= MAX_DEPTH {
        return None;
    }
    let mut masked = index as u64;
    // SAFETY: computes `masked & 15`, which changes nothing after the check above.
    unsafe { asm!("{0} &= 15", inout(reg) masked, options(pure, nomem, nostack)) };
    // SAFETY: the index is below `MAX_DEPTH`.
    Some(unsafe { thread.frames.get_unchecked_mut(masked as usize) })
}

const _: () = assert!(MAX_DEPTH == 16, "the mask in `frame`");

/// Counts the steps of a loop over frames, which are no more than there are frames.
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

/// Who wakes the reader.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// This record does.
    Now,
    /// This record does if the ring is filled above the mark.
    AboveMark,
    /// The reader's timer, or another record.
    No,
}

/// Copies a record into this CPU's ring.
#[inline(always)]
pub fn emit<T: 'static>(record: &T, full: Loss, wake: Wake) {
    // SAFETY: `entry` is a reserved record of the type. `bpf_ringbuf_output` would cost 30 ns more.
    emit_in_place::<T>(full, wake, |entry| unsafe { entry.copy_from_nonoverlapping(record, 1) });
}

/// Reserves a record in this CPU's ring, lets `fill` write it, and submits it.
///
/// Waking the reader costs 0.3 to 1.8 µs, so its timer mostly drains the rings.
#[inline(always)]
pub fn emit_in_place<T: 'static>(full: Loss, wake: Wake, fill: impl FnOnce(*mut T)) {
    let Some(ring) = RINGS.get(cpu()) else { return lost(full) };
    let Some(mut entry) = ring.reserve_untyped::<T>(0) else { return lost(full) };
    fill(entry.as_mut_ptr());
    let wake = wake == Wake::Now || wake == Wake::AboveMark && is_above_mark(ring);
    entry.submit(u64::from(if wake { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP }));
}

#[inline(always)]
fn is_above_mark(ring: &RingBuf<(), 4096>) -> bool {
    let map = core::ptr::from_ref(ring).cast_mut().cast();
    // SAFETY: `ring` is a live map.
    let pending = unsafe { bpf_ringbuf_query(map, u64::from(BPF_RB_AVAIL_DATA)) };
    config().is_some_and(|config| pending > config.wake_mark_bytes)
}
