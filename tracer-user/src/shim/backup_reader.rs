//! Empties rings in the place of a reader that is busy with something else: with a process whose memory is slow, or
//! with a file that accepts no data for a moment. It also tells the rings' shims that somebody reads.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use super::{Reader, reader::Shared};

/// The interval between two looks: the rings of a reader that has not come in between are emptied. A thread that does
/// nothing but call fills a ring of the default size in 200 ms.
const INTERVAL: Duration = Duration::from_millis(20);

/// Takes frames out of rings whose readers are late, and keeps them for them.
#[derive(Clone, Default)]
pub struct BackupReader {
    readers: Arc<Mutex<Vec<Weak<Shared>>>>,
}

impl BackupReader {
    /// Looks after this reader too from now on, as long as it exists.
    pub fn watch(&self, reader: &Reader) {
        let mut all = self.all();
        all.retain(|reader| reader.strong_count() > 0);
        all.push(reader.shared());
    }

    /// The function that a thread which nothing holds up has to call again and again.
    pub fn looks(&self) -> impl FnMut() + Send + 'static {
        let backup = self.clone();
        let mut looked = Instant::now();
        move || {
            if looked.elapsed() >= INTERVAL {
                looked = Instant::now();
                backup.look();
            }
        }
    }

    fn look(&self) {
        let all: Vec<_> = self.all().iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|shared| shared.empty_rings());
    }

    fn all(&self) -> MutexGuard<'_, Vec<Weak<Shared>>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use tracer_common::shim::{Layout, control, kind};

    use super::*;
    use crate::shim::{Extent, Frame, SharedMemory};

    /// Frames that the backup reader takes while the reader is at another ring come with the same call.
    #[test]
    fn a_drain_takes_what_the_backup_took_meanwhile() {
        let memory = SharedMemory::create(Layout { rings: 2, ring_bytes: 4096 }).unwrap();
        memory.word(control::PID).store(1, Ordering::Relaxed);
        for ring in [0, 1] {
            memory.claim(ring, ring as u64 + 1);
            assert!(memory.producer(ring).push(kind::COMPLETE, [&[0; 3], &[]]));
        }
        let mut reader = Reader::new(memory);
        let shared = reader.shared().upgrade().unwrap();
        let second = shared.memory.consumer(1);
        let mut threads = Vec::new();
        reader.drain(Extent::Everything, |thread, _| {
            if thread == 1 {
                // At its first look the backup reader sees that the reader was here.
                shared.empty_rings();
                shared.empty_rings();
                assert_eq!(second.ready(), 0);
            }
            threads.push(thread);
        });
        assert_eq!(threads, [1, 2]);
    }

    /// Far more frames come than the ring holds, while the reader does not drain it: none is lost, and they stay in
    /// order.
    #[test]
    fn a_reader_that_is_late_loses_nothing() {
        let memory = SharedMemory::create(Layout { rings: 2, ring_bytes: 4096 }).unwrap();
        memory.word(control::PID).store(1, Ordering::Relaxed);
        let mut reader = Reader::new(memory);
        let backup = BackupReader::default();
        backup.watch(&reader);
        let shared = reader.shared().upgrade().unwrap();
        let memory = &shared.memory;
        memory.claim(1, 7);
        let ring = memory.producer(1);
        const FRAMES: u64 = 1000;
        for number in 0..FRAMES {
            if !ring.push(kind::COMPLETE, [&[number, 0, 0], &[]]) {
                // The reader was not here since the last look, but there was no look yet.
                backup.look();
                assert!(ring.push(kind::COMPLETE, [&[number, 0, 0], &[]]), "nobody empties it");
            }
        }
        let mut numbers = Vec::new();
        reader.drain(Extent::Everything, |thread, frame| {
            let Frame::Complete(complete) = frame else { panic!("{frame:?}") };
            numbers.push((thread, complete.sequence));
        });
        assert!(numbers.into_iter().eq((0..FRAMES).map(|number| (7, number))));
    }
}
