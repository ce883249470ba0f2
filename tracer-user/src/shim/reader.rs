//! Takes frames out of a shim's rings and makes records of them.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tracer_common::{
    calls::{Call, MAX_CALL_WORDS},
    ring::{Consumer, Corrupt, MAX_FRAME_WORDS},
    shim::{
        Agent, Barrier, Complete, Copy, Dispatch, HEARTBEAT_GONE_NS, Link, MAX_NAME_BYTES, Queue,
        Symbol, control, kind,
    },
};
use zerocopy::{FromBytes, IntoBytes as _};

use super::SharedMemory;
use crate::clock::{self, Patience};

/// A record of the shim.
#[derive(Clone, PartialEq, Debug)]
pub enum Frame {
    /// A kernel was enqueued.
    Dispatch(Dispatch),
    /// A barrier packet with a signal was enqueued.
    Barrier(Barrier),
    /// A copy was requested.
    Copy(Copy),
    /// An operation completed.
    Complete(Complete),
    /// A kernel symbol and its raw name.
    Symbol(Symbol, String),
    /// An agent.
    Agent(Agent),
    /// A queue came or went.
    Queue(Queue),
    /// A call is over.
    Call(Call),
    /// An operation was enqueued in a call.
    Link(Link),
}

/// While a reader does not come, the backup reader takes frames out of its rings and keeps them for it: at most this
/// many words, 32 MiB. It leaves the rest in the rings, whose writers count their losses when the rings are full.
const ALLOWANCE: u64 = 4 << 20;
/// For this long the backup reader tells the shim, in the place of a reader that does not come, that somebody reads. A
/// reader that stays away for longer hangs.
const LATE_FOR: Duration = Duration::from_nanos(HEARTBEAT_GONE_NS);
/// The reader takes this many words of frames out of a ring before it hands them out.
const PORTION: u64 = 1 << 19;

/// The reader takes at most this many words of one process, 16 MiB, before it goes on to the next one. It reads as much
/// in an eighth of a second, in which a process that is read in time writes less.
const SHARE: u64 = 2 << 20;
/// The most operations with their ends, or calls, that come from one process each time that the reader comes: its
/// share, and the frames that the backup reader has taken before. Each has some 16 words.
pub const MOST_AT_ONCE: usize = (SHARE + ALLOWANCE) as usize / 16;

/// The most rings of a memory in which an unfinished name is kept at once: one thread sends names, and another goes on.
const MAX_NAMES: usize = 8;

/// How much is drained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Everything that is there.
    Everything,
    /// No more than a share: other processes are waiting. The rest comes with the next drains.
    Share,
}

/// Reads one memory.
pub struct Reader {
    shared: Arc<Shared>,
    /// The frames that are being handed out; kept for its room.
    batch: Vec<(u32, Frame)>,
}

/// The state that a reader shares with its [`super::BackupReader`].
pub(super) struct Shared {
    pub(super) memory: SharedMemory,
    taken: Mutex<DrainedFrames>,
}

/// The frames that were taken out of the rings, and the state of the rings.
struct DrainedFrames {
    /// Threads and their frames, in the order of each thread.
    waiting: Vec<(u32, Frame)>,
    /// Whether the reader was here since the backup reader came last.
    visited: bool,
    /// The time since the reader gave its last sign of life, if it gave one.
    beat: Option<Patience>,
    /// The words that the backup reader may take before the reader comes.
    allowance: u64,
    /// Whether frames that are written from now on are not wanted any more.
    closed: bool,
    /// Rings whose producer wrote nonsense: not read again.
    broken: Vec<bool>,
    /// Frames that were not understood.
    malformed: u64,
    /// Beginnings of names, by the rings in which the rest comes.
    names: BTreeMap<usize, Vec<u8>>,
    frame: Box<[u64; MAX_FRAME_WORDS]>,
}

impl DrainedFrames {
    /// Takes the frames in the next `words` words of a ring, and the part of the last frame that goes beyond them.
    fn fill(&mut self, memory: &SharedMemory, ring: usize, words: u64) {
        let owner = memory.ring_owner(ring).load(Ordering::Acquire) as u32;
        if owner == 0 || self.broken[ring] {
            return;
        }
        let consumer = memory.consumer(ring);
        let mut left = words;
        while left > 0 {
            match consumer.pop(&mut self.frame) {
                Ok(None) => return,
                Ok(Some((kind, length))) => {
                    left = left.saturating_sub(length as u64 + 1);
                    // Counted first: words that make the parser panic are gone too.
                    self.malformed += 1;
                    let words = &self.frame[..length];
                    let frame = match kind {
                        kind::NAME => {
                            if self.names.len() >= MAX_NAMES && !self.names.contains_key(&ring) {
                                self.names.clear();
                            }
                            let added = add_part(self.names.entry(ring).or_default(), words);
                            self.malformed -= u64::from(added.is_some());
                            continue;
                        }
                        kind::SYMBOL => symbol(self.names.remove(&ring).unwrap_or_default(), words),
                        _ => parse(kind, words),
                    };
                    if let Some(frame) = frame {
                        self.malformed -= 1;
                        self.waiting.push((owner, frame));
                    }
                }
                Err(Corrupt) => {
                    self.broken[ring] = true;
                    tracing::warn!(
                        "the shim's ring {ring} (thread {owner}) is corrupt; it is not read any more"
                    );
                    return;
                }
            }
        }
    }
}

impl Shared {
    fn beat(&self) {
        // Relaxed: the word stands for nothing else.
        self.memory.word(control::HEARTBEAT_NS).store(clock::now_ns(), Ordering::Relaxed);
    }

    fn taken(&self) -> MutexGuard<'_, DrainedFrames> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a sign of life for the reader if it is late and lives. Then takes the frames that are there if the reader
    /// has not been here since the last time.
    pub(super) fn empty_rings(&self) {
        let (memory, mut taken) = (&self.memory, self.taken());
        if !taken.closed && taken.beat.as_mut().is_some_and(|beat| !beat.has_ended()) {
            self.beat();
        }
        if mem::take(&mut taken.visited) || taken.closed || memory.owner().is_none() {
            return;
        }
        for (ring, words) in memory.ready(taken.allowance) {
            taken.allowance = taken.allowance.saturating_sub(words);
            taken.fill(memory, ring, words);
        }
    }
}

impl Reader {
    /// A reader of `memory`.
    pub fn new(memory: SharedMemory) -> Self {
        let taken = Mutex::new(DrainedFrames {
            waiting: Vec::new(),
            visited: false,
            beat: None,
            allowance: ALLOWANCE,
            closed: false,
            broken: vec![false; memory.rings()],
            malformed: 0,
            names: BTreeMap::new(),
            frame: Box::new([0; MAX_FRAME_WORDS]),
        });
        Self { shared: Arc::new(Shared { memory, taken }), batch: Vec::new() }
    }

    pub(super) fn shared(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// The memory.
    pub fn memory(&self) -> &SharedMemory {
        &self.shared.memory
    }

    /// Tells the shim that it is being read.
    pub fn beat(&self) {
        self.shared.taken().beat = Some(Patience::of(LATE_FOR));
        self.shared.beat();
    }

    /// The number of drains of a share, at most, that take all frames that are there now.
    pub fn shares(&self) -> u64 {
        let ready = self.memory().ready(u64::MAX);
        let words: u64 = ready.iter().map(|(_, words)| words).sum();
        // The backup reader may have taken some before each of them.
        2 * words.div_ceil(SHARE) + 1
    }

    /// Gives the frames that are there now to `sink`, with the ids of the threads that wrote them.
    pub fn drain(&mut self, extent: Extent, sink: impl FnMut(u32, Frame)) {
        self.take((extent == Extent::Share).then_some(SHARE), sink);
    }

    /// Gives about `share` words of frames to `sink`; all of them if there is no share.
    fn take(&mut self, share: Option<u64>, mut sink: impl FnMut(u32, Frame)) {
        let (shared, batch) = (&self.shared, &mut self.batch);
        let mut hand_out = |mut taken: MutexGuard<'_, DrainedFrames>| {
            mem::swap(batch, &mut taken.waiting);
            // Unlocked: the sink takes its time, in which the backup reader may come.
            drop(taken);
            batch.drain(..).for_each(|(thread, frame)| sink(thread, frame));
        };
        let mut taken = shared.taken();
        (taken.visited, taken.allowance) = (true, ALLOWANCE);
        let backup_has_read = !taken.waiting.is_empty();
        hand_out(taken);
        if backup_has_read && share.is_some() {
            return; // They wait for the records of their calls, which are as late.
        }
        // Not the frames that are written meanwhile: one busy ring does not starve the others.
        for (ring, mut words) in shared.memory.ready(share.unwrap_or(u64::MAX)) {
            while words > 0 {
                let portion = words.min(PORTION);
                let mut taken = shared.taken();
                taken.fill(&shared.memory, ring, portion);
                hand_out(taken);
                words -= portion;
            }
        }
        // The frames that the backup reader took before this drain came to their ring.
        hand_out(shared.taken());
    }

    /// The calls that are open now, with their threads.
    pub fn open_calls(&self) -> Vec<(u32, Call)> {
        let memory = self.memory();
        let of_ring = |ring| {
            let owner = memory.ring_owner(ring).load(Ordering::Acquire) as u32;
            let calls = if owner == 0 { Vec::new() } else { memory.open_calls(ring) };
            calls.into_iter().map(move |call| (owner, call))
        };
        (0..memory.claimed_rings()).flat_map(of_ring).collect()
    }

    /// Frees the rings of threads that are gone, and gives the calls that they never returned from
    /// to `left`.
    pub fn free_rings(&self, mut alive: impl FnMut(u32) -> bool, mut left: impl FnMut(u32, Call)) {
        let memory = self.memory();
        for ring in 0..memory.claimed_rings() {
            let word = memory.ring_owner(ring);
            let owner = word.load(Ordering::Acquire);
            if owner == 0 || alive(owner as u32) {
                continue;
            }
            let taken = self.shared.taken();
            let waits = taken.waiting.iter().any(|&(thread, _)| thread == owner as u32);
            // The thread was gone before this look, so an empty ring stays empty.
            if !waits && memory.consumer(ring).ready() == 0 {
                memory.open_calls(ring).into_iter().for_each(|call| left(owner as u32, call));
                memory.free_ring(ring);
            }
        }
    }

    /// Ignores the frames that are written from now on: all that are wanted were drained.
    pub fn close(&mut self) {
        let mut taken = self.shared.taken();
        taken.closed = true;
        (taken.waiting, self.batch) = Default::default();
    }

    /// Frames that were dropped by full rings, and frames that could not be understood.
    pub fn dropped(&self) -> (u64, u64) {
        let (memory, taken) = (self.memory(), self.shared.taken());
        let full = (0..memory.claimed_rings()).map(|ring| memory.ring_dropped(ring)).sum();
        let corrupt = taken.broken.iter().filter(|&&broken| broken).count() as u64;
        (full, taken.malformed + corrupt)
    }
}

/// Takes arbitrary frames out of a ring of the words of `bytes`: the first word says how many were written, the next
/// two how the ring grew. The body of a fuzz target.
pub fn fuzz_ring(bytes: &[u8]) {
    let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let Some(head) = words.next() else { return };
    let grown: Vec<AtomicU64> = words.by_ref().take(2).map(AtomicU64::new).collect();
    let mut data: Vec<AtomicU64> = words.map(AtomicU64::new).collect();
    data.resize_with(data.len().next_power_of_two(), AtomicU64::default);
    let (head, tail) = (AtomicU64::new(head % (data.len() as u64 + 2)), AtomicU64::new(0));
    let consumer = Consumer::new(&head, &tail, &grown, &data);
    let mut frame = [0; MAX_FRAME_WORDS];
    while let Ok(Some((kind, count))) = consumer.pop(&mut frame) {
        if let Some(Frame::Call(call)) = parse(kind, &frame[..count]) {
            let mut again = [0; MAX_CALL_WORDS];
            let length = call.encode(&mut again);
            assert_eq!(Call::decode(&again[..length]), Some(call));
        }
    }
}

/// Adds a part to a name; none if the words are no part, or make the name too long.
fn add_part(name: &mut Vec<u8>, words: &[u64]) -> Option<()> {
    let (&[before, length], part) = words.split_first_chunk()?;
    let part = part.as_bytes().get(..usize::try_from(length).ok()?)?;
    if before == 0 {
        name.clear();
    }
    let goes_on = before == name.len() as u64 && name.len() + part.len() <= MAX_NAME_BYTES;
    goes_on.then(|| name.extend_from_slice(part))
}

/// A symbol whose name begins with `name`, if it says that its name is longer than its own part.
fn symbol(mut name: Vec<u8>, words: &[u64]) -> Option<Frame> {
    let (symbol, last) = Symbol::read_from_prefix(words.as_bytes()).ok()?;
    let last = last.get(..symbol.name_bytes as usize)?;
    if symbol.name_before == 0 {
        name.clear();
    }
    if symbol.name_before != name.len() as u64 {
        return None;
    }
    name.extend_from_slice(last);
    (name.len() <= MAX_NAME_BYTES)
        .then(|| Frame::Symbol(symbol, String::from_utf8_lossy(&name).into_owned()))
}

fn parse(kind: u32, words: &[u64]) -> Option<Frame> {
    let bytes = words.as_bytes();
    fn whole<T: FromBytes>(bytes: &[u8]) -> Option<T> {
        T::read_from_bytes(bytes).ok()
    }
    Some(match kind {
        kind::DISPATCH => Frame::Dispatch(whole(bytes)?),
        kind::BARRIER => Frame::Barrier(whole(bytes)?),
        kind::COPY => Frame::Copy(whole(bytes)?),
        kind::COMPLETE => Frame::Complete(whole(bytes)?),
        kind::AGENT => Frame::Agent(whole(bytes)?),
        kind::QUEUE => Frame::Queue(whole(bytes)?),
        kind::CALL => Frame::Call(Call::decode(words)?),
        kind::LINK => Frame::Link(whole(bytes)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tracer_common::shim::{GROWTHS, Layout};

    proptest! {
        #[test]
        fn any_words_parse_or_do_not(kind in 0u32..10, words in prop::collection::vec(any::<u64>(), 0..64)) {
            let _ = parse(kind, &words);
        }
    }

    proptest! {
        #[test]
        fn any_ring_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
            fuzz_ring(&bytes);
        }
    }

    /// Two rings hold far more than is handed out at once: all of it comes with one call.
    #[test]
    fn everything_that_is_there_is_drained() {
        const FRAMES: u64 = PORTION;
        let layout = Layout { rings: 2, ring_bytes: 16 << 20 };
        let mut reader = Reader::new(SharedMemory::create(layout).unwrap());
        for ring in [0, 1] {
            reader.memory().claim(ring, ring as u64 + 1);
            let producer = reader.memory().producer(ring);
            for number in 0..FRAMES {
                assert!(producer.push(kind::COMPLETE, [&[number, 0, 0], &[]]));
            }
        }
        let mut counts = [0, 0];
        reader.drain(Extent::Everything, |thread, frame| {
            let Frame::Complete(complete) = frame else { panic!("{frame:?}") };
            let count = &mut counts[thread as usize - 1];
            assert_eq!(complete.sequence, *count, "of thread {thread}, in its order");
            *count += 1;
        });
        assert_eq!(counts, [FRAMES; 2]);
    }

    /// Threads that make a few hundred calls while somebody reads are charged the first part of their rings each; a
    /// thread that nobody reads gets all of its ring and then counts losses; a thread that is gone is charged nothing.
    #[test]
    fn what_a_thread_is_charged_follows_its_need() {
        const THREADS: usize = 64;
        const FIRST: usize = 1 + (16 << 10) / 4096;
        let call = [1; 15];
        let mut reader = Reader::new(SharedMemory::create(Layout::DEFAULT).unwrap());
        // Looking at a page is enough to create it.
        reader.drain(Extent::Everything, |_, _| {});
        reader.free_rings(|_| true, |_, _| {});
        reader.shared.empty_rings();
        assert_eq!((reader.dropped(), reader.open_calls()), ((0, 0), Vec::new()));
        assert_eq!(reader.memory().charged_pages(), 1, "the control block");
        for ring in 0..THREADS {
            reader.memory().claim(ring, ring as u64 + 1);
        }
        let headers = reader.memory().charged_pages();
        assert_eq!(headers, 1 + THREADS);
        for number in 1..=500 {
            for ring in 0..THREADS {
                assert!(reader.memory().producer(ring).push(kind::CALL, [&call, &[]]));
            }
            if number % 50 == 0 {
                reader.drain(Extent::Everything, |_, _| {});
            }
        }
        let charged = reader.memory().charged_pages() - headers;
        assert!(charged <= THREADS * (FIRST - 1), "{charged} pages");

        let mut pushed = 0;
        while reader.memory().producer(0).push(kind::CALL, [&call, &[]]) {
            pushed += 1;
        }
        let all = Layout::DEFAULT.ring_bytes;
        // Each time the ring grew, the room left over was less than a call.
        let over = (GROWTHS + 1) * 8 * (call.len() + 1);
        assert!(pushed * 8 * (call.len() + 1) >= all - over, "{pushed}");
        assert_eq!(reader.memory().ring_dropped(0), 1, "and then counts");
        let charged = reader.memory().charged_pages() - headers;
        assert!(charged > all / 4096 && charged < all / 4096 + THREADS * FIRST, "{charged} pages");

        reader.drain(Extent::Everything, |_, _| {});
        reader.free_rings(|_| false, |_, _| {});
        assert_eq!(reader.memory().charged_pages(), headers);
        reader.memory().claim(0, 1);
        for _ in 0..500 {
            assert!(reader.memory().producer(0).push(kind::CALL, [&call, &[]]));
            reader.drain(Extent::Everything, |_, _| {});
        }
        assert!(reader.memory().charged_pages() < headers + FIRST, "small again");
    }

    /// The backup reader takes nothing while the reader comes, then as much as it may, and nothing for a closed reader.
    #[test]
    fn readers_that_are_late_have_their_rings_emptied() {
        let memory = SharedMemory::create(Layout { rings: 1, ring_bytes: 64 << 20 }).unwrap();
        memory.word(control::PID).store(1, Ordering::Relaxed);
        memory.claim(0, 7);
        let mut reader = Reader::new(memory);
        let shared = Arc::clone(&reader.shared);
        let (producer, consumer) = (shared.memory.producer(0), shared.memory.consumer(0));
        let fill = |words: u64| {
            for _ in 0..words / 4 {
                assert!(producer.push(kind::COMPLETE, [&[0; 3], &[]]));
            }
        };
        reader.drain(Extent::Everything, |_, _| {});
        fill(ALLOWANCE + 4000);
        reader.shared.empty_rings();
        assert_eq!(consumer.ready(), ALLOWANCE + 4000, "the reader was here");
        for _ in 0..3 {
            reader.shared.empty_rings();
            assert_eq!(consumer.ready(), 4000);
        }
        let mut count = 0;
        fill(2 * SHARE);
        assert_eq!(reader.shares(), 7);
        reader.drain(Extent::Share, |_, _| count += 1);
        assert_eq!(4 * count as u64, ALLOWANCE, "what the backup has taken");
        reader.drain(Extent::Share, |_, _| count += 1);
        assert_eq!(4 * count as u64, ALLOWANCE + SHARE, "a share of the rest");
        reader.drain(Extent::Everything, |_, _| count += 1);
        assert_eq!(4 * count as u64, ALLOWANCE + 4000 + 2 * SHARE);
        reader.close();
        fill(400);
        for _ in 0..3 {
            reader.shared.empty_rings();
        }
        assert_eq!(consumer.ready(), 400);
    }

    /// A process fills its rings as fast as they are read, while they are read, and while the backup reader comes as
    /// well.
    #[test]
    fn a_drain_has_an_end() {
        const BYTES: usize = 64 << 10;
        let memory = SharedMemory::create(Layout { rings: 2, ring_bytes: BYTES }).unwrap();
        memory.word(control::PID).store(1, Ordering::Relaxed);
        let fill = |memory: &SharedMemory| {
            for ring in [0, 1] {
                while memory.producer(ring).push(kind::COMPLETE, [&[0; 3], &[]]) {}
            }
        };
        for ring in [0, 1] {
            memory.claim(ring, ring as u64 + 1);
        }
        fill(&memory);
        let mut reader = Reader::new(memory);
        let shared = Arc::clone(&reader.shared);
        let mut counts = [0, 0];
        let most = 2 * (BYTES as u64 / 8) + ALLOWANCE;
        reader.drain(Extent::Everything, |thread, _| {
            counts[thread as usize - 1] += 1;
            assert!(4 * counts.iter().sum::<u64>() <= most, "without an end");
            shared.empty_rings();
            fill(&shared.memory);
        });
        assert!(counts.iter().all(|&count| count > 0), "nobody is left out: {counts:?}");
        // Drains by shares end too, and take as much from either thread.
        reader.take(Some(0), |_, _| {});
        for _ in 0..4 {
            let (mut of_threads, share) = ([0, 0], BYTES as u64 / 8 / 2);
            reader.take(Some(share), |thread, _| of_threads[thread as usize - 1] += 1);
            assert_eq!(of_threads.map(|count| 4 * count), [share / 2; 2]);
        }
        assert!([0, 1].iter().all(|&ring| shared.memory.consumer(ring).ready() == 0));
    }

    /// The heartbeat is given as long as the reader lives: not before it has begun, not for one that hangs, and not
    /// when nothing is read any more.
    #[test]
    fn readers_that_are_late_have_a_heartbeat() {
        let memory = SharedMemory::create(Layout { rings: 1, ring_bytes: 4096 }).unwrap();
        let mut reader = Reader::new(memory);
        let shared = Arc::clone(&reader.shared);
        let has_heartbeat = || {
            let word = shared.memory.word(control::HEARTBEAT_NS);
            word.store(0, Ordering::Relaxed);
            shared.empty_rings();
            word.load(Ordering::Relaxed) != 0
        };
        assert!(!has_heartbeat(), "not begun");
        reader.beat();
        assert!(has_heartbeat() && has_heartbeat());
        shared.taken().beat = Some(Patience::of(Duration::ZERO));
        assert!(!has_heartbeat(), "it hangs");
        reader.beat();
        assert!(has_heartbeat());
        reader.close();
        assert!(!has_heartbeat(), "closed");
    }

    #[test]
    fn a_symbol_carries_its_name() {
        let symbol = Symbol { kernel_object: 5, name_bytes: 3, ..Default::default() };
        let words_of = |symbol: Symbol| {
            let words =
                symbol.as_bytes().as_chunks::<8>().0.iter().copied().map(u64::from_ne_bytes);
            words.chain([u64::from_le_bytes(*b"abc\0\0\0\0\0")]).collect::<Vec<_>>()
        };
        let words = words_of(symbol);
        let whole = Some(Frame::Symbol(symbol, "abc".into()));
        assert_eq!(self::symbol(Vec::new(), &words), whole);
        assert_eq!(self::symbol(b"left over".to_vec(), &words), whole, "of another name");
        let mut parts = b"begun".to_vec();
        let part = |before, bytes: [u8; 8], length| [before, length, u64::from_le_bytes(bytes)];
        assert_eq!(add_part(&mut parts, &part(4, *b"12345678", 8)), None, "another one's");
        assert_eq!(add_part(&mut parts, &part(0, *b"12345678", 8)), Some(()), "anew");
        assert_eq!(add_part(&mut parts, &part(8, *b"9\0\0\0\0\0\0\0", 1)), Some(()));
        assert_eq!(add_part(&mut parts, &part(9, *b"12345678", 9)), None, "not all of it is there");
        let symbol = Symbol { name_before: 9, ..symbol };
        let mut words = words_of(symbol);
        let whole = Some(Frame::Symbol(symbol, "123456789abc".into()));
        assert_eq!(self::symbol(parts, &words), whole);
        assert_eq!(self::symbol(b"1234".to_vec(), &words), None, "a part is missing");
        let most = Symbol { name_before: MAX_NAME_BYTES as u64, ..symbol };
        assert_eq!(self::symbol(vec![0; MAX_NAME_BYTES], &words_of(most)), None);
        words.pop();
        assert_eq!(self::symbol(b"123456789".to_vec(), &words), None, "the last part is missing");
    }
}
