//! Processes that nothing is put into: their GPU work is seen from outside.

use std::sync::Arc;

use tracer_common::bpf::{BatchRecord, Header, PacketRecord};

use super::Session;
use crate::{
    clock,
    discover::{Library, Runtime},
    probe::Attachment,
    record::{connection::Connection, gpu_source::GpuSource, target::Target},
};

/// Why a shim that was loaded records nothing.
pub(super) const UNKNOWN_TABLES: &str =
    "the shim does not know the API tables of this HSA runtime (it knows those of ROCm 4.5 to 5.5)";

impl Session {
    /// Probes where process `pid` rings doorbells, if only that can tell of its GPU work, and one of
    /// `libraries` is the HSA runtime. A failure leaves the API calls.
    pub(super) fn see_from_outside(&mut self, pid: u32, libraries: &[Library]) {
        let wanted = |target: &Target| {
            matches!(target.gpu_source, GpuSource::Uprobes(_)) && target.doorbells.is_none()
        };
        let Some(target) = self.processes.get_mut(pid).filter(|target| wanted(target)) else {
            return;
        };
        // One is enough; a second runtime has its own doorbells, and is not seen.
        let hsa = libraries.iter().find(|library| library.runtime == Runtime::Hsa);
        if let Some(library) = hsa {
            let attached = self.plans.doorbells(&target.subject, library);
            let attached =
                attached.and_then(|found| self.probes.place_doorbells(&target.subject, &found));
            let attachment = attached.unwrap_or_else(|error| {
                let text = format!("process {pid}: its GPU work cannot be seen: {error:#}");
                self.recorder.notice(&text);
                // Nothing, for good: it is not tried again.
                Attachment::default()
            });
            target.doorbells = Some(attachment);
            target.info.attached_ns = clock::now_ns();
            self.recorder.process(pid, target.info.clone());
        }
    }

    /// Sees the GPU work of processes from outside whose shims do not know the runtime.
    pub(super) fn replace_helpless_shims(&mut self) {
        let helpless = self.shims.iter().filter(|c| c.memory().is_unsupported());
        for pid in helpless.filter_map(Connection::pid) {
            if let Some(target) = self.processes.get_mut(pid)
                && target.gpu_source == GpuSource::AtStart
            {
                target.gpu_source = GpuSource::Uprobes(UNKNOWN_TABLES.to_owned());
            }
        }
    }

    /// A packet that a doorbell announced.
    pub(super) fn take_packet(&mut self, packet: &PacketRecord) -> anyhow::Result<()> {
        self.look_into(packet.header);
        let outside = &mut self.outside;
        Ok(self.recorder.join(|joiner, trace| outside.packet(packet, joiner, trace))?)
    }

    /// Packets that a doorbell announced beside its own.
    pub(super) fn take_batch(&mut self, batch: &BatchRecord) -> anyhow::Result<()> {
        self.look_into(batch.header);
        let outside = &mut self.outside;
        Ok(self.recorder.join(|joiner, trace| outside.batch(batch, joiner, trace))?)
    }

    fn look_into(&mut self, Header { pid, tid, .. }: Header) {
        self.recorder.thread(pid, tid);
        let subject = self.processes.get(pid).map(|target| Arc::clone(&target.subject));
        if !self.outside.knows(pid)
            && let Err(error) = self.outside.add(pid, subject)
        {
            self.recorder.notice(&format!(
                "process {pid}: kernels without names and times, its memory cannot be read: {error:#}"
            ));
        }
    }

    /// Looks for names and ends; now and then.
    pub(super) fn look_outside(&mut self) -> anyhow::Result<()> {
        if self.outside.is_empty() {
            return Ok(());
        }
        let (request, answered) = (self.probes.ask(), self.probes.answered());
        let outside = &mut self.outside;
        Ok(self.recorder.join(|joiner, trace| outside.tick(request, answered, joiner, trace))?)
    }

    /// What is not known of process `pid`'s work by now never will be.
    pub(super) fn end_outside(&mut self, pid: u32) -> anyhow::Result<()> {
        let outside = &mut self.outside;
        let error_ns = self.recorder.join(|joiner, trace| outside.end(pid, joiner, trace))?;
        if let Some(target) = self.processes.get_mut(pid) {
            target.info.clock_error_ns = target.info.clock_error_ns.max(error_ns);
        }
        Ok(())
    }
}
