//! `roctap tool`: puts a tool of ROCprofiler-SDK into a running process, and takes it out again.
//!
//! roctap's `librocprofiler-sdk.so.0` or `.so.1`, which the tool needs, is put into the process as the shim is
//! ([`crate::inject`]), loads the tool there, and finalizes it when roctap lets go of a lock, or has ended:
//! [`tracer_common::tool`]. roctap itself reads of the tool only which library it needs.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::FileExt as _},
    },
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FlockOperation, SealFlags, fcntl_add_seals, flock, ftruncate},
};
use tracer_common::{
    shim::attach_status,
    tool::{
        ATTACH_FUNCTION, BYTES, LIBRARIES, MAGIC, MESSAGE, MESSAGE_BYTES, PATH, PATH_BYTES,
        PROTOCOL_WORD, VERSION, state, word,
    },
};

use crate::{
    clock::Patience,
    discover::{self, Image, Subject},
    foreign::{self, Map},
    inject::{self, Access, Entry, Handed, Injected, Request},
    plan::{LiveProcess, Located},
    privileges, program,
    record::{Prospect, Stop},
    shim::file_of_ours,
    shown::{self, say},
};

/// The variable that names another file of the library.
const LIBRARY_ENV: &str = "ROCTAP_SDK";
/// The interval in which roctap looks at the tool's state.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// The time for which a tool's own functions run until the user is told that they are waited for.
const SOON: Duration = Duration::from_secs(5);
/// The longest time that they may take until the tool is at work, and at its end.
const TOOL_WITHIN: Duration = Duration::from_secs(60);

/// Load a tool of ROCprofiler-SDK into a process that runs already
#[derive(Args, Debug)]
#[command(after_help = "Example:
  roctap tool -p 4711 --library /opt/tools/libmytool.so -d 10

The tool is a library that exports rocprofiler_configure and is built against librocprofiler-sdk.so.0 or .so.1. The
process loads it by this path, with the rights of the process, and with roctap's library of that name. The tool is told
of code objects that are loaded already, and of calls and work from then on. It is finalized after -d, at Ctrl-C, or when
roctap ends, even by kill -9; it stays loaded, and can be put in again. ROCTAP_SDK names another file of roctap's library.

What it prints and writes, the process does. What it does to the process is its own.

Exit status: 0 the tool was finalized; 1 it could not be put in; 2 wrong usage; 3 it was not finalized.")]
pub struct Options {
    /// The process
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: u32,

    /// The tool: a path as the process sees it
    #[arg(short, long, value_name = "LIBTOOL.so")]
    library: PathBuf,

    /// Finalize it after so many seconds
    #[arg(short, long, value_name = "SECS", value_parser = crate::record::seconds)]
    duration: Option<f64>,
}

/// Runs `roctap tool`.
///
/// # Errors
///
/// When the tool could not be put in.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let process = Subject::open(options.pid)?;
    privileges::keep_for_tools();
    program::check_namespaces()?;
    let tool = std::path::absolute(&options.library).context("the tool's path")?;
    let needed = needed(&process, &tool);
    let wanted = needed.unwrap_or_else(|| {
        let [first, second] = LIBRARIES;
        tracing::warn!(
            "{}: not known whether it needs {first} or {second}: {first} is put in, and if it needs the other one, \
             that cannot be put into this process any more",
            shown::path(&tool)
        );
        first
    });
    let library = file_of_ours(wanted, LIBRARY_ENV).with_context(|| {
        format!("{wanted} not found beside roctap, in lib beside it, in ../lib or ../lib/roctap; {LIBRARY_ENV} can name it")
    })?;
    let name = name_of(&library).with_context(|| library.display().to_string())?;
    let name = name.with_context(|| {
        format!(
            "{}: no library of this roctap ({LIBRARY_ENV} can name another one)",
            library.display()
        )
    })?;
    ensure!(
        needed.is_none_or(|needed| needed == name),
        "{} needs {wanted}, and {} is {name} ({LIBRARY_ENV} can name another file)",
        shown::path(&tool),
        library.display()
    );
    let stop = Stop::install()?;
    process.look_at_its_first_thread();
    let program = process.by_number(foreign::program)?;
    let held = put_in(&process, &tool, name, &library)?;
    // From now on only the program of the process is looked at.
    privileges::keep_for_memory();
    let duration = options.duration.map(Duration::from_secs_f64);
    ToolSession { process, tool, held, printed: 0 }.until(&program, &stop, duration)
}

/// The memory that is shared with the process, and the lock on it.
struct LockedMemory(File);

impl LockedMemory {
    /// Fills a memory that the process has made.
    fn fill(memory: OwnedFd, tool: &Path) -> anyhow::Result<Self> {
        let path = tool.as_os_str().as_bytes();
        ensure!(path.len() < PATH_BYTES, "the tool's path is longer than {PATH_BYTES} bytes");
        ftruncate(&memory, BYTES as u64)?;
        fcntl_add_seals(&memory, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        // A lock belongs to an open file description, and the process shares this one: so roctap opens its own.
        let own = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let file = File::options().read(true).write(true).open(own)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).context("locking its memory")?;
        for (place, value) in
            [(word::MAGIC, MAGIC), (word::VERSION, VERSION), (word::STATE, state::NEW)]
        {
            file.write_all_at(&value.to_le_bytes(), 8 * place as u64)?;
        }
        file.write_all_at(path, PATH as u64)?;
        Ok(Self(file))
    }

    fn state(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 8 * word::STATE as u64)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// All messages of the library: whole lines.
    fn message(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; MESSAGE_BYTES];
        self.0.read_exact_at(&mut bytes, MESSAGE as u64)?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        Ok(bytes)
    }
}

/// The library of roctap's that the tool needs; none if the tool's file names neither, or cannot be read: the library
/// that is to load the tool refuses one that is not for it.
fn needed(process: &Subject, tool: &Path) -> Option<&'static str> {
    let links = process.by_number(|pid| {
        let file = foreign::File::of_process(pid, tool)?;
        anyhow::Ok(Image::of(file, tool).links()?)
    });
    match links {
        Ok(links) => LIBRARIES.into_iter().find(|&name| links.needed.iter().any(|n| n == name)),
        Err(error) => {
            tracing::info!("{}: not known what it needs: {error:#}", shown::path(tool));
            None
        }
    }
}

/// The name of roctap's library that a file is; none if it is another file.
fn name_of(library: &Path) -> anyhow::Result<Option<&'static str>> {
    let image = Image::open(library)?;
    let has_function = !image.functions(|name| name == ATTACH_FUNCTION)?.is_empty();
    let has_word = image.variables()?.iter().any(|(name, _)| name == PROTOCOL_WORD);
    let soname = image.links()?.soname.filter(|_| has_function && has_word);
    Ok(LIBRARIES.into_iter().find(|&name| soname.as_deref() == Some(name)))
}

/// Whether the process has roctap's library of this name already: it was put in before, or the process was started
/// with it.
fn has_ours(memory: &LiveProcess, pid: u32, name: &str) -> anyhow::Result<bool> {
    let is_one = |map: &Map<'_>| map.file_name().contains("librocprofiler-sdk.so").then_some(());
    let mut has_ours = false;
    for ((), file) in discover::mapped(pid, is_one)? {
        let located = Located::find(memory, &file.file.path());
        match located.ok().and_then(|library| library.word(PROTOCOL_WORD)) {
            Some(VERSION) if file.path.to_string_lossy().contains(name) => has_ours = true,
            Some(VERSION) => bail!(
                "{}: the process has loaded this library of roctap's, and tools for {name} cannot be put in beside it",
                file.path.display()
            ),
            Some(other) => bail!(
                "{}: that of another roctap (version {other}; this is {VERSION}) is in the process already",
                file.path.display()
            ),
            None => bail!(
                "{}: the process has loaded this library, and a tool would call it instead of roctap's",
                file.path.display()
            ),
        }
    }
    Ok(has_ours)
}

/// Puts the library and the tool in.
fn put_in(
    process: &Subject,
    tool: &Path,
    name: &'static str,
    library: &Path,
) -> anyhow::Result<LockedMemory> {
    let pid = process.pid();
    if let Some(why) = inject::held_now(process) {
        bail!("process {pid}: {why}");
    }
    let prospect =
        Prospect::of(process, Access::Write).with_context(|| format!("process {pid}"))?;
    let Some(prospect) = prospect else {
        bail!(
            "process {pid} does not use a GPU yet: it has no HSA runtime that is initialized; try again when it has, or start it with the tool (LD_PRELOAD)"
        );
    };
    if let Some(why) = prospect.why_none() {
        bail!("process {pid}: {why}");
    }
    let attach = prospect.attach;
    let live = LiveProcess::with(prospect.memory, pid)?;
    let has_ours = process
        .by_number(|pid| has_ours(&live, pid, name))
        .with_context(|| format!("process {pid}"))?;
    let memory = &live.into_memory();
    let function = ATTACH_FUNCTION;
    let bytes = match has_ours {
        true => Vec::new(),
        false => std::fs::read(library).with_context(|| library.display().to_string())?,
    };
    let entry = match has_ours {
        true => Entry::Opened { name, function },
        false => Entry::Library { bytes: &bytes, name, function },
    };
    let request = Request { process, memory, entry, attach };
    let prepare = |Handed { memory, .. }: Handed| LockedMemory::fill(memory, tool);
    let Injected { prepared, status, stopped, took, .. } =
        inject::inject(&request, prepare).with_context(|| format!("process {pid}"))?;
    tracing::info!(
        "process {pid}: the library answered {status} after {:.1} ms; a thread was stopped for {} µs",
        took.as_secs_f64() * 1e3,
        stopped.as_micros()
    );
    match status {
        attach_status::RECORDING => Ok(prepared),
        attach_status::BUSY => bail!(
            "process {pid}: another roctap has put a tool into it, or the last one is being finalized still"
        ),
        attach_status::MEMORY => bail!(
            "process {pid}: the library could not map roctap's shared memory: the process has closed it, or a limit is in the way (see /proc/{pid}/limits)"
        ),
        attach_status::VERSION => bail!("process {pid}: its library is of another roctap"),
        attach_status::UNUSABLE => bail!(
            "process {pid} was forked from one that has this library: nothing can be put into it"
        ),
        other => bail!("process {pid}: the library answered {other}"),
    }
}

/// A wait for the tool's own functions.
struct Waits {
    what: &'static str,
    patience: Patience,
    /// When the user is told.
    says_later: Option<Instant>,
}

impl Waits {
    fn to_be(what: &'static str) -> Self {
        let says_later = Some(Instant::now() + SOON);
        Self { what, patience: Patience::of(TOOL_WITHIN), says_later }
    }
}

/// The stay of the tool in the process.
struct ToolSession {
    process: Subject,
    tool: PathBuf,
    held: LockedMemory,
    /// How many bytes of the library's messages have been printed.
    printed: usize,
}

impl ToolSession {
    /// Waits until the tool has been finalized: when the user asks for that, or the time is over.
    fn until(
        mut self,
        program: &[u8],
        stop: &Stop,
        duration: Option<Duration>,
    ) -> anyhow::Result<ExitCode> {
        let (pid, tool) = (self.process.pid(), shown::path(&self.tool));
        let (mut began, mut has_let_go) = (None, false);
        let mut waits = Waits::to_be("loaded and initialized");
        loop {
            let state = self.look()?;
            match state {
                state::AT_WORK if began.is_none() => {
                    began = Some(Instant::now());
                    say(&format!("process {pid}: {tool} is at work; Ctrl-C finalizes it"));
                }
                state::FAILED => bail!("process {pid}: the tool was not put in"),
                state::ENDED => {
                    say(&format!("process {pid}: the tool was finalized"));
                    return Ok(ExitCode::SUCCESS);
                }
                _ => {}
            }
            if let Some(over) = self.over(program)? {
                return Ok(over);
            }
            let is_over = began.zip(duration).is_some_and(|(began, long)| began.elapsed() >= long);
            if !has_let_go && (stop.asked() || is_over) {
                flock(&self.held.0, FlockOperation::Unlock)?;
                has_let_go = true;
            }
            let what = match state {
                state::AT_WORK if !has_let_go => continue,
                state::NEW | state::BEGINS if !has_let_go => "loaded and initialized",
                _ => "finalized",
            };
            if waits.what != what {
                waits = Waits::to_be(what);
            }
            if waits.says_later.take_if(|at| Instant::now() > *at).is_some() {
                say(&format!("process {pid}: waiting for {tool} to be {what}"));
            }
            if waits.patience.has_ended() {
                say(&format!(
                    "process {pid}: the tool's functions have not returned for {} s: it is finalized when they do",
                    TOOL_WITHIN.as_secs()
                ));
                return Ok(ExitCode::from(3));
            }
        }
    }

    /// Waits a moment, prints new messages, and returns the state.
    fn look(&mut self) -> anyhow::Result<u64> {
        let mut polled = [PollFd::new(&self.process, PollFlags::IN)];
        let _ = poll(&mut polled, Some(&LOOK_EVERY));
        // Messages that were written before the state are there when the state is.
        let state = self.held.state()?;
        let message = self.held.message()?;
        let new = message.get(self.printed..).unwrap_or_default();
        let whole = new.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        for line in new[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            say(&format!("process {}: {}", self.process.pid(), shown::text_of(line)));
        }
        self.printed += whole;
        Ok(state)
    }

    /// The process has ended, or executed another program.
    fn over(&mut self, program: &[u8]) -> anyhow::Result<Option<ExitCode>> {
        let pid = self.process.pid();
        self.process.look_at_its_first_thread();
        let what = match self.process.by_number(foreign::program) {
            Ok(now) if now == program => return Ok(None),
            // The thread whose program was read is ending.
            Ok(now) if now.is_empty() => return Ok(None),
            Ok(_) => "has executed another program",
            Err(_) if self.process.is_alive() => return Ok(None),
            Err(_) => "has ended",
        };
        if self.look()? == state::ENDED {
            say(&format!("process {pid} {what}: the tool was finalized"));
            return Ok(Some(ExitCode::SUCCESS));
        }
        say(&format!("process {pid} {what}: the tool was not finalized"));
        Ok(Some(ExitCode::from(3)))
    }
}
