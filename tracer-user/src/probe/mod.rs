//! Loads the BPF programs, attaches them to functions and reads what they record.
//!
//! One pair of `uprobe_multi` links serves one file in one process. The return link is attached
//! before the entry link: a call that is entered in between returns without an entry and is reported
//! as open at the start, whereas the other order would leave an entry that never returns. For the
//! same reason they are removed in the other order.

mod load;
mod reader;

pub use load::{Attachment, Follow, Programs, Settings, Site};
pub use reader::Reader;

use std::path::PathBuf;

/// Why probing failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// This `roctap` was built without the BPF programs.
    #[error(
        "this roctap was built without its BPF programs; run `cargo xtask build-ebpf` and build it again"
    )]
    NotBuilt,
    /// The kernel or the caller's privileges do not allow it.
    #[error(
        "loading the BPF programs failed while {doing}: {cause:#}; this needs root, or CAP_BPF and CAP_PERFMON, and a kernel with BTF (`roctap doctor` tells)"
    )]
    Load {
        /// What was being done.
        doing: &'static str,
        /// How it failed. Part of the message, hence no `source`.
        cause: libbpf_rs::Error,
    },
    /// Probes could not be attached.
    #[error("{path}: attaching {count} {what} probes to process {pid} failed: {cause:#}")]
    Attach {
        /// Library.
        path: PathBuf,
        /// Process, 0 for all.
        pid: u32,
        /// How many functions.
        count: usize,
        /// `entry`, `return` or `dispatch`.
        what: &'static str,
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
        /// Which map.
        map: &'static str,
        /// How it failed. Part of the message, hence no `source`.
        cause: libbpf_rs::Error,
    },
}
