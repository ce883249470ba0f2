//! The threads that were seen, of all processes.

use std::collections::{HashMap, HashSet};

/// Threads of one process that are told apart: as many as the BPF programs follow. A process may say that
/// it has any number of them.
const MOST: usize = 1 << 16;

/// Threads by process. What one process says of its own threads tells nothing of another's.
#[derive(Default)]
pub struct SeenThreads(HashMap<u32, HashSet<u32>>);

impl SeenThreads {
    /// Whether thread `tid` of process `pid` is seen for the first time.
    pub fn is_new(&mut self, pid: u32, tid: u32) -> bool {
        let threads = self.0.entry(pid).or_default();
        threads.len() < MOST && threads.insert(tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_new_once_in_each_process() {
        let mut threads = SeenThreads::default();
        assert!(threads.is_new(1, 7) && threads.is_new(2, 7));
        assert!(!threads.is_new(1, 7) && !threads.is_new(2, 7));
        let new = (0..3 * MOST as u32).filter(|&tid| threads.is_new(1, tid)).count();
        assert_eq!(new, MOST - 1);
    }
}
