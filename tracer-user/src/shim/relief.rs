//! Empties rings in the place of a reader that is busy with something else: with putting the shim into
//! the next process, or with a file that takes no more for a moment.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{Reader, reader::Shared};
use crate::{priority, privileges};

/// A reader that has not come between two looks is relieved. A thread that does nothing but call fills
/// a ring of the default size in 200 ms.
const INTERVAL: Duration = Duration::from_millis(20);

/// A thread that takes frames out of rings whose readers are late, and keeps them for them.
pub struct Relief {
    readers: Arc<Readers>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Readers {
    all: Mutex<Vec<Weak<Shared>>>,
    stop: AtomicBool,
}

impl Readers {
    fn all(&self) -> MutexGuard<'_, Vec<Weak<Shared>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relief {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When there can be no thread.
    pub fn start() -> io::Result<Self> {
        let readers = Arc::new(Readers::default());
        let theirs = Arc::clone(&readers);
        let thread = thread::Builder::new().name("roctap-relief".to_owned()).spawn(move || {
            priority::prefer_this_thread();
            privileges::drop_all();
            while !theirs.stop.load(Ordering::Relaxed) {
                let late: Vec<_> = theirs.all().iter().filter_map(Weak::upgrade).collect();
                late.iter().for_each(|shared| shared.relieve());
                drop(late);
                thread::park_timeout(INTERVAL);
            }
        })?;
        Ok(Self { readers, thread: Some(thread) })
    }

    /// Relieves this one too from now on, as long as it exists.
    pub fn watch(&self, reader: &Reader) {
        let mut all = self.readers.all();
        all.retain(|reader| reader.strong_count() > 0);
        all.push(reader.shared());
    }
}

impl Drop for Relief {
    fn drop(&mut self) {
        self.readers.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It cannot fail.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tracer_common::shim::{Layout, control, kind};

    use super::*;
    use crate::shim::{Frame, Memory};

    /// What the relief takes while the reader is at another ring comes with the same call.
    #[test]
    fn a_drain_takes_what_the_relief_took_meanwhile() {
        let memory = Memory::create(Layout { rings: 2, ring_bytes: 4096 }).unwrap();
        memory.word(control::PID).store(1, Ordering::Relaxed);
        for ring in [0, 1] {
            memory.ring_owner(ring).store(ring as u64 + 1, Ordering::Release);
            assert!(memory.producer(ring).push(kind::COMPLETE, [&[0; 3], &[]]));
        }
        let mut reader = Reader::new(memory);
        let shared = reader.shared().upgrade().unwrap();
        let second = shared.memory.consumer(1);
        let mut threads = Vec::new();
        reader.drain(|thread, _| {
            if thread == 1 {
                // First it sees that the reader was here.
                shared.relieve();
                shared.relieve();
                assert_eq!(second.ready(), 0);
            }
            threads.push(thread);
        });
        assert_eq!(threads, [1, 2]);
    }

    /// Far more frames than the ring holds, while nobody drains it: none is lost, and they come in
    /// their order.
    #[test]
    fn a_reader_that_is_late_loses_nothing() {
        let memory = Memory::create(Layout { rings: 2, ring_bytes: 4096 }).unwrap();
        memory.word(control::PID).store(1, Ordering::Relaxed);
        let mut reader = Reader::new(memory);
        let relief = Relief::start().unwrap();
        relief.watch(&reader);
        let shared = reader.shared().upgrade().unwrap();
        let memory = &shared.memory;
        memory.ring_owner(1).store(7, Ordering::Release);
        let ring = memory.producer(1);
        const FRAMES: u64 = 1000;
        for number in 0..FRAMES {
            let asked = Instant::now();
            while !ring.push(kind::COMPLETE, [&[number, 0, 0], &[]]) {
                assert!(asked.elapsed() < Duration::from_secs(60), "nobody relieves the reader");
                thread::sleep(Duration::from_millis(1));
            }
        }
        let mut numbers = Vec::new();
        reader.drain(|thread, frame| {
            let Frame::Complete(complete) = frame else { panic!("{frame:?}") };
            numbers.push((thread, complete.sequence));
        });
        assert!(numbers.into_iter().eq((0..FRAMES).map(|number| (7, number))));
    }
}
