//! Draining: takes records from the BPF rings and frames from the shims, and has them joined.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tracer_common::bpf::{
    ApiRecord, BatchRecord, Header, LinkRecord, LoadRecord, MarkRecord, PacketRecord,
    ProcessRecord, SignalRecord, flag, kind,
};
use zerocopy::FromBytes as _;

use super::{Session, give_shim::Failure, messages};

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

    /// As [`Session::drain`], but returns those processes, which cannot have the shim that the user insists on:
    /// the caller lets go of them.
    pub(super) fn go_on(&mut self, timeout: Duration) -> anyhow::Result<Vec<Failure>> {
        // Returns soon if threads that put shims into processes wait for answers.
        let soon = if self.injections.are_any() { Duration::from_millis(1) } else { timeout };
        let mut records = self.probes.take(soon.min(timeout));
        self.shims.look(|pid| self.processes.has_ended(pid));
        // A share of the shims' frames, and then more BPF records: the operations wait for the records of their
        // calls, and calls for those of the calls around them. The backup reader empties shims' rings that fill
        // meanwhile.
        self.shims.drain_shares(&mut self.recorder)?;
        self.probes.take_more(&mut records);
        self.join_records(&records)?;
        self.give_up_memories();
        self.ask_for_calls();
        self.take_over();
        self.shims.beat();
        let failures = self.go_on_injecting()?;
        let now = Instant::now();
        if self.pace.is_due(now) {
            self.recorder.tick()?;
            self.look_outside()?;
            self.remove_covered();
            let scan = self.scan()?;
            self.pace.scanned(now, Instant::now(), scan);
        }
        self.attach_new(now)?;
        self.recorder.write(now)?;
        Ok(failures)
    }

    /// Takes everything that is there, in turns: some operations, and then the calls that they wait for.
    pub(super) fn drain_all(&mut self) -> anyhow::Result<()> {
        for _ in 1..self.shims.shares() {
            self.shims.drain_shares(&mut self.recorder)?;
            self.ask_for_calls();
            let records = self.probes.take(Duration::ZERO);
            self.join_records(&records)?;
        }
        self.shims.drain(&mut self.recorder, |_, _| {})?;
        self.ask_for_calls();
        let records = self.probes.take_all();
        self.join_records(&records)?;
        Ok(self.shims.drain(&mut self.recorder, |_, _| {})?)
    }

    /// Takes these records, and writes the shims' calls that have waited for them.
    fn join_records(&mut self, records: &[u8]) -> anyhow::Result<()> {
        self.take_records(records, |_| {})?;
        Ok(self.recorder.settle_calls(self.probes.answered())?)
    }

    fn ask_for_calls(&mut self) {
        self.recorder.ask_for_calls(|tid| self.probes.open_on(tid), || self.probes.ask());
    }

    pub(super) fn take_records(
        &mut self,
        mut bytes: &[u8],
        mut on_call: impl FnMut(&ApiRecord),
    ) -> anyhow::Result<()> {
        let mut loading: BTreeMap<u32, Vec<LoadRecord>> = BTreeMap::new();
        let mut lives = Vec::new();
        let mut for_messages = messages::AT_ONCE;
        while let Ok((header, _)) = Header::read_from_prefix(bytes) {
            let rest = match header.kind {
                kind::API => {
                    let Ok((call, rest)) = ApiRecord::read_from_prefix(bytes) else { break };
                    on_call(&call);
                    self.departed.on_other_stacks +=
                        u64::from(call.header.flags & flag::OTHER_STACK != 0);
                    self.recorder.api(&call)?;
                    rest
                }
                kind::MARK => {
                    let Ok((mut mark, rest)) = MarkRecord::read_from_prefix(bytes) else { break };
                    on_call(&mark.call);
                    self.departed.on_other_stacks +=
                        u64::from(mark.call.header.flags & flag::OTHER_STACK != 0);
                    self.read_message_again(&mut mark, &mut for_messages);
                    self.recorder.mark(&mark)?;
                    rest
                }
                kind::LINK => {
                    let Ok((link, rest)) = LinkRecord::read_from_prefix(bytes) else { break };
                    self.recorder.link(&link)?;
                    rest
                }
                kind::PACKET => {
                    let Ok((packet, rest)) = PacketRecord::read_from_prefix(bytes) else { break };
                    self.take_packet(&packet)?;
                    rest
                }
                kind::BATCH => {
                    let Ok((batch, rest)) = BatchRecord::read_from_prefix(bytes) else { break };
                    self.take_batch(&batch)?;
                    rest
                }
                kind::SIGNAL => {
                    let Ok((signal, rest)) = SignalRecord::read_from_prefix(bytes) else { break };
                    self.outside.signal(&signal);
                    rest
                }
                kind::LOAD => {
                    let Ok((load, rest)) = LoadRecord::read_from_prefix(bytes) else { break };
                    loading.entry(load.header.pid).or_default().push(load);
                    rest
                }
                _ => {
                    let Ok((life, rest)) = ProcessRecord::read_from_prefix(bytes) else { break };
                    lives.push(life);
                    rest
                }
            };
            bytes = rest;
        }
        // The rings of the CPUs are read one after the other: a child's own fork may come before its birth.
        lives.sort_by_key(|life| life.time_ns);
        lives.iter().try_for_each(|life| self.life(life))?;
        // Once for all records of a process's linker: this looks at the mappings of the process as they are now.
        for (pid, told) in loading {
            self.libraries_changed(pid, &told);
        }
        Ok(())
    }
}
