//! Everything that is open while recording.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::{OsStr, OsString},
    process::{ExitCode, ExitStatus},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tracer_common::{
    bpf::{ApiRecord, Header, LifeRecord, LinkRecord, Loss, kind, phase},
    shim::{self, Layout, control},
};
use zerocopy::FromBytes as _;

use super::{Gpu, Options, pause::Pause, select::Selection, summary, target::Target};
use crate::{
    clock,
    discover::{self, FileId, Library, Runtime, Scout},
    join::{Counts, Joiner},
    plan::{Process, ProcessMemory},
    probe::{self, Attachment, Programs, Settings, Site},
    shim::{Memory, Shim},
    trace::{
        Writer,
        model::{self, Metadata},
    },
};

/// How often chunks are written.
const CHUNK_INTERVAL: Duration = Duration::from_millis(250);
/// How often maps are looked through for libraries that came late.
const SCAN_INTERVAL: Duration = Duration::from_millis(100);

/// The sites of a library are planned once.
struct Planned {
    library: Library,
    sites: Vec<Site>,
}

/// A recording in progress.
pub struct Session {
    programs: Programs,
    _life: Attachment,
    reader: probe::Reader,
    selection: Selection,
    follow: bool,
    planned: BTreeMap<FileId, Planned>,
    targets: BTreeMap<u32, Target>,
    /// Thread → process, of every thread that was seen.
    threads: HashMap<u32, u32>,
    shim: Option<Shim>,
    shims: Vec<crate::shim::Reader>,
    joiner: Joiner,
    trace: Writer,
    notices: Vec<String>,
    last_chunk: Instant,
    last_scan: Instant,
}

impl Session {
    /// Loads the programs and creates the trace.
    pub fn open(options: &Options) -> anyhow::Result<Self> {
        let wants_shim = options.gpu != Gpu::Off && !options.command.is_empty();
        let shim = wants_shim.then(Shim::find).transpose()?;
        let layout = Layout { ring_bytes: options.shim_ring_bytes as usize, ..Layout::DEFAULT };
        let memories = if shim.is_some() { options.processes } else { 0 };
        let shims = (0..memories)
            .map(|_| Memory::create(layout).map(crate::shim::Reader::new))
            .collect::<Result<_, _>>()?;
        let programs = Programs::load(Settings {
            ring_bytes: options.ring_bytes(),
            follow: !options.no_follow,
            uprobe_multi: !options.single_uprobes && crate::doctor::has_uprobe_multi(),
        })?;
        let life = programs.attach_life()?;
        let reader = probe::Reader::new(&programs)?;
        // Last, so that a failure above leaves no file behind.
        let trace = Writer::create(&options.output, &metadata(), options.force)?;
        let session = Self {
            programs,
            _life: life,
            reader,
            selection: Selection::new(options)?,
            follow: !options.no_follow,
            planned: BTreeMap::new(),
            targets: BTreeMap::new(),
            threads: HashMap::new(),
            shim,
            shims,
            joiner: Joiner::new(options.join),
            trace,
            notices: Vec::new(),
            last_chunk: Instant::now(),
            last_scan: Instant::now(),
        };
        session.beat();
        Ok(session)
    }

    /// What the command must find in its environment.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let memories = self.shims.iter().map(crate::shim::Reader::memory);
        self.shim.iter().flat_map(|shim| shim.environment(memories.clone())).collect()
    }

    /// Attaches to the held command: its libraries are guessed, since it maps none yet.
    pub fn attach_held(&mut self, pid: u32, program: &OsStr, command: &str) -> anyhow::Result<()> {
        let candidates = discover::candidates(program);
        self.add_target(pid, command.to_owned());
        self.programs.track(pid)?;
        self.attach_all(pid, candidates)?;
        self.attach_site(pid)
    }

    /// Attaches to a running process.
    pub fn attach_running(&mut self, pid: u32) -> anyhow::Result<()> {
        let info = discover::process_info(pid)?;
        self.programs.track(pid)?;
        let libraries = discover::libraries(pid)?;
        self.add_target(pid, info.command);
        if libraries.is_empty() {
            self.notice(format!(
                "process {pid} maps neither libamdhip64 nor libhsa-runtime64 yet; roctap waits for them"
            ));
        }
        self.attach_all(pid, libraries)?;
        let target = self.targets.get_mut(&pid).filter(|target| target.is_alive());
        let target = target.with_context(|| format!("process {pid} exited while attaching"))?;
        target.info.gpu_tier =
            "uprobes only: GPU times need the process to be started by roctap record".to_owned();
        Ok(())
    }

    fn add_target(&mut self, pid: u32, command: String) {
        let target = Target::new(pid, command, clock::now_ns());
        self.trace.process(pid, target.info.clone());
        self.targets.insert(pid, target);
    }

    fn attach_site(&mut self, pid: u32) -> anyhow::Result<()> {
        if let (Some(shim), Some(target)) = (&self.shim, self.targets.get_mut(&pid)) {
            let (path, offset) = (&shim.path, shim.site_offset);
            target.dispatch_site = Some(self.programs.attach_dispatch_site(pid, path, offset)?);
        }
        Ok(())
    }

    fn attach_all(&mut self, pid: u32, libraries: Vec<Library>) -> anyhow::Result<()> {
        for library in libraries {
            if self.selection.wants(library.runtime) {
                self.attach(pid, library)?;
            }
        }
        Ok(())
    }

    fn attach(&mut self, pid: u32, library: Library) -> anyhow::Result<()> {
        let id = library.id;
        if !self.planned.contains_key(&id) {
            let sites = self.plan(pid, &library)?;
            self.planned.insert(id, Planned { library: library.clone(), sites });
        }
        let (Some(planned), Some(target)) = (self.planned.get(&id), self.targets.get_mut(&pid))
        else {
            return Ok(());
        };
        if target.attached.contains_key(&id) || planned.sites.is_empty() {
            return Ok(());
        }
        self.programs.set_phase(phase::ATTACHING)?;
        let attachment = self.programs.attach(pid, &library.open_path, &planned.sites);
        self.programs.set_phase(phase::ATTACHED)?;
        let attachment = attachment?;
        let entry_only = planned.sites.iter().filter(|s| s.cookie.entry_only != 0).count();
        let shown = model::Library {
            path: planned.library.path.display().to_string(),
            version: planned.library.version(),
            probed: planned.sites.len() as u32,
            entry_only: entry_only as u32,
        };
        target.add_library(id, shown, attachment);
        self.trace.process(pid, target.info.clone());
        Ok(())
    }

    /// Plans the probes of a library. Its stubs are followed through process `pid` if that has mapped
    /// it, else through a process of our own.
    fn plan(&mut self, pid: u32, library: &Library) -> anyhow::Result<Vec<Site>> {
        let mapped = discover::libraries(pid).is_ok_and(|l| l.iter().any(|l| l.id == library.id));
        let scout = match library.runtime {
            Runtime::Hsa if !mapped => Scout::start(&library.open_path)
                .inspect_err(|e| tracing::info!("{}: not loaded: {e}", library.path.display()))
                .ok(),
            _ => None,
        };
        let process = Process::open(scout.as_ref().map_or(pid, Scout::pid)).ok();
        let process = process.as_ref().map(|p| p as &dyn ProcessMemory);
        let selected = self.selection.choose(library, process)?;
        for (domain, operation, name) in self.selection.foreign() {
            self.trace.operation(domain.0, operation.into(), name);
        }
        let path = library.path.display();
        if !selected.slow.is_empty() {
            let count = selected.slow.len();
            tracing::info!("{path}: left out, since slow: {}", selected.slow.join(", "));
            self.trace.notice(&format!(
                "{path}: {count} functions can be probed only at 16 µs a call and were left out; --allow-slow includes them"
            ));
        }
        if !selected.impossible.is_empty() {
            let names = selected.impossible.join(", ");
            self.trace.notice(&format!("{path}: the kernel allows no probe at {names}"));
        }
        Ok(selected.sites)
    }

    /// What has been joined.
    pub fn counts(&self) -> Counts {
        self.joiner.counts()
    }

    /// How much was lost so far, in all.
    pub fn lost(&self) -> u64 {
        let bpf: u64 = self.programs.losses().map(|l| l.iter().sum()).unwrap_or(0);
        bpf + self.shims.iter().map(|s| s.dropped().0).sum::<u64>()
    }

    /// Whether no target lives any more; `command_ended` when there is no command to wait for.
    pub fn targets_gone(&self, command_ended: bool) -> bool {
        command_ended && !self.targets.values().any(Target::is_alive)
    }

    fn notice(&mut self, text: String) {
        tracing::warn!("{text}");
        self.trace.notice(&text);
        self.notices.push(text);
    }

    fn beat(&self) {
        for shim in &self.shims {
            let word = shim.memory().word(control::HEARTBEAT_NS);
            word.store(clock::now_ns(), std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Takes what is there, waiting at most `timeout` for it.
    pub fn drain(&mut self, timeout: Duration) -> anyhow::Result<()> {
        let records = self.reader.take(timeout)?;
        self.take_records(&records, |_| {})?;
        self.take_frames()?;
        self.beat();
        let now = Instant::now();
        if now - self.last_scan >= SCAN_INTERVAL {
            self.last_scan = now;
            self.joiner.tick(clock::now_ns(), &mut self.trace)?;
            self.scan()?;
        }
        if now - self.last_chunk >= CHUNK_INTERVAL {
            self.last_chunk = now;
            self.trace.flush_chunk()?;
        }
        Ok(())
    }

    /// Takes everything that is there.
    fn drain_all(&mut self) -> anyhow::Result<()> {
        let records = self.reader.take_all()?;
        self.take_records(&records, |_| {})?;
        self.take_frames()
    }

    fn take_records(
        &mut self,
        mut bytes: &[u8],
        mut on_call: impl FnMut(&ApiRecord),
    ) -> anyhow::Result<()> {
        while let Ok((header, _)) = Header::read_from_prefix(bytes) {
            let rest = match header.kind {
                kind::API => {
                    let Ok((call, rest)) = ApiRecord::read_from_prefix(bytes) else { break };
                    self.see_thread(header.pid, header.tid);
                    on_call(&call);
                    self.joiner.api(&call, &mut self.trace)?;
                    rest
                }
                kind::LINK => {
                    let Ok((link, rest)) = LinkRecord::read_from_prefix(bytes) else { break };
                    self.joiner.link(&link, &mut self.trace)?;
                    rest
                }
                _ => {
                    let Ok((life, rest)) = LifeRecord::read_from_prefix(bytes) else { break };
                    self.life(&life)?;
                    rest
                }
            };
            bytes = rest;
        }
        Ok(())
    }

    fn see_thread(&mut self, pid: u32, tid: u32) {
        if self.threads.insert(tid, pid).is_none() {
            self.trace.thread(pid, tid, &discover::thread_name(pid, tid));
        }
    }

    fn take_frames(&mut self) -> anyhow::Result<()> {
        let (joiner, trace) = (&mut self.joiner, &mut self.trace);
        let mut result = Ok(());
        for reader in &mut self.shims {
            let Some(pid) = reader.memory().owner() else { continue };
            reader.drain(|tid, frame| {
                if result.is_ok() {
                    result = joiner.frame(pid, tid, frame, trace);
                }
            });
        }
        Ok(result?)
    }

    /// A fork or an exec of a traced process.
    fn life(&mut self, life: &LifeRecord) -> anyhow::Result<()> {
        match life.header.kind {
            kind::FORK if self.follow => {
                self.follow_child(life.header.pid, life.child_pid, life.time_ns)
            }
            kind::EXEC => {
                let pid = life.header.pid;
                if let (Ok(info), Some(target)) =
                    (discover::process_info(pid), self.targets.get_mut(&pid))
                {
                    target.info.command = info.command;
                    self.trace.process(pid, target.info.clone());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Probes a child as its parent is probed. A failure is that child's alone: it may be gone.
    fn follow_child(&mut self, parent: u32, child: u32, born_ns: u64) -> anyhow::Result<()> {
        // Stopped at once, so that it does not get far without probes.
        let pause = Pause::of(child);
        let Some(parent) = self.targets.get(&parent) else { return Ok(()) };
        let command = parent.info.command.clone();
        let libraries: Vec<Library> = parent
            .attached
            .keys()
            .filter_map(|id| self.planned.get(id).map(|planned| planned.library.clone()))
            .collect();
        self.add_target(child, command);
        let attached = self.attach_all(child, libraries).and_then(|()| self.attach_site(child));
        drop(pause);
        if let Err(error) = attached
            && self.targets.get(&child).is_some_and(Target::is_alive)
        {
            self.notice(format!("child process {child} is not traced: {error:#}"));
        } else if discover::libraries(child).is_ok_and(|mapped| !mapped.is_empty()) {
            let late_ms = (clock::now_ns() - born_ns) / 1_000_000;
            self.notice(format!(
                "child process {child} was forked with ROCm loaded and is traced {late_ms} ms later; calls in between are not in the trace"
            ));
        }
        Ok(())
    }

    /// Looks for libraries that were mapped since, and frees what belongs to the dead.
    fn scan(&mut self) -> anyhow::Result<()> {
        let living: Vec<u32> =
            self.targets.iter().filter(|(_, t)| t.is_alive()).map(|(&pid, _)| pid).collect();
        for pid in living {
            let Ok(libraries) = discover::libraries(pid) else { continue };
            for library in libraries {
                let known = |t: &Target| t.attached.contains_key(&library.id);
                if !self.selection.wants(library.runtime)
                    || self.targets.get(&pid).is_none_or(known)
                {
                    continue;
                }
                let path = library.path.display().to_string();
                match self.attach(pid, library) {
                    Ok(()) => self.notice(format!(
                        "process {pid}: {path} was found up to {} ms after it was mapped; earlier calls are not in the trace",
                        SCAN_INTERVAL.as_millis()
                    )),
                    Err(error) => self.notice(format!("process {pid}: {error:#}")),
                }
            }
        }
        for (&pid, target) in self.targets.iter_mut().filter(|(_, t)| !t.is_alive()) {
            target.attached.clear();
            target.dispatch_site = None;
            if target.info.detached_ns == 0 {
                target.info.detached_ns = clock::now_ns();
                self.programs.forget(pid);
            }
        }
        for reader in &self.shims {
            if let Some(pid) = reader.memory().owner() {
                let task = |tid| format!("/proc/{pid}/task/{tid}");
                reader.free_rings(|tid| std::path::Path::new(&task(tid)).exists());
            }
        }
        Ok(())
    }

    /// Detaches, takes the rest, and writes the end of the trace.
    pub fn finish(
        mut self,
        options: &Options,
        status: Option<ExitStatus>,
    ) -> anyhow::Result<ExitCode> {
        for shim in &self.shims {
            let word = shim.memory().word(control::RECORD);
            word.store(0, std::sync::atomic::Ordering::Release);
        }
        self.remove_entries()?;
        self.let_shims_drain()?;
        self.remove_returns()?;
        self.joiner.finish(&mut self.trace)?;
        let losses = self.write_losses()?;
        let report = summary::Report {
            options,
            status,
            counts: self.joiner.counts(),
            losses,
            rocm_seen: self.targets.values().any(|t| !t.info.libraries.is_empty())
                && self.joiner.counts().calls > 0,
            shim: self.shim_presence(),
        };
        let notices = report.notices();
        for text in &notices {
            self.trace.notice(text);
        }
        self.write_processes();
        self.trace.finish(clock::offsets())?;
        report.print(&notices);
        Ok(report.exit_code())
    }

    fn attachments(&mut self) -> impl Iterator<Item = &mut Attachment> {
        self.targets.values_mut().flat_map(|target| target.attached.values_mut())
    }

    fn remove_entries(&mut self) -> anyhow::Result<()> {
        self.programs.set_phase(phase::DETACHING)?;
        self.attachments().for_each(Attachment::remove_entries);
        self.drain_all()
    }

    /// Records what is open, then removes the return probes. A call that returns in between has
    /// both an open and a whole record: the whole one counts.
    fn remove_returns(&mut self) -> anyhow::Result<()> {
        let open = self.programs.open_calls();
        for target in self.targets.values_mut() {
            target.attached.clear();
        }
        let mut returned = HashSet::new();
        let records = self.reader.take_all()?;
        self.take_records(&records, |call| {
            returned.insert(call.correlation_id);
        })?;
        for call in open.into_iter().filter(|call| !returned.contains(&call.correlation_id)) {
            let tid = call.header.tid;
            let known = self.threads.get(&tid).copied();
            let pid = known.or_else(|| discover::process_of_thread(tid)).unwrap_or(0);
            let header = Header { pid, ..call.header };
            self.joiner.api(&ApiRecord { header, ..call }, &mut self.trace)?;
        }
        Ok(())
    }

    fn shim_presence(&self) -> summary::Shim {
        let loaded: Vec<&Memory> =
            self.shims.iter().map(|s| s.memory()).filter(|m| m.owner().is_some()).collect();
        if loaded.is_empty() {
            summary::Shim::NotLoaded
        } else if loaded.iter().all(|m| m.is_unsupported()) {
            summary::Shim::Unsupported
        } else {
            summary::Shim::Loaded
        }
    }

    /// Waits, for a bounded time, until living shims have written what was in flight.
    fn let_shims_drain(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_millis(500);
        loop {
            self.drain(Duration::from_millis(1))?;
            let busy = self.shims.iter().any(|shim| {
                let state = shim.memory().word(control::STATE);
                let living = shim
                    .memory()
                    .owner()
                    .and_then(|pid| self.targets.get(&pid))
                    .is_some_and(Target::is_alive);
                living && state.load(std::sync::atomic::Ordering::Acquire) == shim::state::ACTIVE
            });
            if !busy || Instant::now() > deadline {
                return self.drain_all();
            }
        }
    }

    /// Writes all loss counters, zero ones too, and returns those above zero.
    fn write_losses(&mut self) -> anyhow::Result<Vec<(String, u64)>> {
        let mut losses: Vec<(u32, String, u64)> = Vec::new();
        for (cause, count) in Loss::ALL.into_iter().zip(self.programs.losses()?) {
            losses.push((0, cause.describe().to_owned(), count));
        }
        for reader in &self.shims {
            let Some(pid) = reader.memory().owner() else { continue };
            let causes = shim::Loss::ALL.into_iter().zip(reader.memory().losses());
            // What the shim saw unfinished is in the trace, and counted by the join.
            for (cause, count) in causes.filter(|&(c, _)| c != shim::Loss::UNFINISHED) {
                losses.push((pid, cause.describe().to_owned(), count));
            }
            let (_, malformed) = reader.dropped();
            losses.push((pid, "shim records: not understood".to_owned(), malformed));
        }
        let counts = self.joiner.counts();
        losses.push((0, "GPU operations: no completion seen".to_owned(), counts.incomplete));
        losses.push((0, "GPU operations: enqueue record lost".to_owned(), counts.orphans));
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (pid, cause, count) in losses {
            self.trace.loss(pid, &cause, count);
            *sums.entry(cause).or_default() += count;
        }
        Ok(sums.into_iter().filter(|&(_, count)| count > 0).collect())
    }

    fn write_processes(&mut self) {
        let shims: BTreeMap<u32, u64> = self
            .shims
            .iter()
            .map(crate::shim::Reader::memory)
            .filter(|memory| !memory.is_unsupported())
            .filter_map(|memory| {
                let error = memory.word(control::CLOCK_ERROR_NS);
                let error = error.load(std::sync::atomic::Ordering::Relaxed);
                memory.owner().map(|pid| (pid, error))
            })
            .collect();
        for (&pid, target) in &mut self.targets {
            if let Some(&error) = shims.get(&pid) {
                target.info.gpu_tier = "tools interface at start (HSA_TOOLS_LIB)".to_owned();
                target.info.clock_error_ns = error;
            }
            if target.info.detached_ns == 0 {
                target.info.detached_ns = clock::now_ns();
            }
            self.trace.process(pid, target.info.clone());
        }
    }
}

fn metadata() -> Metadata {
    let system = rustix::system::uname();
    let command: Vec<String> =
        std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    Metadata {
        roctap_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: system.nodename().to_string_lossy().into_owned(),
        kernel: system.release().to_string_lossy().into_owned(),
        command: command.join(" "),
        clock: clock::offsets(),
    }
}
