//! The signals and standard descriptors that this process got from its parent, for the command to get the same. The
//! command would not get them by itself: Rust's runtime ignores SIGPIPE before `main`, resets it for each child,
//! empties the child's mask of signals, and opens standard descriptors that are closed. With SIGCHLD ignored,
//! roctap would not learn how its own children end.
#![expect(unsafe_code, reason = "looks around before `main`, and acts between `fork` and `exec`")]

use std::{
    io,
    os::unix::process::CommandExt as _,
    process::Command,
    sync::atomic::{AtomicU8, Ordering},
};

/// The standard descriptors and signals that roctap and Rust's runtime change.
const DESCRIPTORS: [i32; 3] = [0, 1, 2];
const SIGNALS: [i32; 2] = [libc::SIGPIPE, libc::SIGCHLD];

/// Which of [`DESCRIPTORS`] were closed, a bit each.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// Which of [`SIGNALS`] were ignored.
static IGNORED: AtomicU8 = AtomicU8::new(0);

/// The C library calls `look` before Rust's runtime starts.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let bits = |found: &mut dyn Iterator<Item = bool>| {
        found.enumerate().fold(0, |bits, (i, found)| bits | u8::from(found) << i)
    };
    // SAFETY: descriptors are asked for by number.
    let mut closed = DESCRIPTORS.iter().map(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0);
    CLOSED.store(bits(&mut closed), Ordering::Relaxed);
    // SAFETY: the default action runs no function.
    let mut ignored = SIGNALS
        .iter()
        .map(|&signal| unsafe { libc::signal(signal, libc::SIG_DFL) == libc::SIG_IGN });
    IGNORED.store(bits(&mut ignored), Ordering::Relaxed);
}

/// Has `command` be started, or executed, with what this process had from its parent, and with the mask of
/// signals that this thread has.
pub fn pass_on(command: &mut Command) -> &mut Command {
    let closed = CLOSED.load(Ordering::Relaxed);
    let ignored = IGNORED.load(Ordering::Relaxed);
    // SAFETY: the mask is valid for being written to; all zeros is one.
    let mask = unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut mask);
        mask
    };
    let step = move || {
        // SAFETY: all of these may be called behind a `fork`.
        unsafe {
            for (i, signal) in SIGNALS.into_iter().enumerate() {
                let was = if ignored & 1 << i == 0 { libc::SIG_DFL } else { libc::SIG_IGN };
                libc::signal(signal, was);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
            for (i, descriptor) in DESCRIPTORS.into_iter().enumerate() {
                if closed & 1 << i != 0 {
                    libc::close(descriptor);
                }
            }
        }
        io::Result::Ok(())
    };
    // SAFETY: it makes system calls alone.
    unsafe { command.pre_exec(step) }
}
