//! The ways in which kernels place probes. `probe` has the interface that each uses, `privileges` the privileges that
//! it takes.

use std::fmt;

/// A way to place probes, the best first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Placing {
    /// All of a file by one `uprobe_multi` link (Linux 6.6 and later).
    Multi,
    /// All of a file by one tracefs event.
    Event,
}

impl fmt::Display for Placing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Multi => "all of a library at once (uprobe_multi)",
            Self::Event => "all of a library at once (tracefs event)",
        })
    }
}
