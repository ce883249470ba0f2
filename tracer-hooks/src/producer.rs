//! The state that threads that ring for a queue's packets share.

use core::ops::RangeInclusive;
use core::sync::atomic::Ordering;

use crate::abi::{AmdQueue, packet_type};
use crate::pool::Batch;
use crate::{packets, view};

/// The data that the holder of the queue's lock works with.
pub struct Producer {
    /// The recording that the indices belong to. In any other they are stale.
    pub epoch: u32,
    /// The first packet that this recording instruments.
    pub start: u64,
    /// The GPU had consumed the packets below this one before the first doorbell of this recording.
    pub consumed: u64,
    /// The first packet that nobody has looked at.
    pub next: u64,
    /// Packets below this one were held back for too long: no doorbell is held back for them any more.
    pub let_pass: u64,
    /// Signals at hand.
    pub cache: Batch,
    /// One thread *finds* a packet as it goes through the queue, and its producer *rings for* it; these can
    /// be two threads, in either order. The first leaves the packet's sequence number here, in the slot of
    /// its index, and the second takes it. A number below `next` is of a packet that was found and whose own
    /// doorbell, which tells who enqueued it, is to come. One from `next` on is of a packet that was rung for
    /// and is to be found.
    numbers: Vec<Number>,
}

/// The sequence number of a packet, left for the thread that comes second.
#[derive(Clone, Copy)]
pub struct Number {
    /// The packet's.
    pub index: u64,
    /// Its number.
    pub sequence: u64,
    /// When it was rung for, or found.
    pub time_ns: u64,
}

impl Number {
    const NONE: Self = Self { index: u64::MAX, sequence: 0, time_ns: 0 };
}

/// Slots of [`Producer::numbers`]: how far the producers of a queue can be apart. One that is not
/// scheduled for 100 ms can be thousands of packets behind.
pub const NUMBERS: usize = 16384;

impl Producer {
    /// It has looked at nothing.
    pub const fn new() -> Self {
        Self {
            epoch: 0,
            start: 0,
            consumed: 0,
            next: 0,
            let_pass: 0,
            cache: Batch::new(),
            numbers: Vec::new(),
        }
    }

    /// Takes the number that was kept for the packet at `index`.
    #[inline]
    pub fn take_number(&mut self, index: u64) -> Option<Number> {
        let slot = self.numbers.get_mut(index as usize % NUMBERS)?;
        (slot.index == index).then(|| core::mem::replace(slot, Number::NONE))
    }

    /// Keeps the number of a packet.
    #[inline]
    pub fn keep_number(&mut self, number: Number) {
        if self.numbers.is_empty() && self.numbers.try_reserve_exact(NUMBERS).is_ok() {
            self.numbers.resize(NUMBERS, Number::NONE);
        }
        if let Some(slot) = self.numbers.get_mut(number.index as usize % NUMBERS) {
            *slot = number;
        }
    }

    /// A recording begins with the packet `at`.
    pub fn begin(&mut self, epoch: u32, at: u64) {
        self.epoch = epoch;
        self.start = at;
        self.consumed = 0;
        self.next = at;
        self.let_pass = 0;
        self.numbers.fill(Number::NONE);
    }

    /// The first doorbell of this recording on a queue that existed before. Other threads may publish and
    /// ring for the packets that they have reserved, and the GPU may consume them, at any moment: recording
    /// begins behind those. It begins with the caller's own packets if they are the last reserved ones, which
    /// no other doorbell covers. Returns how many operations before that are in the queue, or may become
    /// some: they are left as they are.
    pub fn meet(&mut self, epoch: u32, amd: &'static AmdQueue, own: RangeInclusive<u64>) -> u64 {
        let read = amd.read_dispatch_id.load(Ordering::Acquire);
        let write = amd.write_dispatch_id.load(Ordering::Acquire);
        let start = if own.end().wrapping_add(1) == write { *own.start() } else { write };
        self.begin(epoch, start);
        self.consumed = read.min(start);
        let Some(packets) = view::packets(amd) else { return 0 };
        let first = read.max(start.saturating_sub(packets.len() as u64));
        let before = (first..start).filter(|&index| {
            packets.get(index as usize & (packets.len() - 1)).is_some_and(|packet| {
                let first = packet.0[0].load(Ordering::Acquire);
                // The slot of a packet that is not published, or that the GPU has just taken, counts as well.
                first as u8 == packet_type::INVALID
                    || packets::is_operation(first, packet.0[7].load(Ordering::Relaxed))
            })
        });
        before.count() as u64
    }
}
