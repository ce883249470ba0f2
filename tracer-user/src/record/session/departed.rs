//! Facts about processes that are not traced any more, kept for the notices at the end.

use tracer_common::bpf::{ApiRecord, flag};

use crate::record::outcome::Silent;

/// Processes of which none of the kernels was recorded, that are told one by one.
const MOST_SILENT: usize = 20;

/// The facts about all of these processes together.
#[derive(Default)]
pub struct Departed {
    /// A ROCm library was probed in one of them.
    pub rocm_seen: bool,
    /// The processes whose GPU work was asked for and not seen, and how many more there are.
    pub silent: Vec<Silent>,
    more_silent: u64,
    /// Launches of kernels beyond the kernels that were seen, of processes that were seen from their start.
    pub unmatched: u64,
    /// Some of them may have called ROCm, or used the GPU, before their probes or shims were in place.
    pub was_late: bool,
    /// Calls that were made on other stacks than their threads' own.
    on_other_stacks: u64,
    /// The notice of functions that neither a probe nor a shim recorded, of the first process that has such functions.
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

    /// Counts a call that probes saw, if it was made on another stack.
    pub fn add_call(&mut self, call: &ApiRecord) {
        self.on_other_stacks += u64::from(call.header.flags & flag::OTHER_STACK != 0);
    }

    /// The notices of the end.
    pub fn notices(&self) -> Vec<String> {
        let more_silent = (self.more_silent > 0).then(|| {
            let more = self.more_silent;
            format!("{more} more processes launched kernels of which none was recorded")
        });
        let on_other_stacks = (self.on_other_stacks > 0).then(|| {
            format!(
                "{} calls were made on stacks of fibres: they were recorded at their entry, without duration and result",
                self.on_other_stacks
            )
        });
        let left_to_nobody = self.left_to_nobody.clone();
        [more_silent, on_other_stacks, left_to_nobody].into_iter().flatten().collect()
    }
}
