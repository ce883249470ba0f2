//! Assigns events to operations.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tracer_common::shim::Complete;

use super::client::{Agents, Client, CompletedWork, Work};
use super::kernels::Kernel;
use super::queue::{Claim, Enqueued, Event};

/// The time that the thread that has enqueued an operation may take to say so when another one has found its packet,
/// ns; and the time that a kernel's name may take, which comes late for kernels that were there before.
const LAUNCHER_NS: u64 = 1_000_000_000;
/// After this time the events of an operation that nobody has enqueued are forgotten: it was not to be recorded, or its
/// record was written, ns.
const ENQUEUED_NS: u64 = 10_000_000_000;

/// Operations whose events have not all come.
pub struct Operations<C: Client> {
    under_way: HashMap<u64, Operation<C>>,
    /// Those of them that are done, and that lack another event.
    done: HashSet<u64>,
    /// The time of the next look for operations that nobody has enqueued, ns.
    next_look_ns: u64,
    agents: Agents,
    /// Kernels by their descriptors, and the time since when each is there, ns. An address may get another kernel: an
    /// operation that was enqueued before keeps its own.
    kernels: KernelsByAddress,
}

type KernelsByAddress = HashMap<u64, (u64, Arc<Kernel>)>;

fn kernel_at(kernels: &KernelsByAddress, address: u64) -> Option<Arc<Kernel>> {
    kernels.get(&address).map(|(_, kernel)| Arc::clone(kernel))
}

impl<C: Client> Default for Operations<C> {
    fn default() -> Self {
        Self {
            under_way: HashMap::new(),
            done: HashSet::new(),
            next_look_ns: 0,
            agents: Agents::default(),
            kernels: HashMap::new(),
        }
    }
}

/// An operation, as far as it is known. Its events come in any order.
struct Operation<C: Client> {
    /// The time of its first event, ns.
    since_ns: u64,
    enqueued: Option<EnqueuedOperation<C>>,
    /// The thread that has enqueued it, and the time from which on that is believed, ns.
    caller: Option<(C::Caller, u64)>,
    /// Begin and end, ns; zeros if they are not known. And the time at which they came, ns.
    times: Option<(u64, u64, u64)>,
    /// Somebody has waited for it in vain.
    is_given_up: bool,
    /// It was [counted](Operations::unfinished) as such.
    is_counted: bool,
    /// It is not recorded: the event came before the one by which its thread says that it has enqueued it.
    is_refused: bool,
}

/// The part of an operation that is known when it is enqueued.
struct EnqueuedOperation<C: Client> {
    enqueued: Enqueued<C>,
    /// The kernel that was at its address then.
    kernel: Option<Arc<Kernel>>,
}

impl<C: Client> Operations<C> {
    /// Takes an event that came at `now_ns`. Returns the operation that it completes.
    pub fn take(&mut self, event: Event<C>, now_ns: u64) -> Option<CompletedWork<C>> {
        let sequence = match event {
            Event::Begins => {
                // Addresses may have other kernels now than before this recording.
                self.kernels.clear();
                return None;
            }
            Event::Agent(agent) => {
                self.agents.add(agent);
                return None;
            }
            Event::Symbol { address, since_ns, kernel } => {
                self.symbol(address, since_ns, kernel);
                return None;
            }
            Event::Enqueued(mut enqueued) => {
                let kernel = match enqueued.work {
                    Work::Kernel(address) => kernel_at(&self.kernels, address),
                    _ => None,
                };
                let (sequence, caller) = (enqueued.sequence, enqueued.caller.take());
                let known = EnqueuedOperation { enqueued, kernel };
                self.operation(sequence, now_ns).enqueued = Some(known);
                if let Some(caller) = caller {
                    self.launched(sequence, caller, Claim::Certain, now_ns);
                }
                sequence
            }
            Event::Launched { sequence, caller, claim } => {
                self.launched(sequence, caller, claim, now_ns);
                sequence
            }
            Event::Refused(sequence) => {
                if self.under_way.remove(&sequence).is_none() {
                    self.operation(sequence, now_ns).is_refused = true;
                }
                return None;
            }
            Event::Done(Complete { sequence, start_ns, end_ns }) => {
                self.operation(sequence, now_ns).times = Some((start_ns, end_ns, now_ns));
                sequence
            }
            Event::NoTimes(sequence) => {
                self.operation(sequence, now_ns).times = Some((0, 0, now_ns));
                sequence
            }
            Event::Drain(_) => return None,
        };
        let done = self.finish(sequence, now_ns);
        if done.is_none() && self.under_way.get(&sequence).is_some_and(Operation::is_done) {
            self.done.insert(sequence);
        }
        done
    }

    /// An address has a kernel, from a time on. A kernel that was loaded when the recording began is announced when it
    /// has been looked for, and another one may be at its address by then.
    fn symbol(&mut self, address: u64, since_ns: u64, kernel: Arc<Kernel>) {
        match self.kernels.entry(address) {
            Entry::Occupied(known) if known.get().0 > since_ns => {}
            Entry::Occupied(mut known) => drop(known.insert((since_ns, kernel))),
            Entry::Vacant(place) => {
                // The kernel was there when they were enqueued: another one is announced before it can be.
                for known in self.under_way.values_mut().filter_map(|one| one.enqueued.as_mut()) {
                    if matches!(known.enqueued.work, Work::Kernel(at) if at == address) {
                        known.kernel.get_or_insert_with(|| Arc::clone(&kernel));
                    }
                }
                place.insert((since_ns, kernel));
            }
        }
    }

    fn operation(&mut self, sequence: u64, now_ns: u64) -> &mut Operation<C> {
        self.under_way.entry(sequence).or_insert(Operation {
            since_ns: now_ns,
            enqueued: None,
            caller: None,
            times: None,
            is_given_up: false,
            is_counted: false,
            is_refused: false,
        })
    }

    /// If this comes after the record was written, nothing is kept: an operation that is known may be waited for.
    fn launched(&mut self, sequence: u64, caller: C::Caller, claim: Claim, now_ns: u64) {
        if claim != Claim::Ahead && !self.under_way.contains_key(&sequence) {
            return;
        }
        if self.under_way.get(&sequence).is_some_and(|operation| operation.is_refused) {
            self.under_way.remove(&sequence);
            return;
        }
        let operation = self.operation(sequence, now_ns);
        if claim != Claim::Found {
            operation.caller = Some((caller, 0));
        } else if operation.caller.is_none() {
            operation.caller = Some((caller, now_ns + LAUNCHER_NS));
        }
    }

    /// The operation, if everything is known of it that will be.
    fn finish(&mut self, sequence: u64, now_ns: u64) -> Option<CompletedWork<C>> {
        let operation = self.under_way.get_mut(&sequence)?;
        let (begin_ns, end_ns, done_ns) = operation.times?;
        let known = operation.enqueued.as_mut()?;
        let is_late = now_ns >= done_ns + LAUNCHER_NS;
        let is_caller_known = match operation.caller {
            Some((_, believed_ns)) => believed_ns <= now_ns,
            // Its thread has not come back from ringing.
            None => is_late,
        };
        if let Work::Kernel(address) = known.enqueued.work
            && known.kernel.is_none()
        {
            known.kernel = kernel_at(&self.kernels, address);
        }
        let is_described = match known.enqueued.work {
            // A recording begins in a program that launches, or copies.
            Work::Kernel(_) => {
                let agent = known.enqueued.agent;
                known.kernel.is_some() && (agent == 0 || self.agents.get(agent).is_some())
            }
            Work::Copy(copy) => {
                self.agents.get(copy.from).is_some() && self.agents.get(copy.to).is_some()
            }
            Work::Barrier => true,
        };
        if !is_caller_known || !(is_described || is_late) {
            return None;
        }
        self.done.remove(&sequence);
        let Operation { enqueued, caller, .. } = self.under_way.remove(&sequence)?;
        let EnqueuedOperation { enqueued, kernel } = enqueued?;
        let Enqueued { work, agent, queue_id, kept, .. } = enqueued;
        let caller = caller.map(|(caller, _)| caller);
        Some(CompletedWork { work, agent, queue_id, kept, caller, kernel, begin_ns, end_ns })
    }

    /// Agents that were told of.
    pub fn agents(&self) -> &Agents {
        &self.agents
    }

    /// Returns the operations that are complete because another event has not come for too long; forgets operations
    /// that were never enqueued.
    pub fn finish_late(&mut self, now_ns: u64) -> Vec<CompletedWork<C>> {
        if now_ns >= self.next_look_ns {
            self.next_look_ns = now_ns + ENQUEUED_NS / 10;
            let is_open = |operation: &Operation<C>| {
                operation.enqueued.is_some() || now_ns < operation.since_ns + ENQUEUED_NS
            };
            self.under_way.retain(|_, operation| is_open(operation));
        }
        let done = Vec::from_iter(self.done.iter().copied());
        done.into_iter().filter_map(|sequence| self.finish(sequence, now_ns)).collect()
    }

    /// Whether any is done and lacks another event.
    pub fn any_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Whether there has been an event of any.
    pub fn any(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// The numbers of those that are under way, and that nobody has waited for in vain.
    pub fn awaited(&self) -> impl Iterator<Item = u64> {
        self.under_way.iter().filter(|(_, o)| o.is_awaited()).map(|(&sequence, _)| sequence)
    }

    /// Whether that operation is still awaited.
    pub fn is_awaited(&self, sequence: u64) -> bool {
        self.under_way.get(&sequence).is_some_and(Operation::is_awaited)
    }

    /// The number of operations under way that were waited for in vain, without those that an earlier call has counted.
    pub fn unfinished(&mut self) -> usize {
        let is_one = |operation: &&mut Operation<C>| {
            operation.enqueued.is_some() && operation.is_given_up && !operation.is_counted
        };
        let found = self.under_way.values_mut().filter(is_one);
        found.map(|operation| operation.is_counted = true).count()
    }

    /// It was waited for in vain.
    pub fn give_up(&mut self, sequence: u64) {
        if let Some(operation) = self.under_way.get_mut(&sequence) {
            operation.is_given_up = true;
        }
    }
}

impl<C: Client> Operation<C> {
    fn is_done(&self) -> bool {
        self.enqueued.is_some() && self.times.is_some()
    }

    fn is_awaited(&self) -> bool {
        self.enqueued.is_some() && !self.is_given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::MemoryCopy;
    use crate::gpu::kernels::Kernels;
    use crate::gpu::testing::Nobody;
    use tracer_common::shim::Agent;

    const GPU: u64 = 0x1000;
    const QUEUE: u64 = 7;

    type Event = super::Event<Nobody>;

    /// Its GPU is known.
    fn operations() -> Operations<Nobody> {
        let mut operations = Operations::default();
        assert!(operations.take(agent(GPU), 0).is_none());
        operations
    }

    fn agent(handle: u64) -> Event {
        Event::Agent(Agent { handle, ..Agent::default() })
    }

    fn enqueued(sequence: u64, work: Work) -> Event {
        let (caller, agent, queue_id, kept) = (None, GPU, QUEUE, ());
        Event::Enqueued(Enqueued { sequence, caller, work, agent, queue_id, kept })
    }

    fn kernel(sequence: u64) -> Event {
        enqueued(sequence, Work::Kernel(0x500))
    }

    fn launched(sequence: u64, caller: u64, is_certain: bool) -> Event {
        let claim = if is_certain { Claim::Certain } else { Claim::Found };
        Event::Launched { sequence, caller, claim }
    }

    fn done(sequence: u64) -> Event {
        Event::Done(Complete { sequence, start_ns: sequence * 10, end_ns: sequence * 10 + 5 })
    }

    fn symbol(name: &[u8]) -> Event {
        symbol_since(name, 0)
    }

    fn symbol_since(name: &[u8], since_ns: u64) -> Event {
        let kernel = Kernels::new().number(0x500, name, since_ns).expect("free");
        Event::Symbol { address: 0x500, since_ns, kernel }
    }

    fn name(done: &CompletedWork<Nobody>) -> Option<&[u8]> {
        done.kernel.as_ref().map(|kernel| &*kernel.name)
    }

    #[test]
    fn a_kernel_has_the_name_that_its_address_had_when_it_was_enqueued() {
        let mut operations = operations();
        for event in [symbol(b"one\0"), kernel(3), symbol(b"two\0"), launched(3, 9, true)] {
            assert!(operations.take(event, 0).is_none());
        }
        assert!(!operations.any_done());
        let done = operations.take(done(3), 0).expect("all is known");
        assert_eq!(name(&done), Some(&b"one\0"[..]));
        assert_eq!((done.caller, done.begin_ns, done.end_ns), (Some(9), 30, 35));
        assert_eq!((done.agent, done.queue_id), (GPU, QUEUE));
        assert_eq!(operations.awaited().count(), 0);
    }

    #[test]
    fn copies_may_be_done_before_they_are_recorded() {
        let mut operations = operations();
        assert!(operations.take(done(1), 0).is_none());
        let copy = MemoryCopy { bytes: 77, from: 1, to: 2, ..MemoryCopy::default() };
        assert!(operations.take(enqueued(1, Work::Copy(copy)), 0).is_none());
        for handle in [1, 2] {
            assert!(operations.take(agent(handle), 0).is_none());
        }
        let done = operations.take(launched(1, 2, true), 0).expect("all is known");
        assert!(matches!(done.work, Work::Copy(done) if done == copy));
        assert_eq!(done.caller, Some(2));
    }

    /// Another thread has found the packet, whose call it may not be.
    #[test]
    fn who_enqueued_a_packet_is_waited_for() {
        let mut operations = operations();
        operations.take(symbol(b"one\0"), 0);
        for event in [kernel(1), launched(1, 100, false), done(1)] {
            assert!(operations.take(event, 0).is_none());
        }
        assert!(operations.any_done());
        let known = operations.take(launched(1, 200, true), 0).expect("all is known");
        assert_eq!(known.caller, Some(200));
        // Not for ever.
        for event in [kernel(2), launched(2, 300, false), done(2)] {
            assert!(operations.take(event, 0).is_none());
        }
        assert!(operations.finish_late(LAUNCHER_NS - 1).is_empty());
        let late = operations.finish_late(LAUNCHER_NS);
        assert_eq!(late.iter().map(|done| done.caller).collect::<Vec<_>>(), [Some(300)]);
    }

    /// The thread that has found a packet may say so later than the thread that has enqueued it.
    #[test]
    fn who_is_certain_is_believed() {
        let mut operations = operations();
        for event in [symbol(b"one\0"), kernel(1), launched(1, 200, true)] {
            assert!(operations.take(event, 0).is_none());
        }
        assert!(operations.take(launched(1, 100, false), 0).is_none());
        let known = operations.take(done(1), 0).expect("all is known");
        assert_eq!(known.caller, Some(200));
        // Nothing is kept of what is told behind the record.
        for is_certain in [false, true] {
            assert!(operations.take(launched(1, 100, is_certain), 0).is_none());
            assert!(!operations.any());
        }
    }

    /// Its packet is found by another thread.
    #[test]
    fn who_is_certain_may_say_so_first() {
        let mut operations = operations();
        let ahead = Event::Launched { sequence: 1, caller: 200, claim: Claim::Ahead };
        for event in [symbol(b"one\0"), ahead, kernel(1)] {
            assert!(operations.take(event, 0).is_none());
        }
        let known = operations.take(done(1), 0).expect("all is known");
        assert_eq!(known.caller, Some(200));
        // It may never be found.
        operations.take(Event::Launched { sequence: 2, caller: 200, claim: Claim::Ahead }, 0);
        assert!(operations.any() && operations.awaited().count() == 0);
        assert!(operations.finish_late(ENQUEUED_NS).is_empty() && !operations.any());
    }

    /// A number was reserved for it by its thread, which uses the id of its call until then.
    #[test]
    fn what_is_not_recorded_is_forgotten_at_once() {
        let mut operations = operations();
        let ahead = |sequence| Event::Launched { sequence, caller: 200, claim: Claim::Ahead };
        for event in [ahead(1), Event::Refused(1)] {
            assert!(operations.take(event, 0).is_none());
        }
        assert!(!operations.any());
        // The other way round.
        for event in [Event::Refused(2), ahead(2)] {
            assert!(operations.take(event, 0).is_none());
        }
        assert!(!operations.any());
    }

    /// Its thread has not come back from ringing.
    #[test]
    fn an_operation_whose_thread_says_nothing_has_no_call() {
        let mut operations = operations();
        for event in [symbol(b"one\0"), kernel(1), done(1)] {
            assert!(operations.take(event, 0).is_none());
        }
        let [late] = &operations.finish_late(LAUNCHER_NS)[..] else { panic!("one") };
        assert_eq!((late.caller, late.begin_ns), (None, 10));
    }

    /// A recording begins in a program that launches: names are told when kernels of that name have run.
    #[test]
    fn names_are_waited_for() {
        let mut operations = operations();
        operations.take(symbol(b"of the recording before\0"), 0);
        operations.take(Event::Begins, 0);
        for event in [kernel(1), launched(1, 2, true), done(1)] {
            assert!(operations.take(event, 0).is_none());
        }
        assert!(operations.take(symbol(b"one\0"), 0).is_none());
        let [late] = &operations.finish_late(1)[..] else { panic!("one") };
        assert_eq!(name(late), Some(&b"one\0"[..]));
        // Not for ever.
        operations.take(Event::Begins, 0);
        for event in [kernel(2), launched(2, 2, true), done(2)] {
            assert!(operations.take(event, 0).is_none());
        }
        let [late] = &operations.finish_late(LAUNCHER_NS)[..] else { panic!("one") };
        assert_eq!(name(late), None);
    }

    /// A kernel that was there before is announced when it has been looked for: meanwhile it was unloaded, and another
    /// one is there.
    #[test]
    fn a_kernel_has_the_name_of_who_was_there() {
        let mut operations = operations();
        for event in [kernel(1), launched(1, 2, true), symbol_since(b"former\0", 10)] {
            assert!(operations.take(event, 0).is_none());
        }
        for event in [symbol_since(b"one\0", 20), symbol_since(b"former\0", 5), kernel(2)] {
            assert!(operations.take(event, 0).is_none());
        }
        operations.take(launched(2, 2, true), 0);
        let names = [1, 2].map(|sequence| operations.take(done(sequence), 0).expect("known"));
        assert_eq!(names.each_ref().map(name), [Some(&b"former\0"[..]), Some(&b"one\0"[..])]);
    }

    /// A recording begins: kernels that are loaded meanwhile are told before all agents are.
    #[test]
    fn the_agent_of_a_kernel_is_waited_for() {
        let mut operations = Operations::default();
        for event in [symbol(b"one\0"), kernel(1), launched(1, 2, true), done(1), agent(GPU)] {
            assert!(operations.take(event, 0).is_none());
        }
        let [late] = &operations.finish_late(1)[..] else { panic!("one") };
        assert_eq!((late.agent, name(late)), (GPU, Some(&b"one\0"[..])));
    }

    #[test]
    fn what_was_waited_for_in_vain_is_not_waited_for_again() {
        let mut operations = operations();
        operations.take(kernel(1), 0);
        operations.take(kernel(2), 0);
        operations.give_up(1);
        assert_eq!((operations.unfinished(), operations.unfinished()), (1, 0));
        assert_eq!(operations.awaited().collect::<Vec<_>>(), [2]);
        assert!(!operations.is_awaited(1) && operations.is_awaited(2) && !operations.is_awaited(3));
    }

    #[test]
    fn what_has_no_times_has_zeros() {
        let mut operations = operations();
        for event in [enqueued(1, Work::Barrier), launched(1, 2, true)] {
            assert!(operations.take(event, 0).is_none());
        }
        let known = operations.take(Event::NoTimes(1), 0).expect("known");
        assert_eq!((known.begin_ns, known.end_ns), (0, 0));
    }
}
