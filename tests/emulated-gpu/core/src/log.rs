//! The ground-truth log: one line for each operation that the emulated hardware finished.
//!
//! Lines are comma-separated, in the order of `COLUMNS`; lines that start with `#` describe the
//! writing process. Each write(2) appends whole lines, so that processes can share a file. The engine
//! flushes before it makes a completion visible: whatever a program has seen finish is in the file,
//! however the process ends after that.

use std::fs::{File, OpenOptions};
use std::io::Write as _;

use crate::config::Config;

/// The columns of a line.
pub const COLUMNS: &str = "kind,pid,node,queue,hsa_queue,index,name,kernel_object,start_ns,end_ns,\
                           start_ticks,end_ticks,bytes,signal";

/// What an operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A kernel dispatch packet.
    Dispatch,
    /// A barrier-AND packet.
    BarrierAnd,
    /// A barrier-OR packet.
    BarrierOr,
    /// AMD's barrier-value packet.
    BarrierValue,
    /// A vendor packet with PM4 commands.
    Pm4,
    /// One or several copy packets of an SDMA queue that end in one completion.
    Copy,
    /// Likewise for fills.
    Fill,
    /// An SDMA completion without a copy.
    Sync,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Dispatch => "dispatch",
            Kind::BarrierAnd => "barrier_and",
            Kind::BarrierOr => "barrier_or",
            Kind::BarrierValue => "barrier_value",
            Kind::Pm4 => "pm4",
            Kind::Copy => "copy",
            Kind::Fill => "fill",
            Kind::Sync => "sync",
        }
    }
}

/// One finished operation.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// What it was.
    pub kind: Kind,
    /// Driver's node id of the GPU.
    pub node: u32,
    /// Driver's queue id.
    pub queue: u64,
    /// The runtime's `hsa_queue_t::id`; none on SDMA queues.
    pub hsa_queue: Option<u64>,
    /// Packet index; on SDMA queues the byte index of the operation's first packet.
    pub index: u64,
    /// Kernel symbol, or the direction of a copy; empty for barriers.
    pub name: &'a str,
    /// Address of the kernel descriptor; 0 for all but dispatches.
    pub kernel_object: u64,
    /// Start in CLOCK_BOOTTIME ns: the first ns of `start_ticks`.
    pub start_ns: u64,
    /// End in CLOCK_BOOTTIME ns: the first ns of `end_ticks`.
    pub end_ns: u64,
    /// Start in GPU ticks, as written to the signal when profiling is on.
    pub start_ticks: u64,
    /// End in GPU ticks.
    pub end_ticks: u64,
    /// Bytes moved or filled.
    pub bytes: u64,
    /// Completion signal's handle; 0 when there is none.
    pub signal: u64,
}

/// The open log, or none.
#[derive(Debug)]
pub struct Log {
    file: Option<File>,
    pending: Vec<u8>,
    pid: u32,
}

impl Log {
    /// Opens the file that the settings name (`%p` stands for the process id), and describes the
    /// process in it.
    pub fn open(config: &Config) -> Self {
        let pid = std::process::id();
        let open = |path: &String| {
            let path = path.replace("%p", &pid.to_string());
            let file = OpenOptions::new().create(true).append(true).open(&path);
            file.inspect_err(|e| eprintln!("emulated-gpu: cannot log to {path}: {e}")).ok()
        };
        let mut log = Log { file: config.log.as_ref().and_then(open), pending: Vec::new(), pid };
        if log.file.is_some() {
            let Config { clock_hz, clock_offset_ns, clock_ppm, archs, .. } = config;
            // Writing to a vector cannot fail, here and below.
            let _ = writeln!(
                log.pending,
                "# emulated-gpu 1 pid={pid} clock_hz={clock_hz} clock_offset_ns={clock_offset_ns} \
                 clock_ppm={clock_ppm} gpus={}\n# {COLUMNS}",
                archs.len()
            );
            log.flush();
        }
        log
    }

    /// Adds a line; it reaches the file with the next flush.
    pub fn add(&mut self, r: &Record<'_>) {
        if self.file.is_none() {
            return;
        }
        let (kind, pid, out) = (r.kind.as_str(), self.pid, &mut self.pending);
        let _ = write!(out, "{kind},{pid},{},{},", r.node, r.queue);
        if let Some(id) = r.hsa_queue {
            let _ = write!(out, "{id}");
        }
        let _ = writeln!(
            out,
            ",{},{},{:#x},{},{},{},{},{},{:#x}",
            r.index,
            r.name,
            r.kernel_object,
            r.start_ns,
            r.end_ns,
            r.start_ticks,
            r.end_ticks,
            r.bytes,
            r.signal
        );
    }

    /// Writes all pending lines to the file.
    pub fn flush(&mut self) {
        if let Some(file) = self.file.as_mut().filter(|_| !self.pending.is_empty()) {
            if let Err(e) = file.write_all(&self.pending) {
                eprintln!("emulated-gpu: ground-truth log lost: {e}");
                self.file = None;
            }
            self.pending.clear();
        }
    }
}
