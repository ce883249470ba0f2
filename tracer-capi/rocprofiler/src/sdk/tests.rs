//! Tests of the promises that the pages of the specification make of contexts and buffers. Quotations are of "Buffered
//! services".

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tracer_hooks::sys::PAGE_BYTES;

use super::*;
use crate::buffer::{Buffer, Consumer, Header, Policy};

/// Long enough for a machine under load.
const LONG: Duration = Duration::from_secs(60);

/// The records that a callback was given: the first two words of each, and the number of records that had been dropped.
type Delivery = (Vec<[u64; 2]>, u64);

fn sdk() -> &'static Sdk {
    let sdk: &'static Sdk = Box::leak(Box::default());
    assert!(sdk.begin_initialization());
    sdk
}

#[expect(unsafe_code, reason = "what a callback is given")]
fn words(header: *mut Header) -> [u64; 2] {
    // SAFETY: what a consumer is given, while it is called; records of these tests have a word at least.
    unsafe {
        let payload: *const u64 = (*header).payload.cast();
        let second = if *payload >= 16 { *payload.add(1) } else { 0 };
        [*payload, second]
    }
}

/// A buffer whose deliveries are sent; each delivery waits for `wait`.
fn buffer(
    sdk: &Sdk,
    bytes: usize,
    watermark: usize,
    policy: Policy,
    wait: impl Fn() + Send + Sync + 'static,
) -> (&'static Buffer, mpsc::Receiver<Delivery>) {
    let context = sdk.create_context(0).expect("a context");
    let (send, deliveries) = mpsc::channel();
    let send = Mutex::new(send);
    let consumer = |_| -> Consumer {
        Box::new(move |headers, dropped| {
            wait();
            let records = headers.iter().map(|&header| words(header)).collect();
            let _ = send.lock().expect("whole").send((records, dropped));
        })
    };
    let id = sdk.create_buffer(context, bytes, watermark, policy, consumer).expect("a buffer");
    (sdk.buffer(id).expect("known"), deliveries)
}

/// "for a buffer of size 4096 bytes with the watermark set to 48 bytes, six 8-byte records can be placed in the buffer
/// before callback is invoked."
#[test]
fn six_records_of_8_bytes_reach_a_watermark_of_48() {
    let (buffer, deliveries) = buffer(sdk(), 4096, 48, Policy::Lossless, || ());
    for _ in 0..5 {
        assert!(buffer.write(&[8]));
    }
    assert!(deliveries.recv_timeout(Duration::from_millis(50)).is_err(), "not before");
    for _ in 0..7 {
        assert!(buffer.write(&[8]));
    }
    for _ in 0..2 {
        assert_eq!(deliveries.recv_timeout(LONG), Ok((vec![[8, 0]; 6], 0)));
    }
}

/// "every 64-byte record that is placed in the buffer will trigger a flush."
#[test]
fn each_record_of_64_bytes_reaches_a_watermark_of_48() {
    let (buffer, deliveries) = buffer(sdk(), 4096, 48, Policy::Lossless, || ());
    for number in 0..3 {
        assert!(buffer.write(&[64, number, 0, 0, 0, 0, 0, 0]));
        assert_eq!(deliveries.recv_timeout(LONG), Ok((vec![[64, number]], 0)));
    }
}

/// "It is safe to set the watermark to any value between zero and the buffer size."
#[test]
fn a_watermark_of_zero_delivers_each_record_and_that_of_the_size_a_whole_buffer() {
    let sdk = sdk();
    let (every, deliveries) = buffer(sdk, 4096, 0, Policy::Discard, || ());
    assert!(every.write(&[16, 1]));
    assert_eq!(deliveries.recv_timeout(LONG), Ok((vec![[16, 1]], 0)));
    let (whole, deliveries) = buffer(sdk, 4096, 4096, Policy::Discard, || ());
    for number in 0..256 {
        assert!(whole.write(&[16, number]));
    }
    let (records, dropped) = deliveries.recv_timeout(LONG).expect("the whole");
    assert_eq!((records.len(), dropped), (256, 0));
}

/// "size: Size of the buffer in bytes, which is rounded up to the nearest memory page size".
#[test]
fn sizes_are_rounded_up_to_pages() {
    let (buffer, deliveries) = buffer(sdk(), 4000, usize::MAX, Policy::Discard, || ());
    let taken = (0..1000).take_while(|_| buffer.write(&[16, 7])).count();
    assert_eq!(taken, PAGE_BYTES / 16);
    buffer.flush(None);
    assert_eq!(deliveries.try_recv().map(|(records, _)| records.len()), Ok(taken));
}

/// "all records greater than 2 bytes are dropped until the tool explicitly flushes the buffer". AMD's library has no second
/// half then: behind the first flush it takes nothing.
#[test]
fn who_discards_counts_what_is_dropped_and_goes_on_behind_a_flush() {
    let (buffer, deliveries) = buffer(sdk(), 4096, 4096, Policy::Discard, || ());
    for round in 0..3 {
        // 4,080 bytes: less than the watermark, and no room for another one.
        for _ in 0..85 {
            assert!(buffer.write(&[48, round, 0, 0, 0, 0]));
        }
        for _ in 0..10 {
            assert!(!buffer.write(&[48, round, 0, 0, 0, 0]));
        }
        assert!(deliveries.try_recv().is_err());
        assert_eq!(buffer.dropped(), (round + 1) * 10);
        buffer.flush(None);
        let delivered = (vec![[48, round]; 85], (round + 1) * 10);
        assert_eq!(deliveries.try_recv(), Ok(delivered), "when it returns");
    }
    // For an empty buffer no callback is called.
    buffer.flush(None);
    assert!(deliveries.try_recv().is_err());
}

/// "the current buffer is swapped out for an empty buffer and placed in the new buffer while the former (full) buffer is
/// implicitly flushed." From 32 threads, with a slow callback.
#[test]
fn who_is_lossless_loses_nothing() {
    let slow = || thread::sleep(Duration::from_millis(1));
    let (buffer, deliveries) = buffer(sdk(), 4096, 4096, Policy::Lossless, slow);
    thread::scope(|scope| {
        for writer in 0..32 {
            scope.spawn(move || {
                for number in 0..500 {
                    assert!(buffer.write(&[32, writer << 32 | number, 0, 0]));
                }
            });
        }
    });
    buffer.flush(None);
    let mut next = [0; 32];
    for (records, dropped) in deliveries.try_iter() {
        assert_eq!(dropped, 0);
        for [bytes, word] in records {
            assert_eq!((bytes, word & 0xffff_ffff), (32, next[(word >> 32) as usize]), "in order");
            next[(word >> 32) as usize] += 1;
        }
    }
    assert_eq!(next, [500; 32]);
}

/// Not for ever: behind 16 MiB they are dropped.
#[test]
fn records_that_cannot_wait_are_kept_while_a_callback_does_not_return() {
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let wait = move || {
        let _ = gate.lock().expect("whole").recv_timeout(LONG);
    };
    let bytes = 1 << 20;
    let (buffer, deliveries) = buffer(sdk(), bytes, bytes, Policy::Lossless, wait);
    let in_halves = (18 << 20) / 32;
    for number in 0..in_halves {
        assert!(buffer.write_at_once(&[32, number, 0, 0]), "{number}");
    }
    assert!(!buffer.offer(&[16, 0]));
    for _ in 0..5 {
        assert!(!buffer.write_at_once(&[32, 0, 0, 0]));
    }
    drop(go);
    buffer.flush(None);
    let delivered = deliveries.try_iter().flat_map(|(records, _)| records);
    assert!(delivered.eq((0..in_halves).map(|number| [32, number])));
    assert_eq!(buffer.dropped(), 5);
    // There are as many halves now.
    assert!(buffer.write(&[16, 0]));
}

#[test]
fn records_that_cannot_wait_are_discarded_by_who_discards() {
    let (buffer, _deliveries) = buffer(sdk(), 4096, usize::MAX, Policy::Discard, || ());
    assert_eq!((0..1000).take_while(|_| buffer.write_at_once(&[16, 7])).count(), 256);
    assert_eq!(buffer.dropped(), 1);
}

#[test]
fn what_is_written_while_it_is_delivered_is_delivered_or_dropped() {
    let slow = || thread::sleep(Duration::from_micros(200));
    let (buffer, deliveries) = buffer(sdk(), 4096, 1024, Policy::Discard, slow);
    let written: usize = thread::scope(|scope| {
        let write = || (0..20_000).filter(|&number| buffer.write(&[24, number, 0])).count();
        let writers = [(); 4].map(|()| scope.spawn(write));
        writers.map(|writer| writer.join().expect("no panic")).iter().sum()
    });
    buffer.flush(None);
    let delivered: usize = deliveries.try_iter().map(|(records, _)| records.len()).sum();
    assert_eq!(delivered, written);
    assert_eq!(written as u64 + buffer.dropped(), 80_000);
}

#[test]
fn a_record_that_fits_into_no_half_is_dropped() {
    for policy in [Policy::Discard, Policy::Lossless] {
        let (buffer, _deliveries) = buffer(sdk(), 4096, 4096, policy, || ());
        assert!(!buffer.write(&[4104; 513]));
        assert_eq!(buffer.dropped(), 1);
    }
}

/// A callback that writes into its own buffer, flushes it, and fills more than both halves. AMD's library waits for itself.
#[test]
fn a_callback_may_use_its_own_buffer() {
    let sdk = sdk();
    let context = sdk.create_context(0).expect("a context");
    let seen = Arc::<Mutex<Vec<usize>>>::default();
    let consumer = {
        let seen = Arc::clone(&seen);
        move |id| -> Consumer {
            Box::new(move |headers, _| {
                let mut seen = seen.lock().expect("whole");
                seen.push(headers.len());
                if seen.len() == 1 {
                    let own = sdk.buffer(id).expect("known");
                    for _ in 0..1000 {
                        assert!(own.write(&[16, 1]));
                    }
                    own.flush(None);
                }
            })
        }
    };
    let id = sdk.create_buffer(context, 4096, 4096, Policy::Lossless, consumer).expect("a buffer");
    let buffer = sdk.buffer(id).expect("known");
    assert!(buffer.write(&[16, 0]));
    buffer.flush(None);
    buffer.flush(None);
    let seen = seen.lock().expect("whole");
    assert_eq!((seen[0], seen[1..].iter().sum::<usize>()), (1, 1000));
}

/// A buffer with a callback thread of its own, on which `act` receives the records.
fn with_thread(
    sdk: &'static Sdk,
    act: impl Fn(&mut [*mut Header]) + Send + Sync + 'static,
) -> &'static Buffer {
    let context = sdk.create_context(0).expect("a context");
    let consumer = |_| -> Consumer { Box::new(move |headers, _| act(headers)) };
    let id = sdk.create_buffer(context, 4096, 4096, Policy::Lossless, consumer).expect("a buffer");
    let thread = sdk.create_callback_thread().expect("a thread");
    sdk.assign_callback_thread(id, thread).expect("assigned");
    sdk.buffer(id).expect("known")
}

/// Its own thread alone delivers nothing meanwhile.
#[test]
fn a_callback_waits_for_buffers_of_other_threads() {
    let sdk = sdk();
    let (send, deliveries) = mpsc::channel();
    let send = Mutex::new(send);
    let slow = with_thread(sdk, move |headers| {
        thread::sleep(Duration::from_millis(20));
        let _ = send.lock().expect("whole").send(headers.len());
    });
    let (tell, receive) = mpsc::channel();
    let (tell, deliveries) = (Mutex::new(tell), Mutex::new(deliveries));
    let flushing = with_thread(sdk, move |_| {
        let delivered = (slow.flush(None), deliveries.lock().expect("whole").try_recv());
        let _ = tell.lock().expect("whole").send(delivered);
    });
    assert!(slow.write(&[16, 1]) && flushing.write(&[16, 2]) && flushing.flush(None));
    assert_eq!(receive.try_recv(), Ok((true, Ok(1))));
}

/// Each of three callbacks flushes the next one's buffer: none waits for ever, and all is delivered.
#[test]
fn callbacks_do_not_wait_for_each_other() {
    static BUFFERS: Mutex<Vec<&'static Buffer>> = Mutex::new(Vec::new());
    let sdk = sdk();
    let count = Arc::<Mutex<usize>>::default();
    for at in 0..3 {
        let count = Arc::clone(&count);
        let buffer = with_thread(sdk, move |headers| {
            *count.lock().expect("whole") += headers.len();
            let next = BUFFERS.lock().expect("whole")[(at + 1) % 3];
            next.flush(None);
        });
        BUFFERS.lock().expect("whole").push(buffer);
    }
    let all = BUFFERS.lock().expect("whole").clone();
    for _ in 0..200 {
        thread::scope(|scope| {
            for buffer in &all {
                scope.spawn(|| assert!(buffer.write(&[16, 1]) && buffer.flush(None)));
            }
        });
    }
    all.iter().for_each(|buffer| assert!(buffer.flush(None)));
    assert_eq!(*count.lock().expect("whole"), 600);
}

/// "an additional background thread for one or more of their buffers": always the same one, and another than that of others.
#[test]
fn a_buffer_is_always_delivered_on_its_own_thread() {
    let sdk = sdk();
    let context = sdk.create_context(0).expect("a context");
    let make = || {
        let (send, threads) = mpsc::channel();
        let send = Mutex::new(send);
        let consumer = |_| -> Consumer {
            Box::new(move |_, _| {
                let _ = send.lock().expect("whole").send(thread::current().id());
            })
        };
        let id = sdk.create_buffer(context, 4096, 0, Policy::Lossless, consumer);
        (id.expect("a buffer"), threads)
    };
    let buffers = [make(), make(), make()];
    let own = sdk.create_callback_thread().expect("a thread");
    assert_ne!(own, 0);
    assert_eq!(sdk.assign_callback_thread(buffers[0].0, own), Ok(()));
    let seen = buffers.map(|(id, threads)| {
        let buffer = sdk.buffer(id).expect("known");
        for _ in 0..20 {
            assert!(buffer.write(&[16, 0]));
            buffer.flush(None);
        }
        let threads: Vec<_> = threads.try_iter().collect();
        assert_eq!(threads.len(), 20);
        assert!(threads.iter().all(|thread| *thread == threads[0]));
        threads[0]
    });
    assert_ne!(seen[0], seen[1]);
    assert_eq!(seen[1], seen[2]);
    assert!(!seen.contains(&thread::current().id()));
}

#[test]
fn what_is_wrong_is_named() {
    let sdk: &'static Sdk = Box::leak(Box::default());
    let consumer = |_| -> Consumer { Box::new(|_, _| ()) };
    let lossless = Policy::Lossless;
    assert_eq!(sdk.create_context(0), Err(Status::ConfigurationLocked));
    assert!(sdk.begin_initialization() && !sdk.begin_initialization());
    assert_eq!(sdk.initialized(), stage::DURING);
    let context = sdk.create_context(0).expect("a context");
    assert_eq!(sdk.create_buffer(7, 1, 1, lossless, consumer), Err(Status::ContextNotFound));
    assert_eq!(sdk.create_buffer(context, 0, 0, lossless, consumer), Err(Status::InvalidArgument));
    let most = usize::MAX;
    assert_eq!(
        sdk.create_buffer(context, most, 0, lossless, consumer),
        Err(Status::OutOfResources)
    );
    let buffer = sdk.create_buffer(context, 4096, 0, lossless, consumer).expect("a buffer");
    let hip = Kind::HipRuntimeApi;
    let configure = |context, kind, operations: &[i32], buffer| {
        sdk.configure_service(context, kind, operations, buffer)
    };
    assert_eq!(configure(7, hip, &[], buffer), Err(Status::ContextNotFound));
    assert_eq!(configure(context, hip, &[], context), Err(Status::BufferNotFound));
    for operation in [-1, 477, i32::MAX] {
        let result = configure(context, hip, &[0, operation], buffer);
        assert_eq!(result, Err(Status::OperationNotFound), "{operation}");
    }
    assert_eq!(configure(context, hip, &[3, 462], buffer), Ok(()));
    // "returns an error if a buffer service for the specified context and domain is configured more than once."
    assert_eq!(configure(context, hip, &[], buffer), Err(Status::ServiceAlreadyConfigured));
    assert_eq!(sdk.assign_callback_thread(buffer, 9), Err(Status::ThreadNotFound));
    assert_eq!(sdk.assign_callback_thread(1, 0), Err(Status::BufferNotFound));
    assert_eq!(sdk.start_context(7), Err(Status::ContextNotFound));
    assert_eq!(sdk.stop_context(context), Err(Status::ContextNotFound));
    sdk.end_initialization();
    assert_eq!(sdk.initialized(), stage::OVER);
    assert_eq!(sdk.create_context(0), Err(Status::ConfigurationLocked));
    let result = sdk.create_buffer(context, 4096, 0, lossless, consumer);
    assert_eq!(result, Err(Status::ConfigurationLocked));
    assert_eq!(configure(context, Kind::MemoryCopy, &[], buffer), Err(Status::ConfigurationLocked));
    assert_eq!(sdk.create_callback_thread(), Err(Status::ConfigurationLocked));
    assert_eq!(sdk.assign_callback_thread(buffer, 0), Err(Status::ConfigurationLocked));
    let known = sdk.buffer(buffer).expect("known");
    assert_eq!(known.destroy(), Ok(()));
    assert_eq!(known.destroy(), Err(Status::BufferNotFound));
    assert!(!known.write(&[16, 0]));
    assert_eq!(sdk.buffer(buffer).map(Buffer::id), Err(Status::BufferNotFound));
    assert!(sdk.begin_finalization() && !sdk.begin_finalization());
    assert_eq!(sdk.start_context(context), Err(Status::ConfigurationLocked));
}

#[test]
fn a_buffer_is_destroyed_when_it_is_not_being_delivered() {
    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let (begin, ended) = (Mutex::new(begin), Mutex::new(ended));
    let wait = move || {
        let _ = begin.lock().expect("whole").send(());
        let _ = ended.lock().expect("whole").recv();
    };
    let (buffer, deliveries) = buffer(sdk(), 4096, 16, Policy::Lossless, wait);
    assert!(buffer.write(&[16, 1]));
    begun.recv_timeout(LONG).expect("it is being delivered");
    assert_eq!(buffer.destroy(), Err(Status::BufferBusy));
    end.send(()).expect("it waits");
    buffer.flush(None);
    assert_eq!(deliveries.try_recv(), Ok((vec![[16, 1]], 0)));
    assert_eq!(buffer.destroy(), Ok(()));
}

/// The half that takes the place of the last one holds records of before.
#[test]
fn a_destroyed_buffer_delivers_nothing_twice() {
    let (buffer, deliveries) = buffer(sdk(), 4096, 4096, Policy::Lossless, || ());
    for number in 1..=2 {
        assert!(buffer.write(&[16, number]));
        buffer.flush(None);
    }
    assert!(buffer.write(&[16, 3]));
    assert_eq!(buffer.destroy(), Ok(()));
    buffer.flush(None);
    buffer.flush(None);
    let delivered: Vec<_> = deliveries.try_iter().flat_map(|(records, _)| records).collect();
    assert_eq!(delivered, [[16, 1], [16, 2], [16, 3]]);
}

/// Two buffers of a thread, one of which is always full.
#[test]
fn a_buffer_does_not_keep_another_one_waiting() {
    let sdk = sdk();
    let (busy, _deliveries) = buffer(sdk, 4096, 16, Policy::Discard, || ());
    let (other, deliveries) = buffer(sdk, 4096, 4096, Policy::Lossless, || ());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                busy.write(&[16, 0]);
            }
        });
        for number in 0..10 {
            assert!(other.write(&[16, number]));
            other.flush(None);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(deliveries.try_iter().count(), 10);
}

#[test]
fn what_is_wanted_is_what_active_contexts_have_configured() {
    let sdk = sdk();
    let (first, second) =
        (sdk.create_context(1).expect("one"), sdk.create_context(2).expect("one"));
    let consumer = |_| -> Consumer { Box::new(|_, _| ()) };
    let buffer = sdk.create_buffer(first, 4096, 0, Policy::Lossless, consumer).expect("a buffer");
    let kind = Kind::MarkerCoreApi;
    sdk.configure_service(first, kind, &[], buffer).expect("configured");
    sdk.configure_service(second, kind, &[2], buffer).expect("configured");
    sdk.start_context(second).expect("started");
    assert!(!sdk.is_wanted(kind), "not before the end of the initialization");
    sdk.end_initialization();
    let wanting = |operation| -> Vec<u64> {
        let services = sdk.wanting(kind, Some(operation));
        sdk.each(kind, services).map(|service| service.context.id()).collect()
    };
    assert!(sdk.is_wanted(kind) && !sdk.is_wanted(Kind::MemoryCopy));
    assert_eq!((wanting(1), wanting(2)), (vec![], vec![second]));
    sdk.start_context(first).expect("started");
    sdk.start_context(first).expect("as it was");
    assert_eq!((wanting(1), wanting(2)), (vec![first], vec![first, second]));
    let can_start = |id| sdk.context(id).map(|context| sdk.can_start(context));
    assert_eq!(can_start(second), Ok(true));
    sdk.end_contexts(2);
    assert_eq!(sdk.start_context(second), Err(Status::ConfigurationLocked));
    assert_eq!([first, second].map(can_start), [Ok(true), Ok(false)]);
    assert_eq!(wanting(2), [first]);
    assert!(sdk.is_wanted(kind));
    // Its finalize function may stop it, once.
    assert_eq!(sdk.stop_context(second), Ok(()));
    assert_eq!(sdk.stop_context(second), Err(Status::ContextNotFound));
    assert_eq!(wanting(2), [first]);
    sdk.stop_context(first).expect("stopped");
    assert!(!sdk.is_wanted(kind) && wanting(2).is_empty());
}

/// A context that has been stopped is told of the retirement of ids that its records have.
#[test]
fn what_is_beside_a_service_is_wanted_with_it() {
    let (sdk, kind, beside) = (sdk(), Kind::KernelDispatch, Kind::CorrelationIdRetirement);
    let [first, second] = [1, 2].map(|client| sdk.create_context(client).expect("made"));
    let (buffer, _deliveries) = buffer(sdk, 4096, 4096, Policy::Discard, || ());
    for context in [first, second] {
        sdk.configure_service(context, kind, &[], buffer.id()).expect("configured");
        sdk.configure_service(context, beside, &[], buffer.id()).expect("configured");
    }
    sdk.start_context(first).expect("started");
    sdk.end_initialization();
    let services = sdk.wanting(kind, None);
    sdk.stop_context(first).expect("stopped");
    let contexts = |services| -> Vec<u64> {
        sdk.each(beside, services).map(|service| service.context.id()).collect()
    };
    assert_eq!(contexts(sdk.wanting(beside, None)), []);
    assert_eq!(contexts(sdk.wanting_beside(beside, kind, services)), [first]);
    sdk.start_context(second).expect("started");
    assert_eq!(contexts(sdk.wanting_beside(beside, kind, services)), [first, second]);
}

#[test]
fn external_ids_are_those_of_each_context() {
    let (sdk, kind) = (sdk(), Kind::KernelDispatch);
    let [first, second] = [1, 2].map(|client| sdk.create_context(client).expect("made"));
    let (buffer, _deliveries) = buffer(sdk, 4096, 4096, Policy::Discard, || ());
    for context in [first, second] {
        sdk.configure_service(context, kind, &[], buffer.id()).expect("configured");
        sdk.start_context(context).expect("started");
    }
    sdk.end_initialization();
    let ids = || -> Vec<u64> {
        let externals = sdk.externals(7, 1);
        let services = sdk.wanting(kind, None);
        sdk.each(kind, services).map(|service| externals.of(service)).collect()
    };
    assert_eq!(ids(), [0, 0]);
    assert!(sdk.context(second).expect("known").external.push(7, 70));
    assert_eq!(ids(), [0, 70]);
    assert!(sdk.context(first).expect("known").external.push(1, 10));
    assert_eq!(ids(), [10, 70]);
}

/// A process that exits does not wait for ever.
#[test]
fn a_callback_that_does_not_return_is_not_waited_for_at_the_end() {
    let (buffer, _deliveries) = buffer(sdk(), 4096, 4096, Policy::Lossless, || {
        loop {
            thread::park();
        }
    });
    assert!(buffer.write(&[16, 1]));
    assert!(!buffer.flush(Some(Instant::now() + Duration::from_millis(50))));
    // Nothing is written since: the half that was handed over is waited for.
    assert!(!buffer.flush(Some(Instant::now())));
}

/// The thread that delivers work of GPUs writes into buffers of several tools: it waits for none.
#[test]
fn who_offers_a_record_does_not_wait() {
    let (go, waits) = mpsc::channel::<()>();
    let waits = Mutex::new(waits);
    let (buffer, deliveries) = buffer(sdk(), 4096, 4096, Policy::Lossless, move || {
        let _ = waits.lock().expect("whole").recv();
    });
    let (mut taken, until) = (0, Instant::now() + LONG);
    while buffer.offer(&[16, taken]) {
        taken += 1;
        assert!(Instant::now() < until, "both halves have 4096 bytes");
    }
    assert!((256..=512).contains(&taken), "{taken}");
    assert_eq!(buffer.dropped(), 0, "what is offered again is not lost");
    drop(go);
    while !buffer.offer(&[16, taken]) {
        assert!(Instant::now() < until, "there is room by now");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(buffer.flush(None));
    let delivered = deliveries.try_iter().flat_map(|(records, _)| records).map(|[_, id]| id);
    assert!(delivered.eq(0..=taken));
}

/// When all tools have ended others begin, as if there had been none, and work that was wanted before belongs to no
/// tool.
#[test]
fn others_begin_when_all_have_ended() {
    let (sdk, kind) = (sdk(), Kind::KernelDispatch);
    let configure = |client| {
        let context = sdk.create_context(client).expect("a context");
        let nobody = |_| -> Consumer { Box::new(|_, _| ()) };
        let buffer = sdk.create_buffer(context, 4096, 0, Policy::Lossless, nobody).expect("one");
        sdk.configure_service(context, kind, &[], buffer).expect("a service");
        sdk.end_initialization();
        sdk.start_context(context).expect("started");
        (context, buffer)
    };
    let first = configure(1);
    let before = sdk.wanting(kind, None);
    assert_eq!(sdk.each(kind, before).map(Service::client).collect::<Vec<_>>(), [1]);
    assert_eq!(sdk.begin_anew(), Err(Status::ConfigurationLocked));
    assert!(sdk.begin_finalization());
    sdk.end_contexts(1);
    assert!(sdk.silence(1, Instant::now()));
    sdk.end_finalization();
    sdk.end();
    assert!(sdk.each(kind, Services::all()).next().is_none());
    sdk.begin_anew().expect("all have ended");
    assert_eq!((sdk.initialized(), sdk.finalized()), (stage::DURING, stage::NOT_YET));
    assert_eq!(sdk.begin_anew(), Err(Status::ConfigurationLocked));
    assert!(sdk.context(first.0).is_err() && sdk.buffer(first.1).is_err());
    // Ids are not given twice.
    assert_eq!(configure(2), (first.0 + 1, first.1 + 1));
    assert!(sdk.context(first.0).is_err() && sdk.buffer(first.1).is_err());
    let now = sdk.wanting(kind, None);
    assert_eq!(sdk.each(kind, now).map(Service::client).collect::<Vec<_>>(), [2]);
    assert_eq!(sdk.each(kind, before).count(), 0);
    assert!(sdk.those(kind, before, |_| true).is_empty());
    assert_eq!((before.union(now), now.union(before)), (now, now));
    // Those of all plans.
    assert_eq!(sdk.each(kind, Services::all()).count(), 1);
}

/// One whose callback is held until the sender is dropped, and the channel by which it says that it was called.
fn held() -> ((&'static Buffer, mpsc::Receiver<Delivery>), mpsc::Sender<()>, mpsc::Receiver<()>) {
    let ((go, waits), (begins, has_begun)) = (mpsc::channel::<()>(), mpsc::channel());
    let (waits, begins) = (Mutex::new(waits), Mutex::new(begins));
    let buffer = buffer(sdk(), 4096, 16, Policy::Lossless, move || {
        let _ = begins.lock().expect("whole").send(());
        let _ = waits.lock().expect("whole").recv();
    });
    (buffer, go, has_begun)
}

/// A thread that waits for room in a buffer goes on when that ends, and the end waits for the callback that is being
/// called.
#[test]
fn who_waits_for_a_buffer_that_ends_goes_on() {
    let ((buffer, deliveries), go, has_begun) = held();
    thread::scope(|scope| {
        let (writes, flushes) = (
            scope.spawn(|| while buffer.write(&[16, 1]) {}),
            scope.spawn(|| assert!(buffer.flush(None))),
        );
        has_begun.recv().expect("its callback is called");
        assert!(!buffer.end(Instant::now()), "it has not returned");
        writes.join().expect("no room comes");
        flushes.join().expect("nothing is delivered");
        drop(go);
        assert!(buffer.end(Instant::now() + LONG));
    });
    assert_eq!(deliveries.try_iter().count(), 1);
}

/// Records that have been written and not delivered when a buffer ends are dropped, and counted: also when its own
/// callback ends it.
#[test]
fn what_a_buffer_that_ends_has_not_delivered_is_counted() {
    let ((buffer, deliveries), go, has_begun) = held();
    assert!(buffer.write(&[16, 1]));
    has_begun.recv().expect("its callback is called");
    assert!((2..=3).all(|number| buffer.write_at_once(&[16, number])));
    assert!(!buffer.flush(Some(Instant::now())));
    assert!(!buffer.end(Instant::now()));
    assert_eq!((buffer.undelivered(), buffer.dropped()), (2, 2));
    assert!(!buffer.write(&[16, 4]));
    drop(go);
    assert!(buffer.end(Instant::now() + LONG));
    assert_eq!((buffer.undelivered(), buffer.dropped()), (2, 3));
    assert_eq!(deliveries.try_iter().collect::<Vec<_>>(), [(vec![[16, 1]], 0)]);
}
