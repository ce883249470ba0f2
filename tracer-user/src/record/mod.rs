//! `roctap record`: attaches, drains and joins until the end, and writes the trace.

mod command;
mod connection;
mod gpu_source;
mod inherited;
mod options;
mod outcome;
mod pause;
mod progress;
mod prospect;
mod redirections;
mod removal;
mod room;
mod select;
mod session;
mod stop;
mod target;

pub use command::{HOLD, hold};
pub use gpu_source::{Gpu, GpuSource};
pub(crate) use options::seconds;
pub use options::{Api, Options};
use outcome::CommandState;
pub use prospect::Prospect;

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use command::{HeldCommand, Running};
use progress::Progress;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use session::Session;
use signal_hook::consts::SIGXFSZ;
pub(crate) use stop::Stop;

use crate::{
    discover::Subject,
    export::plugin::Waiting,
    priority,
    privileges::{Recorded, Recording},
    probe, program, shown,
};

/// The pause between two drains of the rings when nothing wakes the reader. A thread that does nothing but call
/// fills its ring in 200 ms.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// Runs `roctap record`.
///
/// # Errors
///
/// When nothing could be recorded, or the trace could not be written.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let running = options.all || !options.pids.is_empty();
    if running != options.command.is_empty() {
        bail!(Usage("give either -p PID, -a or -- CMD ARGS…"));
    }
    match options.gpu {
        Gpu::Tools if running => {
            bail!(Usage("--gpu tools works for a command that roctap starts: roctap record -- CMD"))
        }
        Gpu::Inject if !running => {
            bail!(Usage("a command that roctap starts gets the shim at its start: --gpu tools"))
        }
        _ => {}
    }
    probe::built()?;
    program::check_namespaces()?;
    if let Some(command) = options.command.first() {
        command::check(command)?;
    }
    // Before capabilities are given up: it takes some to become the user.
    let export = match &options.plugin {
        Some(plugin) => match Waiting::start(&options.output, plugin).context("the export")? {
            Some(export) => Some(export),
            None => return Ok(ExitCode::FAILURE),
        },
        None => None,
    };
    // As early as possible: the user means the processes that have these numbers now.
    let mut named: Vec<_> = options.pids.iter().map(|&pid| (pid, Subject::open(pid))).collect();
    if let [(_, Err(_))] = named[..]
        && let Some((_, Err(error))) = named.pop()
    {
        return Err(error.into());
    }
    // Before rights, limits and signals are changed: the command has them as it would without roctap.
    let held = match options.command.as_slice() {
        [] => None,
        command => Some(HeldCommand::start(command)?),
    };
    let stop = Stop::install()?;
    raise_limits()?;
    let rights =
        Recording::begin(Recorded { injects: options.gpu.wants_shim(), starts: held.is_some() });
    // Without a handler, SIGXFSZ would end roctap at the first write beyond its limit of a file's size; with one, the
    // write fails, as on a full disk. The signal is not ignored: programs that roctap starts would inherit that.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let mut session = Session::open(options, held.as_ref().map(HeldCommand::pid))?;
    rights.attach(session.placing());
    match &held {
        Some(held) => {
            attach_held(options, held, &mut session)?;
            // Records come when the command runs, and are lost if they are read too late.
            priority::prefer_for_records();
        }
        None => session.attach_named(named, &stop)?,
    }
    rights.go_on(session.placing());
    // Last: the command may load libraries at once.
    let command = held.map(|held| let_go(options, held, &session)).transpose()?;
    let recorded = record(options, session, command, &stop)?;
    // All is written: a signal may end roctap now, and with it the export.
    stop.end_at_once();
    match export.map(Waiting::export).transpose().context("the export")? {
        Some(false) if recorded == ExitCode::SUCCESS => Ok(ExitCode::FAILURE),
        _ => Ok(recorded),
    }
}

/// Descriptors of the BPF programs, their maps and everything else that a recording opens, beside those per CPU.
const LEAST_DESCRIPTORS: u64 = 128;
/// Descriptors that a recording opens per CPU, for its ring.
const DESCRIPTORS_OF_A_CPU: u64 = 2;

/// Raises the limits of descriptors and memory: each process that is followed needs descriptors, and address space
/// for its rings.
///
/// # Errors
///
/// Where there are too few descriptors even for the first one.
fn raise_limits() -> anyhow::Result<()> {
    for resource in [Resource::Nofile, Resource::As, Resource::Data, Resource::Fsize] {
        let limit = getrlimit(resource);
        // The limit of a file's size is kept, since it bounds the trace; the maximum is raised where allowed, for
        // shared memories.
        let stays = resource == Resource::Fsize;
        let most = if resource == Resource::Nofile { most_descriptors() } else { None };
        let raised = [most, limit.maximum].map(|maximum| {
            let current = if stays { limit.current } else { maximum };
            Rlimit { current, maximum }
        });
        if !raised.into_iter().any(|raised| setrlimit(resource, raised).is_ok()) {
            tracing::debug!("keeping the limit {resource:?}: {limit:?}");
        }
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let needed = LEAST_DESCRIPTORS + DESCRIPTORS_OF_A_CPU * cpus;
    let may = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    ensure!(
        may >= needed,
        "roctap may open {may} descriptors, and a recording takes {needed}: raise the hard limit (`ulimit -Hn`)"
    );
    Ok(())
}

/// No process may have a higher limit of descriptors, nor none.
fn most_descriptors() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/fs/nr_open").ok()?.trim().parse().ok()
}

/// A mistake on the command line that clap cannot see.
#[derive(Debug, thiserror::Error)]
#[error("{0}; see `roctap record --help`")]
pub struct Usage(&'static str);

/// Attaches to the command.
fn attach_held(options: &Options, held: &HeldCommand, session: &mut Session) -> anyhow::Result<()> {
    let shown: Vec<_> =
        options.command.iter().map(|part| shown::text_of(part.as_encoded_bytes())).collect();
    let program = options.command.first().context("a command")?;
    session.attach_held(held.pid(), program, &shown.join(" "))
}

/// Lets the command run.
fn let_go(options: &Options, held: HeldCommand, session: &Session) -> anyhow::Result<Running> {
    let program = options.command.first().context("a command")?;
    let cannot = || format!("cannot run {}", shown::text_of(program.as_encoded_bytes()));
    held.release(&session.environment()).with_context(cannot)
}

fn record(
    options: &Options,
    mut session: Session,
    mut command: Option<Running>,
    stop: &Stop,
) -> anyhow::Result<ExitCode> {
    session.begin()?;
    let progress = Progress::new();
    let began = Instant::now();
    let deadline = options.duration.map(|seconds| began + Duration::from_secs_f64(seconds));
    let mut state = match &command {
        Some(command) => CommandState::GoesOn(command.pid()),
        None => CommandState::None,
    };
    loop {
        session.drain(DRAIN_INTERVAL)?;
        progress.show(began, &session);
        if let Some(command) = &mut command
            && let Some(ended) = command.ended().context("waiting for the command")?
        {
            state = CommandState::Ended(ended);
        }
        let over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if over || stop.asked() || session.is_cut_short() {
            break;
        }
        if session.targets_gone(!matches!(state, CommandState::GoesOn(_)))? {
            if command.is_none() {
                let after = began.elapsed().as_secs_f64();
                session.tell(&format!(
                    "the recording ended after {after:.1} s: every traced process has ended"
                ));
            }
            break;
        }
    }
    progress.end();
    session.finish(options, &state, stop)
}
