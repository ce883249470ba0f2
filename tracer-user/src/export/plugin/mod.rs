//! `roctap export --plugin`: hands a trace over to a plugin of roctracer's, as roctracer's tool does while a program
//! runs; `docs/roctracer.md`.
//!
//! * here: roctap, as the user and never as root, starts a process for each process of the trace, one after another;
//! * [`host`]: that process, which loads the plugin and hands everything over. A plugin has one state, and
//!   correlation ids are those of one process;
//! * [`records`]: which event of the trace is which record;
//! * [`data`]: the arguments of a call, as callbacks of roctracer's have them;
//! * [`waiting`]: `roctap record --plugin`, for which an export waits.

mod answer;
mod data;
mod host;
mod records;
mod stdin;
mod waiting;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, anyhow, bail};
use capi_common::plugin::TRACED_PROCESS;
use rustix::fs::{Access, access};
use tracer_common::activity::Domain;
use tracer_records::model::Event;

use super::left_out::LeftOut;
use crate::trace::{Reading, Trace};
use crate::{program, shown, user};

use answer::HandedOver;
pub use host::{HOST, host};
use records::{Destination, place};
pub use waiting::Waiting;

/// The most processes whose records are handed over: a trace that was made up can name any number.
const MAX_PROCESSES: usize = 1 << 14;

/// Hands a trace over to the plugin. With `when_recorded`, waits until roctap says on standard input that it is
/// written.
pub fn run(trace: &Path, plugin: &Path, when_recorded: bool) -> anyhow::Result<ExitCode> {
    if when_recorded {
        waiting::begin();
    } else {
        // Nothing is read from standard input, and it may be root's.
        drop(stdin::take()?);
    }
    if let Some(status) = user::go_on_as_user()? {
        return Ok(status);
    }
    let plugin = found(plugin)?;
    if when_recorded {
        look_at_directories(trace)?;
        if !waiting::wait()? {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let file = Trace::file(trace)?;
    let TraceContents { reading, processes, mut left_out } =
        TraceContents::of(&Trace::of(trace, file.try_clone()?)?);
    let mut processes = processes.into_iter();
    // An inner none is an error that was reported.
    let fed = processes.by_ref().try_for_each(|(process_id, events)| {
        let handed_over = feed(&file, trace, process_id, &plugin).map_err(Some)?.ok_or(None)?;
        left_out.unnumbered_calls += handed_over.unnumbered;
        // There may be more events if the trace is still being written.
        if handed_over.events < events {
            return Err(Some(anyhow!(
                "{}: of process {process_id} {} of {events} events could be read once more: it was changed meanwhile",
                shown::path(trace),
                handed_over.events
            )));
        }
        Ok(())
    });
    left_out.warnings().for_each(|warning| tracing::warn!("{warning}"));
    if processes.len() > 0 {
        tracing::warn!("processes of the trace that are not handed over: {}", processes.len());
    }
    match fed {
        Err(Some(error)) => return Err(error),
        Err(None) => return Ok(ExitCode::FAILURE),
        Ok(()) => {}
    }
    reading.check(trace)?;
    Ok(ExitCode::SUCCESS)
}

/// The path of the plugin's file, which exists. The dynamic linker would look elsewhere for a name without a directory.
fn found(plugin: &Path) -> anyhow::Result<PathBuf> {
    let cannot = || format!("cannot load the plugin {}", shown::path(plugin));
    let is_file = plugin.metadata().with_context(cannot)?.is_file();
    if !is_file {
        bail!("{}: it is no file", cannot());
    }
    std::path::absolute(plugin).with_context(cannot)
}

/// Reports before a recording that its user cannot read the trace; and that the plugin cannot write to the directory
/// that roctracer's plugins use. The plugin may not want to write there, or may make that directory itself.
fn look_at_directories(trace: &Path) -> anyhow::Result<()> {
    let directory = trace.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    access(directory, Access::EXEC_OK).map_err(io::Error::from).with_context(|| {
        format!(
            "the plugin's user could not read the trace in {}: give another place with -o",
            shown::path(directory)
        )
    })?;
    look_at_output();
    Ok(())
}

fn look_at_output() {
    let Some(directory) = std::env::var_os("ROCP_OUTPUT_DIR") else { return };
    let can_write = access(&directory, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from);
    let error = match can_write {
        Ok(()) if Path::new(&directory).is_dir() => return,
        Ok(()) => io::ErrorKind::NotADirectory.into(),
        Err(error) => error,
    };
    tracing::warn!(
        "ROCP_OUTPUT_DIR is {}, where the plugin's user cannot write: {error}",
        shown::path(Path::new(&directory))
    );
}

/// The contents of a trace, counted before anything is handed over.
struct TraceContents {
    reading: Reading,
    /// The number of events of each process.
    processes: BTreeMap<u32, u64>,
    left_out: LeftOut,
}

impl TraceContents {
    fn of(trace: &Trace) -> Self {
        let mut processes: BTreeMap<u32, u64> = BTreeMap::new();
        let mut left_out = LeftOut::default();
        let Ok(reading) = trace.for_each_event(|event| {
            match place(event) {
                Destination::Of(id)
                    if processes.len() < MAX_PROCESSES || processes.contains_key(&id) =>
                {
                    *processes.entry(id).or_default() += 1;
                }
                Destination::Of(_) => left_out.further_processes += 1,
                Destination::Nowhere(counter) => *counter(&mut left_out) += 1,
            }
            if let Event::Api(call) = event
                && call.record.domain != Domain::ROCTX
            {
                left_out.untimed_calls += u64::from(super::calls::is_untimed(call));
            }
            Ok::<(), std::convert::Infallible>(())
        });
        Self { reading, processes, left_out }
    }
}

/// Hands the records of a process over, in a process of its own. None if the plugin failed, which was reported.
fn feed(
    file: &File,
    trace: &Path,
    process_id: u32,
    plugin: &Path,
) -> anyhow::Result<Option<HandedOver>> {
    let (mut said, say) = io::pipe()?;
    // Inherited on purpose. No other child exists.
    rustix::io::fcntl_setfd(&say, rustix::io::FdFlags::empty())?;
    let mut command = Command::new(program::program());
    command.arg(HOST).arg(std::process::id().to_string());
    command.arg(say.as_raw_fd().to_string()).arg(process_id.to_string());
    command.args([plugin, trace]).env(TRACED_PROCESS, process_id.to_string());
    let mut child = command.stdin(Stdio::from(file.try_clone()?)).spawn()?;
    drop(say);
    let status = child.wait()?;
    // Without waiting for more: a plugin may have left a process behind that has the other end, too.
    rustix::io::ioctl_fionbio(&said, true)?;
    let mut words = [0; answer::MOST_BYTES];
    let count = said.read(&mut words).unwrap_or(0);
    match words.get(..count).and_then(answer::read) {
        Some(None) => Ok(None),
        Some(handed_over) if status.success() => Ok(handed_over),
        _ => bail!(
            "the plugin {} ended its process ({status}), which was to hand over the records of process {process_id}: \
             what it wrote may be incomplete",
            shown::path(plugin)
        ),
    }
}
