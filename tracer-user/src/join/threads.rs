//! The threads whose names the sink has.

use std::{collections::HashSet, path::Path};

use tracer_records::sink::RecordSink;

use crate::discover;

/// The number of threads that are remembered without a look whether they still exist.
pub const FEW: usize = 4096;

/// The threads that were seen, and their processes.
pub struct Threads {
    pub known: HashSet<(u32, u32)>,
    /// Beyond this number, threads that are gone are looked for and forgotten.
    most: usize,
}

impl Default for Threads {
    fn default() -> Self {
        Self { known: HashSet::new(), most: FEW }
    }
}

impl Threads {
    /// Tells the sink the name of a thread that was not seen before.
    pub fn see(&mut self, sink: &mut dyn RecordSink, pid: u32, tid: u32) {
        if !self.known.insert((pid, tid)) {
            return;
        }
        sink.thread(pid, tid, &discover::thread_name(pid, tid));
        if self.known.len() > self.most {
            self.known.retain(|(pid, tid)| Path::new(&format!("/proc/{pid}/task/{tid}")).exists());
            self.most = FEW.max(2 * self.known.len());
        }
    }

    /// Process `pid` has ended.
    pub fn forget(&mut self, pid: u32) {
        self.known.retain(|&(of, _)| of != pid);
    }
}
