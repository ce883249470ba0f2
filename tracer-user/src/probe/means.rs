//! What the ways to place probes work with, and which one it is.

use std::io;

use super::{ProbeError, events::Events, sys, tracefs::Tracefs};
use crate::method::Method;

/// What a method works with.
#[derive(Debug)]
pub(super) enum Means {
    Multi,
    Event(Events),
    Single,
}

impl Means {
    /// Those of `method`, else of the best that the kernel has and that is allowed.
    ///
    /// # Errors
    ///
    /// When that cannot be used.
    pub fn of(method: Option<Method>) -> Result<Self, ProbeError> {
        let best = || Self::multi().or_else(|_| Self::event());
        let Some(method) = method else {
            return Ok(best().unwrap_or_else(|error| {
                tracing::warn!("probes are placed one by one: {error}");
                Self::Single
            }));
        };
        let means = match method {
            Method::Multi => Self::multi(),
            Method::Event => Self::event(),
            Method::Single => Ok(Self::Single),
        };
        means.map_err(|cause| ProbeError::Method { method, cause })
    }

    fn multi() -> io::Result<Self> {
        let missing = || io::Error::other("the kernel has no uprobe_multi by process (Linux 6.10)");
        sys::has_uprobe_multi().then_some(Self::Multi).ok_or_else(missing)
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

    /// Which method they are of.
    pub const fn method(&self) -> Method {
        match self {
            Self::Multi => Method::Multi,
            Self::Event(_) => Method::Event,
            Self::Single => Method::Single,
        }
    }
}
