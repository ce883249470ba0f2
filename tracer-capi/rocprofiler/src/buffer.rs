//! Buffers of records.
//!
//! A buffer has two halves. Records are written into one of them, without a lock; when a half is to be delivered it is
//! exchanged for the other one, and handed to the buffer's callback thread. These rules hold:
//!
//! * Each record that was taken is delivered once, those of a thread in the order of writing, unless the buffer
//!   [ends](Buffer::end) before. One that is not taken, or not delivered, is counted, and the count goes with each delivery.
//! * When as many bytes as the watermark are used, the records are delivered, without anybody waiting for it.
//! * Where there is no room, [`Policy::Discard`] drops the record, and [`Policy::Lossless`] hands the half over and
//!   goes on in the other one, for which the writer waits while that one is being delivered.
//! * A record of [`Buffer::write_at_once`] holds up nobody: where a lossless buffer has no room, it gets another half,
//!   until these have [`MOST_EXTRA_BYTES`].
//! * [`Buffer::flush`] returns when every record that was written before is delivered. For an empty buffer no callback
//!   is called.
//! * A callback may do all of this itself, to any buffer. Records that it writes where both halves are full go into a
//!   third. It does not wait for its own thread, nor for one that waits in a callback itself: records that it flushes
//!   there are delivered when it has returned.
//! * In a forked child nothing is written: it has no callback threads.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use roctracer::thread::Process;
use tracer_hooks::sys;

use crate::half::Half;
use crate::status::{Result, Status};
use crate::threads::{CallbackThread, Deliver};

/// The treatment of a record for which the buffer has no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// It is dropped, and counted.
    Discard,
    /// The writing thread waits. The record is dropped, and counted, only where nobody can wait for room: it is larger
    /// than a half, the buffer is destroyed, a handler of a signal has interrupted another write, a forked child
    /// writes, a callback finds no memory for a third half, or too many records that cannot wait are there already.
    Lossless,
}

/// `rocprofiler_record_header_t`: the kind of a record, and its place.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Header {
    /// `rocprofiler_buffer_category_t`.
    pub category: u32,
    /// `rocprofiler_buffer_tracing_kind_t`.
    pub kind: u32,
    /// The record.
    pub payload: *mut c_void,
}

/// Bytes of the halves that a buffer has beyond two for records that cannot wait, but for the first: half a million
/// retirements of ids.
const MOST_EXTRA_BYTES: usize = 16 << 20;

/// The time after which a thread that waits for progress looks itself: an [end](Buffer::end) that does not get the lock
/// wakes nobody.
const LOOKS_AGAIN: Duration = Duration::from_millis(100);

/// `ROCPROFILER_BUFFER_CATEGORY_TRACING`.
const TRACING: u32 = 1;

/// Takes records, which are there until it returns, and the number of records that have been dropped since the buffer
/// was made.
pub type Consumer = Box<dyn Fn(&mut [*mut Header], u64) + Send + Sync>;

/// The properties of a new buffer.
pub struct Properties {
    /// Its id.
    pub id: u64,
    /// Bytes of each half.
    pub bytes: usize,
    /// Bytes from which on it is delivered.
    pub watermark: usize,
    /// The treatment of records for which there is no room.
    pub policy: Policy,
    /// The callback that receives the records.
    pub consumer: Consumer,
    /// The thread that calls it, until the buffer is assigned to another thread.
    pub thread: &'static CallbackThread,
}

/// A buffer; see [the module](self). It lives for ever.
pub struct Buffer {
    id: u64,
    bytes: usize,
    watermark: usize,
    policy: Policy,
    consumer: Consumer,
    process: Process,
    /// The half in which places are taken without the lock; null if there is none.
    open: AtomicPtr<Half>,
    /// Records that were not taken, and those that were and are not delivered.
    dropped: AtomicU64,
    /// The latter alone.
    undelivered: AtomicU64,
    /// Its callback is called no more.
    is_ended: AtomicBool,
    /// The records in the active half are to be handed over as soon as that can be done.
    is_wanted: AtomicBool,
    state: Mutex<State>,
    /// Something was delivered.
    progress: Condvar,
}

/// The choice of a writer that finds no room, where the policy leaves it one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Otherwise {
    Wait,
    Leave,
    /// The buffer gets another half.
    Extend,
}

/// The fate of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Taken,
    Dropped,
    /// There is no room for it now.
    Full,
}

struct State {
    /// The half in which places are taken.
    active: &'static Half,
    /// Not in use.
    spares: Vec<&'static Half>,
    /// Handed over, the oldest first.
    full: VecDeque<&'static Half>,
    /// The number of halves that have been handed over, and of those that were delivered.
    handed: u64,
    delivered: u64,
    /// The bytes of the halves that it has got for records that cannot wait.
    extra_bytes: usize,
    is_destroyed: bool,
    /// Its callback is being called.
    is_delivering: bool,
    thread: &'static CallbackThread,
}

thread_local! {
    /// The thread uses a buffer, and may have its lock.
    static USES: Cell<bool> = const { Cell::new(false) };
}

/// The thread uses a buffer until this is dropped. A handler of a signal that has interrupted the thread would wait for
/// the thread itself.
struct Uses {
    are_nested: bool,
    /// The thread's variable: it is looked up once, since the look-up takes longer than everything else.
    own: *const Cell<bool>,
}

impl Uses {
    fn begin() -> Self {
        USES.with(|own| Self { are_nested: own.replace(true), own })
    }

    /// A number that few threads share: the lane in which this thread takes places.
    fn lane(&self) -> usize {
        // Memory of threads is some MiB apart.
        (self.own.addr().wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 56
    }
}

impl Drop for Uses {
    #[expect(unsafe_code, reason = "the thread's own memory")]
    fn drop(&mut self) {
        // SAFETY: the thread's own, which it has to its very end: it has no destructor.
        unsafe { &*self.own }.set(self.are_nested);
    }
}

impl Buffer {
    /// Makes a buffer.
    ///
    /// # Errors
    ///
    /// [`Status::OutOfResources`]; [`Status::InvalidArgument`] for one without a byte.
    pub fn new(properties: Properties) -> Result<&'static Self> {
        let Properties { id, bytes, watermark, policy, consumer, thread } = properties;
        let [active, spare] = [Half::new(bytes, watermark)?, Half::new(bytes, watermark)?];
        active.open();
        let state = State {
            active,
            spares: vec![spare],
            full: VecDeque::with_capacity(2),
            handed: 0,
            delivered: 0,
            extra_bytes: 0,
            is_destroyed: false,
            is_delivering: false,
            thread,
        };
        Ok(Box::leak(Box::new(Self {
            id,
            bytes,
            watermark,
            policy,
            consumer,
            process: Process::this(),
            open: AtomicPtr::new(ptr::from_ref(active).cast_mut()),
            dropped: AtomicU64::new(0),
            undelivered: AtomicU64::new(0),
            is_ended: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            state: Mutex::new(state),
            progress: Condvar::new(),
        })))
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The number of records that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The number of those that had been taken before, when the buffer [ended](Self::end).
    pub fn undelivered(&self) -> u64 {
        self.undelivered.load(Ordering::Relaxed)
    }

    /// Writes a record, whose first word is its size in bytes. Returns whether it was taken.
    pub fn write(&'static self, record: &[u64]) -> bool {
        self.write_or(record, Otherwise::Wait) == Written::Taken
    }

    /// As [`Self::write`], without waiting. The record is dropped, and counted, where as many extra bytes wait already
    /// as may.
    pub fn write_at_once(&'static self, record: &[u64]) -> bool {
        self.write_or(record, Otherwise::Extend) == Written::Taken
    }

    /// Writes the record if there is room. False if there is none now, but will be; a record that is not taken for
    /// another reason is counted.
    pub fn offer(&'static self, record: &[u64]) -> bool {
        self.write_or(record, Otherwise::Leave) != Written::Full
    }

    /// Counts records that are lost and were never written.
    pub fn drop_records(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    fn write_or(&'static self, record: &[u64], otherwise: Otherwise) -> Written {
        // Locks may be taken for ever in a forked child.
        if !self.process.is_this() {
            return self.refuse();
        }
        let uses = Uses::begin();
        let lane = uses.lane();
        let written = if self.is_ended.load(Ordering::Relaxed) {
            self.refuse()
        } else if self.write_into_open(lane, record) {
            Written::Taken
        } else if uses.are_nested {
            self.refuse()
        } else {
            self.write_with_lock(lane, record, otherwise)
        };
        if !uses.are_nested && self.is_wanted.load(Ordering::Relaxed) {
            drop(self.hand_over(self.lock()));
        }
        written
    }

    /// Drops a record. It is counted at once, and under the lock where that is held: the count goes with every half
    /// that is handed over later.
    fn refuse(&self) -> Written {
        self.drop_records(1);
        Written::Dropped
    }

    #[inline]
    #[expect(unsafe_code, reason = "follows a pointer to a half")]
    fn write_into_open(&'static self, lane: usize, record: &[u64]) -> bool {
        // Acquire pairs with the Release in `exchange`.
        // SAFETY: null, or a half, which lives for ever.
        let open = unsafe { self.open.load(Ordering::Acquire).as_ref() };
        let place = open.and_then(|half| half.take(lane, record.len()));
        let Some(place) = place else { return false };
        if place.reaches_watermark {
            // Pairs with the Acquire in `hand_over`.
            self.is_wanted.store(true, Ordering::Release);
        }
        place.fill(record);
        true
    }

    /// As [`Self::write_into_open`], where the open half is full, or was exchanged just now.
    #[cold]
    fn write_with_lock(
        &'static self,
        lane: usize,
        record: &[u64],
        otherwise: Otherwise,
    ) -> Written {
        if size_of_val(record) > self.bytes {
            return self.refuse();
        }
        loop {
            if self.write_into_open(lane, record) {
                return Written::Taken;
            }
            let mut state = self.lock();
            if state.is_destroyed || self.is_ended.load(Ordering::Relaxed) {
                return self.refuse();
            }
            if state.active.has_room(record.len()) {
                // It was exchanged just now.
                continue;
            }
            if self.policy == Policy::Discard {
                return self.refuse();
            }
            // A callback does not wait for another one.
            let otherwise =
                if CallbackThread::is_any_current() { Otherwise::Extend } else { otherwise };
            let next = match (state.spares.pop(), otherwise) {
                (Some(spare), _) => spare,
                (None, Otherwise::Extend) => match self.extend(&mut state) {
                    Some(extra) => extra,
                    None => return self.refuse(),
                },
                (None, Otherwise::Wait) => {
                    // A handler of a signal may come to a cancellation point meanwhile.
                    let waited =
                        sys::uncancelled(|| self.progress.wait_timeout(state, LOOKS_AGAIN));
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                    continue;
                }
                (None, Otherwise::Leave) => {
                    self.is_wanted.store(true, Ordering::Relaxed);
                    return Written::Full;
                }
            };
            self.exchange(&mut state, next);
        }
    }

    /// Makes another half; none if there are too many already, or no memory.
    fn extend(&self, state: &mut State) -> Option<&'static Half> {
        let bytes = state.extra_bytes + self.bytes;
        let may = bytes <= MOST_EXTRA_BYTES || state.extra_bytes == 0;
        let extra = may.then(|| Half::new(self.bytes, self.watermark).ok()).flatten()?;
        state.extra_bytes = bytes;
        Some(extra)
    }

    /// Delivers the records that were written until now, and waits until they were delivered, or until a time. Returns
    /// whether they were. A callback does not wait where that [might never come](CallbackThread::begin_wait): its
    /// records are delivered when it has returned. Nobody waits for a buffer that has [ended](Self::end).
    pub fn flush(&'static self, until: Option<Instant>) -> bool {
        if !self.process.is_this() {
            return true;
        }
        let _uses = Uses::begin();
        let Some(state) = self.lock_until(until) else { return false };
        let (state, is_put_off) = self.hand_over(state);
        let written = state.handed + u64::from(is_put_off);
        let is_over =
            |state: &State| state.delivered >= written || self.is_ended.load(Ordering::Relaxed);
        self.wait(state, until, is_over) == Some(true)
    }

    /// Waits until a condition holds that the buffer's thread brings about, or until a time. Returns whether it holds.
    /// None where a callback does not wait.
    fn wait(
        &self,
        mut state: MutexGuard<'_, State>,
        until: Option<Instant>,
        is_over: impl Fn(&State) -> bool,
    ) -> Option<bool> {
        if is_over(&state) {
            return Some(true);
        }
        let _waiting = state.thread.begin_wait()?;
        while !is_over(&state) {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Some(false);
            }
            let left = left.unwrap_or(LOOKS_AGAIN).min(LOOKS_AGAIN);
            let waited = self.progress.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(true)
    }

    /// Delivers the records in it, and takes none any more.
    ///
    /// # Errors
    ///
    /// [`Status::BufferBusy`] while it is being delivered, or where there is something to deliver and a callback [does not
    /// wait](CallbackThread::begin_wait); [`Status::BufferNotFound`] if it was destroyed before.
    pub fn destroy(&'static self) -> Result {
        let _uses = Uses::begin();
        let mut state = self.lock();
        if state.is_destroyed {
            return Err(Status::BufferNotFound);
        }
        let can_deliver = state.active.is_empty() || state.thread.begin_wait().is_some();
        if state.delivered < state.handed || !can_deliver {
            return Err(Status::BufferBusy);
        }
        state.is_destroyed = true;
        // Relaxed: nothing is told by it. A thread that has found the half open may still write.
        self.open.store(ptr::null_mut(), Ordering::Relaxed);
        state.active.close();
        drop(state);
        self.flush(None);
        Ok(())
    }

    /// Stops calling its callback: records that are written from now on, or that have not been delivered, are dropped.
    /// Waits until a callback that is being called has returned, or until a time. Returns whether it has. A callback
    /// that calls this takes the callbacks for which it does not wait as returned.
    pub fn end(&'static self, until: Instant) -> bool {
        let _uses = Uses::begin();
        self.is_ended.store(true, Ordering::Relaxed);
        let Some(state) = self.lock_until(Some(until)) else { return false };
        let state = self.drop_all(state);
        // A thread that has looked before, under the lock, waits by now.
        self.progress.notify_all();
        self.wait(state, Some(until), |state| !state.is_delivering) != Some(false)
    }

    /// Drops the records in it, since it has ended. Its thread drops those that somebody writes just now.
    fn drop_all(
        &'static self,
        mut state: MutexGuard<'static, State>,
    ) -> MutexGuard<'static, State> {
        // Relaxed, as in `destroy`.
        self.open.store(ptr::null_mut(), Ordering::Relaxed);
        state.active.close();
        for half in std::mem::take(&mut state.full) {
            if self.drop_half(half) {
                state.delivered += 1;
                state.spares.push(half);
            } else {
                state.full.push_back(half);
            }
        }
        if self.drop_half(state.active) {
            state.active.discard();
        }
        self.hand_over(state).0
    }

    /// Counts the records in a half as dropped, unless somebody writes into it just now. Returns whether it did.
    fn drop_half(&self, half: &Half) -> bool {
        let count = half.filled().map(Iterator::count);
        count.inspect(|&count| self.drop_undelivered(count)).is_some()
    }

    fn drop_undelivered(&self, count: usize) {
        self.drop_records(count as u64);
        self.undelivered.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Whether it was destroyed.
    pub fn is_destroyed(&self) -> bool {
        let _uses = Uses::begin();
        self.lock().is_destroyed
    }

    /// Has its callback called on another thread.
    pub fn assign(&self, thread: &'static CallbackThread) {
        let _uses = Uses::begin();
        self.lock().thread = thread;
    }

    /// Hands the written records to the callback thread, at once if there is another half. Returns whether that is put
    /// off.
    fn hand_over(
        &'static self,
        mut state: MutexGuard<'static, State>,
    ) -> (MutexGuard<'static, State>, bool) {
        // Pairs with the Release in `write_into_open`: a thread that has set it has taken a place, which is seen below;
        // a thread that sets it later hands over itself.
        self.is_wanted.swap(false, Ordering::AcqRel);
        if state.active.is_empty() {
            return (state, false);
        }
        let spare = state.spares.pop();
        let is_put_off = spare.is_none();
        match spare {
            Some(spare) => self.exchange(&mut state, spare),
            None => self.is_wanted.store(true, Ordering::Relaxed),
        }
        (state, is_put_off)
    }

    /// The lock, if it can be had until a time: a process may exit in a handler of a signal that has interrupted the
    /// owner.
    fn lock_until(&self, until: Option<Instant>) -> Option<MutexGuard<'_, State>> {
        let Some(until) = until else { return Some(self.lock()) };
        loop {
            match self.state.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
                Err(TryLockError::WouldBlock) => sys::sleep_ns(1_000_000),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No panic leaves anything half done: the thread that has the lock calls no code of others'.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exchanges the active half for `next`, and has the former delivered.
    fn exchange(&'static self, state: &mut State, next: &'static Half) {
        self.is_wanted.store(false, Ordering::Relaxed);
        // First: a thread that takes a place in the next one comes later.
        state.active.close();
        if state.is_destroyed || self.is_ended.load(Ordering::Relaxed) {
            next.discard();
        } else {
            next.open();
            // Pairs with the Acquire in `write_into_open`.
            self.open.store(ptr::from_ref(next).cast_mut(), Ordering::Release);
        }
        let full = std::mem::replace(&mut state.active, next);
        state.full.push_back(full);
        state.handed += 1;
        state.thread.deliver(self);
    }
}

impl Deliver for Buffer {
    fn deliver(&'static self) {
        let mut state = self.lock();
        // One: the thread is asked once for each, and its other buffers wait.
        if let Some(half) = state.full.pop_front() {
            // Under the lock: either the thread that ends the buffer waits for the callback, or the callback is not
            // called.
            let is_ended = self.is_ended.load(Ordering::Relaxed);
            state.is_delivering = !is_ended;
            drop(state);
            let mut headers: Vec<Header> = half.records().map(header).collect();
            if is_ended {
                self.drop_undelivered(headers.len());
            } else {
                let mut pointers: Vec<*mut Header> =
                    headers.iter_mut().map(ptr::from_mut).collect();
                (self.consumer)(&mut pointers, self.dropped());
            }
            state = self.lock();
            state.is_delivering = false;
            state.delivered += 1;
            state.spares.push(half);
            if self.is_wanted.load(Ordering::Relaxed)
                && !state.active.is_empty()
                && let Some(spare) = state.spares.pop()
            {
                self.exchange(&mut state, spare);
            }
            self.progress.notify_all();
        }
    }
}

/// The header of a record.
fn header(record: &[u64]) -> Header {
    // The kind is the second word's lower half.
    let kind = record.get(1).map_or(0, |&word| word as u32);
    Header { category: TRACING, kind, payload: record.as_ptr().cast_mut().cast() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Under the lock, and so before the half is handed over with which the count goes.
    #[test]
    fn a_record_that_is_dropped_is_counted_where_that_is_decided() {
        let buffer = Buffer::new(Properties {
            id: 1,
            bytes: 4096,
            watermark: 4096,
            policy: Policy::Discard,
            consumer: Box::new(|_, _| ()),
            thread: CallbackThread::start().expect("a thread"),
        });
        let buffer = buffer.expect("memory");
        assert_eq!((0..1000).take_while(|_| buffer.write_into_open(0, &[16, 0])).count(), 256);
        assert!(buffer.write_with_lock(0, &[16, 0], Otherwise::Wait) == Written::Dropped);
        assert_eq!(buffer.dropped(), 1);
    }

    fn buffer(consumer: Consumer, policy: Policy) -> &'static Buffer {
        let thread = CallbackThread::start().expect("a thread");
        let (bytes, watermark) = (1 << 20, 1 << 20);
        let properties = Properties { id: 1, bytes, watermark, policy, consumer, thread };
        Buffer::new(properties).expect("memory")
    }

    /// A record of a whole half.
    fn large() -> Vec<u64> {
        let mut record = vec![0; (1 << 20) / size_of::<u64>()];
        record[0] = 1 << 20;
        record
    }

    /// As a handler of a signal that interrupts a flush.
    #[test]
    fn who_interrupts_a_use_of_the_buffer_does_not_wait_for_its_lock() {
        let buffer = buffer(Box::new(|_, _| ()), Policy::Lossless);
        assert!(buffer.write_into_open(0, &large()));
        let _uses = Uses::begin();
        let _lock = buffer.lock();
        assert!(!buffer.write(&large()) && buffer.dropped() == 1);
    }

    #[test]
    fn what_a_callback_writes_is_bounded() {
        let (go_on, waits) = std::sync::mpsc::channel::<()>();
        let waits = Mutex::new(waits);
        let stuck = Box::new(move |_: &mut [*mut Header], _| {
            let _ = waits.lock().expect("no panic").recv();
        });
        let behind = buffer(stuck, Policy::Lossless);
        let (done, is_done) = std::sync::mpsc::channel();
        let done = Mutex::new(done);
        let writes = Box::new(move |_: &mut [*mut Header], _| {
            let taken = (0..100).filter(|_| behind.write(&large())).count();
            done.lock().expect("no panic").send(taken).expect("it is waited for");
        });
        let first = buffer(writes, Policy::Lossless);
        assert!(first.write(&[16, 0]));
        assert!(first.flush(None));
        // Its two halves, and as many as a buffer that is behind gets.
        let taken = is_done.recv().expect("it was called");
        assert_eq!(taken, 2 + (MOST_EXTRA_BYTES >> 20));
        assert_eq!(behind.dropped(), 100 - taken as u64);
        drop(go_on);
    }
}
