//! Threads that call callbacks of buffers, and the watchers that are told of threads that are created.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use roctracer::thread::{self, Process};

use crate::callback::Calls;
use crate::status::{Result, Status};

/// A buffer, for the thread that calls its callback.
pub trait Deliver: Sync {
    /// Calls the callback with the records that wait for it.
    fn deliver(&'static self);
}

/// A thread that calls the callbacks of some buffers, one after the other.
pub struct CallbackThread {
    /// The process of the thread: it is not in a child that is forked from that.
    process: Process,
    ready: Mutex<Ready>,
    work: Condvar,
    /// The thread waits for another one.
    waits: AtomicBool,
}

/// The calling thread waits for a callback thread, until this is dropped.
pub struct Waiting {
    /// The calling thread, if it is one itself.
    own: Option<&'static CallbackThread>,
}

/// The work of the thread.
#[derive(Default)]
struct Ready {
    /// Buffers that have something to deliver.
    buffers: VecDeque<&'static dyn Deliver>,
    /// The thread is to end.
    ends: bool,
}

thread_local! {
    /// The callback thread that the calling thread is, if it is one.
    static CURRENT: Cell<Option<&'static CallbackThread>> = const { Cell::new(None) };
}

impl CallbackThread {
    /// Starts a thread.
    ///
    /// # Errors
    ///
    /// [`Status::Error`] if the system does not.
    pub fn start() -> Result<&'static Self> {
        let this: &'static Self = Box::leak(Box::new(Self {
            process: Process::this(),
            ready: Mutex::default(),
            work: Condvar::new(),
            waits: AtomicBool::new(false),
        }));
        let started = thread::start_named("rocprofiler", || this.run());
        started.map(|_| this).map_err(|_| Status::Error)
    }

    /// Whether the thread is there: not in a child of a fork before which it was started.
    pub fn is_there(&self) -> bool {
        self.process.is_this()
    }

    /// Has the thread deliver what a buffer has handed over.
    pub fn deliver(&self, buffer: &'static dyn Deliver) {
        self.lock().buffers.push_back(buffer);
        self.work.notify_one();
    }

    /// Has the thread end when it has delivered what it was handed. What is handed to it after it has ended is not
    /// delivered.
    pub fn end(&self) {
        self.lock().ends = true;
        self.work.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the calling thread is one of them.
    pub fn is_any_current() -> bool {
        CURRENT.get().is_some()
    }

    /// The calling thread is about to wait for what this one delivers. None where that might never come: the calling
    /// thread is this one itself, or another callback thread, and this one waits in a callback, as far as is known, for
    /// the calling one.
    pub fn begin_wait(&self) -> Option<Waiting> {
        let waiting = Waiting { own: CURRENT.get() };
        let Some(own) = waiting.own else { return Some(waiting) };
        if ptr::eq(own, self) {
            return None;
        }
        // Both are SeqCst: of threads that would wait in a circle, the last one to say so finds that the next one waits.
        own.waits.store(true, Ordering::SeqCst);
        (!self.waits.load(Ordering::SeqCst)).then_some(waiting)
    }

    fn run(&'static self) {
        CURRENT.set(Some(self));
        loop {
            let mut ready = self.lock();
            let buffer = loop {
                match ready.buffers.pop_front() {
                    Some(buffer) => break buffer,
                    None if ready.ends => return,
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

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(own) = self.own {
            own.waits.store(false, Ordering::SeqCst);
        }
    }
}

/// A library that creates threads of its own: a bit of `rocprofiler_runtime_library_t`.
pub const ROCPROFILER_LIBRARY: u32 = 1;

/// A tool that is told of threads: before and after one is created, by which library.
pub struct Watcher {
    /// The number of the tool.
    pub client: u32,
    /// A bit for each library whose threads are meant; 0 for all.
    pub libraries: u32,
    /// Called before.
    pub before: Box<dyn Fn(u32) + Send + Sync>,
    /// Called after.
    pub after: Box<dyn Fn(u32) + Send + Sync>,
}

impl Watcher {
    fn means(&self, library: u32) -> bool {
        self.libraries == 0 || self.libraries & library != 0
    }
}

/// All watchers. Threads of the program read the list without a lock; former lists stay for those.
#[derive(Default)]
pub struct Watchers {
    all: AtomicPtr<Vec<&'static Watching>>,
    changes: Mutex<()>,
}

/// A watcher of the list.
struct Watching {
    watcher: Watcher,
    calls: Calls,
}

impl Watchers {
    /// An empty list.
    pub const fn new() -> Self {
        Self { all: AtomicPtr::new(ptr::null_mut()), changes: Mutex::new(()) }
    }

    /// Adds a watcher, until [`end`](Self::end).
    pub fn add(&self, watcher: Watcher) {
        let watching = Box::leak(Box::new(Watching { watcher, calls: Calls::default() }));
        self.change(|all| all.push(watching));
    }

    /// A tool is told of threads no more. Waits, until a time, for calls that are under way. Returns whether they have
    /// returned.
    pub fn end(&self, client: u32, until: Instant) -> bool {
        let own =
            self.change(|all| all.extract_if(.., |one| one.watcher.client == client).collect());
        let own: Vec<&Watching> = own;
        own.iter().for_each(|one| one.calls.silence());
        own.iter().filter(|one| !one.calls.wait(until)).count() == 0
    }

    /// Whether a tool is to be told of threads of this library.
    pub fn mean(&self, library: u32) -> bool {
        self.all().iter().any(|one| one.watcher.means(library))
    }

    /// Tells the watchers of the thread of `library` that `create` creates, on the calling thread; also where `create`
    /// throws.
    pub fn around<T>(&self, library: u32, create: impl FnOnce() -> T) -> T {
        let around = ThreadCreation { all: self.all(), library };
        around.tell(|watcher| &*watcher.before);
        create()
    }

    fn all(&self) -> &'static [&'static Watching] {
        #[expect(unsafe_code, reason = "follows a pointer to a list")]
        // Acquire pairs with the Release below.
        // SAFETY: null, or a list, which stays for ever.
        unsafe { self.all.load(Ordering::Acquire).as_ref() }.map_or(&[], Vec::as_slice)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<&'static Watching>) -> T) -> T {
        let _one = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.all().to_vec();
        let changed = change(&mut all);
        self.all.store(Box::leak(Box::new(all)), Ordering::Release);
        changed
    }
}

/// A thread is being created. When this is dropped, the thread was created.
struct ThreadCreation {
    all: &'static [&'static Watching],
    library: u32,
}

impl ThreadCreation {
    fn tell(&self, which: fn(&Watcher) -> &(dyn Fn(u32) + Send + Sync)) {
        for one in self.all.iter().filter(|one| one.watcher.means(self.library)) {
            if let Some(_calling) = one.calls.begin() {
                which(&one.watcher)(self.library);
            }
        }
    }
}

impl Drop for ThreadCreation {
    fn drop(&mut self) {
        self.tell(|watcher| &*watcher.after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn who_is_told_is_told_before_and_after_of_the_libraries_asked_for() {
        let (watchers, events) = (Watchers::default(), Arc::<Mutex<Vec<_>>>::default());
        for (name, libraries) in [("all", 0), ("ours", 1), ("HIP's", 4)] {
            let tell = |when| {
                let events = Arc::clone(&events);
                Box::new(move |library| events.lock().expect("whole").push((name, when, library)))
            };
            watchers.add(Watcher {
                client: libraries,
                libraries,
                before: tell("before"),
                after: tell("after"),
            });
        }
        let created = watchers.around(ROCPROFILER_LIBRARY, || {
            events.lock().expect("whole").push(("", "created", 0));
            7
        });
        assert_eq!(created, 7);
        assert!(watchers.mean(4));
        let (all, events) = (&events, events.lock().expect("whole"));
        let expected = [
            ("all", "before", 1),
            ("ours", "before", 1),
            ("", "created", 0),
            ("all", "after", 1),
            ("ours", "after", 1),
        ];
        assert_eq!(events[..], expected);
        drop(events);
        [0, 1].into_iter().for_each(|client| assert!(watchers.end(client, Instant::now())));
        assert!(!watchers.mean(1) && watchers.mean(4));
        watchers.around(ROCPROFILER_LIBRARY, || ());
        assert_eq!(all.lock().expect("whole").len(), expected.len());
    }

    #[test]
    fn a_thread_that_is_to_end_delivers_what_it_was_handed_and_ends() {
        struct AtEnd(std::sync::mpsc::Sender<&'static str>);
        impl Drop for AtEnd {
            fn drop(&mut self) {
                let _ = self.0.send("ended");
            }
        }
        thread_local! {
            static AT_END: Cell<Option<AtEnd>> = const { Cell::new(None) };
        }
        struct Tell(std::sync::mpsc::Sender<&'static str>);
        impl Deliver for Tell {
            fn deliver(&'static self) {
                let send = self.0.clone();
                let _ = send.send("told");
                AT_END.set(Some(AtEnd(send)));
            }
        }
        let (send, events) = std::sync::mpsc::channel();
        let thread = CallbackThread::start().expect("a thread");
        let tell = Box::leak(Box::new(Tell(send)));
        // While the thread is held up, it is handed something and is to end.
        let mut held = thread.lock();
        held.buffers.push_back(tell);
        held.ends = true;
        drop(held);
        thread.end();
        assert_eq!([events.recv(), events.recv()], [Ok("told"), Ok("ended")]);
    }
}
