//! Loads the BPF programs, attaches them to functions and reads what they record.
//!
//! One `uprobe_multi` link serves one file in one process. Its program runs at entries and returns, and says at each
//! entry whether there is to be a return (a session, since Linux 6.13). Before 6.13, a pair of links serves the file.
//! The return link is attached before the entry link: a call that is entered in between returns without an entry and is
//! reported as open at the start, whereas the other order would leave an entry that never returns. For the same reason
//! the links are removed in the other order.

mod events;
mod interface;
mod load;
#[cfg(feature = "bpf-log")]
mod log;
mod messages;
mod numbers;
mod place;
mod reader;
mod structures;
mod sys;
mod tracefs;

pub use crate::placing::Placing;
pub use load::{Follow, Programs, Settings, built};
#[cfg(feature = "bpf-log")]
pub use log::Log;
pub use place::{Attachment, ProbeOwner, Site};
pub use reader::{Reader, Records, each_record};

use std::path::PathBuf;

use crate::privileges::Missing;

/// Why probing failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// This `roctap` was built without the BPF programs.
    #[error(
        "this roctap was built without its BPF programs; `cargo xtask build-ebpf` builds it with them"
    )]
    NotBuilt,
    /// The file that a debug build is to load the programs from cannot be read.
    #[error("ROCTAP_BPF_OBJECT: {}: {cause}", path.display())]
    Object {
        /// The file.
        path: PathBuf,
        /// How it failed. Part of the message, hence no `source`.
        cause: std::io::Error,
    },
    /// The kernel does not take the programs.
    #[error("{}", load_message(doing, missing, cause))]
    Load {
        /// The failed step.
        doing: &'static str,
        /// The feature that the kernel lacks, if that is the reason.
        missing: Option<&'static str>,
        /// How it failed. Part of the message, hence no `source`.
        cause: libbpf_rs::Error,
    },
    /// The caller lacks privileges.
    #[error(transparent)]
    Privileges(#[from] Missing),
    /// Probes cannot be placed in the way that was asked for.
    #[error("this machine cannot place probes {placing}: {cause}")]
    Placing {
        /// How they were to be placed.
        placing: Placing,
        /// Why not. Part of the message, hence no `source`.
        cause: std::io::Error,
    },
    /// Probes could not be attached.
    #[error("{path}: attaching {count} {what} probes to process {pid} failed: {cause:#}")]
    Attach {
        /// Library.
        path: PathBuf,
        /// Process, 0 for all.
        pid: u32,
        /// The number of functions.
        count: usize,
        /// `entry`, `return`, `dispatch`, `doorbell` or `signal`.
        what: String,
        /// How it failed. Part of the message, hence no `source`.
        cause: libbpf_rs::Error,
    },
    /// The thread that drains the rings could not be started.
    #[error("starting the thread that drains the rings failed: {cause}")]
    Thread {
        /// How it failed. Part of the message, hence no `source`.
        cause: std::io::Error,
    },
    /// A map operation failed.
    #[error("BPF map {map}: {cause:#}")]
    Map {
        /// The map.
        map: &'static str,
        /// How it failed. Part of the message, hence no `source`.
        cause: libbpf_rs::Error,
    },
}

impl ProbeError {
    /// The kernel does not take the programs: determines why, and logs the last messages about it, those of the
    /// verifier if it was the reason.
    fn load(doing: &'static str, cause: libbpf_rs::Error) -> Self {
        messages::take().iter().for_each(|line| tracing::warn!("libbpf: {line}"));
        Self::Load { doing, missing: sys::missing_feature(), cause }
    }
}

fn load_message(doing: &str, missing: &Option<&str>, cause: &libbpf_rs::Error) -> String {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let why = match missing {
        Some(feature) => format!("kernel {kernel} lacks {feature}, which roctap needs"),
        None => format!("kernel {kernel} refused: {cause:#}"),
    };
    format!("{why}, while {doing}; `roctap doctor` says what this machine allows")
}
