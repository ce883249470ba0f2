//! A recording in progress: opened here, then attached, drained, followed and finished.
//!
//! * [`processes`]: the traced processes;
//! * [`probes`]: the loaded BPF programs and their rings;
//! * [`plans`]: which functions to probe, cached by file;
//! * [`shims`], and [`crate::outside`]: the sources of GPU work; [`injections`]: shims on their way;
//! * [`following`]: how late forked children were followed; [`departed`]: facts about processes that have ended; both
//!   for the notices at the end;
//! * [`recorder`]: joins all of this, and writes it;
//! * the other modules: the steps of a recording, which use these.

mod attach;
mod attach_new;
mod departed;
mod descriptors;
mod drain;
mod ended;
mod finish;
mod follow;
mod following;
mod give_shim;
mod injections;
mod loading;
mod messages;
mod outlived;
mod pace;
mod plans;
mod probes;
mod processes;
mod recorder;
mod see_outside;
mod shims;
mod takeover;
mod watch;

use std::ffi::OsString;

use super::{options::Options, select::Selection};
use crate::{
    clock,
    join::Counts,
    losses::Losses,
    outside::Outside,
    probe::Placing,
    shim::{BackupReader, Shim},
    shown,
    trace::{Existing, Writer},
};
use departed::Departed;
use descriptors::Descriptors;
use following::Following;
use injections::Injections;
use pace::Pace;
use plans::Plans;
use probes::Probes;
use processes::Processes;
use recorder::Recorder;
use shims::Shims;
use watch::Watch;

use tracer_records::model::Metadata;

/// A recording in progress.
pub struct Session {
    processes: Processes,
    probes: Probes,
    plans: Plans,
    shims: Shims,
    injections: Injections,
    outside: Outside,
    recorder: Recorder,
    following: Following,
    departed: Departed,
    /// Looks for processes to attach to.
    watch: Option<Watch>,
    /// Processes that were named and could not be attached to.
    failed: usize,
    /// The recording is being finished: roctap attaches to no further process, and none gets a shim.
    ending: bool,
    pace: Pace,
    descriptors: Descriptors,
}

impl Session {
    /// Loads the programs and creates the trace. `command` is the process that is to become the command.
    pub fn open(options: &Options, command: Option<u32>) -> anyhow::Result<Self> {
        let backup = BackupReader::default();
        let mut probes = Probes::load(options, &backup)?;
        let shim = options.gpu.wants_shim().then(Shim::find).transpose()?;
        let selection = Selection::new(options, shim.is_some())?;
        let shims = Shims::open(options, shim, command, &selection, backup)?;
        let plans = Plans::new(selection);
        probes.follow()?;
        // Last, so that a failure above leaves no file behind.
        let existing = if options.force { Existing::Replace } else { Existing::Refuse };
        let trace = Writer::create(&options.output, &metadata(), existing)?;
        Ok(Self {
            processes: Processes::default(),
            probes,
            plans,
            shims,
            injections: Injections::default(),
            outside: Outside::default(),
            recorder: Recorder::new(options.join, Box::new(trace)),
            following: Following::new(!options.no_follow),
            departed: Departed::default(),
            watch: options.all.then(Watch::new),
            failed: 0,
            ending: false,
            pace: Pace::new(),
            descriptors: Descriptors::default(),
        })
    }

    /// Recording has begun: the trace stays from here on, and nothing more is done in its directory.
    pub fn begin(&mut self) -> anyhow::Result<()> {
        Ok(self.recorder.begin()?)
    }

    /// How probes are placed.
    pub fn placing(&self) -> Placing {
        self.probes.programs.placing()
    }

    /// The variables that the command needs in its environment.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        self.shims.environment()
    }

    /// The counts of joined records.
    pub fn counts(&self) -> Counts {
        self.recorder.joiner.counts()
    }

    /// How many records were lost so far.
    pub fn lost(&self) -> u64 {
        let losses = self.all_that_lose().into_iter().flat_map(|counting| {
            // The end says when they cannot be read.
            counting.losses().unwrap_or_default()
        });
        losses.fold(self.recorder.lost(), |sum, loss| sum.saturating_add(loss.count))
    }

    /// The parts that can lose records, beside those of programs that are gone.
    fn all_that_lose(&self) -> [&dyn Losses; 4] {
        [&self.probes, &self.recorder.joiner, &self.outside, &self.shims]
    }

    /// Whether no traced process lives any more and none can come; `command_ended` is true also if there is no command
    /// to wait for.
    pub fn targets_gone(&mut self, command_ended: bool) -> anyhow::Result<bool> {
        let all_gone = |session: &Self| {
            command_ended && session.watch.is_none() && !session.processes.any_alive()
        };
        if !all_gone(self) {
            return Ok(false);
        }
        // A child may be alive whose birth has not been read yet.
        self.drain_all()?;
        Ok(all_gone(self) && !self.following.awaits_births(self.probes.reader.answered()))
    }

    /// Whether the recording must end now: nobody reads the rings any more.
    pub fn is_cut_short(&self) -> bool {
        self.probes.reader.has_failed()
    }

    /// Prints a message about something that is as it should be, and writes it into the trace.
    pub fn tell(&mut self, text: &str) {
        shown::say(text);
        self.recorder.write_notice(text);
    }
}

fn metadata() -> Metadata {
    let system = rustix::system::uname();
    let command: Vec<String> =
        std::env::args_os().map(|part| shown::text_of(part.as_encoded_bytes())).collect();
    Metadata {
        roctap_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: system.nodename().to_string_lossy().into_owned(),
        kernel: system.release().to_string_lossy().into_owned(),
        command: command.join(" "),
        clock: clock::offsets(),
    }
}
