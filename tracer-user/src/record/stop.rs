//! Signals that end a recording.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level;

use crate::foreign;

/// Whether somebody has asked for the end of the recording: the first signal asks, the second ends the
/// program at once, with the exit status that shells give a program which a signal has ended.
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens to the signals from now on.
    pub fn install() -> anyhow::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGQUIT, SIGHUP] {
            // The process was started by `nohup`, to go on without its terminal.
            if signal == SIGHUP && is_ignored(signal) {
                continue;
            }
            let asked = Arc::clone(&asked);
            let hear = move || {
                // Two threads may get two signals at the same time: one of them is the second.
                if asked.swap(true, Ordering::Relaxed) {
                    low_level::exit(128 + signal);
                }
            };
            // SAFETY: a signal handler may exchange an atomic, and end the process in this way.
            #[expect(unsafe_code, reason = "a handler of signals")]
            unsafe { low_level::register(signal, hear) }?;
        }
        Ok(Self(asked))
    }

    /// From now on, the next signal ends the program at once.
    pub fn end_at_once(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the recording is to end.
    pub fn asked(&self) -> bool {
        // Relaxed: no other data is read on account of this.
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether this process ignores a signal.
fn is_ignored(signal: i32) -> bool {
    let status = foreign::text("/proc/self/status".as_ref()).unwrap_or_default();
    ignored(&foreign::lossy(&status)).is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}

/// The signals that a process ignores, from the text on it in `/proc`.
fn ignored(status: &str) -> Option<u64> {
    u64::from_str_radix(foreign::field(status, "SigIgn")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_known() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"), Some(0x1001));
        assert_eq!(ignored("Name:\tx\n"), None);
        assert!(!is_ignored(signal_hook::consts::SIGKILL));
        // Rust's programs ignore SIGPIPE.
        assert!(is_ignored(signal_hook::consts::SIGPIPE));
    }
}
