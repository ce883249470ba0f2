//! What is kept of processes that are not traced any more, for what is said at the end.

use crate::record::outcome::Silent;

/// Processes of which none of the kernels was recorded, that are told one by one.
const MOST_SILENT: usize = 20;

/// What is kept of them all.
#[derive(Default)]
pub struct Departed {
    /// A ROCm library was probed in one.
    pub rocm_seen: bool,
    /// Whose GPU work was asked for and not seen, and how many more there are.
    pub silent: Vec<Silent>,
    pub more_silent: u64,
    /// Launches of kernels beyond the kernels that were seen, of processes that were seen from their start.
    pub unmatched: u64,
    /// Some may have called ROCm, or used the GPU, before their probes or shims were in place.
    pub was_late: bool,
    /// Calls that were made on other stacks than their threads' own.
    pub on_other_stacks: u64,
    /// A notice of functions that neither a probe nor a shim recorded, of the first process that has such.
    pub left_to_nobody: Option<String>,
}

impl Departed {
    /// None of a process's kernels was recorded.
    pub fn add_silent(&mut self, silent: Silent) {
        if self.silent.len() < MOST_SILENT {
            self.silent.push(silent);
        } else {
            self.more_silent += 1;
        }
    }
}
