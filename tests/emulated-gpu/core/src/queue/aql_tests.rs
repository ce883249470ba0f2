//! Tests of the packet state machine of a compute queue.

use super::super::bench::{Bench, Page, page, word};
use super::{AqlQueue, Grace, LOOK_NS, QueuePlace, amd_queue};
use crate::effects::Effect;
use crate::sys;

/// Kernels at unmapped addresses are timed no-ops.
const NO_KERNEL: u64 = 0x1000;
const DISPATCH: u16 = 2;
const BARRIER_AND: u16 = 3;
const BARRIER_BIT: u16 = 1 << 8;

/// A queue of 64 packets, and a page of signals, 64 bytes each.
struct Machine {
    ring: Box<Page>,
    control: Box<Page>,
    signals: Box<Page>,
    queue: AqlQueue,
    bench: Bench,
}

impl Machine {
    fn new() -> Self {
        let (ring, control, signals) = (page(), page(), page());
        let place = QueuePlace {
            id: 1,
            node: 1,
            ring: word(&ring, 0),
            ring_bytes: 4096,
            doorbell: word(&control, 100),
        };
        let queue = AqlQueue::new(place, word(&control, 0) + amd_queue::READ_DISPATCH_ID);
        let bench = Bench::new();
        let m = Machine { ring, control, signals, queue, bench };
        for i in 0..64 {
            sys::store_u16(m.slot(i), 1);
        }
        sys::store_u32(
            word(&m.control, 0) + amd_queue::QUEUE_PROPERTIES,
            amd_queue::ENABLE_PROFILING,
        );
        m
    }

    fn slot(&self, index: u64) -> u64 {
        word(&self.ring, 0) + index % 64 * 64
    }

    fn signal(&self, i: usize, value: u64) -> u64 {
        sys::store_u64(word(&self.signals, 8 * i + 1), value);
        word(&self.signals, 8 * i)
    }

    fn value(&self, i: usize) -> u64 {
        sys::load_u64(word(&self.signals, 8 * i + 1))
    }

    /// Writes a packet at an index; the header last.
    fn write(&self, index: u64, header: u16, words: [u64; 7]) {
        for (i, w) in (1..).zip(words) {
            sys::store_u64(self.slot(index) + 8 * i, w);
        }
        sys::store_u16(self.slot(index), header);
    }

    fn dispatch(&self, index: u64, header: u16, completion: u64) {
        self.write(index, header, [0, 0, 0, NO_KERNEL, 0, 0, completion]);
    }

    fn reserve(&self, packets: u64) {
        sys::store_u64(word(&self.control, 0) + amd_queue::WRITE_DISPATCH_ID, packets);
    }

    fn ring(&self, last: u64) {
        sys::store_u64(word(&self.control, 100), last);
    }

    fn read_index(&self) -> u64 {
        sys::load_u64(word(&self.control, 0) + amd_queue::READ_DISPATCH_ID)
    }

    fn round(&mut self) {
        let queue = &mut self.queue;
        self.bench.round(|cx| queue.step(cx));
    }

    fn until_value(&mut self, i: usize, value: u64) {
        let at = word(&self.signals, 8 * i + 1);
        let queue = &mut self.queue;
        self.bench.until(|cx| queue.step(cx), || sys::load_u64(at) == value);
    }

    fn times(&self) -> Vec<(u64, u64)> {
        let ticks = |e: &Effect| match e {
            Effect::Complete { ticks, .. } => *ticks,
            _ => None,
        };
        self.bench.seen.iter().filter_map(ticks).collect()
    }
}

#[test]
fn nothing_runs_before_its_doorbell() {
    let mut m = Machine::new();
    let s = m.signal(0, 2);
    m.dispatch(0, DISPATCH, s);
    m.reserve(1);
    m.round();
    assert_eq!(m.read_index(), 0);
    m.ring(0);
    m.until_value(0, 1);
    assert_eq!(m.read_index(), 1);
    assert_eq!(sys::load_u16(m.slot(0)), 1, "the header is invalid again");
}

#[test]
fn a_reserved_slot_holds_back_the_ones_behind_it() {
    let mut m = Machine::new();
    let s = m.signal(0, 2);
    m.dispatch(1, DISPATCH, s);
    m.reserve(2);
    m.ring(1);
    for _ in 0..100 {
        m.round();
    }
    assert_eq!((m.read_index(), m.value(0)), (0, 2));
    m.dispatch(0, DISPATCH, s);
    m.until_value(0, 0);
    assert_eq!(m.read_index(), 2);
}

#[test]
fn packets_with_the_barrier_bit_follow_on_one_another() {
    let mut m = Machine::new();
    let s = m.signal(0, 5);
    for i in 0..5 {
        m.dispatch(i, DISPATCH | BARRIER_BIT, s);
    }
    m.reserve(5);
    m.ring(4);
    m.until_value(0, 0);
    let times = m.times();
    assert_eq!(times.len(), 5);
    assert!(times.windows(2).all(|w| w[0].1 == w[1].0), "{times:?}");
    assert!(times.iter().all(|t| t.1 - t.0 == 2000), "{times:?}");
    assert!(times[4].1 <= sys::boot_ns(), "nothing ends in the future");
}

#[test]
fn packets_without_it_overlap_as_far_as_there_is_room() {
    let mut m = Machine::new();
    m.bench.config.overlap = 3;
    let s = m.signal(0, 4);
    for i in 0..4 {
        m.dispatch(i, DISPATCH, s);
    }
    m.reserve(4);
    m.ring(3);
    m.until_value(0, 0);
    let t = m.times();
    assert_eq!((t[0].0, t[0].0), (t[1].0, t[2].0));
    assert_eq!(t[3].0, t[0].1, "the fourth waits for the first");
}

#[test]
fn a_barrier_waits_and_holds_back_what_follows() {
    let mut m = Machine::new();
    let (dep, done) = (m.signal(0, 1), m.signal(1, 2));
    m.write(0, BARRIER_AND, [dep, 0, 0, 0, 0, 0, done]);
    m.dispatch(1, DISPATCH, done);
    m.reserve(2);
    m.ring(1);
    for _ in 0..100 {
        m.round();
    }
    assert_eq!((m.read_index(), m.value(1)), (0, 2));
    let before = sys::boot_ns();
    m.signal(0, 0);
    m.until_value(1, 0);
    let t = m.times();
    assert!(t[0].0 >= before && t[1].0 >= t[0].1, "{t:?}");
}

#[test]
fn a_dispatch_waits_for_its_scratch_memory() {
    let mut m = Machine::new();
    let (done, inactive) = (m.signal(0, 3), m.signal(1, 0));
    let control = word(&m.control, 0);
    sys::store_u64(control + amd_queue::INACTIVE_SIGNAL, inactive);
    for (index, scratch) in [(0, 0), (1, 256), (2, 0)] {
        m.write(index, DISPATCH, [0, 0, scratch, NO_KERNEL, 0, 0, done]);
    }
    m.reserve(3);
    m.ring(2);
    m.until_value(1, super::TOO_LITTLE_SCRATCH);
    for _ in 0..100 {
        m.round();
    }
    assert_eq!(m.read_index(), 1);
    // For this one alone: the queue waits again when it is done.
    sys::store_u32(control + amd_queue::SCRATCH_BYTES_OF_A_LANE, 256);
    sys::store_u32(control + amd_queue::QUEUE_PROPERTIES, amd_queue::USE_SCRATCH_ONCE);
    m.signal(1, 0);
    m.until_value(1, super::SCRATCH_WAS_USED);
    sys::store_u32(control + amd_queue::SCRATCH_BYTES_OF_A_LANE, 0);
    m.signal(1, 0);
    m.until_value(0, 0);
    assert_eq!((m.read_index(), m.value(1)), (3, 0));
}

#[test]
fn a_doorbell_lost_to_another_producer_is_made_up_for() {
    let mut m = Machine::new();
    let s = m.signal(0, 3);
    for i in 0..3 {
        m.dispatch(i, DISPATCH, s);
    }
    m.reserve(3);
    m.ring(2);
    m.ring(0);
    m.until_value(0, 0);
}

#[test]
fn a_packet_processor_may_take_what_nobody_has_rung_for() {
    let mut m = Machine::new();
    m.bench.config.beyond_doorbell_ns = 0;
    let s = m.signal(0, 2);
    m.dispatch(0, DISPATCH, s);
    m.dispatch(1, DISPATCH, s);
    m.reserve(3);
    m.until_value(0, 0);
    assert_eq!(m.read_index(), 2);
    m.dispatch(2, DISPATCH, m.signal(0, 1));
    m.until_value(0, 0);
}

#[test]
fn a_machine_that_stood_still_loses_no_doorbell() {
    let given_ns = 200 * LOOK_NS;
    let mut grace = Grace::new(1, given_ns, 0);
    let mut now = 100 * given_ns;
    assert!(!grace.is_over(now), "one look");
    let looks = (1..).find(|_| {
        now += LOOK_NS;
        grace.is_over(now)
    });
    assert_eq!(looks, Some(given_ns / LOOK_NS - 1));
}

#[test]
fn the_ring_wraps() {
    let mut m = Machine::new();
    let s = m.signal(0, 200);
    for i in 0..200 {
        m.dispatch(i, DISPATCH | BARRIER_BIT, s);
        m.reserve(i + 1);
        m.ring(i);
        m.until_value(0, 199 - i);
    }
    assert_eq!(m.read_index(), 200);
}

#[test]
fn without_profiling_signals_get_no_times() {
    let mut m = Machine::new();
    sys::store_u32(word(&m.control, 0) + amd_queue::QUEUE_PROPERTIES, 0);
    let s = m.signal(0, 1);
    m.dispatch(0, DISPATCH, s);
    m.reserve(1);
    m.ring(0);
    m.until_value(0, 0);
    assert!(m.times().is_empty());
}
