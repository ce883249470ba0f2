//! Callbacks for work of GPUs that is done, on a thread of their own: the thread that finds the work done waits for no
//! tool.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use roctracer::queue::Queue;

use crate::status::Result;
use crate::threads::{CallbackThread, Deliver};

/// The number of completions that can wait for a callback that does not return.
const MOST: usize = 1 << 16;
/// The time between two looks of a thread that waits for callbacks.
const LOOK: Duration = Duration::from_millis(50);

/// A callback, with the completion that it reports.
type Call = Box<dyn FnOnce() + Send>;

/// The callbacks of a service, in the order in which work was done.
pub struct Completions {
    thread: &'static CallbackThread,
    calls: Queue<Call>,
    /// The number of callbacks that have not returned.
    waiting: AtomicUsize,
    returned: (Mutex<()>, Condvar),
}

impl Completions {
    /// With a thread.
    ///
    /// # Errors
    ///
    /// [`Status::Error`](crate::status::Status::Error) if the system starts none.
    pub fn start() -> Result<&'static Self> {
        Ok(Box::leak(Box::new(Self {
            thread: CallbackThread::start()?,
            calls: Queue::new(),
            waiting: AtomicUsize::new(0),
            returned: Default::default(),
        })))
    }

    /// Whether one more can wait.
    pub fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < MOST
    }

    /// One more is to be called. Without memory for it, it is not.
    pub fn add(&'static self, call: impl FnOnce() + Send + 'static) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if self.calls.push(Box::new(call)) {
            self.thread.deliver(self);
        } else {
            self.has_returned();
        }
    }

    /// Waits until all have returned, or until a time; whether they have. True where a callback does not
    /// [wait](CallbackThread::begin_wait).
    pub fn wait(&self, until: Instant) -> bool {
        let Some(_waiting) = self.thread.begin_wait() else { return true };
        let is_over = || self.waiting.load(Ordering::Acquire) == 0;
        let (lock, condition) = &self.returned;
        let mut held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_over() && Instant::now() < until {
            let waited = condition.wait_timeout(held, LOOK);
            held = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        is_over()
    }

    /// Nothing is called any more: the thread ends.
    pub fn end(&self) {
        self.thread.end();
    }

    fn has_returned(&self) {
        // Pairs with the Acquire in `wait`: what the callback did is seen.
        if self.waiting.fetch_sub(1, Ordering::Release) == 1 {
            self.returned.1.notify_all();
        }
    }
}

impl Deliver for Completions {
    fn deliver(&'static self) {
        for call in self.calls.take() {
            call();
            self.has_returned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn calls_are_made_in_order_on_a_thread_that_nobody_waits_for() {
        let completions = Completions::start().expect("a thread");
        let (called, gate) = (Arc::<Mutex<Vec<u32>>>::default(), Arc::<Mutex<()>>::default());
        let closed = gate.lock().expect("whole");
        for number in 0..3 {
            let (called, gate) = (Arc::clone(&called), Arc::clone(&gate));
            completions.add(move || {
                drop(gate.lock());
                called.lock().expect("whole").push(number);
                assert!(CallbackThread::is_any_current());
                // Itself it does not wait for.
                assert!(completions.wait(Instant::now() + Duration::from_secs(600)));
            });
        }
        assert!(!completions.wait(Instant::now() + LOOK));
        drop(closed);
        assert!(completions.wait(Instant::now() + Duration::from_secs(600)));
        assert_eq!(called.lock().expect("whole")[..], [0, 1, 2]);
        assert!(completions.has_room());
    }
}
