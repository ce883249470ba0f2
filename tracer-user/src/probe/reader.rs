//! Drains the rings, on a thread of its own: joining and writing may take their time, and the rings
//! are only as large as they are.
//!
//! The thread hands over what it took in batches, through a bounded queue. When that is full it
//! leaves the records in the rings, where losses are counted by their producers.

use std::{
    cell::RefCell,
    io,
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

use super::{ProbeError, Programs};
use crate::{priority, privileges};

/// How long the rings are left alone when nobody wakes the reader.
const DRAIN_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// Batches that can wait to be joined.
const QUEUED_BATCHES: usize = 64;

/// Takes records out of the rings of all CPUs.
pub struct Reader {
    batches: HeapCons<Batch>,
    /// Up to which request everything has been handed out.
    answered: u64,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), ProbeError>>>,
    #[cfg(feature = "bpf-log")]
    log: super::log::Log,
}

/// Records, and the requests that were made before they were drained.
type Batch = (u64, Vec<u8>);

struct Shared {
    stop: AtomicBool,
    /// How often a complete drain was asked for, and up to which request one is done.
    asked: AtomicU64,
    done: AtomicU64,
    /// An eventfd: the thread is not to wait now.
    wake: OwnedFd,
}

impl Shared {
    fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (stop, asked, done) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { stop, asked, done, wake })
    }

    fn wake(&self) {
        // It fails only when it has been woken 2⁶⁴ - 2 times.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
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
        // Nothing to read: it was not woken.
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
        let rings = programs
            .rings()
            .iter()
            .map(MapHandle::try_from)
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        let (queue, batches) = HeapRb::new(QUEUED_BATCHES).split();
        let shared = Arc::new(Shared::new().map_err(|cause| ProbeError::Thread { cause })?);
        let (theirs, reader) = (Arc::clone(&shared), thread::current());
        let thread = thread::Builder::new()
            .name("roctap-drain".to_owned())
            .spawn(move || drain(&rings, queue, &theirs, &reader))
            .map_err(|cause| ProbeError::Thread { cause })?;
        Ok(Self {
            batches,
            answered: 0,
            shared,
            thread: Some(thread),
            #[cfg(feature = "bpf-log")]
            log: super::log::Log::of(programs),
        })
    }

    /// The next batch of records, waiting at most `timeout` for it; empty when there is none. The
    /// records stand one behind the other; each tells its kind, which tells its size. To be called by
    /// the thread that made the reader.
    ///
    /// # Errors
    ///
    /// When draining failed.
    pub fn take(&mut self, timeout: Duration) -> Result<Vec<u8>, ProbeError> {
        #[cfg(feature = "bpf-log")]
        self.log.show();
        let deadline = Instant::now() + timeout;
        loop {
            // Before the batches are looked at, as in `take_all`.
            let done = self.shared.done.load(Ordering::Acquire);
            if let Some((asked, batch)) = self.batches.try_pop() {
                self.answered = asked;
                return Ok(batch);
            }
            self.answered = done;
            self.check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            thread::park_timeout(left);
        }
    }

    /// Asks to be told when everything that is recorded by now has been handed out.
    pub fn ask(&self) -> u64 {
        self.shared.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The last request of [`Reader::ask`] that is answered, now that what [`Reader::take`] gave last
    /// is taken care of.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Everything that was recorded before the call.
    ///
    /// # Errors
    ///
    /// When draining failed.
    pub fn take_all(&mut self) -> Result<Vec<u8>, ProbeError> {
        let request = self.ask();
        self.shared.wake();
        let mut all = Vec::new();
        loop {
            // Before the batches are looked at: what comes with the answer is then among them.
            let done = self.shared.done.load(Ordering::Acquire) >= request;
            while let Some((_, batch)) = self.batches.try_pop() {
                all.extend(batch);
            }
            if done {
                #[cfg(feature = "bpf-log")]
                self.log.show();
                self.answered = request;
                return Ok(all);
            }
            self.check()?;
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Tells how the thread ended, if it has: it does so only when it fails.
    fn check(&mut self) -> Result<(), ProbeError> {
        match self.thread.take_if(|thread| thread.is_finished()) {
            Some(thread) => thread.join().unwrap_or(Ok(())),
            None => Ok(()),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // A failure was told by `take`, or nobody wants to know any more.
            let _ = thread.join();
        }
    }
}

/// What the thread does.
fn drain(
    rings: &[MapHandle],
    mut queue: HeapProd<Batch>,
    shared: &Shared,
    reader: &thread::Thread,
) -> Result<(), ProbeError> {
    let taken = Rc::new(RefCell::new(Vec::new()));
    let rings = open(rings, &taken)?;
    priority::prefer_this_thread();
    privileges::drop_all();
    while !shared.stop.load(Ordering::Relaxed) {
        shared.wait(&rings).map_err(|cause| failed(cause.into()))?;
        // Before the rings are read, and after whoever asked has waked.
        let asked = shared.asked.load(Ordering::Acquire);
        // All of them: nobody is woken for what lies below the mark.
        rings.consume().map_err(failed)?;
        let mut batch = taken.take();
        while !batch.is_empty() {
            match queue.try_push((asked, batch)) {
                Ok(()) => batch = Vec::new(),
                Err(_) if shared.stop.load(Ordering::Relaxed) => return Ok(()),
                Err((_, back)) => {
                    batch = back;
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
        // Release: whoever sees the answer sees the batches.
        shared.done.store(asked, Ordering::Release);
        if !queue.is_empty() || asked > 0 {
            reader.unpark();
        }
    }
    Ok(())
}

fn open(
    rings: &[MapHandle],
    taken: &Rc<RefCell<Vec<u8>>>,
) -> Result<RingBuffer<'static>, ProbeError> {
    let mut builder = RingBufferBuilder::new();
    for ring in rings {
        let taken = Rc::clone(taken);
        let keep = move |record: &[u8]| {
            taken.borrow_mut().extend_from_slice(record);
            0
        };
        builder.add(ring, keep).map_err(failed)?;
    }
    builder.build().map_err(failed)
}
