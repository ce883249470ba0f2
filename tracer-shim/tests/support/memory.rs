//! The consumer's side of the shared memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracer_common::calls::{Call, FIRST_ID, Wanted};
use tracer_common::hsa_functions::{LEFT_OUT, SLOTS};
use tracer_common::loss::ShimLoss;
use tracer_common::ring::{Consumer, MAX_FRAME_WORDS};
use tracer_common::shim::{
    Agent, Barrier, Complete, Copy, Dispatch, GROWTHS, Layout, MAGIC, Queue, RING_HEADER_BYTES,
    Symbol, VERSION, control, kind, ring_word,
};
use zerocopy::{FromBytes, IntoBytes as _};

/// Longest that a program may run.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Everything that came out of the rings.
#[derive(Default, Debug)]
pub struct Trace {
    pub dispatches: BTreeMap<u64, Dispatch>,
    pub barriers: BTreeMap<u64, Barrier>,
    pub copies: BTreeMap<u64, Copy>,
    pub completes: BTreeMap<u64, Complete>,
    /// How often each HSA function was called, by slot.
    pub calls: BTreeMap<usize, Vec<u64>>,
    pub symbols: Vec<(Symbol, String)>,
    pub agents: Vec<Agent>,
    pub queues: Vec<Queue>,
    /// Frames dropped in all rings.
    pub dropped: u64,
    pub losses: [u64; ShimLoss::COUNT],
    pub state: u64,
    /// By how much GPU times can be off, as the shim says.
    pub clock_error_ns: u64,
    /// Threads that wrote.
    pub threads: usize,
}

/// Shared memory with somebody who reads it.
pub struct Recording {
    shared: Arc<Shared>,
    reader: Option<std::thread::JoinHandle<Trace>>,
}

struct Shared {
    file: i32,
    /// Of a mapping that `drop` unmaps.
    words: &'static [AtomicU64],
    layout: Layout,
    stop: AtomicBool,
    /// Read nothing and send no heartbeat. Held while the reader does.
    stall: Mutex<bool>,
    /// Dispatches read so far.
    dispatches: AtomicU64,
}

impl Recording {
    /// A memory of these sizes, recording, drained every millisecond.
    pub fn new(rings: usize, ring_bytes: usize) -> Self {
        let mut recording = Self::unread(rings, ring_bytes);
        recording.read();
        recording
    }

    /// The same that nobody reads yet.
    pub fn unread(rings: usize, ring_bytes: usize) -> Self {
        let layout = Layout { rings, ring_bytes };
        assert!(layout.is_sane());
        // SAFETY: plain system calls; the mapping lives as long as `Shared`.
        let (file, words) = unsafe {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            let file = libc::memfd_create(c"roctap-test".as_ptr(), flags);
            assert!(file >= 0);
            assert_eq!(libc::ftruncate(file, layout.total_bytes() as i64), 0);
            assert_eq!(libc::fcntl(file, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK), 0);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(
                std::ptr::null_mut(),
                layout.total_bytes(),
                protection,
                libc::MAP_SHARED,
                file,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            (file, std::slice::from_raw_parts(at.cast::<AtomicU64>(), layout.total_bytes() / 8))
        };
        for (index, value) in [
            (control::RINGS, rings as u64),
            (control::RING_BYTES, ring_bytes as u64),
            (control::VERSION, VERSION),
            (control::MAGIC, MAGIC),
        ] {
            words[index].store(value, Ordering::Release);
        }
        let stop = AtomicBool::new(false);
        let stall = Mutex::new(false);
        let dispatches = AtomicU64::new(0);
        let shared = Arc::new(Shared { file, words, layout, stop, stall, dispatches });
        Self { shared, reader: None }
    }

    /// Begins to read.
    pub fn read(&mut self) {
        self.set(control::RECORD, 1);
        self.shared.beat();
        let shared = Arc::clone(&self.shared);
        self.reader = Some(std::thread::spawn(move || shared.read_on()));
    }

    /// Asks for the calls of every HSA function; before anybody uses it.
    pub fn want_calls(&self) {
        self.set(control::FIRST_CALL_ID, FIRST_ID);
        for (slot, _) in SLOTS.iter().enumerate().filter(|(_, f)| f.name != LEFT_OUT) {
            let wanted = Wanted { operation: slot as u16, args: 6, ..Wanted::default() };
            self.set(control::CALLS + slot, wanted.to_word());
        }
    }

    /// What `ROCTAP_SHIM_MEMORY` is to be.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.shared.file)
    }

    /// Writes a control word.
    pub fn set(&self, word: usize, value: u64) {
        self.shared.words[word].store(value, Ordering::Release);
    }

    /// Reads a control word.
    pub fn get(&self, word: usize) -> u64 {
        self.shared.words[word].load(Ordering::Acquire)
    }

    /// Stops reading and beating, or goes on. The last heartbeat is behind it then.
    pub fn stall(&self, stall: bool) {
        *self.shared.stall.lock().expect("whole") = stall;
    }

    /// Dispatches read so far.
    pub fn recorded(&self) -> u64 {
        self.shared.dispatches.load(Ordering::Relaxed)
    }

    /// Words written into all rings so far.
    pub fn written_words(&self) -> u64 {
        let Shared { words, layout, .. } = &*self.shared;
        let head = |ring| &words[layout.ring_offset(ring) / 8 + ring_word::HEAD];
        (0..layout.rings).map(|ring| head(ring).load(Ordering::Acquire)).sum()
    }

    /// Waits until the shim's state is `state`.
    pub fn wait_for_state(&self, state: u64) {
        self.wait_for(control::STATE, state);
    }

    /// Waits until `least` dispatches have been read.
    pub fn wait_until_recorded(&self, least: u64) {
        let deadline = std::time::Instant::now() + DEADLINE;
        while self.recorded() < least {
            assert!(std::time::Instant::now() < deadline, "{} are recorded", self.recorded());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until a control word is `value`.
    pub fn wait_for(&self, word: usize, value: u64) {
        let deadline = std::time::Instant::now() + DEADLINE;
        while self.get(word) != value {
            assert!(
                std::time::Instant::now() < deadline,
                "word {word} stays {}, not {value}",
                self.get(word)
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reads to the end; the process is gone.
    pub fn stop(mut self) -> Trace {
        self.shared.stop.store(true, Ordering::Release);
        self.reader.take().map_or_else(Trace::default, |r| r.join().expect("the reader ends well"))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping and the descriptor are ours, and this is their last user.
        unsafe {
            libc::munmap(self.words.as_ptr().cast_mut().cast(), self.layout.total_bytes());
            libc::close(self.file);
        }
    }
}

impl Shared {
    fn beat(&self) {
        self.words[control::HEARTBEAT_NS].store(tracer_hooks::sys::now_ns(), Ordering::Release);
    }

    fn read_on(&self) -> Trace {
        let mut trace = Trace::default();
        loop {
            let last = self.stop.load(Ordering::Acquire);
            let stall = self.stall.lock().expect("whole");
            if !*stall || last {
                self.beat();
                for ring in 0..self.layout.rings {
                    self.drain(ring, &mut trace);
                }
            }
            drop(stall);
            if last {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for ring in 0..self.layout.rings {
            let first = self.layout.ring_offset(ring) / 8;
            trace.dropped += self.words[first + ring_word::DROPPED].load(Ordering::Acquire);
            trace.threads +=
                usize::from(self.words[first + ring_word::HEAD].load(Ordering::Acquire) > 0);
        }
        for (cause, lost) in trace.losses.iter_mut().enumerate() {
            *lost = self.words[control::LOSSES + cause].load(Ordering::Acquire);
        }
        trace.state = self.words[control::STATE].load(Ordering::Acquire);
        trace.clock_error_ns = self.words[control::CLOCK_ERROR_NS].load(Ordering::Acquire);
        trace
    }

    fn drain(&self, ring: usize, trace: &mut Trace) {
        let first = self.layout.ring_offset(ring) / 8;
        let words = &self.words[first..first + self.layout.stride() / 8];
        let owner = words[ring_word::OWNER].load(Ordering::Acquire);
        if owner == 0 {
            return;
        }
        let pid = self.words[control::PID].load(Ordering::Acquire);
        // Before the last look at the ring.
        let gone = !std::path::Path::new(&format!("/proc/{pid}/task/{owner}")).exists();
        let consumer = Consumer::new(
            &words[ring_word::HEAD],
            &words[ring_word::TAIL],
            &words[ring_word::GROWN..][..GROWTHS],
            &words[RING_HEADER_BYTES / 8..],
        );
        let mut frame = [0; MAX_FRAME_WORDS];
        while let Some((kind, len)) = consumer.pop(&mut frame).expect("never corrupt") {
            trace.take(kind, frame[..len].as_bytes());
        }
        self.dispatches.store(trace.dispatches.len() as u64, Ordering::Relaxed);
        if gone {
            words[ring_word::OWNER].store(0, Ordering::Release);
        }
    }
}

fn record<T: FromBytes>(bytes: &[u8]) -> (T, &[u8]) {
    T::read_from_prefix(bytes).unwrap_or_else(|_| panic!("not a whole record"))
}

impl Trace {
    fn take(&mut self, kind: u32, bytes: &[u8]) {
        match kind {
            kind::DISPATCH => {
                let (r, _) = record::<Dispatch>(bytes);
                assert!(self.dispatches.insert(r.sequence, r).is_none(), "a number given twice");
            }
            kind::BARRIER => {
                let (r, _) = record::<Barrier>(bytes);
                assert!(self.barriers.insert(r.sequence, r).is_none(), "a number given twice");
            }
            kind::COPY => {
                let (r, _) = record::<Copy>(bytes);
                assert!(self.copies.insert(r.sequence, r).is_none(), "a number given twice");
            }
            kind::COMPLETE => {
                let (r, _) = record::<Complete>(bytes);
                assert!(self.completes.insert(r.sequence, r).is_none(), "completed twice");
            }
            kind::CALL => {
                let words: Vec<u64> = bytes
                    .chunks_exact(8)
                    .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
                    .collect();
                let call = Call::decode(&words).expect("a call");
                self.calls.entry(call.operation.into()).or_default().push(call.begin_ns);
            }
            kind::SYMBOL => {
                let (r, name) = record::<Symbol>(bytes);
                let name = String::from_utf8_lossy(&name[..r.name_bytes as usize]).into_owned();
                self.symbols.push((r, name));
            }
            kind::AGENT => self.agents.push(record(bytes).0),
            kind::QUEUE => self.queues.push(record(bytes).0),
            other => panic!("frame of kind {other}"),
        }
    }

    /// Operations that were lost other than to full rings and for their kind (HIP sends one vendor
    /// packet after it loads code).
    pub fn lost(&self) -> u64 {
        let other =
            [ShimLoss::PACKET_KIND, ShimLoss::OPERATION_RING_FULL, ShimLoss::COMPLETION_RING_FULL];
        let other: u64 = other.iter().map(|l| self.losses[l.0 as usize]).sum();
        self.losses.iter().sum::<u64>() - other
    }
}
