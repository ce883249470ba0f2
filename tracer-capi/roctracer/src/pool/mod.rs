//! Pools of activity records.
//!
//! Records are written into one of two buffers, without a lock: [`buffer`]. When it is full it is handed to the pool's
//! thread, which gives it to the client's callback, and the other one is written. Nothing is dropped: a thread that
//! finds the one full while the callback still works on the other waits.
//!
//! These rules hold:
//!
//! * Each record is delivered once, in the order of writing. The data that it points at is copied into the buffer with
//!   it, or, where it does not fit into any, stays the writer's, who then waits until it was delivered.
//! * [`Pool::flush`] returns when every record that was written before is delivered.
//! * [`Pool::close`] delivers the written records, gives the memory back, and returns when the callback is called no
//!   more. A write into a closed pool is refused: a pool is never freed, only its memory is.
//! * The callback may do all of this itself, to its own pool. It waits for nothing then: records that it flushes are
//!   delivered when it has returned, and records that it writes while both buffers are full go into a third. Callbacks
//!   of two pools that wait for each other's do so for ever.
//! * When the process exits, a handler that the first pool has registered delivers the written records: after the
//!   destructors of objects that were made later, before those of objects that were there already. It waits
//!   [`EXIT_WAIT`] for that.
//! * In a forked child a pool of its parent's is closed, and nobody waits for anything.

mod buffer;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Deref;
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
use buffer::{Buffer, PoolMemory, RECORD, Reservation};

pub use buffer::{Allocator, system_allocator};

/// Takes the records of a buffer. It is called on the pool's thread; the records, and the data that they point at, are
/// there until it returns.
pub type Consumer = Box<dyn FnMut(&[ActivityRecord]) + Send>;

/// The time that the end of the process waits for callbacks of all pools.
pub const EXIT_WAIT: Duration = Duration::from_secs(10);

/// The pool that was made last. A list without a lock: a forked child could find that taken for ever.
static NEWEST: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());

extern "C-unwind" fn at_exit() {
    flush_open(Instant::now() + EXIT_WAIT);
}

/// Delivers the records of pools that nobody has closed, and waits no longer than until then. All are asked first: a
/// callback that does not return holds up its own pool alone.
pub fn flush_open(until: Instant) {
    pools().for_each(Pool::ask_to_flush);
    pools().for_each(|pool| pool.flush_until(until));
}

/// All pools, the newest first.
#[expect(unsafe_code, reason = "follows pointers to pools")]
fn pools() -> impl Iterator<Item = &'static Pool> {
    // SAFETY: null, or a pool, which lives for ever. Acquire pairs with the Release of the thread that has made it.
    let at = |place: &AtomicPtr<Pool>| unsafe { place.load(Ordering::Acquire).as_ref() };
    std::iter::successors(at(&NEWEST), move |pool| at(&pool.older))
}

/// The properties of a new pool.
pub struct Properties {
    /// Bytes of each of the two buffers; of at least two records.
    pub buffer_bytes: usize,
    /// The source of the memory: asked once for both buffers.
    pub allocator: Allocator,
    /// The callback that receives the records.
    pub consumer: Consumer,
}

/// A pool; see [the module](self).
pub struct Pool {
    process: Process,
    /// The pool that was made before it.
    older: AtomicPtr<Self>,
    /// The buffer in which places are taken without the lock; null if there is none.
    open: AtomicPtr<Buffer>,
    state: Mutex<State>,
    /// There is something to do for the pool's thread.
    work: Condvar,
    /// Something was delivered, or the pool is closed.
    progress: Condvar,
}

struct State {
    /// The buffer in which places are taken.
    active: PoolBuffer,
    /// Not in use.
    spares: Vec<PoolBuffer>,
    /// Handed over, the oldest first.
    full: VecDeque<PoolBuffer>,
    /// Bytes of a buffer, none of which is smaller.
    buffer_bytes: usize,
    /// The number of buffers that have been handed over, and of those that were delivered.
    handed: u64,
    delivered: u64,
    /// The count of buffers that are to be delivered without waiting for a full buffer.
    flush_to: u64,
    /// The number of writers that wait for room.
    waiting: usize,
    phase: Phase,
    memory: Option<PoolMemory>,
    thread: Option<JoinHandle<()>>,
}

/// A buffer.
enum PoolBuffer {
    /// One of the pool's two, which live for ever, as it does.
    Own(&'static Buffer),
    /// With memory of its own; places are taken with the lock alone.
    Extra(Box<Buffer>),
}

impl Deref for PoolBuffer {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        match self {
            Self::Own(buffer) => buffer,
            Self::Extra(buffer) => buffer,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Nobody begins to write any more; writes that have begun are finished and delivered.
    Closing,
    Closed,
}

thread_local! {
    /// The pool whose thread this is. Without a destructor: it can be asked to a thread's very end.
    static OWN: Cell<*const Pool> = const { Cell::new(ptr::null()) };
    /// The thread writes into a pool. A handler of a signal that has interrupted the thread would wait for the thread
    /// itself.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

impl Pool {
    /// Makes a pool, with its thread. It lives for ever, some hundred bytes after it was closed.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`], [`Error::NoThread`].
    pub fn open(properties: Properties) -> Result<&'static Self, Error> {
        let Properties { buffer_bytes, allocator, consumer } = properties;
        let (memory, buffers) = PoolMemory::allocate(allocator, buffer_bytes)?;
        let [active, spare]: [&'static Buffer; 2] =
            buffers.map(|buffer| &*Box::leak(Box::new(buffer)));
        // Never more than these two, so that nothing is allocated later.
        let mut spares = Vec::with_capacity(2);
        spares.push(PoolBuffer::Own(spare));
        active.open();
        let state = State {
            buffer_bytes: active.bytes(),
            active: PoolBuffer::Own(active),
            spares,
            full: VecDeque::with_capacity(2),
            handed: 0,
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
            open: AtomicPtr::new(ptr::from_ref(active).cast_mut()),
            state: Mutex::new(state),
            work: Condvar::new(),
            progress: Condvar::new(),
        }));
        let mut state = pool.lock();
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
    /// [`Error::PoolClosed`]; in a callback of the pool's own also [`Error::NoMemory`], and in a handler of a signal that
    /// has interrupted this and finds the buffer full.
    pub fn write(&self, record: &ActivityRecord) -> Result<(), Error> {
        self.write_all([record], &[])
    }

    /// Writes two records that arrive together, with none in between.
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
        let is_nested = WRITES.replace(true);
        let written = self.write_in_turn(records, data, is_nested);
        WRITES.set(is_nested);
        written
    }

    #[inline]
    #[expect(unsafe_code, reason = "follows a pointer to a buffer")]
    fn write_in_turn<const N: usize>(
        &self,
        records: [&ActivityRecord; N],
        data: &[u8],
        is_nested: bool,
    ) -> Result<(), Error> {
        // Acquire pairs with the Release in `exchange`.
        // SAFETY: null, or a buffer of the pool's own, which lives for ever.
        let open = unsafe { self.open.load(Ordering::Acquire).as_ref() };
        // A forked child has the memory, too, and no thread that reads it.
        if self.process.is_this()
            && let Some(place) = open.and_then(|buffer| buffer.take(N, data.len()))
        {
            place.fill(records, data);
            return Ok(());
        }
        if is_nested {
            return Err(Error::NoMemory);
        }
        self.write_with_lock(records, data)
    }

    /// As [`Self::write_in_turn`], where the open buffer is full, or there is none.
    #[cold]
    fn write_with_lock<const N: usize>(
        &self,
        records: [&ActivityRecord; N],
        data: &[u8],
    ) -> Result<(), Error> {
        let mut state = self.lock_open()?;
        if self.is_own_thread() {
            return self.write_in_callback(&mut state, records, data);
        }
        if N * RECORD + data.len() <= state.buffer_bytes {
            state = self.wait_for_place(state, N, data.len(), |place| place.fill(records, data));
            drop(state);
            return Ok(());
        }
        // The data fits into no buffer: the record points at the writer's own.
        let mut last = *records[N - 1];
        last.bytes_or_name = data.as_ptr().expose_provenance() as u64;
        let records: [&_; N] =
            std::array::from_fn(|at| if at == N - 1 { &last } else { records[at] });
        state = self.wait_for_place(state, N, 0, |place| place.fill(records, &[]));
        self.wait_for_delivery(state, None);
        Ok(())
    }

    /// Delivers the records that were written until now, and waits until they were delivered. In the pool's own
    /// callback it does not wait: the records are delivered when the callback has returned.
    pub fn flush(&self) {
        if self.process.is_this() {
            self.wait_for_delivery(self.lock(), None);
        }
    }

    /// As [`Self::flush`], but waits no longer than until then.
    fn flush_until(&self, until: Instant) {
        while self.process.is_this() && Instant::now() < until {
            // The thread may have the lock itself: a handler of a signal has called `exit`.
            match self.state.try_lock() {
                Ok(state) => return self.wait_for_delivery(state, Some(until)),
                Err(TryLockError::Poisoned(state)) => {
                    return self.wait_for_delivery(state.into_inner(), Some(until));
                }
                Err(TryLockError::WouldBlock) => sys::sleep_ns(1_000_000),
            }
        }
    }

    /// Asks for the delivery of the records that were written until now, if the lock is free, and waits for nothing.
    fn ask_to_flush(&self) {
        if self.process.is_this()
            && let Ok(mut state) = self.state.try_lock()
        {
            self.ask_for_delivery(&mut state);
        }
    }

    /// Delivers the written records, and gives the memory back. When this returns the callback is not called any more;
    /// in the callback itself it returns at once, and the rest is done when the callback has returned. Does nothing to
    /// a pool that is closed already.
    pub fn close(&self) {
        if !self.process.is_this() {
            return;
        }
        self.begin_to_close();
        let mut state = self.lock();
        let thread = state.thread.take();
        if self.is_own_thread() {
            // The thread ends by itself, detached.
            return;
        }
        while state.phase != Phase::Closed {
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        // The thread has nothing to do any more but to end.
        let _ = thread.map(JoinHandle::join);
    }

    /// Refuses writes from now on, and waits for nothing.
    pub fn begin_to_close(&self) {
        if let Ok(mut state) = self.lock_open() {
            state.phase = Phase::Closing;
            // Relaxed: nothing is told by it.
            self.open.store(ptr::null_mut(), Ordering::Relaxed);
            self.work.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No panic leaves anything half done: the thread that has the lock calls no code of others'.
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

    /// Hands the active buffer over until another one has room, and fills a place in that one.
    fn wait_for_place<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        records: usize,
        data: usize,
        fill: impl FnOnce(Reservation<'_>),
    ) -> MutexGuard<'a, State> {
        state.waiting += 1;
        loop {
            if let Some(place) = state.active.take(records, data) {
                fill(place);
                break;
            }
            match state.spares.pop() {
                Some(spare) => {
                    self.exchange(&mut state, spare);
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

    /// Has places taken in another buffer; the records in the active one wait for delivery.
    fn exchange(&self, state: &mut State, next: PoolBuffer) {
        // First: a thread that takes a place in the next one comes later.
        state.active.close();
        next.open();
        let open = match &next {
            PoolBuffer::Own(buffer) if state.phase == Phase::Open => {
                ptr::from_ref(*buffer).cast_mut()
            }
            _ => ptr::null_mut(),
        };
        // Pairs with the Acquire in `write_in_turn`.
        self.open.store(open, Ordering::Release);
        let full = std::mem::replace(&mut state.active, next);
        if full.is_empty() {
            state.recycle(full);
        } else {
            state.full.push_back(full);
            state.handed += 1;
        }
    }

    /// Writes on the pool's thread, which cannot wait for itself.
    fn write_in_callback<const N: usize>(
        &self,
        state: &mut State,
        records: [&ActivityRecord; N],
        data: &[u8],
    ) -> Result<(), Error> {
        let bytes = N * RECORD + data.len();
        loop {
            if let Some(place) = state.active.take(N, data.len()) {
                place.fill(records, data);
                return Ok(());
            }
            let next = match state.spares.pop_if(|spare| spare.bytes() >= bytes) {
                Some(spare) => spare,
                None => {
                    state.full.try_reserve(1).map_err(|_| Error::NoMemory)?;
                    PoolBuffer::Extra(Box::new(Buffer::extra(bytes.max(state.buffer_bytes))?))
                }
            };
            self.exchange(state, next);
        }
    }

    /// The oldest buffer that was handed over; else the active one if that is to be flushed.
    fn next_to_deliver(&self, state: &mut State) -> Option<PoolBuffer> {
        if state.full.is_empty() {
            let closes = state.phase == Phase::Closing && state.waiting == 0;
            if closes {
                // A thread that has found it open may still write.
                state.active.close();
            }
            if !(closes || state.flush_to > state.delivered) || state.active.is_empty() {
                return None;
            }
            // None is being delivered, and none waits for it: both, but the active one, are here.
            let spare = state.spares.pop()?;
            self.exchange(state, spare);
        }
        state.full.pop_front()
    }

    /// Waits until the records that were written until now are delivered, or until a time. On the pool's thread it only
    /// asks for the delivery.
    fn wait_for_delivery(&self, mut state: MutexGuard<'_, State>, until: Option<Instant>) {
        let written = self.ask_for_delivery(&mut state);
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

    /// Asks for the delivery of the records that were written until now. Returns the count of buffers, of those that
    /// were delivered and will be.
    fn ask_for_delivery(&self, state: &mut State) -> u64 {
        let written = state.handed + u64::from(!state.active.is_empty());
        state.flush_to = state.flush_to.max(written);
        self.work.notify_one();
        written
    }

    /// The loop of the pool's thread.
    fn deliver_until_closed(&self, mut consumer: Consumer) {
        OWN.set(self);
        let mut state = self.lock();
        loop {
            if let Some(buffer) = self.next_to_deliver(&mut state) {
                drop(state);
                // A panic of the consumer's ends in it; the records count as delivered.
                let _ = catch_unwind(AssertUnwindSafe(|| consumer(buffer.records())));
                state = self.lock();
                state.recycle(buffer);
                state.delivered += 1;
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
    /// Puts away a buffer that has been delivered.
    fn recycle(&mut self, buffer: PoolBuffer) {
        if matches!(buffer, PoolBuffer::Own(_)) {
            self.spares.push(buffer);
        }
    }

    /// The pool is over: all buffers are closed. Returns the memory, if that is still there.
    fn end(&mut self) -> Option<PoolMemory> {
        self.phase = Phase::Closed;
        self.active.close();
        self.spares.clear();
        self.memory.take()
    }
}
