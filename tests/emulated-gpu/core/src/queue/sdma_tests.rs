//! Tests of a copy queue, with commands as the runtime writes them.

use super::super::bench::{Bench, page, word};
use super::{QueuePlace, SdmaQueue};
use crate::effects::Effect;
use crate::sys;

/// A ring with `words` in it, and what the queue makes of them until `signal`'s value is 0.
fn run(words: &[u32], dep: Option<u64>, signal: u64) -> Bench {
    let (ring, control) = (page(), page());
    for (i, w) in (0..).zip(words) {
        sys::store_u32(word(&ring, 0) + 4 * i, *w);
    }
    let place = QueuePlace {
        id: 1,
        node: 1,
        ring: word(&ring, 0),
        ring_bytes: 8192,
        doorbell: word(&control, 0),
    };
    let mut queue = SdmaQueue::new(place, word(&control, 1), 22);
    let mut bench = Bench::new();
    sys::store_u64(place.doorbell, 4 * words.len() as u64);
    if let Some(dep) = dep {
        for _ in 0..100 {
            bench.round(|cx| queue.step(cx));
        }
        assert_ne!(sys::load_u64(signal), 0, "the copy did not wait");
        sys::store_u64(dep, 0);
    }
    bench.until(|cx| queue.step(cx), || sys::load_u64(signal) == 0);
    assert_eq!(sys::load_u64(word(&control, 1)), 4 * words.len() as u64);
    bench
}

fn split(addr: u64) -> [u32; 2] {
    [addr as u32, (addr >> 32) as u32]
}

#[test]
fn a_copy_command_moves_bytes_takes_times_and_signals() {
    let data = page();
    let src: Vec<u8> = (0..=255).collect();
    let (dst, times, signal, dep) =
        (word(&data, 0), word(&data, 100), word(&data, 200), word(&data, 300));
    sys::store_u64(signal, 1);
    sys::store_u64(dep, 1 << 32 | 1);
    let mut words = Vec::new();
    let mut put = |list: &[u32], addr: Option<u64>, rest: &[u32]| {
        words.extend_from_slice(list);
        words.extend(addr.map(split).into_iter().flatten());
        words.extend_from_slice(rest);
    };
    put(&[8 | 3 << 28 | 1 << 31], Some(dep + 4), &[0, u32::MAX, 0]);
    put(&[8 | 3 << 28 | 1 << 31], Some(dep), &[0, u32::MAX, 0]);
    put(&[13 | 2 << 8], Some(times), &[]);
    put(&[1, 99, 0], Some(src.as_ptr() as u64), &split(dst));
    put(&[1, 155, 0], Some(src.as_ptr() as u64 + 100), &split(dst + 100));
    put(&[13 | 2 << 8], Some(times + 8), &[]);
    put(&[10 | 47 << 25], Some(signal), &[u32::MAX, u32::MAX, 0, 0, 0]);
    put(&[5], Some(times + 16), &[77]);
    put(&[6, 5], None, &[]);

    let bench = run(&words, Some(dep), signal);
    assert_eq!(sys::read_bytes::<256>(dst)[..], src[..]);
    let [start, end, mailbox] = [0, 8, 16].map(|i| sys::load_u64(times + i));
    // One fixed cost, and 256 bytes in two packets, rounded down each.
    assert_eq!(end - start, bench.config.copy_ns + 256 * 1000 / bench.config.copy_bytes_per_us - 1);
    assert!(end <= sys::boot_ns());
    assert_eq!(mailbox, 77);
    assert_eq!(bench.seen.last(), Some(&Effect::Raise(5)));
}

#[test]
fn padding_is_skipped() {
    let data = page();
    let signal = word(&data, 0);
    sys::store_u64(signal, 1);
    let [low, high] = split(signal);
    run(&[0, 0, 0, 10 | 47 << 25, low, high, u32::MAX, u32::MAX, 0, 0, 0], None, signal);
}
