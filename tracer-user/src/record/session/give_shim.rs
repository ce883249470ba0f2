//! Giving running processes the shim, and with it GPU times.

use std::{os::fd::AsRawFd as _, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use tracer_common::shim::{ATTACH_FUNCTION, Layout, attach_status};

use super::{
    Session,
    attach::ended_early,
    injections::{
        Event, FinishedInjection, Handover, MainThread, Occasion, Outcome, Prepared, Recording,
    },
};
use crate::{
    clock::{self, Patience},
    discover::{self, SHIM_FILE_NAME, Subject},
    inject::{self, Access, Entry, Handed, InjectError, Injected, Request},
    record::{
        gpu_source::{Gpu, GpuSource},
        prospect::Prospect,
        room,
        stop::Stop,
        target::Target,
    },
    shim::Shim,
    shown::say,
};

/// The longest wait for shims on their way at the end of a recording; steps that can take longer have their own limits.
const LAST_WAIT: Duration = Duration::from_secs(30);
/// The longest wait if somebody has asked for that end: long enough for a process that is quick.
const ASKED_WAIT: Duration = Duration::from_secs(3);

/// A process that was being attached to, and the reason why it is not traced.
pub(super) type Failure = (Arc<Subject>, anyhow::Error);

impl Session {
    /// Begins to put the shim into process `pid` if the process waits for it.
    pub(super) fn give_shim(&mut self, pid: u32, occasion: Occasion) {
        let waits = |target: &&mut Target| target.gpu_source.is_awaited();
        let Some(target) = self.processes.get_mut(pid).filter(waits) else { return };
        if self.ending {
            return;
        }
        if self.injections.has_to_wait(&target.subject) {
            let runs = self.injections.subject(pid).is_some();
            target.is_being_attached |= !runs && occasion == Occasion::Attaching;
            return;
        }
        // Whatever the process has waited for.
        let waited = std::mem::take(&mut target.is_being_attached);
        let occasion = if waited { Occasion::Attaching } else { occasion };
        let Some(shim) = self.shims.shim().cloned() else { return };
        let wanted = self.shims.layout();
        let inject = move |process: &Subject, main_thread: &MainThread| {
            inject(process, &shim, wanted, main_thread)
        };
        if let Err(error) = self.injections.start(&target.subject, occasion, inject) {
            target.is_being_attached = occasion == Occasion::Attaching;
            let text =
                format!("process {pid}: no GPU times yet: starting a thread failed: {error}");
            self.recorder.notice(&text);
        }
    }

    /// Goes on with shims on their way. Returns the processes that are not traced because they cannot have a shim.
    pub(super) fn go_on_injecting(&mut self) -> anyhow::Result<Vec<Failure>> {
        let mut failures = Vec::new();
        for (pid, event) in self.injections.events() {
            match event {
                Event::Handed(handover, answer) => {
                    let prepared = self.prepare(pid, handover);
                    let result = prepared.map(|prepared| {
                        // The shim may record, and its probe report its calls, before the shim has answered.
                        self.recorder.joiner.shim_ids(pid, prepared.connection.call_ids());
                        self.injections.prepared(pid, prepared);
                    });
                    // The thread waits for the answer.
                    let _ = answer.send(result);
                }
                Event::Done(done) => failures.extend(self.injected(pid, *done)?),
            }
        }
        self.injections.beat();
        Ok(failures)
    }

    /// Waits, for a bounded time, for shims on their way: no process gets a shim from here on.
    pub(super) fn let_injections_end(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let (mut patience, mut asked) = (Patience::of(LAST_WAIT), Patience::of(ASKED_WAIT));
        while self.injections.are_any()
            && !patience.has_ended()
            && !(asked.has_ended() && stop.asked())
        {
            self.drain(Duration::from_millis(1))?;
        }
        // Their shims may record by now, and are told to stop as all are.
        for (pid, Prepared { connection, site }) in self.injections.take_prepared() {
            self.shims.add(connection);
            if let Some(target) = self.processes.get_mut(pid) {
                target.dispatch_site = Some(site);
            }
        }
        Ok(())
    }

    fn prepare(&self, pid: u32, handover: Handover) -> anyhow::Result<Prepared> {
        if self.ending {
            bail!("the recording has ended");
        }
        let subject = self.injections.subject(pid).context("it has ended")?;
        let Handover { memory, layout, file, offset } = handover;
        let site = self.probes.place_site(&subject, &file, offset)?;
        Ok(Prepared { connection: self.shims.adopt(pid, memory, layout)?, site })
    }

    /// A process has its shim, or could not get it. In the second case it is traced from outside, unless GPU times were
    /// insisted on.
    fn injected(&mut self, pid: u32, done: FinishedInjection) -> anyhow::Result<Option<Failure>> {
        let FinishedInjection { subject, occasion, result, prepared, executed_ns } = done;
        let Some(target) = self.processes.get_mut(pid) else { return Ok(None) };
        if !Arc::ptr_eq(&target.subject, &subject) || !target.gpu_source.is_awaited() {
            return Ok(None);
        }
        let mut attached_ns = clock::now_ns();
        let source = match result {
            Ok(Outcome::NotYet) => {
                target.gpu_source = GpuSource::Waiting;
                return Ok(None);
            }
            Ok(Outcome::Held(why)) => {
                target.is_being_attached |= occasion == Occasion::Attaching;
                let source = GpuSource::Held(why.clone());
                if target.gpu_source != source {
                    target.gpu_source = source;
                    let text = format!("process {pid}: no GPU times until it goes on: {why}");
                    self.recorder.notice(&text);
                }
                return Ok(None);
            }
            Ok(Outcome::Forked) => GpuSource::Forked,
            Ok(Outcome::Recording(Recording { stopped, looked_ns, answered_ns })) => {
                let Some(Prepared { connection, site }) = prepared else { return Ok(None) };
                if executed_ns.is_some_and(|executed_ns| looked_ns < executed_ns) {
                    // The shim was in the program that the process ran before.
                    self.shims.add_ended(connection, &mut self.recorder.joiner)?;
                    return Ok(None);
                }
                self.shims.add(connection);
                attached_ns = answered_ns;
                target.info.stopped_ns = stopped.as_nanos() as u64;
                target.dispatch_site = Some(site);
                let source = GpuSource::Tables;
                say(&format!("process {pid}: GPU times: {source}"));
                self.recorder.joiner.gpu_from(pid, attached_ns);
                source
            }
            Err(_) if occasion == Occasion::Attaching && !subject.is_alive() => {
                return Ok(Some((subject, ended_early(pid))));
            }
            Err(_) if !discover::has_program(pid) => {
                // Records that its shim wrote meanwhile are in the memory, and its answer may be.
                let claimed = |prepared: &Prepared| prepared.connection.process().is_some();
                let claimed = prepared.filter(claimed).map(|prepared| prepared.connection);
                let status = claimed.as_ref().map(|connection| connection.attach_status());
                claimed.into_iter().for_each(|connection| self.shims.add(connection));
                match status {
                    Some(attach_status::RECORDING) => GpuSource::Tables,
                    _ => GpuSource::Uprobes("it ended before its shim answered".to_owned()),
                }
            }
            Err(error) if self.shims.gpu() == Gpu::Auto => {
                self.recorder.notice(&format!(
                    "process {pid}: seen from outside, with few GPU times: {error:#}"
                ));
                GpuSource::Uprobes(format!("{error:#}"))
            }
            Err(error) => {
                // The injection is not tried again.
                target.gpu_source = GpuSource::Uprobes(format!("{error:#}"));
                let error = error.context(format!("process {pid}: no GPU times"));
                if occasion == Occasion::Attaching {
                    return Ok(Some((subject, error)));
                }
                self.recorder.notice(&format!("{error:#}"));
                return Ok(None);
            }
        };
        target.info.attached_ns = attached_ns;
        target.info.gpu_tier = source.to_string();
        target.gpu_source = source;
        self.recorder.process(pid, target.info.clone());
        if let Ok(libraries) = subject.by_number(discover::libraries) {
            self.see_from_outside(pid, &libraries);
        }
        Ok(None)
    }
}

/// Has the shim patch the HSA runtime's tables.
fn inject(
    process: &Subject,
    shim: &Shim,
    wanted: Layout,
    main_thread: &MainThread,
) -> anyhow::Result<Outcome> {
    let looked_ns = clock::now_ns();
    if let Some(why) = inject::held_now(process) {
        return Ok(Outcome::Held(why.to_string()));
    }
    let Some(prospect) = Prospect::of(process, Access::Write)? else { return Ok(Outcome::NotYet) };
    if prospect.cannot_use_gpu {
        return Ok(Outcome::Forked);
    }
    if let Some(why) = prospect.why_none() {
        bail!("{why}");
    }
    let layout = process.by_number(|pid| Ok::<_, anyhow::Error>(room::layout(pid, wanted)?))?;
    if layout != wanted {
        tracing::info!("process {}: its limits allow {layout:?}", process.pid());
    }
    match inject_shim(process, shim, &prospect, layout, main_thread) {
        Ok(stopped) => {
            let answered_ns = clock::now_ns();
            Ok(Outcome::Recording(Recording { stopped, looked_ns, answered_ns }))
        }
        Err(error) => held_since(process, &error).map(Outcome::Held).ok_or(error),
    }
}

/// The reason why a process is held, if that is what made the injection fail.
fn held_since(process: &Subject, error: &anyhow::Error) -> Option<String> {
    match error.downcast_ref()? {
        InjectError::Held(why) => Some(why.clone()),
        InjectError::Late { .. } => inject::held_now(process).map(|why| why.to_string()),
        _ => None,
    }
}

/// Puts the shim in, which records then. Returns for how long a thread was stopped.
fn inject_shim(
    process: &Subject,
    shim: &Shim,
    prospect: &Prospect,
    layout: Layout,
    main_thread: &MainThread,
) -> anyhow::Result<Duration> {
    let pid = process.pid();
    let attach = prospect.attach;
    let loaded = prospect.loaded.as_ref();
    let library = match loaded {
        Some(_) => Vec::new(),
        None => std::fs::read(&shim.path)
            .with_context(|| format!("{}: cannot be read", shim.path.display()))?,
    };
    let entry = match loaded {
        Some(loaded) => Entry::Loaded { address: loaded.attach },
        None => Entry::Library { bytes: &library, name: SHIM_FILE_NAME, function: ATTACH_FUNCTION },
    };
    let memory = &prospect.memory;
    let request = Request { process, memory, entry, attach };
    let prepare = |Handed { memory, library }: Handed| -> anyhow::Result<()> {
        let (file, offset) = match (loaded, &library) {
            (Some(loaded), _) => (loaded.file.path(), loaded.site_offset),
            // By roctap's own descriptor: under its own number the process may have another file by now.
            (None, Some(library)) => {
                (format!("/proc/self/fd/{}", library.as_raw_fd()).into(), shim.site_offset)
            }
            (None, None) => bail!("no library was handed over"),
        };
        main_thread.prepare(Handover { memory, layout, file, offset })?;
        Ok(loaded.map_or(Ok(()), |loaded| loaded.file.check())?)
    };
    let Injected { status, stopped, took, .. } = inject::inject(&request, prepare)?;
    tracing::info!(
        "process {pid}: the shim answered {status} after {:.1} ms; a thread was stopped for {} µs",
        took.as_secs_f64() * 1e3,
        stopped.as_micros()
    );
    match status {
        attach_status::RECORDING => Ok(stopped),
        attach_status::UNSUPPORTED => {
            bail!("the shim does not know this release's tables or functions")
        }
        attach_status::SECOND_RUNTIME => {
            bail!("the process has several HSA runtimes, and the shim is in another one's tables")
        }
        attach_status::COVERED => bail!(
            "the HSA runtime was initialized anew under another tool, which may call the shim already"
        ),
        attach_status::BUSY => bail!("another roctap records this process"),
        attach_status::MEMORY => bail!(
            "the shim could not map the shared memory: a limit of the process is in the way \
             (RLIMIT_AS, or RLIMIT_MEMLOCK where it has called mlockall(MCL_FUTURE); see \
             /proc/PID/limits)"
        ),
        attach_status::THREAD => bail!("the shim could not start its thread"),
        attach_status::UNUSABLE => bail!("its shim is broken"),
        other => bail!("the shim answered {other}"),
    }
}
