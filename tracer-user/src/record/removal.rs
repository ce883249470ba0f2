//! Removing probes on threads, while the recording goes on: the kernel takes its time. What is left at the
//! end is handed to a process ([`crate::probe::hand_over`]).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use crate::probe::Attachment;

/// Probes that are being removed.
pub enum Removal {
    /// The entries are; what comes back are the return probes.
    Entries(JoinHandle<Attachment>),
    /// No new call is seen; calls that were open may return.
    Waiting(Attachment),
    /// The return probes are.
    Returns(JoinHandle<()>),
    /// All are, of a process that has ended, until this says stop; what comes back is left.
    OfTheDead(JoinHandle<Attachment>, Arc<AtomicBool>),
}

impl Removal {
    /// Begins. On a thread of its own, since the kernel takes its time.
    pub fn begin(mut attachment: Attachment) -> Self {
        Self::Entries(std::thread::spawn(move || {
            drop(attachment.take_entries());
            attachment
        }))
    }

    /// Removes the probes of a process that has ended: meanwhile, or at once if that is not possible.
    pub fn of_the_dead(probes: Vec<Attachment>) -> Option<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, probes) = (Arc::clone(&stop), Attachment::together(probes));
        let thread = std::thread::Builder::new().spawn(move || probes.remove_until(&seen));
        thread.ok().map(|thread| Self::OfTheDead(thread, stop))
    }

    /// Goes on as far as it can; `may_end` tells whether no call is open. None when all is done.
    pub fn go_on(self, may_end: impl FnOnce() -> bool) -> Option<Self> {
        match self {
            Self::Entries(thread) if thread.is_finished() => thread.join().ok().map(Self::Waiting),
            Self::Waiting(returns) if may_end() => {
                Some(Self::Returns(std::thread::spawn(move || drop(returns))))
            }
            Self::Returns(thread) if thread.is_finished() => None,
            Self::OfTheDead(thread, _) if thread.is_finished() => None,
            other => Some(other),
        }
    }

    /// Waits for what is being removed; the probes that are left.
    pub fn rest(self) -> Option<Attachment> {
        match self {
            Self::Entries(thread) => thread.join().ok(),
            Self::Waiting(returns) => Some(returns),
            Self::OfTheDead(thread, stop) => {
                stop.store(true, Ordering::Relaxed);
                thread.join().ok()
            }
            Self::Returns(thread) => {
                let _ = thread.join();
                None
            }
        }
    }
}
