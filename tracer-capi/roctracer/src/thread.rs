//! A thread of ours in somebody else's process, and a child that was forked from one.

#![expect(unsafe_code, reason = "how a thread is scheduled, and what runs in a forked child")]

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{Builder, JoinHandle};

use tracer_hooks::sys;

/// As large as threads are by default: callbacks of clients run on it.
const STACK_BYTES: usize = 8 << 20;

/// Starts a thread with every signal blocked, which handlers of the program's would otherwise run on. It is
/// scheduled by itself, and not as the thread that starts it is.
pub fn start(run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    start_named("roctracer", run)
}

/// The same of one that is called otherwise.
pub fn start_named(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let builder = Builder::new().name(name.into()).stack_size(STACK_BYTES);
    let thread = move || {
        schedule_by_itself();
        run();
    };
    sys::uninterrupted(|| builder.spawn(thread))
}

fn schedule_by_itself() {
    if sys::is_confined() {
        return;
    }
    // SAFETY: the parameters are valid; 0 is the calling thread. Where it is not allowed it stays as it was.
    unsafe {
        let parameters: libc::sched_param = core::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters);
        let mut cpus: libc::cpu_set_t = core::mem::zeroed();
        for cpu in 0..libc::CPU_SETSIZE as usize {
            libc::CPU_SET(cpu, &mut cpus);
        }
        libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus);
    }
    sys::own_thread();
}

/// The number of times that this process has been forked from one that already watched for it.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, for whether we still are in it: threads do not survive a `fork`, and locks may be held for ever.
#[derive(Clone, Copy)]
pub struct Process(u32);

impl Process {
    /// This one.
    pub fn this() -> Self {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| sys::at_fork(in_child));
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether the calling thread is in it, and not in a child.
    pub fn is_this(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// A process and a thread, by the numbers that the system gives them.
#[derive(Clone, Copy, Debug)]
pub struct Ids {
    /// Of the process.
    pub process: u32,
    /// Of the thread.
    pub thread: u32,
}

/// The calling thread's.
pub fn own_ids() -> Ids {
    thread_local! {
        /// With the process that they were asked for in.
        static KNOWN: Cell<Option<(Process, Ids)>> = const { Cell::new(None) };
    }
    match KNOWN.get() {
        Some((process, ids)) if process.is_this() => ids,
        _ => {
            // SAFETY: they take nothing, and do not fail.
            let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
            let ids = Ids { process: process as u32, thread: thread as u32 };
            KNOWN.set(Some((Process::this(), ids)));
            ids
        }
    }
}

unsafe extern "C" fn in_child() {
    // The child has this one thread.
    FORKS.fetch_add(1, Ordering::Relaxed);
}
