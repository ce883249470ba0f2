//! Everything that is open while recording: opened here, then attached, drained, followed and finished.

mod attach;
mod drain;
mod finish;
mod follow;
mod gpu;
mod outside;
mod takeover;
mod watch;

pub use takeover::Removal;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    ops::Range,
    time::{Duration, Instant},
};

use tracer_common::{
    calls::{FIRST_ID, ID_BITS},
    shim::Layout,
};
use tracer_records::model::Metadata;
use tracer_records::sink::RecordSink as _;

use super::{
    Gpu, Options,
    connection::Connection,
    select::{Doorbells, Selection},
    target::{Planned, Target},
};
use crate::{
    clock,
    join::{Counts, Joiner, SeenThreads},
    outside::Outside,
    probe::{self, Attachment, Follow, Method, Programs, Settings},
    shim::{Memory, MemoryError, Relief, Shim},
    shown,
    trace::Writer,
};

/// A recording in progress.
pub struct Session {
    programs: Programs,
    life: Attachment,
    reader: probe::Reader,
    selection: Selection,
    follow: bool,
    /// Plans that hold in more than one process.
    planned: attach::Plans<Planned>,
    /// Where GPU work is seen from outside, by library.
    doorbells: attach::Plans<Doorbells>,
    outside: Outside,
    targets: BTreeMap<u32, Target>,
    /// Every thread that was seen.
    threads: SeenThreads,
    gpu: Gpu,
    layout: Layout,
    shim: Option<Shim>,
    connections: Vec<Connection>,
    relief: Relief,
    /// Looks for processes to attach to.
    watch: Option<watch::Watch>,
    /// Processes that were named and could not be attached to.
    failed: usize,
    /// Forked children with ROCm loaded, and for how long one of them ran without probes, at most.
    late_children: u64,
    longest_late: Duration,
    /// Forked children that got a shim when they called ROCm.
    late_shims: BTreeSet<u32>,
    /// Probes that are removed by another process when all is done.
    left: Vec<Attachment>,
    /// Nothing new is begun.
    ending: bool,
    joiner: Joiner,
    trace: Writer,
    last_chunk: Instant,
    last_scan: Instant,
    /// The process that is looked at first by the next scan.
    next_scanned: u32,
}

impl Session {
    /// Loads the programs and creates the trace.
    pub fn open(options: &Options) -> anyhow::Result<Self> {
        let programs = Programs::load(Settings {
            ring_bytes: options.ring_bytes(),
            follow: match (options.all, options.no_follow) {
                (true, _) => Follow::Everyone,
                (false, false) => Follow::Children,
                (false, true) => Follow::Nobody,
            },
            method: options.probes,
            preallocate: None,
        })?;
        let shim = options.gpu.wants_shim().then(Shim::find).transpose()?;
        let layout = Layout { ring_bytes: options.shim_ring_bytes as usize, ..Layout::DEFAULT };
        let by_environment = shim.is_some() && !options.command.is_empty();
        let memories = if by_environment { options.processes } else { 0 };
        let selection = Selection::new(options, shim.is_some(), programs.method())?;
        let words = selection.shim_calls();
        let relief = Relief::default();
        let connections = (0..memories)
            .map(|index| {
                let memory = Memory::create(layout)?;
                let ids = call_ids(index as usize);
                memory.want_calls(&words, ids.start);
                Ok(Connection::open(memory, ids, &relief))
            })
            .collect::<Result<_, MemoryError>>()?;
        let life = programs.attach_life()?;
        let reader = probe::Reader::with(&programs, relief.looks())?;
        // Last, so that a failure above leaves no file behind.
        let trace = Writer::create(&options.output, &metadata(), options.force)?;
        let session = Self {
            programs,
            life,
            reader,
            selection,
            follow: !options.no_follow,
            planned: BTreeMap::new(),
            doorbells: BTreeMap::new(),
            outside: Outside::default(),
            targets: BTreeMap::new(),
            threads: SeenThreads::default(),
            gpu: options.gpu,
            layout,
            shim,
            connections,
            relief,
            watch: options.all.then(watch::Watch::new),
            failed: 0,
            late_children: 0,
            longest_late: Duration::ZERO,
            late_shims: BTreeSet::new(),
            left: Vec::new(),
            ending: false,
            joiner: Joiner::new(options.join),
            trace,
            last_chunk: Instant::now(),
            last_scan: Instant::now(),
            next_scanned: 0,
        };
        session.beat();
        Ok(session)
    }

    /// How probes are placed.
    pub fn method(&self) -> Method {
        self.programs.method()
    }

    /// What the command must find in its environment.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let memories = self.connections.iter().map(Connection::memory);
        self.shim.iter().flat_map(|shim| shim.environment(memories.clone())).collect()
    }

    /// What has been joined.
    pub fn counts(&self) -> Counts {
        self.joiner.counts()
    }

    /// How much was lost so far, in all.
    pub fn lost(&self) -> u64 {
        let bpf: u64 = self.programs.losses().map(|l| l.iter().sum()).unwrap_or(0);
        bpf + self.connections.iter().map(|c| c.dropped().0).sum::<u64>()
    }

    /// Whether no target lives any more and none can come; `command_ended` when there is no command
    /// to wait for.
    pub fn targets_gone(&self, command_ended: bool) -> bool {
        command_ended && self.watch.is_none() && !self.targets.values().any(Target::is_alive)
    }

    /// Why the recording must end now: nobody reads the rings any more.
    pub fn is_cut_short(&mut self) -> bool {
        self.reader.failure().is_some()
    }

    /// Says something, and writes it into the trace.
    pub fn notice(&mut self, text: String) {
        tracing::warn!("{text}");
        self.trace.notice(&text);
    }

    pub(super) fn beat(&self) {
        self.connections.iter().for_each(Connection::beat);
    }
}

/// The ids of the calls of the `index`-th shared memory.
fn call_ids(index: usize) -> Range<u64> {
    let first = FIRST_ID + ((index as u64) << ID_BITS);
    first..first + (1 << ID_BITS)
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
