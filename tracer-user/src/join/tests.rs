//! The joiner, with processes that send anything, in any order.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    rc::Rc,
};

use tracer_common::{
    activity::Domain,
    bpf::{ApiRecord, Header, LinkRecord, flag, kind},
    calls::{Call, FIRST_ID, ID_BITS},
    shim::{Complete, Dispatch as Announced, Symbol},
};
use tracer_records::{
    model::{Agent, ClockOffsets, Dispatch, Event, Kernel, Process, StringId},
    sink::{RecordSink, SinkError},
};

use super::*;

const HONEST: u32 = 1;
const HOSTILE: u32 = 2;
/// A thread of the honest process.
const THREAD: u32 = 11;

/// Keeps what it takes, for all of its clones.
#[derive(Clone, Default)]
struct Kept(Rc<RefCell<Taken>>);

#[derive(Default)]
struct Taken {
    events: Vec<Event>,
    strings: HashMap<String, StringId>,
    threads: Vec<(u32, u32)>,
}

impl RecordSink for Kept {
    fn begin(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn push(&mut self, event: Event) -> Result<(), SinkError> {
        self.0.borrow_mut().events.push(event);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(self: Box<Self>, _: ClockOffsets) -> Result<(), SinkError> {
        Ok(())
    }

    fn losses(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn string(&mut self, _: u32, text: &str) -> StringId {
        let strings = &mut self.0.borrow_mut().strings;
        let new = strings.len() as StringId + 1;
        *strings.entry(text.to_owned()).or_insert(new)
    }

    fn thread(&mut self, pid: u32, tid: u32, _: &str) {
        self.0.borrow_mut().threads.push((pid, tid));
    }

    fn kernel(&mut self, _: u32, _: u32, _: Kernel) {}
    fn operation(&mut self, _: u32, _: u32, _: &str) {}
    fn process(&mut self, _: u32, _: Process) {}
    fn agent(&mut self, _: u32, _: u32, _: Agent) {}
    fn loss(&mut self, _: u32, _: &str, _: u64) {}
    fn notice(&mut self, _: &str) {}
}

struct Scene {
    joiner: Joiner,
    kept: Kept,
}

impl Scene {
    fn new(mode: Mode) -> Self {
        let kept = Kept::default();
        let mut joiner = Joiner::new(mode, Box::new(kept.clone()));
        for pid in [HONEST, HOSTILE] {
            joiner.shim_ids(pid, first_id(pid)..first_id(pid + 1));
        }
        Self { joiner, kept }
    }

    fn frame(&mut self, pid: u32, tid: u32, frame: Frame) {
        self.joiner.frame(pid, tid, frame).unwrap();
    }

    /// Sends an agent and a kernel, so that operations wait only for the parts that a test is about.
    fn describe(&mut self, pid: u32) {
        self.frame(pid, 0, Frame::Agent(shim::Agent { device_type: 1, ..Default::default() }));
        self.frame(pid, 0, Frame::Symbol(Symbol::default(), "kernel".to_owned()));
    }

    fn enqueue(&mut self, pid: u32, tid: u32, sequence: u64, enqueue_ns: u64) {
        let dispatch = Announced { sequence, enqueue_ns, ..Announced::default() };
        self.frame(pid, tid, Frame::Dispatch(dispatch));
    }

    fn complete(&mut self, pid: u32, sequence: u64) {
        let complete = Complete { sequence, start_ns: 1 << 40, end_ns: 2 << 40 };
        self.frame(pid, 0, Frame::Complete(complete));
    }

    fn link(&mut self, pid: u32, sequence: u64, correlation_id: u64, operation: u32) {
        let header = Header { kind: kind::LINK, flags: flag::OWN, operation, pid, tid: THREAD };
        let link = LinkRecord { header, sequence, correlation_id, ..Default::default() };
        self.joiner.link(&link).unwrap();
    }

    /// `hipLaunchKernel` on a stream, by thread [`THREAD`].
    fn launch(&mut self, pid: u32, id: u64, [begin_ns, end_ns]: [u64; 2], stream: u64) {
        let header = Header {
            kind: kind::API,
            flags: flag::STACK_ARGS,
            operation: launch(),
            pid,
            tid: THREAD,
        };
        let call = ApiRecord {
            header,
            correlation_id: id,
            begin_ns,
            end_ns,
            extra: [0, stream, 0],
            ..ApiRecord::default()
        };
        self.joiner.api(&call).unwrap();
    }

    /// An HSA call that the shim says was made by thread [`THREAD`].
    fn tell_call(&mut self, pid: u32, id: u64, [begin_ns, end_ns]: [u64; 2]) {
        let call = Call { correlation_id: first_id(pid) + id, begin_ns, end_ns, ..Call::default() };
        self.joiner.shim_call(pid, THREAD, &call, 0);
    }

    /// `hsa_signal_store_screlease`, as probes saw it, by thread [`THREAD`].
    fn store(&mut self, pid: u32, id: u64, [begin_ns, end_ns]: [u64; 2]) {
        let operation = api::by_name("hsa_signal_store_screlease").unwrap();
        let operation = Domain::HSA_API.0 << 16 | u32::from(operation.id);
        let header = Header { kind: kind::API, flags: 0, operation, pid, tid: THREAD };
        let call = ApiRecord { header, correlation_id: id, begin_ns, end_ns, ..Default::default() };
        self.joiner.api(&call).unwrap();
    }

    fn settle_calls(&mut self) {
        self.joiner.settle_calls(u64::MAX).unwrap();
    }

    fn dispatches_so_far(&self) -> u64 {
        self.joiner.counts().dispatches
    }

    fn finish(mut self) -> Vec<Event> {
        self.joiner.join_the_rest().unwrap();
        std::mem::take(&mut self.kept.0.borrow_mut().events)
    }
}

fn first_id(pid: u32) -> u64 {
    FIRST_ID + (u64::from(pid) << ID_BITS)
}

fn launch() -> u32 {
    let operation = api::by_name("hipLaunchKernel").unwrap();
    Domain::HIP_API.0 << 16 | u32::from(operation.id)
}

fn dispatches(events: &[Event], of: u32) -> Vec<Dispatch> {
    let of_process = |event: &Event| match event {
        Event::Dispatch(dispatch) if dispatch.process_id == of => Some(*dispatch),
        _ => None,
    };
    events.iter().filter_map(of_process).collect()
}

#[test]
fn what_never_completes_is_given_up() {
    const MANY: u64 = pending::MOST as u64 + 20_000;
    let mut scene = Scene::new(Mode::Exact);
    scene.describe(HONEST);
    scene.enqueue(HONEST, THREAD, 5, 100);
    for sequence in 0..MANY {
        scene.enqueue(HOSTILE, THREAD, sequence, 100);
    }
    assert!(scene.dispatches_so_far() >= 20_000, "{}", scene.dispatches_so_far());
    scene.link(HONEST, 5, 7, launch());
    scene.launch(HONEST, 7, [90, 110], 3);
    scene.complete(HONEST, 5);
    let events = scene.finish();
    assert_eq!(dispatches(&events, HOSTILE).len() as u64, MANY, "all are in the trace");
    let [honest] = dispatches(&events, HONEST)[..] else { panic!("one") };
    assert_eq!((honest.record.end_ns, honest.record.correlation_id, honest.flags), (2 << 40, 7, 0));
}

#[test]
fn a_shim_tells_of_its_own_threads_alone() {
    let mut scene = Scene::new(Mode::Exact);
    scene.launch(HONEST, 7, [90, 110], 3);
    // Around everything, just around the launch, and very many.
    scene.tell_call(HOSTILE, 1, [0, u64::MAX - 1]);
    scene.tell_call(HOSTILE, 2, [95, 105]);
    for id in 3..10_000 {
        scene.tell_call(HOSTILE, id, [200, 210]);
    }
    scene.settle_calls();
    scene.launch(HONEST, 8, [190, 220], 3);
    scene.settle_calls();
    scene.describe(HONEST);
    // The link was lost: the call is found by time.
    scene.enqueue(HONEST, THREAD, 5, 100);
    scene.complete(HONEST, 5);
    let events = scene.finish();
    let [honest] = dispatches(&events, HONEST)[..] else { panic!("one") };
    assert_eq!(honest.record.correlation_id, 7);
    for event in &events {
        if let Event::Api(call) = event {
            assert_eq!(call.parent_id, 0, "{call:?}");
        }
    }
}

#[test]
fn a_stream_is_known_however_late_the_kernel_ends() {
    for call_first in [false, true] {
        let mut scene = Scene::new(Mode::Exact);
        scene.describe(HONEST);
        if call_first {
            scene.launch(HONEST, 7, [90, 110], 3);
        }
        scene.enqueue(HONEST, THREAD, 5, 100);
        scene.link(HONEST, 5, 7, launch());
        if !call_first {
            scene.launch(HONEST, 7, [90, 110], 3);
        }
        // 60 s, in which the thread goes on.
        for tenth in 1..600 {
            let now_ns = tenth * 100_000_000;
            scene.launch(HONEST, 100 + tenth, [now_ns, now_ns + 10], 4);
            scene.joiner.tick(now_ns).unwrap();
        }
        scene.complete(HONEST, 5);
        let events = scene.finish();
        let [dispatch] = dispatches(&events, HONEST)[..] else { panic!("one") };
        assert_eq!((dispatch.stream, dispatch.record.correlation_id), (3, 7));
    }
}

/// A reader was late: a drain brings operations and HSA calls, then come the records of other HIP calls, whose
/// operations the next drain brings.
#[test]
fn as_many_wait_as_drains_bring() {
    const MANY: u64 = crate::shim::MOST_AT_ONCE as u64;
    let mut scene = Scene::new(Mode::Exact);
    scene.describe(HONEST);
    let drain = |scene: &mut Scene, numbers: Range<u64>| {
        for nth in numbers {
            scene.enqueue(HONEST, THREAD, nth, 10 * nth + 5);
            scene.complete(HONEST, nth);
        }
    };
    let records = |scene: &mut Scene, numbers: Range<u64>| {
        for nth in numbers {
            scene.link(HONEST, nth, 1 + nth, launch());
            scene.launch(HONEST, 1 + nth, [10 * nth + 3, 10 * nth + 7], 3);
        }
    };
    drain(&mut scene, 0..MANY);
    for nth in 0..MANY {
        let call = Call {
            correlation_id: first_id(HONEST) + nth,
            begin_ns: 10 * nth + 4,
            end_ns: 10 * nth + 6,
            ..Call::default()
        };
        scene.frame(HONEST, THREAD, Frame::Call(call));
    }
    records(&mut scene, MANY..2 * MANY);
    drain(&mut scene, MANY..2 * MANY);
    records(&mut scene, 0..MANY);
    scene.settle_calls();
    scene.joiner.tick(1_000_000_000).unwrap();
    let Counts { given_up, unplaced, dispatches, .. } = scene.joiner.counts();
    assert_eq!([given_up, unplaced, dispatches], [0, 0, 2 * MANY]);
    let has_call = |event: &Event| !matches!(event, Event::Dispatch(d) if d.stream != 3);
    assert!(scene.finish().iter().all(has_call));
}

#[test]
fn links_and_completions_of_nothing_are_given_up() {
    const MANY: u64 = pending::MOST as u64;
    let mut scene = Scene::new(Mode::Exact);
    for sequence in 0..MANY {
        scene.link(HOSTILE, sequence, 7, launch());
        scene.complete(HOSTILE, MANY + sequence);
    }
    let given_up = scene.joiner.counts().given_up;
    assert!(given_up >= MANY, "{given_up}");
    assert!(scene.finish().is_empty());
}

#[test]
fn calls_that_wait_are_bounded() {
    const MANY: u64 = pending::MOST as u64 + 20_000;
    let mut scene = Scene::new(Mode::Exact);
    for id in 0..MANY {
        let call = Call { correlation_id: first_id(HOSTILE) + id, ..Call::default() };
        scene.frame(HOSTILE, id as u32, Frame::Call(call));
    }
    let Counts { calls, unplaced, .. } = scene.joiner.counts();
    assert!(calls >= MANY / 2 && calls == unplaced, "{calls} {unplaced}");
    scene.settle_calls();
    assert_eq!(scene.finish().len() as u64, MANY, "all are in the trace");
}

/// The calls' request is made after the one whose answer tells that all records of the process have come.
#[test]
fn calls_that_wait_are_written_when_their_process_has_ended() {
    let mut scene = Scene::new(Mode::Exact);
    scene.tell_call(HONEST, 0, [95, 105]);
    scene.joiner.ask_for_calls(|_| Vec::new(), || 2);
    scene.joiner.settle_calls(1).unwrap();
    scene.tell_call(HONEST, 1, [115, 125]);
    assert!(scene.kept.0.borrow().events.is_empty());
    assert_eq!(scene.joiner.ended(HONEST).unwrap(), Launches::default());
    assert_eq!(scene.kept.0.borrow().threads, [(HONEST, THREAD)]);
    assert_eq!(scene.joiner.counts().calls, 2);
    assert_eq!(scene.finish().len(), 2);
}

/// A lookup of a call by its id finds no call of another process.
#[test]
fn nobody_names_the_calls_of_another_process() {
    let mut scene = Scene::new(Mode::Exact);
    scene.describe(HOSTILE);
    let not_its_own = [first_id(HONEST), first_id(HOSTILE + 1), u64::MAX, 7];
    for id in not_its_own {
        for (correlation_id, parent_id) in [(id, 0), (first_id(HOSTILE), id)] {
            let call = Call { correlation_id, parent_id, ..Call::default() };
            scene.frame(HOSTILE, THREAD, Frame::Call(call));
        }
    }
    scene.settle_calls();
    let hsa = Domain::HSA_API.0 << 16;
    let links = [(first_id(HONEST), hsa), (u64::MAX, launch())];
    for (sequence, (id, operation)) in (0..).zip(links) {
        scene.enqueue(HOSTILE, THREAD, sequence, 100);
        scene.link(HOSTILE, sequence, id, operation);
        scene.complete(HOSTILE, sequence);
    }
    // Its own calls are of either runtime.
    for (sequence, operation) in [(8, hsa), (9, launch())] {
        scene.enqueue(HOSTILE, THREAD, sequence, 100);
        scene.link(HOSTILE, sequence, first_id(HOSTILE), operation);
        scene.complete(HOSTILE, sequence);
    }
    assert_eq!(scene.joiner.counts().misattributed, 2 * 4 + 2);
    let events = scene.finish();
    assert_eq!(events.len(), 4, "no call");
    let ids =
        dispatches(&events, HOSTILE).iter().map(|d| d.record.correlation_id).collect::<Vec<_>>();
    assert_eq!(ids, [0, 0, first_id(HOSTILE), first_id(HOSTILE)]);
}

/// Code objects are loaded at one address in turn, faster than the end of their kernels is known.
#[test]
fn kernels_of_reloaded_code_objects_have_their_names() {
    const TIMES: u64 = 1000;
    let mut scene = Scene::new(Mode::Exact);
    scene.describe(HONEST);
    let name = |number: u64| if number.is_multiple_of(2) { "even" } else { "odd" };
    for number in 0..TIMES {
        let symbol = Symbol { kernel_object: 64, since_ns: 10 * number, ..Symbol::default() };
        scene.frame(HONEST, THREAD, Frame::Symbol(symbol, name(number).to_owned()));
        let dispatch = Announced {
            sequence: number,
            enqueue_ns: 10 * number + 5,
            kernel_object: 64,
            ..Announced::default()
        };
        scene.frame(HONEST, THREAD, Frame::Dispatch(dispatch));
    }
    for sequence in 0..TIMES {
        scene.complete(HONEST, sequence);
    }
    let strings = scene.kept.0.borrow().strings.clone();
    let all = dispatches(&scene.finish(), HONEST);
    assert_eq!(all.len() as u64, TIMES);
    for dispatch in &all {
        let expected = strings[name(dispatch.enqueue_ns / 10)];
        assert_eq!(dispatch.record.bytes_or_name, u64::from(expected), "{dispatch:?}");
    }
    let ids = all.iter().map(|dispatch| dispatch.kernel_id).collect::<BTreeSet<_>>();
    assert_eq!(ids.len(), 2, "one that is loaded again is the same");
}

/// The symbol comes by another ring than the kernel's run, and later.
#[test]
fn a_kernel_is_not_taken_for_the_one_before_it_at_its_address() {
    let mut scene = Scene::new(Mode::Exact);
    scene.describe(HONEST);
    let symbol = |since_ns| Symbol { kernel_object: 64, since_ns, ..Symbol::default() };
    scene.frame(HONEST, THREAD, Frame::Symbol(symbol(10), "old".to_owned()));
    let dispatch = Announced {
        sequence: 5,
        enqueue_ns: 25,
        kernel_object: 64,
        symbols: 3,
        ..Announced::default()
    };
    scene.frame(HONEST, THREAD, Frame::Dispatch(dispatch));
    scene.link(HONEST, 5, 7, launch());
    scene.launch(HONEST, 7, [20, 30], 3);
    scene.complete(HONEST, 5);
    assert_eq!(scene.dispatches_so_far(), 0, "it waits for the third symbol");
    scene.frame(HONEST, 0, Frame::Symbol(symbol(20), "new".to_owned()));
    scene.complete(HONEST, 6);
    let strings = scene.kept.0.borrow().strings.clone();
    let [dispatch] = dispatches(&scene.finish(), HONEST)[..] else { panic!("one") };
    assert_eq!(dispatch.record.bytes_or_name, u64::from(strings["new"]));
}

/// Very many kernels at one address, and at others.
#[test]
fn one_process_leaves_room_for_the_names_of_others() {
    let mut scene = Scene::new(Mode::Exact);
    let name = |number: u64| format!("{number:0>60000}");
    for number in 0..2_000 {
        let kernel_object = if number % 2 == 0 { 64 } else { number };
        let symbol = Symbol { kernel_object, since_ns: number, ..Symbol::default() };
        scene.frame(HOSTILE, 0, Frame::Symbol(symbol, name(number)));
        scene.frame(HOSTILE, 0, Frame::Agent(shim::Agent { handle: number, ..Default::default() }));
    }
    let left_out = scene.joiner.counts().left_out;
    assert!(left_out > 1_000, "{left_out}");
    let taken: usize = scene.kept.0.borrow().strings.keys().map(String::len).sum();
    assert!(taken <= 64 << 20, "{taken}");
}

/// Many processes, each of which stays within the bounds of one process, and an honest one.
#[test]
fn many_processes_together_are_bounded() {
    const MANY: u32 = 20;
    const MOST: usize = 16 << 20;
    let mut scene = Scene::new(Mode::Exact);
    scene.joiner.most_bytes = MOST;
    scene.describe(HONEST);
    scene.launch(HONEST, 7, [90, 110], 3);
    scene.enqueue(HONEST, THREAD, 5, 100);
    scene.tell_call(HONEST, 1, [95, 105]);
    for pid in HOSTILE..HOSTILE + MANY {
        scene.joiner.shim_ids(pid, first_id(pid)..first_id(pid + 1));
    }
    let bytes =
        |scene: &Scene| scene.joiner.processes.values().map(ProcessState::bytes).sum::<usize>();
    let mut most = 0;
    for number in 0..4096 {
        for pid in HOSTILE..HOSTILE + MANY {
            scene.enqueue(pid, THREAD, number, 100);
            scene.launch(pid, 1 + number, [90, 110], 3);
            let call = Call { correlation_id: first_id(pid) + number, ..Call::default() };
            // Each on a thread of its own.
            scene.frame(pid, number as u32, Frame::Call(call));
        }
        most = most.max(bytes(&scene));
    }
    assert!(most < MOST + (2 << 20), "{most}");
    let Counts { given_up, unplaced, forgotten, .. } = scene.joiner.counts();
    assert!(given_up > 0 && unplaced > 0 && forgotten > 0, "{given_up} {unplaced} {forgotten}");
    scene.link(HONEST, 5, 7, launch());
    scene.complete(HONEST, 5);
    let honest = &mut scene.joiner.processes.get_mut(&HONEST).unwrap();
    assert_eq!(honest.waiting_calls.settled(u64::MAX)[0].parent_id, 7, "who has least keeps it");
    let events = scene.finish();
    let [honest] = dispatches(&events, HONEST)[..] else { panic!("one") };
    assert_eq!((honest.record.end_ns, honest.stream, honest.flags), (2 << 40, 3, 0));
    for pid in HOSTILE..HOSTILE + MANY {
        assert_eq!(dispatches(&events, pid).len(), 4096, "all are in the trace");
    }
}

/// A single process launches and rings faster than any real one, and is looked at every 100 ms: for twice as long as
/// the joiner waits for anything.
#[test]
fn one_fast_process_loses_nothing() {
    const A_TENTH: u64 = 50_000;
    const STEP_NS: u64 = 100_000_000 / A_TENTH;
    let mut scene = Scene::new(Mode::Exact);
    scene.describe(HONEST);
    for nth in 1..20 * A_TENTH {
        let time_ns = nth * STEP_NS;
        scene.launch(HONEST, nth, [time_ns, time_ns + 500], 3);
        scene.enqueue(HONEST, THREAD, nth % 65_536, time_ns + 100);
        scene.link(HONEST, nth % 65_536, nth, launch());
        if nth > A_TENTH {
            scene.complete(HONEST, (nth - A_TENTH) % 65_536);
        }
        if nth % A_TENTH == 0 {
            scene.joiner.tick(time_ns).unwrap();
        }
    }
    let Counts { given_up, unplaced, forgotten, dispatches, without_call, .. } =
        scene.joiner.counts();
    assert_eq!([given_up, unplaced, forgotten, without_call], [0; 4]);
    assert_eq!(dispatches, 19 * A_TENTH - 1);
    let known = |event: &Event| matches!(event, Event::Dispatch(d) if d.stream != 3);
    assert!(!scene.kept.0.borrow().events.iter().any(known));
}

/// However many processes send all the names that they may, there is room for the next one; a process that has ended
/// takes no room.
#[test]
fn many_processes_leave_room_for_the_names_of_others() {
    let mut scene = Scene::new(Mode::Exact);
    for pid in HOSTILE..HOSTILE + 8 {
        for number in 0..2_000 {
            let symbol = Symbol { kernel_object: number, ..Symbol::default() };
            scene.frame(pid, 0, Frame::Symbol(symbol, format!("{number:0>60000}")));
        }
    }
    assert!(scene.joiner.name_bytes.taken() < inventory::MOST_BYTES);
    let left_out = scene.joiner.counts().left_out;
    scene.describe(HONEST);
    assert_eq!(scene.joiner.counts().left_out, left_out);
    for pid in HOSTILE..HOSTILE + 8 {
        scene.joiner.ended(pid).unwrap();
    }
    assert!(scene.joiner.name_bytes.taken() < 4096, "{}", scene.joiner.name_bytes.taken());
    assert_eq!(scene.joiner.counts().left_out, left_out);
}

/// The probe at the doorbell comes before that of the call that rings it. Many other calls follow before the joiner
/// looks.
#[test]
fn the_call_that_rings_a_doorbell_is_found_when_it_returns() {
    let mut scene = Scene::new(Mode::Exact);
    scene.describe(HONEST);
    scene.store(HONEST, 1, [10, 20]);
    for nth in 1..=100 {
        let rung_ns = nth * 1_000_000;
        let announced = Announced { sequence: nth, enqueue_ns: rung_ns, ..Announced::default() };
        let key = (HONEST, nth);
        let none = Some(Caller::default());
        scene.joiner.seen_outside(key, THREAD, announced.into(), none).unwrap();
        scene.joiner.ended_outside(key, None).unwrap();
        for call in 0..100 {
            let begin_ns = rung_ns + 300 + call * 1000;
            scene.store(HONEST, nth * 1000 + call, [begin_ns, begin_ns + 600]);
        }
    }
    scene.joiner.tick(1_000_000_000).unwrap();
    let dispatches = dispatches(&scene.finish(), HONEST);
    let found: Vec<u64> = dispatches.iter().map(|d| d.record.correlation_id).collect();
    assert_eq!(found, (1..=100).map(|nth| nth * 1000).collect::<Vec<_>>());
}

/// Another thread's doorbell finds a packet, and that thread reads the clock when the packet's own thread has long
/// returned.
#[test]
fn a_packet_that_another_doorbell_found_was_enqueued_in_its_own_call() {
    let mut scene = Scene::new(Mode::Exact);
    scene.describe(HONEST);
    let (key, own) = ((HONEST, 1), Caller { correlation_id: 7, operation: launch() });
    let found = Announced { sequence: 1, enqueue_ns: 9_000, ..Announced::default() };
    scene.joiner.seen_outside(key, THREAD + 1, found.into(), None).unwrap();
    scene.joiner.owned_outside(key, (THREAD, 1_500), own).unwrap();
    scene.joiner.ended_outside(key, None).unwrap();
    scene.launch(HONEST, 7, [1_000, 2_000], 3);
    scene.joiner.tick(1_000_000_000).unwrap();
    let dispatches = dispatches(&scene.finish(), HONEST);
    let [dispatch] = &dispatches[..] else { panic!("{dispatches:?}") };
    assert_eq!((dispatch.enqueue_ns, dispatch.record.correlation_id), (1_500, 7));
}

/// Work that is enqueued after the end of a recording is neither written nor counted as seen; nor is a launch that
/// returned after the end.
#[test]
fn what_comes_behind_the_end_is_left_out() {
    let mut scene = Scene::new(Mode::Exact);
    scene.describe(HONEST);
    scene.joiner.gpu_until(2_000);
    for (sequence, enqueue_ns) in [(1, 1_500), (2, 2_500)] {
        let began_ns = enqueue_ns - 100;
        scene.enqueue(HONEST, THREAD, sequence, enqueue_ns);
        scene.link(HONEST, sequence, sequence, launch());
        scene.launch(HONEST, sequence, [began_ns, began_ns + 200], 3);
        scene.complete(HONEST, sequence);
    }
    let process = &scene.joiner.processes[&HONEST];
    assert_eq!((process.launches, process.dispatches), (1, 1));
    let dispatches = dispatches(&scene.finish(), HONEST);
    let enqueued: Vec<u64> = dispatches.iter().map(|d| d.enqueue_ns).collect();
    assert_eq!(enqueued, [1_500]);
}

/// Threads that a process starts one after the other, and threads of processes that have ended.
#[test]
fn threads_that_are_gone_are_forgotten() {
    let mut scene = Scene::new(Mode::Exact);
    let own = std::process::id();
    scene.joiner.thread(own, own);
    // No thread has such a number.
    for gone in 0..4 * threads::FEW as u32 {
        scene.joiner.thread(own, u32::MAX - gone);
    }
    let known = &scene.joiner.threads.known;
    assert!(known.len() <= threads::FEW);
    assert!(known.contains(&(own, own)), "it lives");
    scene.joiner.ended(own).unwrap();
    assert!(scene.joiner.threads.known.is_empty());
}
