//! The policy: what is recorded where, and when not at all.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use tracer_common::shim::{
    Agent, Barrier, Complete, Copy, Dispatch, HEARTBEAT_TIMEOUT_NS, Loss, Queue,
    RUNTIME_CLOCK_ERROR_NS, Symbol, control, kind, state,
};
use tracer_hooks::Sink;
use zerocopy::{FromBytes as _, Immutable, IntoBytes};

use crate::backlog::Backlog;
use crate::memory::Memory;
use crate::{entry, rings};

/// Writes into the shared memory.
pub struct Recorder {
    memory: OnceLock<Memory>,
    backlog: Backlog,
    /// What waits is worth waiting for: somebody reads.
    read: AtomicBool,
}

/// The one recorder of the process.
pub static RECORDER: Recorder = Recorder::new();

/// A record as words. Every record's size is a multiple of 8.
fn words<const N: usize, T: IntoBytes + Immutable>(record: &T) -> [u64; N] {
    <[u64; N]>::read_from_bytes(record.as_bytes()).unwrap_or([0; N])
}

const DISPATCH_WORDS: usize = size_of::<Dispatch>() / 8;
const BARRIER_WORDS: usize = size_of::<Barrier>() / 8;
const COPY_WORDS: usize = size_of::<Copy>() / 8;
const COMPLETE_WORDS: usize = size_of::<Complete>() / 8;
const SYMBOL_WORDS: usize = size_of::<Symbol>() / 8;
const AGENT_WORDS: usize = size_of::<Agent>() / 8;
const QUEUE_WORDS: usize = size_of::<Queue>() / 8;

impl Recorder {
    const fn new() -> Self {
        Self { memory: OnceLock::new(), backlog: Backlog::new(), read: AtomicBool::new(false) }
    }

    /// Uses `memory` from now on; the first one stays.
    pub fn connect(&self, memory: Memory) {
        let _ = self.memory.set(memory);
    }

    /// The memory, once there is one.
    pub fn memory(&self) -> Option<&Memory> {
        self.memory.get()
    }

    /// Writes a record into the calling thread's ring, numbering it unless it has a number.
    #[inline]
    fn record<const N: usize, T: IntoBytes + Immutable>(
        &self,
        kind: u32,
        now_ns: u64,
        record: &mut T,
        number: impl FnOnce(&mut T) -> &mut u64,
    ) -> bool {
        let Some(memory) = self.memory() else { return false };
        let Some(ring) = rings::mine(memory, now_ns) else {
            memory.lost(Loss::NO_RING, 1);
            return false;
        };
        let Some(producer) = memory.producer(ring) else { return false };
        let number = number(record);
        let fresh = *number == 0;
        if fresh {
            *number = rings::next_number(ring);
        }
        let taken = producer.push(kind, [&words::<N, T>(record), &[]]);
        if !taken {
            memory.lost(Loss::OPERATION_RING_FULL, 1);
        } else if fresh {
            rings::used_number(ring);
        }
        taken
    }

    fn wait_for_room(&self, kind: u32, words: Vec<u64>) {
        if !self.backlog.push(kind, words) {
            self.lost(Loss::NO_RING, 1);
        }
    }
}

impl Sink for Recorder {
    fn wanted(&self, now_ns: u64) -> bool {
        let wanted = self.memory().is_some_and(|memory| {
            let heartbeat = memory.control(control::HEARTBEAT_NS);
            memory.control(control::RECORD) == 1
                && now_ns.saturating_sub(heartbeat) < HEARTBEAT_TIMEOUT_NS
        });
        self.read.store(wanted, Ordering::Relaxed);
        wanted
    }

    fn reserve(&self, now_ns: u64) -> Option<u64> {
        let ring = rings::mine(self.memory()?, now_ns)?;
        let number = rings::next_number(ring);
        rings::used_number(ring);
        Some(number)
    }

    #[inline]
    fn dispatch(&self, record: &mut Dispatch) -> bool {
        let now = record.enqueue_ns;
        self.record::<DISPATCH_WORDS, _>(kind::DISPATCH, now, record, |r| &mut r.sequence)
    }

    fn barrier(&self, record: &mut Barrier) -> bool {
        let now = record.enqueue_ns;
        self.record::<BARRIER_WORDS, _>(kind::BARRIER, now, record, |r| &mut r.sequence)
    }

    fn copy(&self, record: &mut Copy) -> bool {
        let now = record.enqueue_ns;
        self.record::<COPY_WORDS, _>(kind::COPY, now, record, |r| &mut r.sequence)
    }

    #[inline]
    fn enqueued(&self, sequence: u64, own: bool) {
        entry::fire(sequence, own);
    }

    fn can_complete(&self, now_ns: u64) -> bool {
        self.memory().is_some_and(|memory| rings::mine(memory, now_ns).is_some())
    }

    fn complete(&self, record: Complete) {
        let Some(memory) = self.memory() else { return };
        match rings::mine(memory, record.end_ns).and_then(|ring| memory.producer(ring)) {
            Some(producer) => {
                if !producer.push(kind::COMPLETE, [&words::<COMPLETE_WORDS, _>(&record), &[]]) {
                    memory.lost(Loss::COMPLETION_RING_FULL, 1);
                }
            }
            None => memory.lost(Loss::NO_RING, 1),
        }
    }

    fn symbol(&self, record: Symbol, name: &[u8]) {
        let mut frame = words::<SYMBOL_WORDS, _>(&record).to_vec();
        frame.extend(name.chunks(8).map(|part| {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(bytes)
        }));
        self.wait_for_room(kind::SYMBOL, frame);
    }

    fn agent(&self, record: Agent) {
        self.wait_for_room(kind::AGENT, words::<AGENT_WORDS, _>(&record).to_vec());
    }

    fn queue(&self, record: Queue) {
        self.wait_for_room(kind::QUEUE, words::<QUEUE_WORDS, _>(&record).to_vec());
    }

    fn lost(&self, cause: Loss, count: u64) {
        if let Some(memory) = self.memory() {
            memory.lost(cause, count);
        }
    }

    fn state(&self, state: u64) {
        if state == state::ACTIVE {
            // All of it is told again.
            self.backlog.clear();
        }
        if let Some(memory) = self.memory() {
            memory.set_control(control::CLOCK_ERROR_NS, RUNTIME_CLOCK_ERROR_NS);
            memory.set_control(control::STATE, state);
        }
    }

    fn housekeeping(&self, now_ns: u64) -> bool {
        let Some(memory) = self.memory() else { return false };
        let Some(ring) = rings::mine(memory, now_ns) else { return false };
        let more = self.backlog.drain(
            || memory.room(ring),
            |kind, words| {
                if let Some(producer) = memory.producer(ring) {
                    producer.push(kind, [words, &[]]);
                }
            },
        );
        more && self.read.load(Ordering::Relaxed)
    }
}

/// Uses the environment's memory; see [`crate::memory::connect`].
pub fn connect() -> bool {
    if RECORDER.memory().is_some() {
        // After `hsa_shut_down` and another `hsa_init`. A forked child installs nothing.
        return true;
    }
    match crate::memory::connect() {
        Ok(memory) => {
            RECORDER.connect(memory);
            true
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::memory;
    use tracer_common::ring::MAX_FRAME_WORDS;

    #[test]
    fn nobody_reading_means_not_wanted() {
        let recorder = Recorder::new();
        assert!(!recorder.wanted(5));
        let memory = memory(1);
        recorder.connect(memory);
        let now = 100 * HEARTBEAT_TIMEOUT_NS;
        assert!(!recorder.wanted(now));
        memory.set_control(control::RECORD, 1);
        assert!(!recorder.wanted(now), "no heartbeat yet");
        memory.set_control(control::HEARTBEAT_NS, now - HEARTBEAT_TIMEOUT_NS + 1);
        assert!(recorder.wanted(now));
        assert!(recorder.wanted(now - HEARTBEAT_TIMEOUT_NS), "a heartbeat from the future");
        assert!(!recorder.wanted(now + 1), "stale");
        memory.set_control(control::HEARTBEAT_NS, now);
        memory.set_control(control::RECORD, 0);
        assert!(!recorder.wanted(now));
    }

    #[test]
    fn records_are_numbered_only_when_they_are_taken() {
        let recorder = Recorder::new();
        recorder.connect(memory(1));
        let mut numbers = Vec::new();
        let mut dropped = 0;
        for _ in 0..200 {
            let mut record = Dispatch { enqueue_ns: 1, ..Dispatch::default() };
            if recorder.dispatch(&mut record) {
                numbers.push(record.sequence);
            } else {
                dropped += 1;
            }
        }
        assert!(dropped > 0, "4 KiB hold 46 dispatches");
        let first = numbers[0];
        let count = numbers.len() as u64;
        assert_eq!(numbers, (first..first + count).collect::<Vec<_>>());
        assert!(size_of::<Dispatch>() / 8 < MAX_FRAME_WORDS);
    }
}
