//! Draining: records from the BPF rings, frames from the shims.

use std::time::{Duration, Instant};

use tracer_common::bpf::{
    ApiRecord, BatchRecord, Header, LifeRecord, LinkRecord, PacketRecord, SignalRecord, kind,
};
use tracer_records::sink::RecordSink as _;
use zerocopy::FromBytes as _;

use super::Session;
use crate::{clock, discover, join::SeenThreads, shim::Frame, trace::Writer};

/// How often chunks are written.
const CHUNK_INTERVAL: Duration = Duration::from_millis(250);
/// How often maps are looked through for libraries that came late.
pub(super) const SCAN_INTERVAL: Duration = Duration::from_millis(100);

impl Session {
    /// Takes what is there, waiting at most `timeout` for it.
    pub fn drain(&mut self, timeout: Duration) -> anyhow::Result<()> {
        let records = self.reader.take(timeout);
        // Before and after: a large batch of records takes its time, and the shims' rings fill. Before
        // also because of calls, which wait for records of calls around them.
        self.take_frames(|_, _| {})?;
        self.take_records(&records, |_| {})?;
        self.settle_calls(self.reader.answered())?;
        self.take_frames(|_, _| {})?;
        self.ask_for_calls();
        self.take_over();
        self.beat();
        let now = Instant::now();
        if now - self.last_scan >= SCAN_INTERVAL {
            self.last_scan = now;
            self.joiner.tick(clock::now_ns(), &mut self.trace)?;
            self.look_outside()?;
            self.remove_covered();
            self.scan()?;
        }
        self.look_out(now)?;
        if now - self.last_chunk >= CHUNK_INTERVAL {
            self.last_chunk = now;
            self.trace.flush_chunk()?;
        }
        Ok(())
    }

    /// Takes everything that is there.
    pub(super) fn drain_all(&mut self) -> anyhow::Result<()> {
        self.take_frames(|_, _| {})?;
        self.ask_for_calls();
        let records = self.reader.take_all();
        self.take_records(&records, |_| {})?;
        self.settle_calls(self.reader.answered())?;
        self.take_frames(|_, _| {})
    }

    fn ask_for_calls(&mut self) {
        self.joiner.ask_for_calls(|tid| self.programs.open_on(tid), || self.reader.ask());
    }

    /// Writes the shims' calls that wait for nothing of before request `answered`.
    pub(super) fn settle_calls(&mut self, answered: u64) -> anyhow::Result<()> {
        let threads = &mut self.threads;
        Ok(self.joiner.settle_calls(answered, &mut self.trace, |pid, tid, trace| {
            see_thread(threads, trace, pid, tid);
        })?)
    }

    pub(super) fn take_records(
        &mut self,
        mut bytes: &[u8],
        mut on_call: impl FnMut(&ApiRecord),
    ) -> anyhow::Result<()> {
        while let Ok((header, _)) = Header::read_from_prefix(bytes) {
            let rest = match header.kind {
                kind::API => {
                    let Ok((call, rest)) = ApiRecord::read_from_prefix(bytes) else { break };
                    see_thread(&mut self.threads, &mut self.trace, header.pid, header.tid);
                    on_call(&call);
                    self.joiner.api(&call, &mut self.trace)?;
                    rest
                }
                kind::LINK => {
                    let Ok((link, rest)) = LinkRecord::read_from_prefix(bytes) else { break };
                    self.joiner.link(&link, &mut self.trace)?;
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

    pub(super) fn take_frames(&mut self, mut on_call: impl FnMut(u32, u64)) -> anyhow::Result<()> {
        let (joiner, trace) = (&mut self.joiner, &mut self.trace);
        let mut result = Ok(());
        for connection in &mut self.connections {
            if let Some(pid) = connection.pid() {
                joiner.shim_ids(pid, connection.call_ids());
            }
            connection.drain(|pid, tid, frame| {
                if let Frame::Call(call) = &frame {
                    on_call(pid, call.correlation_id);
                }
                if result.is_ok() {
                    result = joiner.frame(pid, tid, frame, trace);
                }
            });
        }
        Ok(result?)
    }
}

/// Names a thread that was not seen before.
pub(super) fn see_thread(threads: &mut SeenThreads, trace: &mut Writer, pid: u32, tid: u32) {
    if threads.is_new(pid, tid) {
        trace.thread(pid, tid, &discover::thread_name(pid, tid));
    }
}
