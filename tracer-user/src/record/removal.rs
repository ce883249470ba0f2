//! Removing probes on threads, while the recording goes on: the kernel takes its time.

use std::thread::JoinHandle;

use crate::probe::Attachment;

/// Probes that are being removed.
pub enum Removal {
    /// The entry probes are being removed; the thread returns the return probes.
    Entries(JoinHandle<Attachment>),
    /// The entry probes are gone, so no new call is seen; calls that were open may return.
    Waiting(Attachment),
    /// The return probes are being removed.
    Last(JoinHandle<()>),
}

impl Removal {
    /// Begins to remove probes, on a thread of its own, since the kernel takes its time.
    pub fn begin(mut attachment: Attachment) -> Self {
        Self::Entries(std::thread::spawn(move || {
            drop(attachment.take_entries());
            attachment
        }))
    }

    /// Removes the probes of a process that has ended: on a thread, or at once if no thread can be started.
    pub fn of_the_dead(probes: Vec<Attachment>) -> Option<Self> {
        let thread = std::thread::Builder::new().spawn(move || drop(probes));
        thread.ok().map(Self::Last)
    }

    /// Takes the removal as far as it can go; `may_end` tells whether no call is open. None when all is done.
    pub fn go_on(self, may_end: impl FnOnce() -> bool) -> Option<Self> {
        match self {
            Self::Entries(thread) if thread.is_finished() => thread.join().ok().map(Self::Waiting),
            Self::Waiting(returns) if may_end() => {
                Some(Self::Last(std::thread::spawn(move || drop(returns))))
            }
            Self::Last(thread) if thread.is_finished() => None,
            other => Some(other),
        }
    }

    /// Waits for the removal in progress; returns the probes that are left.
    pub fn rest(self) -> Option<Attachment> {
        match self {
            Self::Entries(thread) => thread.join().ok(),
            Self::Waiting(returns) => Some(returns),
            Self::Last(thread) => {
                let _ = thread.join();
                None
            }
        }
    }
}
