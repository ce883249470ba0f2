//! Queues, and what happens when a doorbell rings.
//!
//! A doorbell's value is the index of the last packet that its caller published, but with several
//! producers packets below it may not be published yet, and packets above it may. The rule: **the
//! real doorbell is held back**: we instrument the packets in order, up to the first that is not published
//! or that nobody has rung for, and ring for the last one before it. To handle only the caller's own packet
//! loses some: another producer's doorbell lets the packet processor consume a published packet that nobody
//! has looked at (2 of 31,000 when it was tried). Nothing is held back for ever: the producer of the missing
//! packet rings later; if it rang too early, the worker looks again; and after [`HELD_LONGEST_NS`] the worker
//! rings for all that was asked for. And we ring for nothing that nobody asked for: a slot above every
//! doorbell may hold anything (programs clear a slot with zeros before they fill it, and a header of 0 is a
//! vendor-specific packet).
//!
//! Whatever goes wrong, the application is safe. We change a packet by one aligned 8-byte compare-exchange
//! of its completion signal, so the packet processor completes either the application's signal or ours. We
//! decrement the application's only when ours was. A packet that another has replaced meanwhile stays as it
//! is. If a thread never comes back from here with a queue's lock, we leave that queue alone from then on:
//! its doorbells ring as they are asked to.
//!
//! A thread that rings touches the runtime's queue only until it has rung: then the packets may run, and
//! another thread may destroy the queue, before this one goes on. Every other thread that touches the queue
//! holds [`Queue::outside`], for which the thread that destroys the queue waits.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tracer_common::loss::ShimLoss;
use tracer_common::shim::{self, Barrier, Dispatch, packet_flag};
use tracer_common::waited::Waited;

use crate::abi::{self, AmdQueue, Packet, packet_type};
use crate::lock::{Guard, Lock};
use crate::marks::Needed;
use crate::phase::Machine;
use crate::pool::Pool;
use crate::producer::{NUMBERS, Number, Producer};
use crate::reserved::Own;
use crate::runtime::RUNTIME;
use crate::sink::{Enqueuer, Sink};
use crate::track::{Entry, Track};
use crate::usual::Usual;
use crate::{agents, packets, sys, view};

/// The time that a doorbell waits for the queue's lock before it is rung as it is.
pub const DOORBELL_WAIT_NS: u64 = 1_000_000_000;
/// Longest time that a doorbell is held back for a packet that nobody publishes.
pub const HELD_LONGEST_NS: u64 = 3_000_000_000;
/// The time that the worker waits for a queue's lock, after it has found it taken for [`DOORBELL_WAIT_NS`].
const LAST_WAIT_NS: u64 = 200_000_000;
/// The time that a thread that destroys a queue waits until the worker has left the queue: microseconds, if the worker
/// has a CPU.
const OUTSIDE_WAIT_NS: u64 = 10_000_000_000;
/// The time that it then waits for threads that ring. These do not touch the queue after they have rung.
const INSIDE_WAIT_NS: u64 = 200_000_000;
/// The most that counts of the time between two looks of the worker.
const LOOK_NS: u64 = 20_000_000;

/// The stage of a [`Queue`] object, which stands for one queue after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Stage {
    /// Nothing: it is unused.
    Free,
    /// A queue of the runtime.
    Live,
    /// A queue that the runtime is destroying: it must not be touched, its packets may complete.
    Closing,
    /// A queue that is gone; what was in flight is to be discarded.
    Dead,
}

/// One queue of the runtime.
pub struct Queue {
    /// A [`Stage`].
    stage: AtomicU32,
    /// Address of its [`AmdQueue`].
    pub address: AtomicUsize,
    /// Handle of its agent; 0 when unknown.
    pub agent: AtomicU64,
    /// HSA queue id.
    pub id: AtomicU64,
    /// Packets that fit.
    pub size: AtomicU32,
    /// Its packets in flight.
    pub track: Track,
    /// A doorbell is held back for a packet that is not published.
    pub held: AtomicBool,
    /// One more than the largest doorbell value seen; 0 for none. Written with the producer's lock.
    asked: AtomicU64,
    producer: Lock<Producer>,
    /// A thread that touches the runtime's queue outside of an application's call for that queue takes this
    /// lock, before it takes the producer's.
    outside: Lock<Watch>,
}

/// The waits of the worker.
struct Watch {
    /// For packet `next`, for which a doorbell is held back.
    held: Waited<LOOK_NS>,
    next: u64,
    /// For the producer's lock.
    locked: Waited<LOOK_NS>,
}

/// The change of a queue that a sink is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existence {
    /// It was created, or existed when recording began.
    Begins,
    /// It was destroyed.
    Ends,
}

/// The result of ringing a doorbell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rung {
    /// Sequence numbers given, first and last.
    pub sequences: Option<(u64, u64)>,
    /// The sink took the record of a packet, whether its number was given here or reserved before.
    pub recorded: bool,
    /// Of `sequences`, those of the caller's own packets, first and last.
    pub own: Option<(u64, u64)>,
    /// The enqueuer of the others.
    pub others: Enqueuer,
    /// The numbers of the caller's own packets that another thread has found, or will find.
    pub claimed: Vec<u64>,
    /// A packet is in flight that was not before.
    pub tracked: bool,
    /// Such a packet has a signal of the application.
    pub chained: bool,
    /// Something that cannot relay waits for such a signal, or for one that a packet depends on.
    pub needed: bool,
}

/// The parts of the process's state that instrumenting needs besides the queue.
pub struct Context<'a> {
    /// Receives the records.
    pub sink: &'a dyn Sink,
    /// Gives signals.
    pub pool: &'a Pool,
    /// Whether a recording is going on.
    pub phase: &'a Machine,
    /// Counts recordings.
    pub epoch: &'a AtomicU32,
    /// The application's signals for which something waits that cannot relay them.
    pub needed: &'a Needed,
}

impl Context<'_> {
    /// The recording, if one is going on. The thread that ends it takes each queue's lock, and that of the
    /// copies, after it has changed the phase: a caller that holds one of these can rely on the answer until
    /// it lets go.
    #[inline]
    pub fn recording(&self) -> Option<u32> {
        // `is_recording` has made the epoch of this recording visible.
        self.phase.is_active_acquire().then(|| self.epoch.load(Ordering::Acquire))
    }
}

impl Queue {
    /// A free object.
    pub const fn new() -> Self {
        Self {
            stage: AtomicU32::new(Stage::Free as u32),
            address: AtomicUsize::new(0),
            agent: AtomicU64::new(0),
            id: AtomicU64::new(0),
            size: AtomicU32::new(0),
            track: Track::new(),
            held: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            producer: Lock::new(Producer::new()),
            outside: Lock::new(Watch { held: Waited::since(0), next: 0, locked: Waited::since(0) }),
        }
    }

    /// Its stage.
    pub fn stage(&self) -> Stage {
        // Acquire pairs with the Release in `becomes`: a thread that finds the object live finds its address and its
        // agent, and a thread that finds it free finds that nobody uses it.
        match self.stage.load(Ordering::Acquire) {
            stage if stage == Stage::Live as u32 => Stage::Live,
            stage if stage == Stage::Closing as u32 => Stage::Closing,
            stage if stage == Stage::Dead as u32 => Stage::Dead,
            _ => Stage::Free,
        }
    }

    /// Whether that is its stage.
    #[inline]
    pub fn is(&self, stage: Stage) -> bool {
        // As in `stage`.
        self.stage.load(Ordering::Acquire) == stage as u32
    }

    /// Changes its stage.
    pub fn becomes(&self, stage: Stage) {
        // Release pairs with the Acquire in `stage` and `is`.
        self.stage.store(stage as u32, Ordering::Release);
    }

    /// The runtime's queue, while this one is live. The module says which threads may ask, and until when.
    fn amd(&self) -> Option<&'static AmdQueue> {
        self.is(Stage::Live).then(|| view::queue(self.address.load(Ordering::Relaxed))).flatten()
    }

    /// As [`Queue::amd`], for a thread that rings `doorbell`: `None` if that is the doorbell of another
    /// queue, which was at this address before.
    fn amd_of(&self, doorbell: u64) -> Option<&'static AmdQueue> {
        self.amd().filter(|amd| amd.doorbell_signal.load(Ordering::Relaxed) == doorbell)
    }

    /// Whether this object can stand for another queue.
    pub fn is_reusable(&self) -> bool {
        self.is(Stage::Free) && !self.producer.is_lost()
    }

    /// Begins to record a queue that was just created: each of its packets from now on.
    pub fn begin(&self, epoch: u32) {
        if let Some(mut producer) = self.producer.lock_or_lose(DOORBELL_WAIT_NS)
            && let Some(amd) = self.amd()
        {
            self.asked.store(0, Ordering::Relaxed);
            producer.begin(epoch, amd.write_dispatch_id.load(Ordering::Acquire));
        }
    }

    /// The application rings `doorbell` with `value`.
    pub fn ring(&self, context: &Context<'_>, doorbell: u64, value: i64) -> Rung {
        let Some(mut producer) = self.producer.lock_or_lose(DOORBELL_WAIT_NS) else {
            return self.ring_unseen(context, doorbell, value);
        };
        let (Some(amd), Some(epoch)) = (self.amd_of(doorbell), context.recording()) else {
            RUNTIME.ring(doorbell, value);
            return Rung::default();
        };
        let value = value as u64;
        let room = view::packets(amd).map_or(1, <[_]>::len);
        let own = Own::of(self.address.load(Ordering::Relaxed), value, room, epoch);
        if producer.epoch != epoch {
            let before = producer.meet(epoch, amd, own.indices());
            self.asked.store(0, Ordering::Relaxed);
            if before > 0 {
                context.sink.lost(ShimLoss::BEFORE_ATTACH, before);
            }
        }
        let early = value < producer.start;
        if early && value < producer.consumed {
            // The GPU had consumed it before this recording's first doorbell: `meet` has not counted it.
            context.sink.lost(ShimLoss::BEFORE_ATTACH, 1);
        }
        let asked = self.asked.load(Ordering::Relaxed).max(value.saturating_add(1));
        self.asked.store(asked, Ordering::Relaxed);
        let found_before = producer.next;
        let mut rung = self.advance(&mut producer, context, amd, Reason::Of(own));
        for index in own.indices() {
            let claimed = if index < found_before {
                producer.take_number(index).map(|number| number.sequence)
            } else if index >= producer.next
                && (index == value || packets::is_published(amd, index))
            {
                // Another producer has yet to publish its packet below ours. The doorbell for that one will
                // find ours too.
                let time_ns = sys::now_ns();
                let sequence = context.sink.reserve(time_ns);
                if let Some(sequence) = sequence {
                    producer.keep_number(Number { index, sequence, time_ns });
                }
                sequence
            } else {
                continue;
            };
            if let Some(sequence) = claimed
                && rung.claimed.try_reserve(1).is_ok()
            {
                rung.claimed.push(sequence);
            }
        }
        self.note_held(&producer);
        if early {
            // A packet of before this recording: we hold nothing back for those.
            RUNTIME.ring(doorbell, value as i64);
        }
        if producer.next > producer.start {
            // Also if no packet is new: an application may ring twice, and to ring too often does no
            // harm.
            RUNTIME.ring(doorbell, (producer.next - 1) as i64);
        }
        // The queue may be gone by now.
        rung
    }

    /// As [`Queue::ring`], after a thread never came back with the lock: instruments nothing, and rings also
    /// for what earlier doorbells asked for, which that thread may have held back.
    #[cold]
    fn ring_unseen(&self, context: &Context<'_>, doorbell: u64, value: i64) -> Rung {
        self.held.store(false, Ordering::Relaxed);
        let asked = self.asked.load(Ordering::Relaxed);
        if context.recording().is_some() {
            context.sink.lost(ShimLoss::LEFT_ALONE, 1);
        }
        let same = self.amd_of(doorbell).is_some() && asked > 0;
        let before = if same { asked - 1 } else { 0 };
        RUNTIME.ring(doorbell, before.max(value as u64) as i64);
        Rung::default()
    }

    /// Looks again at a queue whose doorbell is held back; called by the worker.
    pub fn retry(&self, context: &Context<'_>) -> Rung {
        let Some(mut watch) = self.outside.try_lock() else { return Rung::default() };
        let now = sys::now_ns();
        let mut locked = self.producer.try_lock();
        if locked.is_none() && watch.locked.look(now) >= DOORBELL_WAIT_NS {
            locked = self.producer.lock_or_lose(LAST_WAIT_NS);
            if self.producer.is_lost() {
                self.ring_what_is_held(&watch);
            }
        }
        let Some(mut producer) = locked else { return Rung::default() };
        watch.locked = Waited::since(now);
        let same = context.recording() == Some(producer.epoch);
        let Some(amd) = self.amd().filter(|_| same) else {
            // The recording has ended meanwhile.
            self.ring_what_is_held(&watch);
            return Rung::default();
        };
        let before = producer.next;
        let rung = self.advance(&mut producer, context, amd, Reason::Again);
        if producer.next != watch.next {
            (watch.next, watch.held) = (producer.next, Waited::since(now));
        }
        if producer.next > before {
            let doorbell = amd.doorbell_signal.load(Ordering::Relaxed);
            RUNTIME.ring(doorbell, (producer.next - 1) as i64);
        } else if watch.held.look(now) >= HELD_LONGEST_NS {
            producer.let_pass = self.asked.load(Ordering::Relaxed);
            self.ring_what_is_held(&watch);
            watch.held = Waited::since(now);
        }
        self.note_held(&producer);
        rung
    }

    /// The recording is over: records the packets whose doorbells are held back. Their producers have rung,
    /// and will not ring for them again.
    pub fn finish(&self, context: &Context<'_>) -> Rung {
        let Some(_outside) = self.outside.lock_for(DOORBELL_WAIT_NS) else {
            return Rung::default();
        };
        match (self.producer.lock_or_lose(DOORBELL_WAIT_NS), self.amd()) {
            // Acquire: as in `Context::recording`.
            (Some(mut producer), Some(amd))
                if producer.epoch == context.epoch.load(Ordering::Acquire) =>
            {
                self.advance(&mut producer, context, amd, Reason::Last)
            }
            _ => Rung::default(),
        }
    }

    /// Recording has stopped: rings what is held back, forgets the indices, and gives the cached signals to
    /// `pool`.
    pub fn release(&self, pool: &Pool) {
        let outside = self.outside.lock_for(DOORBELL_WAIT_NS);
        let locked = self.producer.lock_or_lose(DOORBELL_WAIT_NS);
        if let Some(outside) = &outside {
            self.ring_what_is_held(outside);
        }
        let Some(mut producer) = locked else { return };
        if outside.is_some() {
            self.asked.store(0, Ordering::Relaxed);
        }
        producer.epoch = 0;
        pool.give(&mut producer.cache);
    }

    /// Rings for everything that somebody has rung for.
    fn ring_what_is_held(&self, _outside: &Guard<'_, Watch>) {
        let asked = self.asked.load(Ordering::Relaxed);
        if self.held.swap(false, Ordering::Relaxed)
            && let Some(amd) = self.amd()
        {
            RUNTIME.ring(amd.doorbell_signal.load(Ordering::Relaxed), asked as i64 - 1);
        }
    }

    /// The runtime is about to destroy its queue: waits for the threads that touch it, a limited time, and
    /// lets none touch it from now on.
    pub fn close(&self) {
        let _outside = self.outside.lock_for(OUTSIDE_WAIT_NS);
        let _producer = self.producer.lock_or_lose(INSIDE_WAIT_NS);
        self.becomes(Stage::Closing);
    }

    fn note_held(&self, producer: &Producer) {
        let asked = self.asked.load(Ordering::Relaxed);
        self.held.store(asked > producer.next.max(producer.let_pass), Ordering::Relaxed);
    }

    /// Instruments packets in order, from the first that nobody has looked at to the last that somebody has
    /// rung for. Stops at one that is not published; the last look ([`Reason::Last`]) skips such.
    fn advance(
        &self,
        producer: &mut Producer,
        context: &Context<'_>,
        amd: &'static AmdQueue,
        why: Reason,
    ) -> Rung {
        let others = if let Reason::Of(own) = why { own.others } else { Enqueuer::Other };
        let mut rung = Rung { others, ..Rung::default() };
        let Some(packets) = view::packets(amd) else { return rung };
        // Acquire: packets below the read index are consumed.
        let read = amd.read_dispatch_id.load(Ordering::Acquire);
        let write = amd.write_dispatch_id.load(Ordering::Acquire);
        let asked = self.asked.load(Ordering::Relaxed);
        // Packets from `asked` on were rung for after the recording had ended: they are not lost.
        let passed = if why == Reason::Last { read.min(asked) } else { read };
        if passed > producer.next {
            context.sink.lost(ShimLoss::PACKET_PASSED, passed - producer.next);
            for index in (producer.next..passed).take(NUMBERS) {
                if let Some(number) = producer.take_number(index) {
                    context.sink.refused(number.sequence);
                }
            }
            producer.next = passed;
        }
        let end = asked.min(read.saturating_add(packets.len() as u64));
        let mut now = 0;
        while producer.next < end {
            let Some(packet) = packets.get(producer.next as usize & (packets.len() - 1)) else {
                break;
            };
            // Acquire pairs with the Release store of the header that publishes the packet.
            let first = packet.0[0].load(Ordering::Acquire);
            if first as u8 == packet_type::INVALID
                // A program may ring before it advances the write index, so packets beyond that are
                // taken; but zeros there are no packet yet.
                || (first as u8 == packet_type::VENDOR && producer.next >= write)
            {
                // From the write index on nobody has reserved a packet: none is missing there.
                if why != Reason::Last || producer.next >= write {
                    break;
                }
                context.sink.lost(ShimLoss::UNPUBLISHED, 1);
                producer.next += 1;
                continue;
            }
            let own = matches!(why, Reason::Of(own) if own.indices().contains(&producer.next));
            if !own || now == 0 {
                // The time is read anew for each packet of another thread, which may have published it
                // just now.
                now = sys::now_ns();
                if amd.queue_properties.load(Ordering::Relaxed) & abi::QUEUE_PROFILING == 0 {
                    sys::uninterrupted(|| RUNTIME.profile_queue(amd));
                }
            }
            let reserved = producer.take_number(producer.next);
            let found = PublishedPacket { first, enqueue_ns: now, own, reserved };
            let is_recorded = self.instrument(producer, context, packet, found, &mut rung);
            if let Some(number) = reserved.filter(|_| is_recorded.is_none()) {
                context.sink.refused(number.sequence);
            }
            producer.next += 1;
        }
        rung
    }

    /// Records a packet, and has its completion told. None if it is not recorded.
    fn instrument(
        &self,
        producer: &mut Producer,
        context: &Context<'_>,
        packet: &Packet,
        found: PublishedPacket,
        rung: &mut Rung,
    ) -> Option<()> {
        let PublishedPacket { first, own, reserved, .. } = found;
        for dependency in packet.0.get(packets::dependencies(first)).into_iter().flatten() {
            // The packet processor waits for these signals, and cannot relay them.
            let dependency = dependency.load(Ordering::Relaxed);
            context.needed.mark(dependency);
            rung.needed |= dependency != 0;
        }
        let original = packet.0[7].load(Ordering::Relaxed);
        let by = if own && reserved.is_none() { Enqueuer::Caller } else { rung.others };
        let sequence = self.record(producer.next, context.sink, packet, &found, (original, by))?;
        rung.recorded = true;
        if reserved.is_none() {
            let first_sequence = rung.sequences.map_or(sequence, |(first, _)| first);
            rung.sequences = Some((first_sequence, sequence));
            if by == Enqueuer::Caller {
                let first = rung.own.map_or(sequence, |(first, _)| first);
                rung.own = Some((first, sequence));
            } else {
                let (index, time_ns) = (producer.next, found.enqueue_ns);
                producer.keep_number(Number { index, sequence, time_ns });
            }
        }
        let usual = match first as u8 {
            packet_type::DISPATCH => Usual::key(packet.0[4].load(Ordering::Relaxed)),
            _ => 0,
        };
        let barrier = (first as u16) & abi::HEADER_BARRIER != 0;
        let entry = Entry { signal: 0, original, sequence, barrier, usual };
        match self.replace_signal(producer, context, packet, entry) {
            Ok(()) => {
                rung.tracked = true;
                rung.chained |= original != 0;
                rung.needed |= context.needed.is_marked(original);
            }
            Err(loss) => {
                context.sink.lost(loss, 1);
                context.sink.no_times(sequence, loss);
            }
        }
        Some(())
    }

    /// Tells `sink` of a packet with the completion signal `original`, by whom it was enqueued; returns its sequence
    /// number. None if it is not recorded.
    fn record(
        &self,
        packet_index: u64,
        sink: &dyn Sink,
        packet: &Packet,
        &PublishedPacket { first, enqueue_ns, reserved, .. }: &PublishedPacket,
        (original, by): (u64, Enqueuer),
    ) -> Option<u64> {
        if self.agent.load(Ordering::Relaxed) == 0 && !self.is_placed_by(packet, first, sink) {
            if packets::is_operation(first, original) {
                sink.lost(ShimLoss::BEFORE_ATTACH, 1);
            }
            return None;
        }
        let (sequence, enqueue_ns) =
            reserved.map_or((0, enqueue_ns), |number| (number.sequence, number.time_ns));
        let queue_id = self.id.load(Ordering::Relaxed);
        let agent = self.agent.load(Ordering::Relaxed);
        match first as u8 {
            packet_type::DISPATCH => {
                let known = packets::dispatch(packet, first, original);
                let mut record =
                    Dispatch { sequence, enqueue_ns, queue_id, packet_index, agent, ..known };
                sink.dispatch(&mut record, by).then_some(record.sequence)
            }
            packet_type::BARRIER_AND | packet_type::BARRIER_OR if original == 0 => None,
            packet_type::BARRIER_AND | packet_type::BARRIER_OR => {
                let flags = packet_flag::HAD_SIGNAL;
                let mut record = Barrier {
                    sequence,
                    enqueue_ns,
                    queue_id,
                    packet_index,
                    agent,
                    flags,
                    reserved: 0,
                };
                sink.barrier(&mut record, by).then_some(record.sequence)
            }
            _ => {
                sink.lost(ShimLoss::PACKET_KIND, 1);
                None
            }
        }
    }

    /// Puts a signal of ours into a packet, for the entry, which goes into the track.
    ///
    /// # Errors
    ///
    /// The loss of the packet's times.
    fn replace_signal(
        &self,
        producer: &mut Producer,
        context: &Context<'_>,
        packet: &Packet,
        entry: Entry,
    ) -> Result<(), ShimLoss> {
        let original = entry.original;
        if !packets::may_replace(original) {
            return Err(ShimLoss::SIGNAL_KIND);
        }
        // Threads may sleep on the application's signal. They are made to sleep on ours, so that has to raise
        // an interrupt too.
        let interrupts = packets::raises_interrupt(original);
        let bell = interrupts.then(|| context.pool.bells.take()).flatten();
        if bell.is_none() && producer.cache.is_empty() {
            context.pool.take(&mut producer.cache, || RUNTIME.create_signal());
        }
        let (at, _) = self.track.pushed();
        let signal = bell.or(producer.cache.last());
        let tracked = signal.filter(|&signal| self.track.push(Entry { signal, ..entry }));
        let Some(signal) = tracked else {
            bell.map(|bell| context.pool.bells.give(bell));
            return Err(ShimLoss::SIGNAL_POOL);
        };
        if bell.is_none() {
            producer.cache.pop();
        }
        // Release: the signal's value and the entry were written before. It fails if the packet processor
        // has taken the packet and a producer has filled the slot again.
        let (order, failed) = (Ordering::Release, Ordering::Relaxed);
        if packet.0[7].compare_exchange(original, signal, order, failed).is_err() {
            self.track.cancel(at);
            return Err(ShimLoss::PACKET_PASSED);
        }
        Ok(())
    }

    /// Whether the queue's agent is known now. A dispatch tells it: its kernel is loaded on that agent. Tells
    /// `sink` of the queue then.
    #[cold]
    fn is_placed_by(&self, packet: &Packet, first: u64, sink: &dyn Sink) -> bool {
        let kernel_object = packet.0[4].load(Ordering::Relaxed);
        if first as u8 == packet_type::DISPATCH
            && let Some(agent) = agents::home_of(kernel_object)
        {
            self.agent.store(agent, Ordering::Relaxed);
            self.tell(sink, Existence::Begins);
        }
        self.agent.load(Ordering::Relaxed) != 0
    }

    /// Tells `sink` of the queue, unless its agent is not known yet.
    pub fn tell(&self, sink: &dyn Sink, existence: Existence) {
        let agent = self.agent.load(Ordering::Relaxed);
        if agent != 0 {
            sink.queue(shim::Queue {
                queue_id: self.id.load(Ordering::Relaxed),
                agent,
                time_ns: sys::now_ns(),
                size: self.size.load(Ordering::Relaxed),
                created: match existence {
                    Existence::Begins => 1,
                    Existence::Ends => 0,
                },
            });
        }
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a queue's packets are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// The calling thread rings for the last of these.
    Of(Own),
    /// The worker looks again, since a doorbell is held back.
    Again,
    /// The recording is over. A packet that is not published yet will run unrecorded.
    Last,
}

/// A published packet.
struct PublishedPacket {
    /// Its first word.
    first: u64,
    /// When it was found.
    enqueue_ns: u64,
    /// The thread that rings has enqueued it.
    own: bool,
    /// The number that its producer has reserved, if that rang before the packet was found.
    reserved: Option<Number>,
}
