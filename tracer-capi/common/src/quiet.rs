//! Writes of ours end no process: where nobody reads any more, or a file is as large as it may be, a write fails and
//! raises no signal. Nor do they end a thread that was cancelled.

#![expect(unsafe_code, reason = "the thread's mask of signals")]

use std::mem::zeroed;
use std::ptr;

use tracer_hooks::sys::uncancelled;

/// The signals that the kernel sends for a write.
const OF_WRITES: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Runs code that writes. Signals that come of it are taken back.
pub fn quiet<R>(write: impl FnOnce() -> R) -> R {
    // SAFETY: all sets are valid; the mask is the thread's own, and is put back.
    uncancelled(|| unsafe {
        let mut blocked: libc::sigset_t = zeroed();
        let (mut before, mut pending): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigemptyset(&raw mut blocked);
        for signal in OF_WRITES {
            libc::sigaddset(&raw mut blocked, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before);
        libc::sigpending(&raw mut pending);
        let written = write();
        for signal in OF_WRITES {
            // A signal that waited before is the program's.
            if libc::sigismember(&raw const pending, signal) == 0 {
                take_back(signal);
            }
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        written
    })
}

/// Takes a signal that waits for the thread, if one does.
///
/// # Safety
///
/// It is blocked.
unsafe fn take_back(signal: libc::c_int) {
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: all sets and the time are valid.
    unsafe {
        let mut pending: libc::sigset_t = zeroed();
        libc::sigpending(&raw mut pending);
        if libc::sigismember(&raw const pending, signal) == 1 {
            let mut only: libc::sigset_t = zeroed();
            libc::sigemptyset(&raw mut only);
            libc::sigaddset(&raw mut only, signal);
            libc::sigtimedwait(&raw const only, ptr::null_mut(), &raw const at_once);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write as _};

    use super::*;

    #[test]
    fn a_pipe_that_nobody_reads_is_an_error() {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        // SAFETY: what Rust's runtime has set is put back.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let written = quiet(|| writer.write_all(b"lost"));
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGPIPE, before) };
        assert_eq!(written.expect_err("nobody reads").kind(), ErrorKind::BrokenPipe);
    }
}
