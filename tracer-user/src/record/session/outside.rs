//! Processes that nothing is put into: their GPU work is seen from outside.

use std::sync::Arc;

use tracer_common::bpf::{BatchRecord, Header, PacketRecord};
use tracer_records::sink::RecordSink as _;

use super::{Session, attach::remember, drain::see_thread};
use crate::{
    clock,
    discover::{Ended, Library, PlannedFile, Runtime},
    plan::{Process, ProcessMemory},
    probe::Attachment,
    record::{
        connection::Connection,
        select::Doorbells,
        target::{Target, Tier},
    },
};

/// Why a shim that was loaded records nothing.
pub(super) const UNKNOWN_TABLES: &str =
    "the shim does not know the API tables of this HSA runtime (it knows those of ROCm 4.5 to 5.5)";

impl Session {
    /// Probes where process `pid` rings doorbells, if only that can tell of its GPU work, and one of
    /// `libraries` is the HSA runtime. A failure leaves the API calls.
    pub(super) fn see_from_outside(&mut self, pid: u32, libraries: &[Library]) {
        let wanted =
            |target: &Target| matches!(target.tier, Tier::Uprobes(_)) && target.doorbells.is_none();
        if !self.targets.get(&pid).is_some_and(wanted) {
            return;
        }
        for library in libraries.iter().filter(|library| library.runtime == Runtime::Hsa) {
            let attached = self.doorbells(pid, library).and_then(|doorbells| {
                let Doorbells { file, stores, ends, .. } = &*doorbells;
                self.place(pid, |programs, pid| {
                    let placed = programs.attach_doorbells(pid, &file.path(), stores, ends)?;
                    file.check()?;
                    Ok(placed)
                })
            });
            let attachment = attached.unwrap_or_else(|error| {
                self.notice(format!("process {pid}: its GPU work cannot be seen: {error:#}"));
                // Nothing, for good: it is not tried again.
                Attachment::default()
            });
            if let Some(target) = self.targets.get_mut(&pid) {
                target.doorbells = Some(attachment);
                target.info.attached_ns = clock::now_ns();
                self.trace.process(pid, target.info.clone());
            }
        }
    }

    /// Sees the GPU work of processes from outside whose shims do not know the runtime.
    pub(super) fn replace_helpless_shims(&mut self) {
        let helpless = self.connections.iter().filter(|c| c.memory().is_unsupported());
        for pid in helpless.filter_map(Connection::pid) {
            if let Some(target) = self.targets.get_mut(&pid)
                && target.tier == Tier::AtStart
            {
                target.tier = Tier::Uprobes(UNKNOWN_TABLES.to_owned());
            }
        }
    }

    /// Where the functions that ring doorbells are probed: planned once a library.
    fn doorbells(&mut self, pid: u32, library: &Library) -> anyhow::Result<Arc<Doorbells>> {
        let known = self.doorbells.get(&library.id).into_iter().flatten();
        if let Some(found) = self.holding(pid, known, |doorbells| &doorbells.followed)? {
            return Ok(found);
        }
        let target = self.targets.get(&pid).ok_or(Ended { pid })?;
        let found = target.subject.by_number(|pid| -> anyhow::Result<_> {
            let process = Process::open(pid).ok();
            let process = process.as_ref().map(|p| p as &dyn ProcessMemory);
            let file = PlannedFile::open(&library.open_path)?;
            Ok(self.selection.doorbells(library, file, process)?)
        })?;
        if found.stores.is_empty() {
            anyhow::bail!("{}: no function that rings doorbells was found", library.path.display());
        }
        let found = Arc::new(found);
        remember(&mut self.doorbells, library.id, &found);
        Ok(found)
    }

    /// A packet that a doorbell announced.
    pub(super) fn take_packet(&mut self, packet: &PacketRecord) -> anyhow::Result<()> {
        self.look_into(packet.header);
        Ok(self.outside.packet(packet, &mut self.joiner, &mut self.trace)?)
    }

    /// Packets that a doorbell announced beside its own.
    pub(super) fn take_batch(&mut self, batch: &BatchRecord) -> anyhow::Result<()> {
        self.look_into(batch.header);
        Ok(self.outside.batch(batch, &mut self.joiner, &mut self.trace)?)
    }

    fn look_into(&mut self, Header { pid, tid, .. }: Header) {
        see_thread(&mut self.threads, &mut self.trace, pid, tid);
        let subject = self.targets.get(&pid).map(|target| Arc::clone(&target.subject));
        if !self.outside.knows(pid)
            && let Err(error) = self.outside.add(pid, subject)
        {
            self.notice(format!(
                "process {pid}: kernels without names and times, its memory cannot be read: {error:#}"
            ));
        }
    }

    /// Looks for names and ends; now and then.
    pub(super) fn look_outside(&mut self) -> anyhow::Result<()> {
        if self.outside.is_empty() {
            return Ok(());
        }
        let (request, answered) = (self.reader.ask(), self.reader.answered());
        Ok(self.outside.tick(request, answered, &mut self.joiner, &mut self.trace)?)
    }

    /// What is not known of process `pid`'s work by now never will be.
    pub(super) fn end_outside(&mut self, pid: u32) -> anyhow::Result<()> {
        let error_ns = self.outside.end(pid, &mut self.joiner, &mut self.trace)?;
        if let Some(target) = self.targets.get_mut(&pid) {
            target.info.clock_error_ns = target.info.clock_error_ns.max(error_ns);
        }
        Ok(())
    }
}
