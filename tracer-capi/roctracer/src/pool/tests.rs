//! The semantics of pools, as roctracer has them and as they are promised.

#![expect(unsafe_code, reason = "reads what records point at; forks")]

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, OnceLock};

use tracer_common::activity::Domain;

use super::*;

/// Ten records in each buffer, as in AMD's own test.
const TEN: usize = 10 * RECORD;

/// The records of a delivery, and the text that each points at.
type Delivery = Vec<(ActivityRecord, Option<CString>)>;

/// The deliveries that a callback has been given.
#[derive(Default)]
struct Seen(Arc<Mutex<Vec<Delivery>>>);

impl Seen {
    fn consumer(&self) -> Consumer {
        let seen = Arc::clone(&self.0);
        Box::new(move |records| {
            let text = |record: &ActivityRecord| {
                let at = record.bytes_or_name as usize;
                // SAFETY: the tests point at texts that end.
                (at != 0).then(|| unsafe { CStr::from_ptr(at as *const _) }.to_owned())
            };
            let records = records.iter().map(|record| (*record, text(record))).collect();
            seen.lock().expect("no panic").push(records);
        })
    }

    /// The number of records of each delivery.
    fn deliveries(&self) -> Vec<usize> {
        self.0.lock().expect("no panic").iter().map(Vec::len).collect()
    }

    fn records(&self) -> Delivery {
        self.0.lock().expect("no panic").concat()
    }

    fn ids(&self) -> Vec<u64> {
        self.records().iter().map(|(record, _)| record.correlation_id).collect()
    }
}

fn pool(buffer_bytes: usize, consumer: Consumer) -> &'static Pool {
    let properties = Properties { buffer_bytes, allocator: system_allocator(), consumer };
    Pool::open(properties).expect("a pool")
}

fn record(id: u64) -> ActivityRecord {
    ActivityRecord { domain: Domain::HIP_OPS, correlation_id: id, ..ActivityRecord::default() }
}

/// A text of this many bytes, with its end.
fn text(bytes: usize) -> CString {
    CString::new(vec![b'x'; bytes - 1]).expect("no zero within")
}

fn address(text: &CString) -> u64 {
    text.as_ptr() as u64
}

/// Waits for a condition that another thread makes true.
fn until(mut condition: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !condition() {
        assert!(begin.elapsed().as_secs() < 60, "it never came true");
        std::thread::yield_now();
    }
}

/// AMD's test 1: a record and its data fill a buffer exactly.
#[test]
fn data_that_fits_is_copied() {
    let seen = Seen::default();
    let pool = pool(TEN, seen.consumer());
    let data = text(TEN - RECORD);
    pool.write_with(&record(1), data.as_bytes_with_nul()).expect("open");
    assert_eq!(seen.deliveries(), []);
    pool.flush();
    assert_eq!(seen.deliveries(), [1]);
    let (delivered, name) = seen.records()[0].clone();
    assert_ne!(delivered.bytes_or_name, address(&data));
    assert_eq!(name, Some(data));
    pool.close();
}

/// A thread that writes has taken a place, and not filled it, when a handler of a signal finds the buffer full: the
/// thread that empties the buffer waits for that place.
#[test]
fn handlers_of_signals_wait_for_nobody() {
    let seen = Seen::default();
    let pool = pool(TEN, seen.consumer());
    // SAFETY: it lives for ever.
    let open = unsafe { pool.open.load(Ordering::Acquire).as_ref() }.expect("open");
    let place = open.take(1, 0).expect("empty");
    WRITES.set(true);
    for id in 1..10 {
        pool.write(&record(id)).expect("a place");
    }
    assert_eq!(pool.write(&record(10)), Err(Error::NoMemory));
    WRITES.set(false);
    place.fill([&record(0)], &[]);
    pool.flush();
    assert_eq!(seen.ids(), (0..10).collect::<Vec<_>>());
    pool.close();
}

/// AMD's test 2: data that does not fit beside a record goes into the next buffer, with the record.
#[test]
fn record_and_data_stay_together() {
    let seen = Seen::default();
    let pool = pool(TEN, seen.consumer());
    let data = text(TEN - RECORD);
    pool.write(&record(1)).expect("open");
    pool.write_with(&record(2), data.as_bytes_with_nul()).expect("open");
    pool.flush();
    assert_eq!(seen.deliveries(), [1, 1]);
    assert_eq!(seen.ids(), [1, 2]);
    let (delivered, name) = seen.records()[1].clone();
    assert_ne!(delivered.bytes_or_name, address(&data));
    assert_eq!(name, Some(data));
    pool.close();
}

/// AMD's test 3: data that fits into no buffer stays the writer's, and is delivered before the writer goes on.
#[test]
fn data_that_never_fits_is_delivered_at_once() {
    let seen = Seen::default();
    let pool = pool(TEN, seen.consumer());
    let data = text(TEN - RECORD + 1);
    pool.write_with(&record(1), data.as_bytes_with_nul()).expect("open");
    assert_eq!(seen.deliveries(), [1]);
    let (delivered, name) = seen.records()[0].clone();
    assert_eq!(delivered.bytes_or_name, address(&data));
    assert_eq!(name.as_ref(), Some(&data));
    pool.flush();
    assert_eq!(seen.deliveries(), [1], "nothing was left");
    pool.close();
}

/// AMD's test 4, with 64 threads: each record once, in the order of its thread, in full buffers.
#[test]
fn many_threads_fill_whole_buffers() {
    const THREADS: u64 = 64;
    const RECORDS: u64 = 1000;
    let seen = Seen::default();
    let pool = pool(TEN, seen.consumer());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for n in 0..RECORDS {
                    pool.write(&record(thread << 32 | n)).expect("open");
                }
            });
        }
    });
    pool.flush();
    let deliveries = seen.deliveries();
    assert_eq!(deliveries.len() as u64, THREADS * RECORDS / 10);
    assert!(deliveries.iter().all(|&records| records == 10));
    let mut next: HashMap<u64, u64> = HashMap::new();
    for id in seen.ids() {
        let expected = next.entry(id >> 32).or_default();
        assert_eq!(id & 0xFFFF_FFFF, *expected, "of thread {}", id >> 32);
        *expected += 1;
    }
    assert!((0..THREADS).all(|thread| next.get(&thread) == Some(&RECORDS)));
    pool.close();
}

/// A callback that goes on when it is told to, and says that it was called.
fn held(seen: &Seen) -> (Consumer, Sender<()>, Receiver<usize>) {
    let ((go, wait), (say, called)) = (channel(), channel());
    let mut consumer = seen.consumer();
    let held: Consumer = Box::new(move |records| {
        let _ = say.send(records.len());
        // When nobody is left to tell it goes on by itself.
        let _ = wait.recv();
        consumer(records);
    });
    (held, go, called)
}

#[test]
fn writers_wait_for_a_slow_callback_and_lose_nothing() {
    let seen = Seen::default();
    let (consumer, go, called) = held(&seen);
    let pool = pool(TEN, consumer);
    let written = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&written);
    let writer = std::thread::spawn(move || {
        for id in 0..100 {
            pool.write(&record(id)).expect("open");
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    assert_eq!(called.recv(), Ok(10));
    // One buffer with the callback and one full: the 21st waits.
    until(|| pool.lock().waiting == 1);
    assert_eq!(written.load(Ordering::SeqCst), 20);
    assert_eq!(seen.deliveries(), []);
    drop(go);
    writer.join().expect("no panic");
    pool.flush();
    assert_eq!(seen.ids(), (0..100).collect::<Vec<_>>());
    pool.close();
}

#[test]
fn flush_returns_when_all_was_delivered() {
    let seen = Seen::default();
    let (consumer, go, called) = held(&seen);
    let pool = pool(TEN, consumer);
    // Ten with the callback, then one in the active buffer.
    (0..11).for_each(|id| pool.write(&record(id)).expect("open"));
    assert_eq!(called.recv(), Ok(10));
    let flusher = std::thread::spawn(|| pool.flush());
    until(|| pool.lock().flush_to == 2);
    go.send(()).expect("a callback waits");
    assert_eq!(called.recv(), Ok(1));
    assert!(!flusher.is_finished(), "the second delivery has not happened");
    go.send(()).expect("a callback waits");
    flusher.join().expect("no panic");
    assert_eq!(seen.deliveries(), [10, 1]);
    pool.flush();
    assert_eq!(seen.deliveries(), [10, 1], "nothing to flush, nothing delivered");
    drop(go);
    pool.close();
}

/// A writer that is stopped with a place that it has taken holds up delivery, and no other writer but for room.
#[test]
fn stopped_writer_is_waited_for_by_who_delivers() {
    let seen = Seen::default();
    let pool = pool(TEN, seen.consumer());
    // SAFETY: a buffer of the pool's own, which lives for ever.
    let open = unsafe { pool.open.load(Ordering::Acquire).as_ref() }.expect("an open pool");
    let place = open.take(1, 0).expect("room");
    (1..15).for_each(|id| pool.write(&record(id)).expect("open"));
    let flusher = std::thread::spawn(|| pool.flush());
    until(|| pool.lock().flush_to == 2);
    assert!(seen.deliveries().is_empty() && !flusher.is_finished());
    place.fill([&record(0)], &[]);
    flusher.join().expect("no panic");
    assert_eq!(seen.deliveries(), [10, 5]);
    assert_eq!(seen.ids(), (0..15).collect::<Vec<_>>());
    pool.close();
}

#[test]
fn pairs_are_never_divided() {
    let seen = Seen::default();
    // Room for three records, and a rest.
    let pool = pool(3 * RECORD + 5, seen.consumer());
    pool.write(&record(1)).expect("open");
    pool.write_pair(&record(2), &record(3)).expect("open");
    pool.write_pair(&record(4), &record(5)).expect("open");
    pool.write_pair(&record(6), &record(7)).expect("open");
    pool.close();
    assert_eq!(seen.deliveries(), [3, 2, 2]);
    assert_eq!(seen.ids(), (1..=7).collect::<Vec<_>>());
}

#[test]
fn smallest_pool_holds_a_pair() {
    let seen = Seen::default();
    let pool = pool(0, seen.consumer());
    pool.write_pair(&record(1), &record(2)).expect("open");
    pool.write(&record(3)).expect("open");
    pool.close();
    assert_eq!(seen.deliveries(), [2, 1]);
}

/// The sizes that the allocator was asked for, in order.
fn recorded_allocator(sizes: &Arc<Mutex<Vec<usize>>>) -> Allocator {
    let (sizes, mut system) = (Arc::clone(sizes), system_allocator());
    Box::new(move |memory, bytes| {
        sizes.lock().expect("no panic").push(bytes);
        assert_eq!(memory.is_null(), bytes != 0);
        system(memory, bytes)
    })
}

#[test]
fn allocator_gives_once_and_gets_back_once() {
    for (buffer_bytes, total) in [(TEN, 2 * TEN), (0, 4 * RECORD), (1001, 2002)] {
        let sizes = Arc::default();
        let allocator = recorded_allocator(&sizes);
        let seen = Seen::default();
        let consumer = seen.consumer();
        let pool = Pool::open(Properties { buffer_bytes, allocator, consumer }).expect("a pool");
        (0..100).for_each(|id| pool.write(&record(id)).expect("open"));
        assert_eq!(*sizes.lock().expect("no panic"), [total]);
        pool.close();
        pool.close();
        assert_eq!(*sizes.lock().expect("no panic"), [total, 0]);
        assert_eq!(seen.ids(), (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn allocators_that_give_nothing_useful() {
    let open = |allocator, buffer_bytes| {
        Pool::open(Properties { buffer_bytes, allocator, consumer: Box::new(|_| {}) }).err()
    };
    assert_eq!(open(Box::new(|_, _| ptr::null_mut()), TEN), Some(Error::NoMemory));
    assert_eq!(open(system_allocator(), usize::MAX), Some(Error::NoMemory));
    assert_eq!(open(system_allocator(), usize::MAX / 2), Some(Error::NoMemory));
    // Memory that records cannot be stored in is given back.
    let mut words = Box::new([0u64; 64]);
    let odd = words.as_mut_ptr().cast::<u8>().wrapping_add(1);
    let odd = odd.expose_provenance();
    let (say, said) = channel();
    let allocator: Allocator = Box::new(move |memory, bytes| {
        let _ = say.send((memory.addr(), bytes));
        ptr::with_exposed_provenance_mut(odd)
    });
    assert_eq!(open(allocator, 0), Some(Error::NoMemory));
    assert_eq!(said.iter().collect::<Vec<_>>(), [(0, 4 * RECORD), (odd, 0)]);
}

#[test]
fn writing_into_a_closed_pool_is_refused() {
    let seen = Seen::default();
    let pool = pool(TEN, seen.consumer());
    pool.write(&record(1)).expect("open");
    pool.close();
    assert_eq!(pool.write(&record(2)), Err(Error::PoolClosed));
    assert_eq!(pool.write_with(&record(3), &[0]), Err(Error::PoolClosed));
    pool.flush();
    pool.close();
    assert_eq!(seen.ids(), [1]);
}

/// Eight threads write until they are refused: each record that was not refused is delivered, once.
#[test]
fn closing_loses_nothing_that_was_written() {
    for round in 0..20 {
        let seen = Seen::default();
        let pool = pool(TEN, seen.consumer());
        let begin = Barrier::new(9);
        let written: Vec<u64> = std::thread::scope(|scope| {
            let writer = |thread: u64| {
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    let ids = (0..).map(|n| thread << 32 | n);
                    ids.take_while(|&id| pool.write(&record(id)).is_ok()).collect::<Vec<_>>()
                })
            };
            let writers: Vec<_> = (0..8).map(writer).collect();
            begin.wait();
            until(|| seen.deliveries().len() > round);
            // Two at once: both return when it is done.
            let closer = scope.spawn(|| pool.close());
            pool.close();
            let delivered = seen.ids().len();
            closer.join().expect("no panic");
            assert_eq!(seen.ids().len(), delivered, "nothing comes after the close");
            writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect()
        });
        let (mut delivered, mut written) = (seen.ids(), written);
        delivered.sort_unstable();
        written.sort_unstable();
        assert!(delivered == written, "{} written, {} delivered", written.len(), delivered.len());
    }
}

/// A callback that does something to its own pool, which it learns when the pool is there.
fn with_own_pool(
    seen: &Seen,
    mut act: impl FnMut(&'static Pool, &[ActivityRecord]) + Send + 'static,
) -> &'static Pool {
    let own: Arc<OnceLock<&'static Pool>> = Arc::default();
    let (theirs, mut consumer) = (Arc::clone(&own), seen.consumer());
    let pool = pool(
        TEN,
        Box::new(move |records| {
            consumer(records);
            act(theirs.wait(), records);
        }),
    );
    assert!(own.set(pool).is_ok());
    pool
}

/// Records that the callback flushes come when it has returned, without a flush of anybody else's.
#[test]
fn callback_that_flushes_its_own_pool() {
    let seen = Seen::default();
    let (go, wait) = channel();
    let pool = with_own_pool(&seen, move |pool, _| {
        let _ = wait.recv();
        pool.flush();
    });
    (0..15).for_each(|id| pool.write(&record(id)).expect("open"));
    until(|| seen.deliveries() == [10]);
    go.send(()).expect("the callback waits");
    until(|| seen.deliveries() == [10, 5]);
    assert_eq!(seen.ids(), (0..15).collect::<Vec<_>>());
    drop(go);
    pool.close();
}

#[test]
fn callback_that_closes_its_own_pool() {
    let seen = Seen::default();
    let sizes = Arc::default();
    let own: Arc<OnceLock<&'static Pool>> = Arc::default();
    let (theirs, mut consumer) = (Arc::clone(&own), seen.consumer());
    let closes: Consumer = Box::new(move |records| {
        consumer(records);
        theirs.wait().close();
        assert_eq!(theirs.wait().write(&record(99)), Err(Error::PoolClosed));
    });
    let allocator = recorded_allocator(&sizes);
    let properties = Properties { buffer_bytes: TEN, allocator, consumer: closes };
    let pool = Pool::open(properties).expect("a pool");
    assert!(own.set(pool).is_ok());
    let written = (0..25).take_while(|&id| pool.write(&record(id)).is_ok()).count();
    assert!(written >= 10);
    // Another close waits until the callback's is done.
    pool.close();
    assert_eq!(seen.ids(), (0..written as u64).collect::<Vec<_>>());
    assert_eq!(*sizes.lock().expect("no panic"), [2 * TEN, 0]);
}

/// For every delivery it writes more than a buffer holds, while both are full, for a while.
#[test]
fn callback_that_writes_into_its_own_pool() {
    let seen = Seen::default();
    let mut rounds = 0;
    let pool = with_own_pool(&seen, move |pool, _| {
        rounds += 1;
        if rounds <= 3 {
            for n in 0..35 {
                pool.write(&record(rounds * 1000 + n)).expect("memory");
            }
            let data = text(10 * TEN);
            let big = record(rounds * 1000 + 35);
            pool.write_with(&big, data.as_bytes_with_nul()).expect("memory");
        }
    });
    for id in 0..40 {
        pool.write(&record(id)).expect("open");
    }
    // The fourth comes when the third has been written for.
    until(|| seen.deliveries().len() >= 4);
    pool.close();
    let ids = seen.ids();
    assert_eq!(ids.len(), 40 + 3 * 36);
    for round in 0..4 {
        let own: Vec<u64> = ids.iter().copied().filter(|id| id / 1000 == round).collect();
        let count = if round == 0 { 40 } else { 36 };
        assert_eq!(own, (round * 1000..round * 1000 + count).collect::<Vec<_>>());
    }
    let texts: Vec<_> = seen.records().into_iter().filter_map(|(_, text)| text).collect();
    assert_eq!(texts, vec![text(10 * TEN); 3]);
}

#[test]
fn callback_that_panics_is_called_again() {
    let seen = Seen::default();
    let pool = with_own_pool(&seen, |_, records| {
        if records[0].correlation_id == 0 {
            std::panic::resume_unwind(Box::new("a panic without a message"));
        }
    });
    (0..30).for_each(|id| pool.write(&record(id)).expect("open"));
    pool.close();
    assert_eq!(seen.deliveries(), [10, 10, 10]);
}

/// The callback runs on one thread, the pool's, where no signal is handled.
#[test]
fn callback_runs_where_signals_wait() {
    let (say, said) = channel();
    let consumer: Consumer = Box::new(move |_| {
        // SAFETY: the set is filled by the call.
        let blocked = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut set);
            libc::sigismember(&raw const set, libc::SIGINT) == 1
        };
        let _ = say.send((std::thread::current().id(), blocked));
    });
    let pool = pool(TEN, consumer);
    for _ in 0..2 {
        pool.write(&record(1)).expect("open");
        pool.flush();
    }
    pool.close();
    let said: Vec<_> = said.iter().collect();
    assert!(said.iter().all(|(thread, blocked)| *blocked && *thread == said[0].0));
    assert_eq!(said.len(), 2);
    assert_ne!(said[0].0, std::thread::current().id());
}

/// In a child nothing is written and nothing waited for, also where the parent's thread has the lock.
#[test]
fn forked_child_finds_a_closed_pool() {
    let seen = Seen::default();
    let pool = pool(TEN, seen.consumer());
    pool.write(&record(1)).expect("open");
    let state = pool.lock();
    // SAFETY: the child calls what is tested, which allocates nothing, and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = pool.write(&record(2)) == Err(Error::PoolClosed);
        pool.flush();
        pool.close();
        // SAFETY: ends the child, without what the parent has registered for its end.
        unsafe { libc::_exit(if refused { 7 } else { 1 }) };
    }
    drop(state);
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: `status` is valid; the child is ours.
    until(|| unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) == child });
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    pool.close();
    assert_eq!(seen.ids(), [1]);
}

/// Records in older pools do not wait for a callback that does not return.
#[test]
fn the_end_of_the_process_asks_all_pools_before_it_waits_for_one() {
    let seen = Seen::default();
    let older = pool(TEN, seen.consumer());
    let (release, held) = std::sync::mpsc::channel::<()>();
    let stuck = pool(
        TEN,
        Box::new(move |_| {
            let _ = held.recv();
        }),
    );
    older.write(&record(1)).expect("open");
    stuck.write(&record(2)).expect("open");
    flush_open(Instant::now() + Duration::from_millis(200));
    until(|| seen.records().len() == 1);
    drop(release);
    stuck.close();
    older.close();
}

/// A handler of a signal calls `exit` on a thread that writes.
#[test]
fn the_end_of_the_process_waits_for_no_lock() {
    let seen = Seen::default();
    let pool = pool(TEN, seen.consumer());
    pool.write(&record(1)).expect("open");
    let writes = pool.lock();
    pool.flush_until(Instant::now() + Duration::from_millis(20));
    assert_eq!(seen.records().len(), 0);
    drop(writes);
    pool.flush_until(Instant::now() + EXIT_WAIT);
    assert_eq!(seen.ids(), [1]);
    pool.close();
}
