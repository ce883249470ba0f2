//! The kernel interfaces by which probes are placed, and the choice between them.

use std::io;

use super::{ProbeError, events::Events, sys, tracefs::Tracefs};
use crate::placing::Placing;

/// The kernel interface by which probes are placed.
#[derive(Debug)]
pub(super) enum PlacingInterface {
    /// With `sessions`, one program runs at the entry and at the return of a function, and says at each entry
    /// whether there is to be a return.
    Multi {
        sessions: bool,
    },
    Event(Events),
}

impl PlacingInterface {
    /// The interface for `placing`, else the best one that the kernel has.
    ///
    /// # Errors
    ///
    /// When the interface cannot be used.
    pub fn of(placing: Option<Placing>) -> Result<Self, ProbeError> {
        let best = if sys::has_uprobe_multi() { Placing::Multi } else { Placing::Event };
        let placing = placing.unwrap_or(best);
        let interface = match placing {
            Placing::Multi => Self::multi(),
            Placing::Event => Self::event(),
        };
        interface.map_err(|cause| ProbeError::Placing { placing, cause })
    }

    fn multi() -> io::Result<Self> {
        let missing = || io::Error::other("the kernel has no uprobe_multi by process (Linux 6.10)");
        let sessions = sys::has_uprobe_sessions();
        sys::has_uprobe_multi().then_some(Self::Multi { sessions }).ok_or_else(missing)
    }

    fn event() -> io::Result<Self> {
        let explain = |error: io::Error| {
            let who = match error.raw_os_error() {
                Some(libc::EPERM) => "it is not mounted, which takes CAP_SYS_ADMIN",
                _ => "root can use it, and who has CAP_DAC_OVERRIDE",
            };
            let text = format!("tracefs cannot be used: {error}; {who}");
            io::Error::new(error.kind(), text)
        };
        Tracefs::open().map(|tracefs| Self::Event(Events::new(tracefs))).map_err(explain)
    }

    /// Whether this interface uses a program.
    pub fn uses(&self, program: &str) -> bool {
        let sessions = matches!(self, Self::Multi { sessions: true });
        match program {
            "api_call" => sessions,
            "api_enter" | "api_exit" => !sessions,
            _ => true,
        }
    }

    /// The way of placing for which this is the interface.
    pub const fn placing(&self) -> Placing {
        match self {
            Self::Multi { .. } => Placing::Multi,
            Self::Event(_) => Placing::Event,
        }
    }
}
