//! The maps, and the ways by which records and losses get into them.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    btf_maps::{Array, ArrayOfMaps, HashMap, LruHashMap, PerCpuArray, RingBuf},
    helpers::{
        bpf_get_smp_processor_id, bpf_probe_read_kernel,
        generated::{bpf_get_current_task, bpf_ringbuf_query},
    },
    macros::btf_map,
};
use tracer_common::bpf::{Capture, Config, MAX_CAPTURES, PlaceOffsets, ProbePlace};
use tracer_common::loss::BpfLoss;

/// One ring buffer per CPU: a shared one doubles the cost of a record when two CPUs are busy. User
/// space sets the number of entries to that of the CPUs and fills them in.
#[btf_map]
pub static RINGS: ArrayOfMaps<RingBuf<(), 4096>, 1> = ArrayOfMaps::new();

/// Traced processes: 1 where the first thread has the stack of another one's thread, which forked the process, else 0.
#[btf_map]
pub static PROCESSES: HashMap<u32, u32, 16384, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// Whether the process's first thread has the stack of a thread.
#[inline(always)]
pub fn has_stack_of_thread(pid_tgid: u64) -> bool {
    let process = PROCESSES.get_ptr((pid_tgid >> 32) as u32);
    // SAFETY: map values are live.
    process.is_some_and(|stack| unsafe { *stack } != 0)
}

/// The words that the shim of a process told.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ShimInfo {
    /// The begin and the end of its code.
    pub code: [u64; 2],
    /// The tables whose calls it records: [`tracer_common::slots::tables`].
    pub tables: u64,
}

/// The words that the shims told, by process.
#[btf_map]
pub static SHIMS: HashMap<u32, ShimInfo, 4096, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// A queue of a process.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct QueueKey {
    /// Address of the queue.
    pub queue: u64,
    /// The process.
    pub pid: u64,
}

/// A kernel of a process.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct KernelKey {
    /// Address of its descriptor.
    pub object: u64,
    /// The process.
    pub pid: u64,
}

/// Kernels that were launched.
#[btf_map]
pub static KERNELS: LruHashMap<KernelKey, u64, 16384> = LruHashMap::new();

/// The index behind the last packet that a doorbell of the queue announced, as far as is known.
#[btf_map]
pub static QUEUES: LruHashMap<QueueKey, u64, 16384> = LruHashMap::new();

/// Counters of losses by cause.
#[btf_map]
static LOSSES: PerCpuArray<u64, { BpfLoss::COUNT }> = PerCpuArray::new();

/// Calls numbered so far on each CPU.
#[btf_map]
static CALLS: PerCpuArray<u64, 1> = PerCpuArray::new();

/// The parts of each function's calls that are captured: [`Capture`], by [`Cookie::index`].
#[btf_map]
static CAPTURES: Array<u64, MAX_CAPTURES> = Array::new();

/// The same captures, by the place of the function's probe.
#[btf_map]
static PLACES: HashMap<ProbePlace, u64, MAX_CAPTURES, { BPF_F_NO_PREALLOC as usize }> =
    HashMap::new();

/// The configuration, which user space sets before the programs are attached.
#[btf_map]
static CONFIG: Array<Config, 1> = Array::new();

/// The configuration.
#[inline(always)]
pub fn config() -> Option<&'static Config> {
    CONFIG.get(0)
}

/// The parts that are captured of the function whose probe runs the program; `index` is that of its cookie.
#[inline(always)]
pub fn capture(index: u32) -> Option<Capture> {
    let config = config()?;
    let word = if config.by_place == 0 {
        CAPTURES.get(index)
    } else {
        let place = place(&config.place).map(|offset| ProbePlace { file: index.into(), offset });
        // SAFETY: map values are live; they are written before the place is probed.
        place.and_then(|place| unsafe { PLACES.get(place) })
    };
    if word.is_none() {
        lost(BpfLoss::UNKNOWN_PLACE);
    }
    word.map(|word| Capture::from_u64(*word))
}

/// Offset in its file of the probe that runs the program, as the kernel itself remembers it.
#[inline(always)]
fn place(offsets: &PlaceOffsets) -> Option<u64> {
    // SAFETY: the helper has no preconditions.
    let task = unsafe { bpf_get_current_task() };
    let word = |base: u64, offset: u64| kernel_word(base.wrapping_add(offset));
    let dispatch = word(word(task, offsets.utask)?, offsets.vaddr)?;
    word(word(dispatch, offsets.probe)?, offsets.offset)
}

/// A word of the kernel's, at an offset from the running kernel's BTF.
#[inline(always)]
pub fn kernel_word(address: u64) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(address as *const u64) }.ok()
}

/// Counts one loss.
#[inline(always)]
pub fn lost(cause: BpfLoss) {
    lost_many(cause, 1);
}

/// Counts losses. Atomic, since a uprobe can be preempted by another on the same CPU.
#[inline(always)]
pub fn lost_many(cause: BpfLoss, count: u64) {
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

/// The source of the reader's wake-up.
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
pub fn emit<T: 'static>(record: &T, full: BpfLoss, wake: Wake) {
    // SAFETY: `entry` is a reserved record of the type. `bpf_ringbuf_output` would cost 30 ns more.
    emit_in_place::<T>(full, wake, |entry| unsafe { entry.copy_from_nonoverlapping(record, 1) });
}

/// Reserves a record in this CPU's ring, lets `fill` write it, and submits it.
///
/// Waking the reader costs 0.3 to 1.8 µs, so its timer mostly drains the rings.
#[inline(always)]
pub fn emit_in_place<T: 'static>(full: BpfLoss, wake: Wake, fill: impl FnOnce(*mut T)) {
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
