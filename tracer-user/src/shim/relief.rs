//! Empties rings in the place of a reader that is busy with something else: with putting the shim into
//! the next process, or with a file that takes no more for a while.

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

/// A reader that has not come for as long as this is relieved. A thread that does nothing but call
/// fills a ring of the default size in 200 ms.
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
                theirs.all().iter().filter_map(Weak::upgrade).for_each(|shared| shared.relieve());
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

    /// Far more frames than the ring holds, while nobody drains it: none is lost, and they come in
    /// their order.
    #[test]
    fn a_reader_that_is_late_loses_nothing() {
        let memory = Memory::create(Layout { rings: 2, ring_bytes: 4096 }).unwrap();
        memory.word(control::PID).store(1, Ordering::Relaxed);
        let mut reader = Reader::new(memory);
        let relief = Relief::start().unwrap();
        relief.watch(&reader);
        let memory = reader.memory();
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
