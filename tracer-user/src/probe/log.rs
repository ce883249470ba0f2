//! The log of the BPF programs, in builds with the feature `bpf-log`: shown by `-vv`.
//!
//! libbpf loads the programs; aya-log finds their ring by the number of one of them.

use std::os::fd::AsFd as _;

use aya_log::EbpfLogger;
use log::{Metadata, Record};

use super::{Programs, sys};

/// A program that logs.
const LOGS: &str = "task_created";

/// Hands over to `tracing`.
struct Shown;

impl log::Log for Shown {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        tracing::debug!("BPF {}: {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

/// The log of the loaded programs.
pub struct Log(Option<EbpfLogger<Shown>>);

impl Log {
    /// Opens the log. If the kernel does not let it be read, this is reported and nothing is logged.
    pub fn of(programs: &Programs) -> Self {
        let id = sys::program_id(programs.program(LOGS).as_fd());
        let log = id
            .map_err(anyhow::Error::from)
            .and_then(|id| Ok(EbpfLogger::init_from_id_with_logger(id, Shown)?));
        Self(log.inspect_err(|error| tracing::warn!("no log of the programs: {error:#}")).ok())
    }

    /// Shows the messages that were logged since the last call.
    pub fn show(&mut self) {
        self.0.iter_mut().for_each(EbpfLogger::flush);
    }
}
