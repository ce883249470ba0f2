//! The trace file: everything that is written is read, within limits, whatever happened to the file.

mod damage;
mod files;
mod limits;
mod made_up;
mod round_trip;

use std::{
    convert::Infallible,
    io,
    path::Path,
    sync::{Arc, Mutex},
};

use tracer_common::activity::{ActivityRecord, Domain};
use tracer_records::{
    model::{ApiCall, Barrier, ClockOffsets, Copy, Dispatch, Event, Metadata},
    sink::RecordSink as _,
};

use super::{Reading, Trace, TraceError, Writer, format::CHUNK_MAGIC, sink::Sink};

const CLOCK: ClockOffsets = ClockOffsets { boottime_ns: 9, monotonic_ns: 8, realtime_ns: 7 };

/// A file in memory that holds `room` bytes.
#[derive(Clone)]
struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: usize,
}

impl Memory {
    fn new(room: usize) -> Self {
        Self { bytes: Arc::default(), room }
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }
}

impl Sink for Memory {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut stored = self.bytes.lock().unwrap();
        let fits = bytes.len().min(self.room - stored.len());
        stored.extend_from_slice(&bytes[..fits]);
        if fits < bytes.len() { Err(io::Error::from_raw_os_error(28)) } else { Ok(()) }
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().truncate(len as usize);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn event(n: u64) -> Event {
    let record = ActivityRecord {
        domain: Domain::HIP_API,
        op: n as u32 % 400,
        correlation_id: n,
        begin_ns: 1_000 * n,
        end_ns: 1_000 * n + 500,
        process_or_device: 100,
        thread_id: 101,
        ..Default::default()
    };
    match n % 4 {
        0 => Event::Api(ApiCall {
            record,
            parent_id: n / 2,
            ret: n,
            args: [n; 6],
            extra: [1, 2, 3],
            flags: 9,
        }),
        1 => Event::Dispatch(Dispatch {
            record,
            process_id: 100,
            demangled: 5,
            kernel_id: 6,
            dispatch_id: n,
            enqueue_ns: n,
            grid: [1, 2, 3],
            workgroup: [4, 5, 6],
            flags: 7,
            group_bytes: 8,
            private_bytes: 9,
            stream: 10,
        }),
        2 => Event::Copy(Copy {
            record,
            process_id: 1,
            src_node: 2,
            dst_node: 3,
            flags: 4,
            dispatch_id: 5,
            enqueue_ns: 6,
            stream: 7,
        }),
        _ => Event::Barrier(Barrier {
            record,
            process_id: 1,
            flags: 2,
            dispatch_id: 3,
            enqueue_ns: 4,
        }),
    }
}

fn writer(memory: &Memory) -> Writer {
    let metadata = Metadata { command: "roctap record".into(), ..Default::default() };
    Writer::with_sink(Path::new("t"), Box::new(memory.clone()), &metadata).unwrap()
}

/// `chunks` chunks of `each` events.
fn sample(chunks: u64, each: u64, finished: bool) -> Vec<u8> {
    let memory = Memory::new(usize::MAX);
    let mut writer = writer(&memory);
    for chunk in 0..chunks {
        writer.string(0, &format!("string {chunk}"));
        for n in 0..each {
            writer.push(event(chunk * each + n)).unwrap();
        }
        writer.loss(1, "ring full", 2);
        writer.flush_chunk().unwrap();
    }
    if finished {
        writer.finish(CLOCK).unwrap();
    }
    memory.bytes()
}

fn read(bytes: Vec<u8>) -> Result<(Vec<Event>, Reading), TraceError> {
    let trace = Trace::from_bytes("t", bytes)?;
    let mut events = Vec::new();
    let Ok(reading) = trace.for_each_event(|event| {
        events.push(*event);
        Ok::<(), Infallible>(())
    });
    Ok((events, reading))
}

fn assert_prefix(events: &[Event]) {
    for (n, found) in events.iter().enumerate() {
        assert_eq!(*found, event(n as u64));
    }
}

/// A trace of 6 chunks of 50 events and of the one that ends it, and the offsets at which they begin; the last offset
/// is the end of the file.
fn chunks() -> (Vec<u8>, Vec<usize>) {
    let bytes = sample(6, 50, true);
    let starts = bytes.windows(4).enumerate().filter(|(_, four)| *four == CHUNK_MAGIC);
    let starts = starts.map(|(at, _)| at).chain([bytes.len()]).collect::<Vec<_>>();
    assert_eq!(starts.len(), 8);
    (bytes, starts)
}

fn gaps(reading: &Reading) -> Vec<(u64, u64, Option<u64>)> {
    let gaps = reading.damage.iter().flat_map(|damage| &damage.gaps);
    gaps.map(|gap| (gap.offset, gap.bytes, gap.chunks)).collect()
}

fn numbers(events: &[Event]) -> Vec<u64> {
    for found in events {
        assert_eq!(*found, event(found.record().correlation_id));
    }
    events.iter().map(|found| found.record().correlation_id).collect()
}
