//! What is said at the end of a recording.

use std::process::{ExitCode, ExitStatus};

use indicatif::HumanCount;

use super::{Gpu, Options};
use crate::join::{Counts, Mode};

/// A source that was asked for delivered nothing.
const NOTHING_DELIVERED: u8 = 3;

/// How a recording went.
pub struct Report<'a> {
    pub options: &'a Options,
    /// How the command ended, if it did.
    pub status: Option<ExitStatus>,
    pub counts: Counts,
    /// Losses above zero, by cause.
    pub losses: Vec<(String, u64)>,
    /// A ROCm library was probed and called.
    pub rocm_seen: bool,
    /// What became of the shim.
    pub shim: Shim,
}

/// What became of the shim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shim {
    /// No process loaded it.
    NotLoaded,
    /// It does not know this release's tables.
    Unsupported,
    /// At least one process runs it.
    Loaded,
}

impl Report<'_> {
    fn gpu_missing(&self) -> bool {
        let asked = self.options.gpu != Gpu::Off && !self.options.command.is_empty();
        asked && self.counts.launches > 0 && self.counts.dispatches == 0
    }

    /// What the user should know beside the counts.
    pub fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        if !self.rocm_seen {
            notices.push(
                "no call of a ROCm library was seen: the program does not use ROCm, did not get so far, or uses another API than those of --api (a program on HSA alone needs --api hsa)"
                    .to_owned(),
            );
        } else if self.gpu_missing() {
            let why = match self.shim {
                Shim::Loaded => "the shim recorded none of them",
                Shim::Unsupported => {
                    "the shim does not know the API tables of this HSA runtime (it knows those of ROCm 4.5 to 5.5)"
                }
                Shim::NotLoaded => {
                    "the shim was not loaded: the HSA runtime ignored HSA_TOOLS_LIB, or the process could not open roctap's shared memory"
                }
            };
            notices.push(format!("kernels were launched, but {why}"));
        } else if self.counts.launches == 0 && self.counts.dispatches == 0 {
            notices.push("no kernel was launched while recording".to_owned());
        }
        if self.options.join == Mode::Check {
            notices.push(format!(
                "join check: {} compared, {} differing",
                self.counts.compared, self.counts.differing
            ));
        }
        if let Some(status) = self.status.filter(|status| !status.success()) {
            notices.push(format!("the command ended with {status}"));
        }
        notices
    }

    /// Prints the end on standard error.
    pub fn print(&self, notices: &[String]) {
        for notice in notices {
            eprintln!("roctap: {notice}");
        }
        let Counts { calls, dispatches, copies, barriers, .. } = self.counts;
        eprintln!(
            "roctap: {} API calls, {} kernels, {} copies, {} barriers → {}",
            HumanCount(calls),
            HumanCount(dispatches),
            HumanCount(copies),
            HumanCount(barriers),
            self.options.output.display()
        );
        if self.losses.is_empty() {
            eprintln!("roctap: nothing was lost");
        }
        for (cause, count) in &self.losses {
            eprintln!("roctap: lost {}: {cause}", HumanCount(*count));
        }
    }

    /// The program's exit status.
    pub fn exit_code(&self) -> ExitCode {
        if !self.rocm_seen || self.gpu_missing() {
            ExitCode::from(NOTHING_DELIVERED)
        } else {
            ExitCode::SUCCESS
        }
    }
}
