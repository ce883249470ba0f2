//! Threads of a target that stop: any can, at any instruction, for as long as it likes.
#![expect(unsafe_code, reason = "ptrace")]

use std::{fs, ptr};

use crate::wait_until;

/// A thread that is stopped by a tracer until this is dropped. Only the thread of the test that stopped it
/// can let it go.
pub struct StoppedThread {
    tid: i32,
}

/// `futex`, x86-64: where the shim's thread waits for its next look.
const FUTEX: &str = "202";

impl StoppedThread {
    /// Stops the thread of process `pid` that has this name, while it sleeps: so that it holds no lock.
    pub fn named(pid: u32, name: &str) -> Self {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten();
        let is_it = |thread: &fs::DirEntry| {
            fs::read_to_string(thread.path().join("comm")).is_ok_and(|own| own.trim() == name)
        };
        let thread = threads.into_iter().find(is_it).unwrap_or_else(|| panic!("no thread {name}"));
        let tid = thread.file_name().to_string_lossy().parse().expect("a number");
        let mut stopped = None;
        wait_until("it sleeps", || {
            stopped = None;
            let thread_stops = Self::stop(tid);
            // Also of a thread that is stopped: the call that it will go on with.
            let call = fs::read_to_string(thread.path().join("syscall")).expect("it is there");
            stopped = Some(thread_stops).filter(|_| call.split(' ').next() == Some(FUTEX));
            stopped.is_some()
        });
        stopped.expect("stopped")
    }

    fn stop(tid: i32) -> Self {
        let stopped = Self { tid };
        stopped.request(libc::PTRACE_SEIZE);
        stopped.request(libc::PTRACE_INTERRUPT);
        // SAFETY: nobody wants to know the status.
        let waited = unsafe { libc::waitpid(tid, ptr::null_mut(), libc::__WALL) };
        assert_eq!(waited, tid, "{}", std::io::Error::last_os_error());
        stopped
    }

    fn request(&self, request: libc::c_uint) {
        let null = ptr::null_mut::<libc::c_void>();
        // SAFETY: these requests take no addresses.
        let result = unsafe { libc::ptrace(request, self.tid, null, null) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        self.request(libc::PTRACE_DETACH);
    }
}
