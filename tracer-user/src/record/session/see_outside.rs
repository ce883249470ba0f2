//! Processes without the shim: probes at their doorbells see their GPU work from outside.

use std::sync::Arc;

use tracer_common::bpf::{BatchRecord, Header, PacketRecord};

use super::{Session, injections::Occasion};
use crate::{
    clock,
    discover::{Library, Runtime},
    probe::Attachment,
    record::{
        connection::Connection,
        gpu_source::{Claim, Gpu, GpuSource, TOO_MANY},
        select::Doorbells,
        target::Target,
    },
};

impl Session {
    /// Places probes where process `pid` rings doorbells, if one of `libraries` is the HSA runtime, and if only these
    /// probes see its GPU work or may have to. If that fails, its API calls are still recorded.
    ///
    /// They may have to if the process loads the shim at start. Only then does the shim see whether it knows the
    /// runtime, and the first packets follow at once.
    pub(super) fn see_from_outside(&mut self, pid: u32, libraries: &[Library]) {
        let Some(target) = self.processes.get(pid).filter(|target| self.is_unseen(target)) else {
            return;
        };
        // Only one runtime is probed. A second one has doorbells of its own, which nobody sees.
        let hsa = libraries.iter().find(|library| library.runtime == Runtime::Hsa);
        if let Some(library) = hsa {
            let subject = Arc::clone(&target.subject);
            let found = self.plans.doorbells(&subject, library);
            self.place_doorbells(pid, found);
        }
    }

    /// As [`Session::see_from_outside`], for a child, at the places of its parent's probes.
    pub(super) fn see_child_from_outside(&mut self, pid: u32, found: Arc<Doorbells>) {
        if self.processes.get(pid).is_some_and(|target| self.is_unseen(target)) {
            self.place_doorbells(pid, Ok(found));
        }
    }

    fn is_unseen(&self, target: &Target) -> bool {
        target.gpu_source.may_be_outside() && target.doorbells.is_none()
    }

    fn place_doorbells(&mut self, pid: u32, found: anyhow::Result<Arc<Doorbells>>) {
        let Some(target) = self.processes.get_mut(pid) else { return };
        let placed = found.and_then(|found| {
            let placed = self.probes.place_doorbells(&target.subject, &found)?;
            Ok((placed, found))
        });
        // If it failed, an empty attachment stands for the probes, so that no scan tries again.
        target.doorbells = Some(Attachment::default());
        match placed {
            Ok((placed, found)) => {
                target.doorbells = Some(placed);
                target.doorbell_places = Some(found);
            }
            // The shim will record the GPU work. If it cannot, `replace_helpless_shims` has this tried again.
            Err(error) if target.gpu_source == GpuSource::AtStart => {
                tracing::debug!("process {pid}: its doorbells cannot be probed: {error:#}");
            }
            Err(error) => {
                let text = format!("process {pid}: its GPU work cannot be seen: {error:#}");
                self.recorder.notice(&text);
            }
        }
        target.info.attached_ns = clock::now_ns();
        self.recorder.process(pid, target.info.clone());
        if !target.is_recorded_from_start {
            // Its calls were recorded before this, but the kernels that these launched were not seen.
            self.recorder.joiner.gpu_from(pid, target.info.attached_ns);
        }
    }

    /// Whether the shim of process `pid` records its GPU work. If the process was to load the shim at start, this is
    /// decided at the first packet: the runtime loads its tools before it has a queue.
    fn is_seen_by_shim(&mut self, pid: u32) -> bool {
        let Some(target) = self.processes.get_mut(pid) else { return false };
        if target.gpu_source != GpuSource::AtStart {
            return false;
        }
        if self.is_without_shim(pid) {
            self.put_in_late(pid);
            return true;
        }
        let Some(target) = self.processes.get_mut(pid) else { return false };
        let full = self.shims.were_full_since(target.info.attached_ns);
        let mut memories = self.shims.of(pid).peekable();
        let helpless = match target.claim {
            Claim::Helpless(why) => Some(why),
            Claim::Recording => None,
            // The memory of a program that has ended is gone, too: its absence means nothing.
            _ if memories.peek().is_none() => (full && target.is_alive()).then_some(TOO_MANY),
            _ => memories.find_map(|shim| shim.memory().why_helpless()),
        };
        if let Some(why) = helpless {
            target.gpu_source = GpuSource::Uprobes(why.to_owned());
        } else {
            target.remove_doorbells();
        }
        if helpless == Some(TOO_MANY) {
            let notice = format!("process {pid}: its GPU work is seen from outside: {TOO_MANY}");
            self.recorder.notice(&notice);
        }
        helpless.is_none()
    }

    /// Whether process `pid`, which has sent the GPU work by now, has no shim: its runtime did not load the shim that
    /// it was to load at start, or that shim could not open a memory.
    fn is_without_shim(&mut self, pid: u32) -> bool {
        let Some(target) = self.processes.get(pid) else { return false };
        // The memory of a program that has ended is gone, too: its absence means nothing.
        target.gpu_source == GpuSource::AtStart
            && matches!(target.claim, Claim::None | Claim::Earlier)
            && target.is_alive()
            && !matches!(self.shims.gpu(), Gpu::Tools)
            && self.shims.of(pid).next().is_none()
            // Then it would have one that another process is to have.
            && !self.shims.were_full_since(target.info.attached_ns)
    }

    /// Puts the shim into process `pid`, which was to have one from its start.
    fn put_in_late(&mut self, pid: u32) {
        let Some(target) = self.processes.get_mut(pid) else { return };
        target.remove_doorbells();
        // So that probes at its doorbells are tried again if the shim cannot be put in.
        target.doorbells = None;
        target.gpu_source = GpuSource::Waiting;
        target.is_recorded_from_start = false;
        self.recorder.notice(&format!(
            "process {pid}: its HSA runtime did not load the shim, or the shim could not open roctap's shared memory, or has no room for it: it is put in now"
        ));
        self.following.has_late_shim(pid);
        self.departed.was_late = true;
        self.give_shim(pid, Occasion::Later);
    }

    /// Puts the shim into processes that were to load it at start, did not, and have launched kernels since.
    pub(super) fn replace_missing_shims(&mut self) {
        let launched = |pid: &u32| self.recorder.joiner.launches(*pid) > 0;
        let at_start = self.processes.those(|target| target.gpu_source == GpuSource::AtStart);
        let launched: Vec<u32> = at_start.into_iter().filter(launched).collect();
        for pid in launched {
            if self.is_without_shim(pid) {
                self.put_in_late(pid);
            }
        }
    }

    /// Has the GPU work of processes whose shims record nothing seen from outside.
    pub(super) fn replace_helpless_shims(&mut self) {
        let helpless = |shim: &Connection| Some((shim.pid()?, shim.memory().why_helpless()?));
        for (pid, why) in self.shims.iter().filter_map(helpless) {
            if let Some(target) = self.processes.get_mut(pid)
                && target.gpu_source == GpuSource::AtStart
            {
                target.gpu_source = GpuSource::Uprobes(why.to_owned());
                // If probing its doorbells has failed, it is tried again, and a failure is reported now.
                target.doorbells.take_if(|placed| placed.links() == 0);
            }
        }
    }

    /// Takes a packet that its doorbell announced.
    pub(super) fn take_packet(&mut self, packet: &PacketRecord) -> anyhow::Result<()> {
        if self.is_seen_by_shim(packet.header.pid) {
            return Ok(());
        }
        self.look_into(packet.header);
        Ok(self.outside.packet(packet, &mut self.recorder.joiner)?)
    }

    /// Takes packets that another packet's doorbell announced.
    pub(super) fn take_batch(&mut self, batch: &BatchRecord) -> anyhow::Result<()> {
        if self.is_seen_by_shim(batch.header.pid) {
            return Ok(());
        }
        self.look_into(batch.header);
        Ok(self.outside.batch(batch, &mut self.recorder.joiner)?)
    }

    fn look_into(&mut self, Header { pid, tid, .. }: Header) {
        self.recorder.joiner.thread(pid, tid);
        let target = self.processes.get(pid);
        let from_start = target.is_some_and(|target| target.is_recorded_from_start);
        let is_beside_shim = target.is_some_and(|target| target.gpu_source.is_shim());
        let subject = target.map(|target| Arc::clone(&target.subject));
        if !self.outside.knows(pid)
            && let Err(error) = self.outside.add(pid, subject, from_start)
        {
            self.recorder.notice(&format!(
                "process {pid}: kernels without names and times, its memory cannot be read: {error:#}"
            ));
        }
        self.outside.set_beside_shim(pid, is_beside_shim);
    }

    /// Looks for the names of kernels that were seen from outside, and for their ends; called now and then.
    pub(super) fn look_outside(&mut self) -> anyhow::Result<()> {
        if self.outside.is_empty() {
            return Ok(());
        }
        let (request, answered) = (self.probes.reader.ask(), self.probes.reader.answered());
        Ok(self.outside.tick(request, answered, &mut self.recorder.joiner)?)
    }

    /// Ends seeing process `pid` from outside: the facts about its work that are not known by now never will be.
    pub(super) fn end_outside(&mut self, pid: u32) -> anyhow::Result<()> {
        let error_ns = self.outside.end(pid, &mut self.recorder.joiner)?;
        if let Some(target) = self.processes.get_mut(pid) {
            target.info.clock_error_ns = target.info.clock_error_ns.max(error_ns);
        }
        Ok(())
    }
}
