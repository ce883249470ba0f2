//! The end of a helper process that is kept waiting: the alarm clock of the kernel ends it, in whatever it waits. The
//! functions of this module may be called behind a `fork`.
#![expect(unsafe_code, reason = "signals and timers of this process")]

use std::{
    mem::MaybeUninit,
    ptr,
    time::{Duration, Instant},
};

/// Has the kernel end this process, by SIGALRM, after `within`.
pub fn arm(within: Duration) {
    let mut alarm = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is valid for writes, then for reads. The process that started this one may ignore or block the
    // signal, which this one would inherit.
    unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::sigemptyset(alarm.as_mut_ptr());
        libc::sigaddset(alarm.as_mut_ptr(), libc::SIGALRM);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, alarm.as_ptr(), ptr::null_mut());
    }
    set(within);
}

/// Removes the alarm. Returns the time that it had left: zero if there was none.
pub fn disarm() -> Duration {
    set(Duration::ZERO)
}

/// Keeps the alarm from ending this process until this is dropped; if its time has come by then, it does at once.
pub struct AlarmHold {
    ends: Option<Instant>,
}

/// Holds the alarm off. If it has gone off already, the kernel ends this process before this returns.
pub fn hold() -> AlarmHold {
    let rest = disarm();
    AlarmHold { ends: (!rest.is_zero()).then(|| Instant::now() + rest) }
}

impl Drop for AlarmHold {
    fn drop(&mut self) {
        if let Some(ends) = self.ends {
            // Zero would remove the alarm.
            set(ends.saturating_duration_since(Instant::now()).max(Duration::from_micros(1)));
        }
    }
}

/// Sets the time that is left, zero for no alarm. Returns the time that was left before.
fn set(left: Duration) -> Duration {
    let zero = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let seconds = libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX);
    let value = libc::timeval { tv_sec: seconds, tv_usec: left.subsec_micros().into() };
    let new = libc::itimerval { it_interval: zero, it_value: value };
    let mut old = libc::itimerval { it_interval: zero, it_value: zero };
    // SAFETY: `new` is valid for reads, `old` for writes.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const new, &raw mut old) };
    let libc::timeval { tv_sec, tv_usec } = old.it_value;
    Duration::from_secs(tv_sec.unsigned_abs()) + Duration::from_micros(tv_usec.unsigned_abs())
}

impl AlarmHold {
    /// Whether there is an alarm.
    #[cfg(test)]
    pub fn is_armed(&self) -> bool {
        self.ends.is_some()
    }
}
