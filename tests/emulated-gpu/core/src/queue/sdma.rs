//! Copy queues: a ring of SDMA packets, run one after the other.
//!
//! The runtime writes [poll…] [timestamp] copies [timestamp] atomic [fence, trap] for each copy
//! command. All packets up to the atomic make one operation in the log. Indices are bytes and never
//! wrap; the doorbell holds the index behind the last packet.

use super::aql::QueuePlace;
use super::sdma_packet::{self as packet, MAX_WORDS, Packet};
use super::{Arrivals, Context, Step, unsupported};
use crate::effects::Effect;
use crate::log::{Kind, Record};
use crate::sys;
use crate::work::{Work, transfer_ns};

/// Most packets in one round.
const BATCH: usize = 512;

/// The copy command being worked on.
#[derive(Debug)]
struct Operation {
    kind: Kind,
    direction: &'static str,
    index: u64,
    start_ns: u64,
    bytes: u64,
}

/// A copy queue.
#[derive(Debug)]
pub struct SdmaQueue {
    place: QueuePlace,
    read_index: u64,
    count_bits: u32,
    // Byte index of the next packet.
    next: u64,
    released: u64,
    arrivals: Arrivals,
    // Emulated time up to which the engine has worked.
    time_ns: u64,
    was_blocked: bool,
    operation: Option<Operation>,
    // Bytes that arrive at `time_ns`.
    moving: Work,
}

impl SdmaQueue {
    /// A queue that publishes its progress at `read_index`.
    pub fn new(place: QueuePlace, read_index: u64, count_bits: u32) -> Self {
        sys::store_u64(place.doorbell, 0);
        SdmaQueue {
            place,
            read_index,
            count_bits,
            next: 0,
            released: 0,
            arrivals: Arrivals::default(),
            time_ns: 0,
            was_blocked: false,
            operation: None,
            moving: Work::None,
        }
    }

    /// Catches up with the clock.
    pub fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let rung = sys::load_u64(self.place.doorbell);
        if rung > self.released {
            self.released = rung;
            self.arrivals.note(rung, sys::boot_ns());
        }
        if self.next >= self.released && self.moving == Work::None {
            return Step::default();
        }
        let now = sys::boot_ns();
        let first = self.next;
        let mut wake_ns = None;
        for _ in 0..BATCH {
            if self.time_ns > now {
                wake_ns = Some(self.time_ns);
                break;
            }
            std::mem::replace(&mut self.moving, Work::None).run(cx.memory);
            if self.next >= self.released || !self.run_packet(now, cx) {
                break;
            }
        }
        if self.next != first {
            sys::store_u64(self.read_index, self.next);
        }
        Step { progressed: self.next != first, wake_ns }
    }

    fn words(&self) -> [u32; MAX_WORDS] {
        std::array::from_fn(|i| {
            let offset = (self.next + 4 * i as u64) % self.place.ring_bytes;
            sys::load_u32(self.place.ring + offset)
        })
    }

    /// Runs the next packet; whether it could be run.
    fn run_packet(&mut self, now: u64, cx: &mut Context<'_>) -> bool {
        self.time_ns = self.time_ns.max(self.arrivals.at(self.next));
        if self.time_ns > now {
            return false;
        }
        let (packet, words) = match packet::decode(&self.words(), self.count_bits) {
            Ok(decoded) => decoded,
            Err(what) => {
                unsupported(format_args!("{what} at byte {} of queue {}", self.next, self.place.id))
            }
        };
        match packet {
            Packet::Nop => {}
            Packet::Copy(work) => self.start(Kind::Copy, work, cx),
            Packet::Fill(work) => self.start(Kind::Fill, work, cx),
            Packet::Poll { addr, reference, mask, function } => {
                if !Packet::compare(function, sys::load_u32(addr) & mask, reference) {
                    self.was_blocked = true;
                    return false;
                }
                if std::mem::take(&mut self.was_blocked) {
                    let completed = cx.times.get(addr & !7).filter(|&ns| ns >= self.time_ns);
                    self.time_ns = completed.unwrap_or(now).min(now);
                }
            }
            Packet::Timestamp(addr) => {
                cx.effects.push(Effect::Store64(addr, cx.clock.ticks(self.time_ns)));
            }
            Packet::Add64(addr, delta) => {
                self.log_operation(addr, cx);
                cx.effects.push(Effect::Add64 { addr, delta, end_ns: self.time_ns });
            }
            Packet::Fence(addr, value) => cx.effects.push(Effect::Store32(addr, value)),
            Packet::Trap(event) => cx.effects.push(Effect::Raise(event)),
        }
        self.next += 4 * words as u64;
        true
    }

    /// Starts moving bytes. The fixed cost of a copy counts once for each operation.
    fn start(&mut self, kind: Kind, work: Work, cx: &Context<'_>) {
        let bytes = work.bytes();
        let mut ns = transfer_ns(cx.config, bytes);
        match &mut self.operation {
            Some(operation) => {
                operation.bytes += bytes;
                ns -= cx.config.copy_ns;
            }
            None => {
                let direction = direction(&work, cx);
                let (index, start_ns) = (self.next, self.time_ns);
                self.operation = Some(Operation { kind, direction, index, start_ns, bytes });
            }
        }
        self.time_ns += ns;
        self.moving = work;
    }

    fn log_operation(&mut self, signal_value: u64, cx: &mut Context<'_>) {
        let now_only = Operation {
            kind: Kind::Sync,
            direction: "",
            index: self.next,
            start_ns: self.time_ns,
            bytes: 0,
        };
        let op = self.operation.take().unwrap_or(now_only);
        let (start_ticks, end_ticks) = (cx.clock.ticks(op.start_ns), cx.clock.ticks(self.time_ns));
        cx.log.add(&Record {
            kind: op.kind,
            node: self.place.node,
            queue: self.place.id,
            hsa_queue: None,
            index: op.index,
            name: op.direction,
            kernel_object: 0,
            start_ns: cx.clock.boot_ns(start_ticks),
            end_ns: cx.clock.boot_ns(end_ticks),
            start_ticks,
            end_ticks,
            bytes: op.bytes,
            signal: signal_value.wrapping_sub(crate::effects::signal::VALUE),
        });
    }
}

/// Between whose memories the bytes move.
fn direction(work: &Work, cx: &Context<'_>) -> &'static str {
    let (src, dst) = match work {
        Work::Copy { src, dst, .. } | Work::CopyRect { src, dst, .. } => (*src, *dst),
        Work::Fill { .. } | Work::None => return "",
    };
    match (cx.memory.node_of(src) == 0, cx.memory.node_of(dst) == 0) {
        (true, true) => "H2H",
        (true, false) => "H2D",
        (false, true) => "D2H",
        (false, false) => "D2D",
    }
}

#[cfg(test)]
#[path = "sdma_tests.rs"]
mod tests;
