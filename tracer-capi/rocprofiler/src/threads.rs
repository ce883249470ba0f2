//! Threads that call callbacks of buffers, and who is told of threads that are created.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr;
use std::sync::{Condvar, Mutex, PoisonError};

use roctracer::thread;

use crate::status::{Result, Status};

/// A buffer, for the thread that calls its callback.
pub trait Deliver: Sync {
    /// Calls it with what waits for that.
    fn deliver(&'static self);
}

/// A thread that calls the callbacks of some buffers, one after the other. It lives for ever.
#[derive(Default)]
pub struct CallbackThread {
    /// Buffers that have something to deliver.
    ready: Mutex<VecDeque<&'static dyn Deliver>>,
    work: Condvar,
}

thread_local! {
    /// Which of them the calling thread is.
    static CURRENT: Cell<*const CallbackThread> = const { Cell::new(ptr::null()) };
}

impl CallbackThread {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// [`Status::Error`] if the system does not.
    pub fn start() -> Result<&'static Self> {
        let this: &'static Self = Box::leak(Box::default());
        let started = thread::start_named("rocprofiler", || this.run());
        started.map(|_| this).map_err(|_| Status::Error)
    }

    /// Has what a buffer has handed over delivered.
    pub fn deliver(&self, buffer: &'static dyn Deliver) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(buffer);
        self.work.notify_one();
    }

    /// Whether the calling thread is this one.
    pub fn is_current(&self) -> bool {
        ptr::eq(CURRENT.get(), self)
    }

    /// Whether the calling thread is one of them.
    pub fn is_any_current() -> bool {
        !CURRENT.get().is_null()
    }

    fn run(&'static self) {
        CURRENT.set(self);
        loop {
            let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
            let buffer = loop {
                match ready.pop_front() {
                    Some(buffer) => break buffer,
                    None => {
                        ready = self.work.wait(ready).unwrap_or_else(PoisonError::into_inner);
                    }
                }
            };
            drop(ready);
            buffer.deliver();
        }
    }
}

/// A library that creates threads of its own: a bit of `rocprofiler_runtime_library_t`.
pub const ROCPROFILER_LIBRARY: u32 = 1;
/// All of them.
const LIBRARIES: u32 = 31;

/// Who is told of threads: before and after one is created, by which library.
pub struct Watcher {
    /// A bit for each library whose threads are meant; 0 for all.
    pub libraries: u32,
    /// Before.
    pub before: Box<dyn Fn(u32) + Send + Sync>,
    /// After.
    pub after: Box<dyn Fn(u32) + Send + Sync>,
}

/// All who are told.
pub struct Watchers(Mutex<Vec<&'static Watcher>>);

impl Watchers {
    /// Nobody.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Adds one, for ever.
    pub fn add(&self, watcher: Watcher) {
        self.lock().push(Box::leak(Box::new(watcher)));
    }

    /// Tells of what `create` creates, a thread of `library`, on the calling thread.
    pub fn around<T>(&self, library: u32, create: impl FnOnce() -> T) -> T {
        // Not under the lock: who is told may add another one.
        let all = self.lock().clone();
        let concerned = |watcher: &&&Watcher| {
            let libraries = if watcher.libraries == 0 { LIBRARIES } else { watcher.libraries };
            libraries & library != 0
        };
        all.iter().filter(concerned).for_each(|watcher| (watcher.before)(library));
        let created = create();
        all.iter().filter(concerned).for_each(|watcher| (watcher.after)(library));
        created
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<&'static Watcher>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Watchers {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn who_is_told_is_told_before_and_after_of_the_libraries_asked_for() {
        let (watchers, told) = (Watchers::default(), Arc::<Mutex<Vec<_>>>::default());
        for (name, libraries) in [("all", 0), ("ours", 1), ("HIP's", 4)] {
            let tell = |when| {
                let told = Arc::clone(&told);
                Box::new(move |library| told.lock().expect("whole").push((name, when, library)))
            };
            watchers.add(Watcher { libraries, before: tell("before"), after: tell("after") });
        }
        let created = watchers.around(ROCPROFILER_LIBRARY, || {
            told.lock().expect("whole").push(("", "created", 0));
            7
        });
        assert_eq!(created, 7);
        let told = told.lock().expect("whole");
        let expected = [
            ("all", "before", 1),
            ("ours", "before", 1),
            ("", "created", 0),
            ("all", "after", 1),
            ("ours", "after", 1),
        ];
        assert_eq!(told[..], expected);
    }
}
