//! How a recording went: what is said at its end, and the exit status.

use std::process::{ExitCode, ExitStatus};

use indicatif::HumanCount;

use super::options::{Api, Options};
use crate::{
    join::{Counts, Mode},
    shown::{path, say},
};

/// A source that was asked for delivered nothing, or a process that was named is not traced.
const NOTHING_DELIVERED: u8 = 3;

/// The state of the recorded command.
pub enum CommandState {
    /// There is no command: the recorded processes ran already.
    None,
    /// The command goes on: its process id.
    GoesOn(u32),
    /// The command has ended.
    Ended(ExitStatus),
}

/// How a recording went.
pub struct RecordingOutcome<'a> {
    pub options: &'a Options,
    /// The state of the command.
    pub command: &'a CommandState,
    pub counts: Counts,
    /// Losses above zero, by cause.
    pub losses: Vec<(String, u64)>,
    /// A ROCm library was probed and called.
    pub rocm_seen: bool,
    /// Processes that were named and could not be attached to.
    pub failed: usize,
    /// The parts of roctap itself that stopped working, and why.
    pub broken: Vec<String>,
    /// Processes whose GPU work was asked for and not seen.
    pub silent: Vec<Silent>,
    /// Launches of kernels beyond the kernels that were seen.
    pub unmatched: u64,
    /// Processes may have called ROCm before their probes were in place: a notice says which.
    pub was_late: bool,
}

/// A process that launched kernels, none of which was recorded.
pub struct Silent {
    pub pid: u32,
    pub launches: u64,
    pub reason: String,
}

impl RecordingOutcome<'_> {
    /// The notices that the user should see beside the counts.
    pub fn notices(&self) -> Vec<String> {
        let mut notices: Vec<String> = Vec::new();
        notices.extend(self.broken.iter().map(|why| format!("{why}: this is a defect of roctap")));
        if !self.rocm_seen && self.counts.dispatches > 0 {
            notices.push(
                "no call of a ROCm library was seen, but kernels were: the program calls other functions than those of --api, --include and --exclude, or such as this release of ROCm has only slow places for (`roctap probes LIBRARY` lists them, --allow-slow probes them)"
                    .to_owned(),
            );
        } else if !self.rocm_seen {
            notices.push(
                "no call of a ROCm library was seen: the program does not use ROCm, did not get so far, or calls other functions than those of --api, --include and --exclude (a program on HSA alone needs --api hsa, functions __hip… --api hip-compiler) and than those that this release of ROCm has cheap places for (`roctap probes LIBRARY`, --allow-slow)"
                    .to_owned(),
            );
        } else if self.counts.launches == 0 && self.counts.dispatches == 0 {
            // Launches are counted by calls of HIP.
            let what = if self.options.api.contains(&Api::Hip) { "launched" } else { "seen" };
            notices.push(format!("no kernel was {what} while recording"));
        }
        if self.rocm_seen && self.counts.marks == 0 && self.options.api.contains(&Api::Roctx) {
            notices.push("no mark or range of roctx was seen".to_owned());
        }
        let Counts { outside, untimed, .. } = self.counts;
        if outside > 0 {
            notices.push(format!(
                "{outside} kernels were seen from outside alone: {} have times, which are estimated; the times of all come from the shim alone",
                outside - untimed
            ));
        }
        for Silent { pid, launches, reason } in &self.silent {
            notices.push(format!(
                "process {pid}: {launches} kernels were launched and none was recorded: {reason}"
            ));
        }
        if self.unmatched > 0 {
            notices.push(format!(
                "{} launches have no kernel in the trace: they failed, were captured into graphs, or were not seen",
                self.unmatched
            ));
        }
        if self.options.join == Mode::Check {
            notices.push(format!(
                "join check: {} compared, {} differing",
                self.counts.compared, self.counts.differing
            ));
        }
        match self.command {
            CommandState::GoesOn(pid) => {
                notices.push(format!("the command goes on, untraced, as process {pid}"));
            }
            CommandState::Ended(status) if !status.success() => {
                notices.push(format!("the command ended with {status}"));
            }
            CommandState::Ended(_) | CommandState::None => {}
        }
        notices
    }

    /// Prints the end on standard error.
    pub fn print(&self, notices: &[String]) {
        for notice in notices {
            say(notice);
        }
        let Counts { calls, dispatches, copies, barriers, .. } = self.counts;
        say(&format!(
            "{} API calls, {} kernels, {} copies, {} barriers → {}",
            HumanCount(calls),
            HumanCount(dispatches),
            HumanCount(copies),
            HumanCount(barriers),
            path(&self.options.output)
        ));
        if self.losses.is_empty() {
            // Doorbells were compared with packets, or the shim counted, and launches with kernels: where
            // there was none of these it is not known.
            let unknown = !self.rocm_seen || self.unmatched > 0 || self.was_late;
            let known = if unknown { "known to be " } else { "" };
            let of_what = if self.silent.is_empty() { "nothing" } else { "nothing else" };
            let is = if known.is_empty() { "was" } else { "is" };
            say(&format!("{of_what} {is} {known}lost"));
        }
        for (cause, count) in &self.losses {
            say(&format!("lost {}: {cause}", HumanCount(*count)));
        }
    }

    /// The program's exit status.
    pub fn exit_code(&self) -> ExitCode {
        if !self.broken.is_empty() {
            ExitCode::FAILURE
        } else if !self.rocm_seen || self.failed > 0 || !self.silent.is_empty() {
            ExitCode::from(NOTHING_DELIVERED)
        } else {
            ExitCode::SUCCESS
        }
    }
}
