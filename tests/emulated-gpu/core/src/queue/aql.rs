//! Compute queues: a ring of AQL packets.
//!
//! Packets launch in order. One with the barrier bit starts after the end of all before it, one
//! without may overlap them. A barrier packet holds back all that follow until it is done. At launch
//! the slot's header turns invalid and `read_dispatch_id` moves on; at the end the completion signal
//! gets the times (when the queue's profiling is on) and is decremented.
//!
//! A dispatch whose work-items want more scratch memory than the queue has waits: the queue says so through its
//! inactive signal, and goes on when the runtime has set that to 0. So it is when memory was given for one dispatch alone,
//! and that is done.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::aql_packet::{self as packet, PACKET_BYTES, Packet, Slot};
use super::{Arrivals, Context, Step, unsupported};
use crate::effects::{Effect, signal};
use crate::log::{Kind, Record};
use crate::sys;
use crate::work::Work;

/// Offsets in `amd_queue_t` (amd_hsa_queue.h; frozen ABI).
mod amd_queue {
    pub const HSA_QUEUE_ID: u64 = 32;
    pub const WRITE_DISPATCH_ID: u64 = 56;
    pub const READ_DISPATCH_ID: u64 = 128;
    pub const SCRATCH_BYTES_OF_A_LANE: u64 = 176;
    pub const QUEUE_PROPERTIES: u64 = 180;
    pub const INACTIVE_SIGNAL: u64 = 192;
    pub const ENABLE_PROFILING: u32 = 1 << 3;
    pub const USE_SCRATCH_ONCE: u32 = 1 << 4;
}

/// What the inactive signal is set to: there is too little scratch memory for waves of 64 lanes; that which was for one
/// dispatch is not needed any more.
const TOO_LITTLE_SCRATCH: u64 = 1;
const SCRATCH_WAS_USED: u64 = 512;

/// Most packets of one queue in one round, so that completions become visible in between.
const BATCH: usize = 512;
/// Time between two looks counts as no more than this: the machine may have stood still, and the
/// producer with it.
const LOOK_NS: u64 = 1_000_000;

/// Packets that other producers had reserved when a doorbell was seen. Of two producers that ring at
/// once, only the later value can be read from memory: the other's packets are taken some time later,
/// much longer than a producer needs from the packet to its doorbell on a busy machine.
#[derive(Debug)]
struct Grace {
    /// Index behind the last.
    upto: u64,
    left_ns: u64,
    seen_ns: u64,
}

impl Grace {
    fn new(upto: u64, left_ns: u64, now: u64) -> Self {
        Self { upto, left_ns, seen_ns: now }
    }

    /// Whether they have had their time.
    fn is_over(&mut self, now: u64) -> bool {
        let passed_ns = now.saturating_sub(self.seen_ns).min(LOOK_NS);
        self.left_ns = self.left_ns.saturating_sub(passed_ns);
        self.seen_ns = now;
        self.left_ns == 0
    }
}

/// An operation that has started.
#[derive(Debug)]
struct Running {
    end_ns: u64,
    index: u64,
    start_ns: u64,
    slot: Slot,
    kernel: usize,
    work: Work,
}

impl PartialEq for Running {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Running {}
impl PartialOrd for Running {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Running {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.end_ns, self.index).cmp(&(other.end_ns, other.index))
    }
}

/// A compute queue.
#[derive(Debug)]
pub struct AqlQueue {
    id: u64,
    node: u32,
    ring: u64,
    slots: u64,
    amd_queue: u64,
    doorbell: u64,
    // Index of the next packet to launch.
    next: u64,
    // Packets below are released by doorbells; the value that was read last.
    released: u64,
    rung: u64,
    grace: Option<Grace>,
    arrivals: Arrivals,
    running: BinaryHeap<Reverse<Running>>,
    last_start_ns: u64,
    last_end_ns: u64,
    // No packet starts before: the end of the last barrier packet.
    not_before_ns: u64,
    // The ends of as many operations as may overlap, those that end last: the next one starts behind the
    // first of these, however late that is looked at.
    ends: BinaryHeap<Reverse<u64>>,
    was_blocked: bool,
    // The inactive signal was set.
    is_inactive: bool,
}

/// Where a queue lives.
#[derive(Clone, Copy, Debug)]
pub struct QueuePlace {
    /// Driver's queue id.
    pub id: u64,
    /// Driver's node id of the GPU.
    pub node: u32,
    /// Address of the ring.
    pub ring: u64,
    /// Its size.
    pub ring_bytes: u64,
    /// Address of the doorbell.
    pub doorbell: u64,
}

impl AqlQueue {
    /// A queue whose `read_dispatch_id` is at `read_index`. Its doorbell starts at −1.
    pub fn new(place: QueuePlace, read_index: u64) -> Self {
        sys::store_u64(place.doorbell, u64::MAX);
        AqlQueue {
            id: place.id,
            node: place.node,
            ring: place.ring,
            slots: place.ring_bytes / PACKET_BYTES,
            amd_queue: read_index - amd_queue::READ_DISPATCH_ID,
            doorbell: place.doorbell,
            next: 0,
            released: 0,
            rung: u64::MAX,
            grace: None,
            arrivals: Arrivals::default(),
            running: BinaryHeap::new(),
            last_start_ns: 0,
            last_end_ns: 0,
            not_before_ns: 0,
            ends: BinaryHeap::new(),
            was_blocked: false,
            is_inactive: false,
        }
    }

    /// Catches up with the clock.
    pub fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let limit = self.look_at_doorbell(cx.config.beyond_doorbell_ns);
        if self.next >= limit && self.running.is_empty() {
            return Step { progressed: false, wake_ns: self.next_look() };
        }
        let now = sys::boot_ns();
        let mut step = Step::default();
        for _ in 0..BATCH {
            step.progressed |= self.retire(now, cx);
            if self.next >= limit {
                break;
            }
            match self.try_launch(now, cx) {
                Launch::Done => step.progressed = true,
                Launch::At(ns) => {
                    step.wake_ns = Some(ns);
                    break;
                }
                Launch::Blocked => break,
            }
        }
        let end = self.running.peek().map(|Reverse(op)| op.end_ns);
        step.and(Step { progressed: false, wake_ns: end })
            .and(Step { progressed: false, wake_ns: self.next_look() })
    }

    fn next_look(&self) -> Option<u64> {
        self.grace.as_ref().map(|grace| grace.seen_ns + LOOK_NS)
    }

    /// Takes note of the doorbell; the index up to which packets may be launched.
    fn look_at_doorbell(&mut self, beyond_doorbell_ns: u64) -> u64 {
        let written = || sys::load_u64(self.amd_queue + amd_queue::WRITE_DISPATCH_ID);
        if beyond_doorbell_ns == 0 {
            return self.release(written());
        }
        let rung = sys::load_u64(self.doorbell);
        let changed = rung != self.rung;
        let due = self.grace.as_mut().is_some_and(|grace| grace.is_over(sys::boot_ns()));
        if !changed && !due && self.next >= self.released {
            return self.released;
        }
        let written = written();
        let mut released = self.released;
        if due {
            released = released.max(self.grace.take().map_or(0, |grace| grace.upto));
        }
        if changed {
            self.rung = rung;
            released = released.max(rung.wrapping_add(1));
            let now = sys::boot_ns();
            self.grace = (written > released).then(|| Grace::new(written, beyond_doorbell_ns, now));
        }
        self.release(released).min(written)
    }

    /// Packets below `upto` may be launched; the index up to which they may.
    fn release(&mut self, upto: u64) -> u64 {
        if upto > self.released {
            self.released = upto;
            // Read after the doorbell: no packet can have been written later than this.
            self.arrivals.note(upto, sys::boot_ns());
        }
        self.released
    }

    /// Whether the queue is active, and there is as much scratch memory as the packet wants; asks for it otherwise.
    fn has_scratch(&mut self, packet: &Packet, cx: &mut Context<'_>) -> bool {
        if self.is_inactive && sys::load_u64(self.inactive_signal() + signal::VALUE) != 0 {
            return false;
        }
        self.is_inactive = false;
        let there = sys::load_u32(self.amd_queue + amd_queue::SCRATCH_BYTES_OF_A_LANE);
        if matches!(*packet, Packet::Dispatch { scratch, .. } if scratch > there) {
            self.become_inactive(TOO_LITTLE_SCRATCH, cx);
        }
        !self.is_inactive
    }

    fn inactive_signal(&self) -> u64 {
        sys::load_u64(self.amd_queue + amd_queue::INACTIVE_SIGNAL)
    }

    fn become_inactive(&mut self, why: u64, cx: &mut Context<'_>) {
        let signal = self.inactive_signal();
        sys::store_u64(signal + signal::VALUE, why);
        cx.effects.push(Effect::Notify(signal));
        self.is_inactive = true;
    }

    /// Finishes what has ended by now.
    fn retire(&mut self, now: u64, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while self.running.peek().is_some_and(|Reverse(op)| op.end_ns <= now) {
            let Some(Reverse(op)) = self.running.pop() else { break };
            self.finish(&op, cx);
            any = true;
        }
        any
    }

    fn finish(&mut self, op: &Running, cx: &mut Context<'_>) {
        let (kind, object, name) = match op.slot.packet {
            Packet::Dispatch { kernel_object, kernarg, grid, workgroup, .. } => {
                let kernel = cx.kernels.get(op.kernel);
                op.work.run(cx.memory);
                kernel.call_host(kernarg, grid, workgroup);
                (Kind::Dispatch, kernel_object, kernel.name.as_str())
            }
            Packet::BarrierAnd(_) => (Kind::BarrierAnd, 0, ""),
            Packet::BarrierOr(_) => (Kind::BarrierOr, 0, ""),
            Packet::BarrierValue { .. } => (Kind::BarrierValue, 0, ""),
            Packet::Pm4 => (Kind::Pm4, 0, ""),
        };
        let ticks = (cx.clock.ticks(op.start_ns), cx.clock.ticks(op.end_ns));
        cx.log.add(&Record {
            kind,
            node: self.node,
            queue: self.id,
            hsa_queue: Some(sys::load_u64(self.amd_queue + amd_queue::HSA_QUEUE_ID)),
            index: op.index,
            name,
            kernel_object: object,
            start_ns: cx.clock.boot_ns(ticks.0),
            end_ns: cx.clock.boot_ns(ticks.1),
            start_ticks: ticks.0,
            end_ticks: ticks.1,
            bytes: op.work.bytes(),
            signal: op.slot.completion,
        });
        let properties = sys::load_u32(self.amd_queue + amd_queue::QUEUE_PROPERTIES);
        if op.slot.completion != 0 {
            let profiled = properties & amd_queue::ENABLE_PROFILING != 0;
            cx.effects.push(Effect::Complete {
                signal: op.slot.completion,
                ticks: profiled.then_some(ticks),
                end_ns: op.end_ns,
            });
        }
        let used = matches!(op.slot.packet, Packet::Dispatch { scratch, .. } if scratch > 0);
        if used && properties & amd_queue::USE_SCRATCH_ONCE != 0 {
            self.become_inactive(SCRATCH_WAS_USED, cx);
        }
    }

    fn try_launch(&mut self, now: u64, cx: &mut Context<'_>) -> Launch {
        let at = self.ring + self.next % self.slots * PACKET_BYTES;
        let header = sys::load_u16(at);
        if packet::is_invalid(header) {
            // Reserved by a producer that has not written it yet.
            return Launch::Blocked;
        }
        let earlier =
            if packet::has_barrier_bit(header) { self.last_end_ns } else { self.last_start_ns };
        let room = if self.ends.len() < cx.config.overlap { None } else { self.ends.peek() };
        let room = room.map_or(0, |&Reverse(end_ns)| end_ns);
        let mut start = self.arrivals.at(self.next).max(earlier).max(self.not_before_ns).max(room);
        if start > now {
            return Launch::At(start);
        }
        let slot = match packet::decode(&sys::read_bytes(at)) {
            Ok(slot) => slot,
            Err(what) => {
                unsupported(format_args!("{what} at index {} of queue {}", self.next, self.id))
            }
        };
        let kernel = match slot.packet {
            Packet::Dispatch { kernel_object, .. } => {
                cx.kernels.find(kernel_object, &cx.config.durations)
            }
            _ => 0,
        };
        let ready = match slot.packet {
            Packet::Dispatch { kernarg, .. } => cx.kernels.get(kernel).is_ready(kernarg),
            barrier => barrier.is_satisfied(),
        };
        if !ready || !self.has_scratch(&slot.packet, cx) {
            self.was_blocked = true;
            return Launch::Blocked;
        }
        if std::mem::take(&mut self.was_blocked) {
            // Something happened while the packet was waiting: the end of an operation of ours, as
            // far as it is known, or else something that the program did just now.
            let value = |s: u64| cx.times.get(s + signal::VALUE);
            let happened =
                slot.packet.dependencies().filter_map(value).filter(|&ns| ns >= start).max();
            start = happened.unwrap_or(now).min(now);
        }
        let (work, ns) = match slot.packet {
            Packet::Dispatch { kernarg, .. } => {
                cx.kernels.get(kernel).plan(kernarg, cx.config, cx.memory)
            }
            Packet::Pm4 => {
                cx.kernels.invalidate();
                (Work::None, cx.config.barrier_ns)
            }
            _ => (Work::None, cx.config.barrier_ns),
        };
        let (index, end_ns) = (self.next, start + ns);
        self.running.push(Reverse(Running { end_ns, index, start_ns: start, slot, kernel, work }));
        self.ends.push(Reverse(end_ns));
        if self.ends.len() > cx.config.overlap {
            self.ends.pop();
        }
        self.last_start_ns = start;
        self.last_end_ns = self.last_end_ns.max(end_ns);
        if !matches!(slot.packet, Packet::Dispatch { .. }) {
            self.not_before_ns = self.not_before_ns.max(end_ns);
        }
        self.next += 1;
        sys::store_u16(at, packet::INVALID_HEADER);
        sys::store_u64(self.amd_queue + amd_queue::READ_DISPATCH_ID, self.next);
        Launch::Done
    }
}

/// What came of trying to launch the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launch {
    Done,
    At(u64),
    Blocked,
}

#[cfg(test)]
#[path = "aql_tests.rs"]
mod tests;
