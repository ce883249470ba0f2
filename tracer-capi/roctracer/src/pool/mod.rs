//! Pools of activity records.
//!
//! Records are written into one of two buffers. When it is full it is handed to the pool's thread, which
//! gives it to the client's callback, and the other one is written. Nothing is dropped: who finds the
//! one full while the callback still works on the other waits.
//!
//! What holds:
//!
//! * Each record is delivered once, in the order of writing. What it points at is copied into the buffer
//!   with it, or, where it does not fit into any, stays the writer's, who then waits until it was delivered.
//! * [`Pool::flush`] returns when all that was written before is delivered.
//! * [`Pool::close`] delivers what was written, gives the memory back, and returns when the callback is
//!   called no more. Who writes into a closed pool is refused: a pool is never freed, only its memory is.
//! * The callback may do all of this itself, to its own pool. It waits for nothing then: what it
//!   flushes is delivered when it has returned, and what it writes while both buffers are full goes into
//!   a third. Callbacks of two pools that wait for each other's do so for ever.
//! * When the process exits, what was written is delivered by a handler that the first pool has registered: after
//!   the destructors of what was made later, before those of what was there already. It waits [`EXIT_WAIT`] for that.
//! * In a forked child a pool of its parent's is closed, and nobody waits for anything.

mod buffer;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracer_common::activity::ActivityRecord;
use tracer_hooks::sys;

use crate::error::Error;
use crate::thread::{self, Process};
use buffer::{Buffer, Memory, RECORD};

pub use buffer::{Allocator, system_allocator};

/// Takes the records of a buffer. It is called on the pool's thread; the records, and what they point at,
/// are there until it returns.
pub type Consumer = Box<dyn FnMut(&[ActivityRecord]) + Send>;

/// How long the end of the process waits for callbacks of all pools.
pub const EXIT_WAIT: Duration = Duration::from_secs(10);

/// The pool that was made last. A list without a lock: a forked child could find that taken for ever.
static NEWEST: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());

extern "C" fn at_exit() {
    flush_open(Instant::now() + EXIT_WAIT);
}

/// Delivers what was written into pools that nobody has closed, and waits no longer than until then.
#[expect(unsafe_code, reason = "follows pointers to pools")]
pub fn flush_open(until: Instant) {
    let mut next = &NEWEST;
    // SAFETY: null, or a pool, which lives for ever. Acquire pairs with the Release of who has made it.
    while let Some(pool) = unsafe { next.load(Ordering::Acquire).as_ref() } {
        pool.flush_until(until);
        next = &pool.older;
    }
}

/// What a pool is made of.
pub struct Properties {
    /// Bytes of each of the two buffers; of at least two records.
    pub buffer_bytes: usize,
    /// Where the memory comes from: asked once for both buffers.
    pub allocator: Allocator,
    /// Who gets the records.
    pub consumer: Consumer,
}

/// A pool; see [the module](self).
pub struct Pool {
    process: Process,
    /// The pool that was made before it.
    older: AtomicPtr<Self>,
    state: Mutex<State>,
    /// There is something to do for the pool's thread.
    work: Condvar,
    /// Something was delivered, or the pool is closed.
    progress: Condvar,
}

struct State {
    /// Being written.
    active: Buffer,
    /// Not in use.
    spares: Vec<Buffer>,
    /// Full, the oldest first, and how many records had been written when it was.
    full: VecDeque<(Buffer, u64)>,
    /// Bytes of a buffer, none of which is smaller.
    buffer_bytes: usize,
    /// How many records have been written, and how many of those delivered.
    written: u64,
    delivered: u64,
    /// So many are to be delivered without waiting for a full buffer.
    flush_to: u64,
    /// How many writers are waiting for room.
    waiting: usize,
    phase: Phase,
    memory: Option<Memory>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Nobody begins to write any more; what was begun is finished and delivered.
    Closing,
    Closed,
}

thread_local! {
    /// The pool whose thread this is. Without a destructor: it can be asked to a thread's very end.
    static OWN: Cell<*const Pool> = const { Cell::new(ptr::null()) };
}

impl Pool {
    /// Makes a pool, with its thread. It lives for ever, some hundred bytes after it was closed.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`], [`Error::NoThread`].
    pub fn open(properties: Properties) -> Result<&'static Self, Error> {
        let Properties { buffer_bytes, allocator, consumer } = properties;
        let (memory, [active, spare]) = Memory::allocate(allocator, buffer_bytes)?;
        let state = State {
            buffer_bytes: active.bytes(),
            active,
            // Never more than the two, so that nothing is allocated later.
            spares: Vec::with_capacity(2),
            full: VecDeque::with_capacity(2),
            written: 0,
            delivered: 0,
            flush_to: 0,
            waiting: 0,
            phase: Phase::Open,
            memory: Some(memory),
            thread: None,
        };
        let pool: &'static Self = Box::leak(Box::new(Self {
            process: Process::this(),
            older: AtomicPtr::default(),
            state: Mutex::new(state),
            work: Condvar::new(),
            progress: Condvar::new(),
        }));
        let mut state = pool.lock();
        state.spares.push(spare);
        match thread::start(|| pool.deliver_until_closed(consumer)) {
            Ok(thread) => state.thread = Some(thread),
            Err(error) => {
                let memory = state.end();
                drop(state);
                if let Some(memory) = memory {
                    memory.release();
                }
                return Err(Error::NoThread { reason: error.to_string() });
            }
        }
        drop(state);
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| sys::at_exit(at_exit));
        let _ = NEWEST.fetch_update(Ordering::Release, Ordering::Relaxed, |newest| {
            pool.older.store(newest, Ordering::Relaxed);
            Some(ptr::from_ref(pool).cast_mut())
        });
        Ok(pool)
    }

    /// Writes a record.
    ///
    /// # Errors
    ///
    /// [`Error::PoolClosed`]; in a callback of the pool's own also [`Error::NoMemory`].
    pub fn write(&self, record: &ActivityRecord) -> Result<(), Error> {
        self.write_all([record], &[])
    }

    /// Writes two records, of which none comes between and which arrive together.
    ///
    /// # Errors
    ///
    /// As [`Pool::write`].
    pub fn write_pair(&self, first: &ActivityRecord, second: &ActivityRecord) -> Result<(), Error> {
        self.write_all([first, second], &[])
    }

    /// Writes a record whose `bytes_or_name` is to point at `data`, which has a byte at least.
    ///
    /// # Errors
    ///
    /// As [`Pool::write`].
    pub fn write_with(&self, record: &ActivityRecord, data: &[u8]) -> Result<(), Error> {
        self.write_all([record], data)
    }

    fn write_all<const N: usize>(
        &self,
        records: [&ActivityRecord; N],
        data: &[u8],
    ) -> Result<(), Error> {
        let mut state = self.lock_open()?;
        let is_own_thread = self.is_own_thread();
        // Nobody delivers while the pool's thread waits.
        let copies = is_own_thread || N * RECORD + data.len() <= state.buffer_bytes;
        let bytes = N * RECORD + if copies { data.len() } else { 0 };
        if is_own_thread {
            state.make_room(bytes)?;
        } else {
            state = self.wait_for_room(state, bytes);
        }
        let mut last = *records[N - 1];
        if !data.is_empty() {
            let at = if copies { state.active.keep(data) } else { data.as_ptr() };
            last.bytes_or_name = at.expose_provenance() as u64;
        }
        for record in records.into_iter().take(N - 1).chain([&last]) {
            state.active.push(record);
        }
        state.written += N as u64;
        if !copies {
            self.wait_for_delivery(state, None);
        }
        Ok(())
    }

    /// Delivers what was written until now, and waits until it was. Not so in the pool's own callback: what was
    /// written is delivered when it has returned.
    pub fn flush(&self) {
        if self.process.is_this() {
            self.wait_for_delivery(self.lock(), None);
        }
    }

    /// The same, and waits no longer than until then.
    fn flush_until(&self, until: Instant) {
        while self.process.is_this() && Instant::now() < until {
            // The thread may have it itself: a handler of a signal has called `exit`.
            match self.state.try_lock() {
                Ok(state) => return self.wait_for_delivery(state, Some(until)),
                Err(TryLockError::Poisoned(state)) => {
                    return self.wait_for_delivery(state.into_inner(), Some(until));
                }
                Err(TryLockError::WouldBlock) => sys::sleep_ns(1_000_000),
            }
        }
    }

    /// Delivers what was written, and gives the memory back. When this returns the callback is not called any
    /// more; in the callback itself it returns at once, and the rest is done when the callback has returned.
    /// Of a pool that is closed already nothing happens.
    pub fn close(&self) {
        if !self.process.is_this() {
            return;
        }
        self.begin_to_close();
        let mut state = self.lock();
        let thread = state.thread.take();
        if self.is_own_thread() {
            // It ends by itself, detached.
            return;
        }
        while state.phase != Phase::Closed {
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        // It has nothing to do any more but to end.
        let _ = thread.map(JoinHandle::join);
    }

    /// Refuses who writes from now on, and waits for nothing.
    pub fn begin_to_close(&self) {
        if let Ok(mut state) = self.lock_open() {
            state.phase = Phase::Closing;
            self.work.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No panic leaves anything half done: whoever has the lock calls no code of others'.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody can write into it any more.
    pub fn is_closed(&self) -> bool {
        self.lock_open().is_err()
    }

    fn lock_open(&self) -> Result<MutexGuard<'_, State>, Error> {
        // First, since a forked child may find the lock taken by a thread that it does not have.
        if !self.process.is_this() {
            return Err(Error::PoolClosed);
        }
        let state = self.lock();
        if state.phase == Phase::Open { Ok(state) } else { Err(Error::PoolClosed) }
    }

    /// Whether the calling thread is one that calls a pool's callback.
    pub fn is_any_of_their_threads() -> bool {
        !OWN.get().is_null()
    }

    fn is_own_thread(&self) -> bool {
        ptr::eq(OWN.get(), self)
    }

    /// Hands the active buffer over until another one has room.
    fn wait_for_room<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        bytes: usize,
    ) -> MutexGuard<'a, State> {
        state.waiting += 1;
        while !state.active.has_room(bytes) {
            match state.spares.pop() {
                Some(spare) => {
                    state.exchange(spare);
                    self.work.notify_one();
                }
                None => {
                    state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        state.waiting -= 1;
        if state.phase == Phase::Closing {
            self.work.notify_one();
        }
        state
    }

    /// Has delivered what was written until now, or waits until a time for that. Only asks for it on the pool's
    /// thread.
    fn wait_for_delivery(&self, mut state: MutexGuard<'_, State>, until: Option<Instant>) {
        let written = state.written;
        state.flush_to = state.flush_to.max(written);
        self.work.notify_one();
        while state.delivered < written && !self.is_own_thread() {
            let Some(until) = until else {
                state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.progress.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What the pool's thread does.
    fn deliver_until_closed(&self, mut consumer: Consumer) {
        OWN.set(self);
        let mut state = self.lock();
        loop {
            if let Some((buffer, written)) = state.next_to_deliver() {
                drop(state);
                // A panic of the consumer's ends in it; the records count as delivered.
                let _ = catch_unwind(AssertUnwindSafe(|| consumer(buffer.records())));
                state = self.lock();
                state.recycle(buffer);
                state.delivered = written;
                self.progress.notify_all();
            } else if state.phase == Phase::Closing && state.waiting == 0 {
                break;
            } else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        let memory = state.memory.take();
        drop(state);
        if let Some(memory) = memory {
            memory.release();
        }
        drop(consumer);
        self.lock().end();
        self.progress.notify_all();
    }
}

impl State {
    /// Begins to write into another buffer; what is in the active one waits for delivery.
    fn exchange(&mut self, next: Buffer) {
        let full = std::mem::replace(&mut self.active, next);
        if full.is_empty() {
            self.recycle(full);
        } else {
            self.full.push_back((full, self.written));
        }
    }

    /// Puts a buffer away that has been delivered.
    fn recycle(&mut self, mut buffer: Buffer) {
        if !buffer.is_extra() {
            buffer.clear();
            self.spares.push(buffer);
        }
    }

    /// Makes the active buffer one with room, for the pool's thread, which cannot wait for itself.
    fn make_room(&mut self, bytes: usize) -> Result<(), Error> {
        if self.active.has_room(bytes) {
            return Ok(());
        }
        let next = match self.spares.pop_if(|spare| spare.has_room(bytes)) {
            Some(spare) => spare,
            None => {
                self.full.try_reserve(1).map_err(|_| Error::NoMemory)?;
                Buffer::extra(bytes.max(self.buffer_bytes))?
            }
        };
        self.exchange(next);
        Ok(())
    }

    /// The oldest full buffer; else the active one if that is to be flushed. And how many records have been
    /// written when it has been delivered.
    fn next_to_deliver(&mut self) -> Option<(Buffer, u64)> {
        if self.full.is_empty() {
            let wanted =
                self.flush_to > self.delivered || self.phase == Phase::Closing && self.waiting == 0;
            if !wanted || self.active.is_empty() {
                return None;
            }
            // None is being delivered, and none waits for it: both, but the active one, are here.
            let spare = self.spares.pop()?;
            self.exchange(spare);
        }
        self.full.pop_front()
    }

    /// It is over. Returns the memory, if that is still there.
    fn end(&mut self) -> Option<Memory> {
        self.phase = Phase::Closed;
        self.active = Buffer::none();
        self.spares.clear();
        self.memory.take()
    }
}
