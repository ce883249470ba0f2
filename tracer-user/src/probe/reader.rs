//! Drains the rings, on a thread of its own: joining and writing may take time, and the rings are bounded.
//!
//! The thread hands over the records in batches, through a bounded queue. When the queue is full, the thread leaves the
//! records in the rings, whose producers count their losses.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io, iter, mem,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use ringbuf::{
    HeapCons, HeapProd, HeapRb,
    traits::{Consumer as _, Observer as _, Producer as _, Split as _},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd},
    io::Errno,
};
use tracer_common::bpf::{ApiRecord, Header, LinkRecord, record_bytes};
use zerocopy::FromBytes as _;

use super::{ProbeError, Programs};
use crate::{priority, privileges, shim};

/// The pause between two drains when nothing wakes the reader: the rings wake it when a quarter of one is full.
const DRAIN_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Batches that can wait to be joined.
const QUEUED_BATCHES: usize = 64;

/// Bytes of records that are handed out at once, and a batch: as many calls and links as one drain brings of a shim's
/// operations, so that a late reader falls behind with both alike.
const AT_ONCE: usize = shim::MOST_AT_ONCE * (size_of::<ApiRecord>() + size_of::<LinkRecord>());
/// A batch gets no further record once it has this many bytes.
const BATCH: usize = AT_ONCE / MOST_SPARE;
/// Batches whose memory is kept to be used again: as many as are handed out at once.
const MOST_SPARE: usize = 8;

/// Records that follow one another, in parts; each has its kind, which determines its size.
pub type Records = Vec<Vec<u8>>;

/// The records one by one, with their kinds.
pub fn each_record(records: &Records) -> impl Iterator<Item = (u16, &[u8])> {
    records.iter().flat_map(|part| {
        let mut left = part.as_slice();
        iter::from_fn(move || {
            let (Header { kind, .. }, _) = Header::read_from_prefix(left).ok()?;
            let (record, behind) = left.split_at_checked(record_bytes(kind)?)?;
            left = behind;
            Some((kind, record))
        })
    })
}

/// Takes records out of the rings of all CPUs.
pub struct Reader {
    batches: HeapCons<Batch>,
    spare: HeapProd<Vec<u8>>,
    /// The last request up to which everything has been handed out.
    answered: u64,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), ProbeError>>>,
    /// Why the thread has ended.
    failure: Option<String>,
}

/// Records, and the requests that were made before they were drained.
type Batch = (u64, Vec<u8>);

/// The other ends of the reader's queues.
struct Queues {
    batches: HeapProd<Batch>,
    /// Memory of batches that have been handled.
    spare: HeapCons<Vec<u8>>,
}

struct Shared {
    stop: AtomicBool,
    /// The number of complete drains that were asked for, and the last request that is done.
    asked: AtomicU64,
    done: AtomicU64,
    /// Records that were not understood.
    malformed: AtomicU64,
    /// An eventfd that keeps the thread from waiting.
    wake: OwnedFd,
}

impl Shared {
    fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let [asked, done, malformed] = [0; 3].map(AtomicU64::new);
        Ok(Self { stop: AtomicBool::new(false), asked, done, malformed, wake })
    }

    fn wake(&self) {
        // The write fails only when the thread has been woken 2⁶⁴ - 2 times.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Answers up to request `asked`; called by the thread that drains. Returns whether there was an unanswered
    /// request.
    fn answer(&self, asked: u64) -> bool {
        // Release: a thread that sees the answer (it loads it with Acquire) sees the batches.
        self.done.swap(asked, Ordering::Release) != asked
    }

    /// Waits until the rings ask to be read, somebody wakes the thread, or the time is over.
    fn wait(&self, rings: &RingBuffer<'_>) -> io::Result<()> {
        // SAFETY: the rings outlive this function, and they own the descriptor.
        #[expect(unsafe_code, reason = "the crate gives a number")]
        let ready = unsafe { BorrowedFd::borrow_raw(rings.epoll_fd()) };
        let watch = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut watched = [watch(ready), watch(self.wake.as_fd())];
        match rustix::event::poll(&mut watched, Some(&DRAIN_INTERVAL)) {
            Err(Errno::INTR) => {}
            result => drop(result?),
        }
        // If there is nothing to read, the thread was not woken.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        Ok(())
    }
}

fn failed(cause: libbpf_rs::Error) -> ProbeError {
    ProbeError::Map { map: "RINGS", cause }
}

impl Reader {
    /// Starts reading the programs' rings.
    ///
    /// # Errors
    ///
    /// When the rings cannot be reached.
    pub fn new(programs: &Programs) -> Result<Self, ProbeError> {
        Self::with(programs, || {})
    }

    /// As [`Reader::new`]; the thread also calls `also`, which must be brief, at least as often as it drains.
    ///
    /// # Errors
    ///
    /// As of [`Reader::new`].
    pub fn with(
        programs: &Programs,
        also: impl FnMut() + Send + 'static,
    ) -> Result<Self, ProbeError> {
        let rings = programs
            .rings()
            .iter()
            .map(MapHandle::try_from)
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        Self::start(move |queues, shared, reader| drain(&rings, queues, shared, reader, also))
            .map_err(|cause| ProbeError::Thread { cause })
    }

    /// Starts a thread that reads by `drain`.
    fn start<D>(drain: D) -> io::Result<Self>
    where
        D: FnOnce(Queues, &Arc<Shared>, &thread::Thread) -> Result<(), ProbeError>,
        D: Send + 'static,
    {
        let (theirs, batches) = HeapRb::new(QUEUED_BATCHES).split();
        let (spare, handled) = HeapRb::new(MOST_SPARE).split();
        let queues = Queues { batches: theirs, spare: handled };
        let shared = Arc::new(Shared::new()?);
        let (theirs, reader) = (Arc::clone(&shared), thread::current());
        let thread = thread::Builder::new()
            .name("roctap-drain".to_owned())
            .spawn(move || drain(queues, &theirs, &reader))?;
        Ok(Self { batches, spare, answered: 0, shared, thread: Some(thread), failure: None })
    }

    /// The next records, waiting at most `timeout` for them; empty when there are none. To be called by the thread that
    /// made the reader.
    pub fn take(&mut self, timeout: Duration) -> Records {
        let deadline = Instant::now() + timeout;
        loop {
            // Loaded before the batches are looked at, as in `take_all`.
            let done = self.shared.done.load(Ordering::Acquire);
            let mut records = Records::new();
            self.take_more(&mut records);
            if !records.is_empty() {
                return records;
            }
            self.answered = done;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return records;
            }
            thread::park_timeout(left);
        }
    }

    /// Adds the records that have come since [`Reader::take`] returned `records`, as long as there are few.
    pub fn take_more(&mut self, records: &mut Records) {
        let mut bytes: usize = records.iter().map(Vec::len).sum();
        while bytes < AT_ONCE
            && let Some((asked, batch)) = self.batches.try_pop()
        {
            self.answered = asked;
            bytes += batch.len();
            records.push(batch);
        }
    }

    /// The records have been handled: their memory is used again.
    pub fn give_back(&mut self, records: Records) {
        // What is too much is freed.
        self.spare.push_iter(records.into_iter());
    }

    /// Asks to be told when all records made by now have been handed out.
    pub fn ask(&self) -> u64 {
        self.shared.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The last request of [`Reader::ask`] that is answered, once the caller has handled the records that
    /// [`Reader::take`] returned last.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// All records that were made before the call, as long as the rings are read.
    pub fn take_all(&mut self) -> Records {
        let request = self.ask();
        self.shared.wake();
        let mut all = Records::new();
        loop {
            // Loaded before the batches are looked at: the records that come with the answer are then among them.
            let done =
                self.failure().is_some() || self.shared.done.load(Ordering::Acquire) >= request;
            all.extend(self.batches.pop_iter().map(|(_, batch)| batch));
            if done {
                self.answered = request;
                return all;
            }
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Whether the rings are not read any more.
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Why the rings are not read any more, if the thread has failed. Records that it had not handed over are lost.
    pub fn failure(&mut self) -> Option<&str> {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            let why = match thread.join() {
                Ok(Ok(())) => "the thread that reads the rings has ended".to_owned(),
                Ok(Err(error)) => format!("the thread that reads the rings failed: {error}"),
                // The panic's message says where.
                Err(_) => "the thread that reads the rings panicked".to_owned(),
            };
            self.failure = Some(why);
        }
        self.failure.as_deref()
    }

    /// How many records were not understood, and left out.
    pub fn malformed(&self) -> u64 {
        self.shared.malformed.load(Ordering::Relaxed)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // `failure` has reported a failure, or nobody asks for one any more.
            let _ = thread.join();
        }
    }
}

/// The body of the thread.
fn drain(
    rings: &[MapHandle],
    Queues { batches: mut queue, spare }: Queues,
    shared: &Arc<Shared>,
    reader: &thread::Thread,
    mut also: impl FnMut(),
) -> Result<(), ProbeError> {
    let taken = Rc::new(RefCell::new(Taken { batches: Records::new(), spare }));
    let mut before = 0;
    let rings = open(rings, &taken, shared)?;
    priority::prefer_for_rings();
    privileges::drop_all();
    while !shared.stop.load(Ordering::Relaxed) {
        shared.wait(&rings).map_err(|cause| failed(cause.into()))?;
        also();
        // Loaded before the rings are read, and after the thread was woken for the request.
        let asked = shared.asked.load(Ordering::Acquire);
        // All rings: a ring that is filled below the mark wakes nobody.
        rings.consume().map_err(failed)?;
        let mut batches = VecDeque::from(mem::take(&mut taken.borrow_mut().batches));
        while let Some(batch) = batches.pop_front() {
            // With the last batch everything has been handed out.
            let answered = if batches.is_empty() { asked } else { before };
            match queue.try_push((answered, batch)) {
                Ok(()) => {}
                Err(_) if shared.stop.load(Ordering::Relaxed) => return Ok(()),
                Err((_, back)) => {
                    batches.push_front(back);
                    also();
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
        before = asked;
        if shared.answer(asked) || !queue.is_empty() {
            reader.unpark();
        }
    }
    Ok(())
}

fn open(
    rings: &[MapHandle],
    taken: &Rc<RefCell<Taken>>,
    shared: &Arc<Shared>,
) -> Result<RingBuffer<'static>, ProbeError> {
    let mut builder = RingBufferBuilder::new();
    for ring in rings {
        let (taken, shared) = (Rc::clone(taken), Arc::clone(shared));
        let take = move |record: &[u8]| {
            taken.borrow_mut().add(record, &shared.malformed);
            0
        };
        builder.add(ring, take).map_err(failed)?;
    }
    builder.build().map_err(failed)
}

/// Records that were taken out of the rings.
struct Taken {
    batches: Records,
    /// Memory of batches that have been handled.
    spare: HeapCons<Vec<u8>>,
}

impl Taken {
    /// Puts a record into the last batch, or into a new one behind it, if it is as long as one of its kind: later only its
    /// kind tells where the next one begins.
    fn add(&mut self, record: &[u8], malformed: &AtomicU64) {
        let kind = Header::read_from_prefix(record).map(|(header, _)| header.kind);
        if kind.ok().and_then(record_bytes) != Some(record.len()) {
            malformed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match self.batches.last_mut().filter(|batch| batch.len() < BATCH) {
            Some(batch) => batch.extend_from_slice(record),
            None => {
                let mut batch = self.spare.try_pop().unwrap_or_default();
                batch.clear();
                batch.extend_from_slice(record);
                self.batches.push(batch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tracer_common::bpf::kind;
    use zerocopy::IntoBytes as _;

    use super::*;

    fn nothing_taken() -> Taken {
        let (_, spare) = HeapRb::new(1).split();
        Taken { batches: Records::new(), spare }
    }

    #[test]
    fn a_record_of_another_length_is_left_out_alone() {
        let header = |kind| Header { kind, ..Header::default() };
        let call = ApiRecord { header: header(kind::API), ..ApiRecord::default() };
        let link = LinkRecord { header: header(kind::LINK), ..LinkRecord::default() };
        let (call, link) = (call.as_bytes(), link.as_bytes());
        let (mut taken, malformed) = (nothing_taken(), AtomicU64::new(0));
        let unknown = header(77);
        for record in
            [call, &call[..120], &[call, &[0; 8]].concat(), unknown.as_bytes(), &[], &[1], link]
        {
            taken.add(record, &malformed);
        }
        assert!(each_record(&taken.batches).eq([(kind::API, call), (kind::LINK, link)]));
        assert_eq!(malformed.into_inner(), 5);
    }

    /// A request that was answered long ago wakes nobody.
    #[test]
    fn a_request_is_answered_once() {
        let shared = Shared::new().unwrap();
        let answers = [0, 1, 1, 3, 3].map(|asked| shared.answer(asked));
        assert_eq!(answers, [false, true, false, true, false]);
    }

    /// A thread that fails while it holds records back is detected, and not waited for.
    #[test]
    fn a_reader_that_fails_is_told_of() {
        let error = || failed(io::Error::other("no ring").into());
        let fails: [fn(&mut Queues) -> bool; 2] = [
            |queues| {
                let _ = queues.batches.try_push((0, vec![7]));
                std::panic::resume_unwind(Box::new("a panic"))
            },
            |queues| queues.batches.try_push((0, vec![7])).is_ok(),
        ];
        for (fail, why) in fails.into_iter().zip(["panicked", "no ring"]) {
            let read = move |mut queues: Queues, _: &Arc<Shared>, _: &thread::Thread| {
                fail(&mut queues);
                Err(error())
            };
            let mut reader = Reader::start(read).unwrap();
            assert_eq!(reader.take_all(), [[7]], "what it had handed over");
            assert!(reader.failure().unwrap().contains(why), "{:?}", reader.failure());
            assert!(reader.take(Duration::ZERO).is_empty() && reader.take_all().is_empty());
        }
    }

    /// If it took one batch at a time, the reader would fall behind the shims' rings for ever.
    #[test]
    fn what_waits_comes_at_once() {
        let read = |mut queues: Queues, shared: &Arc<Shared>, _: &thread::Thread| {
            for (asked, batch) in [(1, vec![7]), (2, vec![8; AT_ONCE]), (3, vec![9])] {
                queues.batches.try_push((asked, batch)).expect("there is room");
            }
            shared.answer(3);
            Ok(())
        };
        let mut reader = Reader::start(read).unwrap();
        while reader.failure().is_none() {
            thread::yield_now();
        }
        let records = reader.take(Duration::ZERO);
        assert_eq!((records, reader.answered()), (vec![vec![7], vec![8; AT_ONCE]], 2));
        assert_eq!((reader.take(Duration::ZERO), reader.answered()), (vec![vec![9]], 3));
        assert!(reader.take(Duration::ZERO).is_empty());
    }

    /// A late thread finds all that the rings hold.
    #[test]
    fn what_the_rings_hold_becomes_batches() {
        let link = LinkRecord {
            header: Header { kind: kind::LINK, ..Header::default() },
            ..LinkRecord::default()
        };
        let (mut taken, malformed) = (nothing_taken(), AtomicU64::new(0));
        for _ in 0..3 * BATCH / size_of::<LinkRecord>() {
            taken.add(link.as_bytes(), &malformed);
        }
        assert_eq!(taken.batches.len(), 3);
        assert!(taken.batches.iter().all(|batch| batch.len() < BATCH + size_of::<LinkRecord>()));
    }

    /// The next batches are written where others were.
    #[test]
    fn memory_that_is_given_back_is_used_again() {
        let read = |queues: Queues, shared: &Arc<Shared>, _: &thread::Thread| {
            let mut taken = Taken { batches: Records::new(), spare: queues.spare };
            while taken.spare.is_empty() {
                thread::yield_now();
            }
            let link = LinkRecord {
                header: Header { kind: kind::LINK, ..Header::default() },
                ..LinkRecord::default()
            };
            taken.add(link.as_bytes(), &shared.malformed);
            assert!(each_record(&taken.batches).eq([(kind::LINK, link.as_bytes())]));
            assert!(taken.batches[0].capacity() >= BATCH && taken.spare.is_empty());
            Err(failed(io::Error::other("it was").into()))
        };
        let mut reader = Reader::start(read).unwrap();
        reader.give_back(vec![vec![7; BATCH]]);
        while !reader.has_failed() {
            thread::yield_now();
        }
        assert!(reader.failure().unwrap().contains("it was"), "{:?}", reader.failure());
    }

    #[test]
    fn a_reader_that_works_has_no_failure() {
        let read = |_: Queues, shared: &Arc<Shared>, _: &thread::Thread| {
            while !shared.stop.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            Ok(())
        };
        let mut reader = Reader::start(read).unwrap();
        assert!(!reader.has_failed());
        assert_eq!(reader.failure(), None);
    }
}
