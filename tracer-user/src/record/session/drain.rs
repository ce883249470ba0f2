//! Draining: takes records from the BPF rings and frames from the shims, and has them joined.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tracer_common::bpf::{
    ApiRecord, BatchRecord, LinkRecord, LoadRecord, MarkRecord, PacketRecord, ProcessRecord,
    SignalRecord, kind,
};
use zerocopy::FromBytes;

use super::{Session, give_shim::Failure, messages};
use crate::{
    clock,
    probe::{Records, each_record},
};

/// A record of this type: as long as one, or the reader would have left it out.
fn read<T: FromBytes>(record: &[u8]) -> Option<T> {
    T::read_from_bytes(record).ok()
}

impl Session {
    /// Takes the records and frames that are there, and waits at most `timeout` for records. Lets go of
    /// processes that cannot be traced.
    pub fn drain(&mut self, timeout: Duration) -> anyhow::Result<()> {
        for (subject, error) in self.go_on(timeout)? {
            self.let_go(subject.pid());
            self.give_up(&subject, &error);
        }
        Ok(())
    }

    /// One turn: reads, joins, looks after the processes, and writes. As [`Session::drain`], but returns the processes
    /// that cannot have the shim that the user insists on: the caller lets go of them.
    pub(super) fn go_on(&mut self, timeout: Duration) -> anyhow::Result<Vec<Failure>> {
        let records = self.read(timeout)?;
        self.join_records(records)?;
        self.look_after_shims();
        let failures = self.go_on_injecting()?;
        let now = Instant::now();
        self.look_after_processes(now)?;
        self.recorder.write(now)?;
        Ok(failures)
    }

    /// Waits at most `timeout` for BPF records, and takes those that are there. The shims' frames go to the joiner as
    /// they are read.
    fn read(&mut self, timeout: Duration) -> anyhow::Result<Records> {
        // Returns soon if threads that put shims into processes wait for answers.
        let soon = if self.injections.are_any() { Duration::from_millis(1) } else { timeout };
        let mut records = self.probes.take(soon.min(timeout));
        self.shims.look(|pid| self.processes.has_ended(pid));
        // A share of the shims' frames, and then more BPF records: the operations wait for the records of their
        // calls, and calls for those of the calls around them. The backup reader empties shims' rings that fill
        // meanwhile.
        self.shims.drain_shares(&mut self.recorder.joiner)?;
        self.probes.reader.take_more(&mut records);
        Ok(records)
    }

    fn look_after_shims(&mut self) {
        self.give_up_memories();
        self.ask_for_calls();
        self.take_over();
        self.shims.beat();
    }

    /// Looks at the processes, if it is time, and for new ones.
    fn look_after_processes(&mut self, now: Instant) -> anyhow::Result<()> {
        if self.pace.is_due(now) {
            self.recorder.joiner.tick(clock::now_ns())?;
            self.look_outside()?;
            self.remove_covered();
            let scan = self.scan()?;
            self.pace.scanned(now, Instant::now(), scan);
        }
        self.attach_new(now)
    }

    /// Takes everything that is there, in turns: some operations, and then the calls that they wait for.
    pub(super) fn drain_all(&mut self) -> anyhow::Result<()> {
        for _ in 1..self.shims.shares() {
            self.shims.drain_shares(&mut self.recorder.joiner)?;
            self.ask_for_calls();
            let records = self.probes.take(Duration::ZERO);
            self.join_records(records)?;
        }
        self.shims.drain(&mut self.recorder.joiner, |_, _| {})?;
        self.ask_for_calls();
        let records = self.probes.take_all();
        self.join_records(records)?;
        Ok(self.shims.drain(&mut self.recorder.joiner, |_, _| {})?)
    }

    /// Takes these records, and writes the shims' calls that have waited for them.
    fn join_records(&mut self, records: Records) -> anyhow::Result<()> {
        self.take_records(&records, |_| {})?;
        self.probes.reader.give_back(records);
        Ok(self.recorder.joiner.settle_calls(self.probes.reader.answered())?)
    }

    fn ask_for_calls(&mut self) {
        self.recorder
            .joiner
            .ask_for_calls(|tid| self.probes.programs.open_on(tid), || self.probes.reader.ask());
    }

    pub(super) fn take_records(
        &mut self,
        records: &Records,
        mut on_call: impl FnMut(&ApiRecord),
    ) -> anyhow::Result<()> {
        let mut loading: BTreeMap<u32, Vec<LoadRecord>> = BTreeMap::new();
        let mut lives = Vec::new();
        let mut for_messages = messages::AT_ONCE;
        for (kind, record) in each_record(records) {
            match kind {
                kind::API => {
                    let Some(call) = read::<ApiRecord>(record) else { continue };
                    on_call(&call);
                    self.departed.add_call(&call);
                    self.recorder.joiner.api(&call)?;
                }
                kind::MARK => {
                    let Some(mut mark) = read::<MarkRecord>(record) else { continue };
                    on_call(&mark.call);
                    self.departed.add_call(&mark.call);
                    self.read_message_again(&mut mark, &mut for_messages);
                    self.recorder.joiner.mark(&mark)?;
                }
                kind::LINK => {
                    let Some(link) = read::<LinkRecord>(record) else { continue };
                    self.recorder.joiner.link(&link)?;
                }
                kind::PACKET => {
                    let Some(packet) = read::<PacketRecord>(record) else { continue };
                    self.take_packet(&packet)?;
                }
                kind::BATCH => {
                    let Some(batch) = read::<BatchRecord>(record) else { continue };
                    self.take_batch(&batch)?;
                }
                kind::SIGNAL => {
                    let Some(signal) = read::<SignalRecord>(record) else { continue };
                    self.outside.signal(&signal);
                }
                kind::LOAD => {
                    let Some(load) = read::<LoadRecord>(record) else { continue };
                    loading.entry(load.header.pid).or_default().push(load);
                }
                _ => lives.extend(read::<ProcessRecord>(record)),
            }
        }
        // The rings of the CPUs are read one after the other: a child's own fork may come before its birth.
        lives.sort_by_key(|life| life.time_ns);
        lives.iter().try_for_each(|life| self.life(life))?;
        // Once for all records of a process's linker: this looks at the mappings of the process as they are now.
        for (pid, loads) in loading {
            self.libraries_changed(pid, &loads);
        }
        Ok(())
    }
}
