//! A reader delivers everything that a writer was given.

use proptest::prelude::*;
use tracer_records::{
    model::{Agent, Kernel, ProbedLibrary, Process},
    sink::RecordSink as _,
};

use super::{
    super::{
        Reading, Writer,
        limits::{MAX_COMMAND, MAX_LIBRARIES, MAX_NOTICES, MAX_STRING, MAX_TEXT, cut},
        lookup::Tables,
    },
    CLOCK, Memory, assert_prefix, event, read, writer,
};

#[test]
fn round_trip() {
    let memory = Memory::new(usize::MAX);
    let mut writer = writer(&memory);
    assert_eq!(writer.string(0, ""), 0);
    let name = writer.string(0, "hipMalloc");
    assert_eq!(writer.string(0, "hipMalloc"), name);
    writer.operation(3, 7, "hipMalloc");
    writer.process(100, Process { command: "old".into(), ..Default::default() });
    writer.flush_chunk().unwrap();
    writer.flush_chunk().unwrap();
    let process =
        Process { command: "./a.out".into(), gpu_tier: "tools".into(), ..Default::default() };
    writer.process(100, process.clone());
    writer.thread(100, 101, "main");
    writer.agent(100, 1, Agent { name: "gfx90a".into(), gpu: true, index: 0 });
    writer.kernel(0, 6, Kernel { name, vgpr_count: 32, ..Default::default() });
    writer.loss(0, "a", 0);
    writer.loss(100, "b", 2);
    (0..1000).for_each(|n| writer.push(event(n)).unwrap());
    writer.flush_chunk().unwrap();
    writer.loss(100, "b", 3);
    writer.notice("late");
    writer.notice("late");
    writer.finish(CLOCK).unwrap();

    let (events, Reading { tables, status, damage }) = read(memory.bytes()).unwrap();
    assert!(damage.is_none());
    assert!(status.complete);
    assert_eq!((status.chunks, status.truncated_at, status.end_clock), (4, None, Some(CLOCK)));
    assert_eq!(events.len(), 1000);
    assert_prefix(&events);
    assert_eq!(tables.strings[&tables.operations[&(3, 7)]], "hipMalloc");
    assert_eq!(tables.strings[&tables.threads[&(100, 101)]], "main");
    assert_eq!(tables.processes[&100], process);
    assert_eq!(tables.kernels[&6].vgpr_count, 32);
    assert!(tables.agents[&(100, 1)].gpu);
    assert_eq!(tables.losses[&(0, "a".to_owned())], 0);
    assert_eq!(tables.losses[&(100, "b".to_owned())], 5);
    assert_eq!(tables.notices, ["late"]);
}

/// Input of a writer, from any source.
#[derive(Clone, Debug)]
enum Input {
    Events(u16),
    String(String),
    Process(u32, String, Vec<String>),
    Thread(u32, String),
    Agent(u32, String),
    Kernel(u32, String),
    Operation(u32, String),
    Loss(u32, String, u64),
    Notice(String),
    Flush,
}

/// A text of a hostile program: of any characters, up to beyond every limit.
fn text() -> impl Strategy<Value = String> {
    let unit = prop_oneof![
        Just("\u{0}".to_owned()),
        Just("\"\\".to_owned()),
        Just("\u{202e}é".to_owned()),
        "[a-z]{1,3}",
        any::<char>().prop_map(String::from),
    ];
    let times = prop_oneof![8 => 0usize..40, 4 => 1_000usize..9_000, 1 => Just(1 << 20)];
    (unit, times).prop_map(|(unit, times)| unit.repeat(times))
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        (0u16..9_000).prop_map(Input::Events),
        text().prop_map(Input::String),
        (0u32..4, text(), prop::collection::vec(text(), 0..3))
            .prop_map(|(pid, command, paths)| Input::Process(pid, command, paths)),
        (0u32..4, text()).prop_map(|(tid, name)| Input::Thread(tid, name)),
        (0u32..4, text()).prop_map(|(node, name)| Input::Agent(node, name)),
        (0u32..4, text()).prop_map(|(id, name)| Input::Kernel(id, name)),
        (0u32..4, text()).prop_map(|(id, name)| Input::Operation(id, name)),
        (0u32..4, text(), 0u64..9).prop_map(|(pid, cause, count)| Input::Loss(pid, cause, count)),
        text().prop_map(Input::Notice),
        Just(Input::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is written is read: all events, and all names, cut to their limits.
    #[test]
    fn what_is_written_is_read(all in prop::collection::vec(input(), 0..10), many: u8) {
        let memory = Memory::new(usize::MAX);
        let mut writer = writer(&memory);
        let (mut events, mut expected) = (0, Tables::default());
        let named = |writer: &mut Writer, text: &str, expected: &mut Tables| {
            let id = writer.string(0, text);
            if id != 0 {
                expected.strings.insert(id, cut(text, MAX_STRING).into_owned());
            }
            id
        };
        for input in &all {
            match input {
                Input::Events(count) => for _ in 0..*count {
                    writer.push(event(events)).unwrap();
                    events += 1;
                },
                Input::String(text) => drop(named(&mut writer, text, &mut expected)),
                Input::Process(pid, command, paths) => {
                    let library = |path: &String| ProbedLibrary { path: path.clone(), ..Default::default() };
                    let mut libraries: Vec<ProbedLibrary> = paths.iter().map(library).collect();
                    if let Some(first) = libraries.first().cloned() {
                        libraries.extend(std::iter::repeat_n(first, many.into()));
                    }
                    let mut process = Process {
                        command: command.clone(),
                        gpu_tier: command.clone(),
                        libraries,
                        ..Default::default()
                    };
                    writer.process(*pid, process.clone());
                    process.command = cut(&process.command, MAX_COMMAND).into_owned();
                    process.gpu_tier = cut(&process.gpu_tier, MAX_TEXT).into_owned();
                    process.libraries.truncate(MAX_LIBRARIES);
                    for library in &mut process.libraries {
                        library.path = cut(&library.path, MAX_TEXT).into_owned();
                    }
                    expected.processes.insert(*pid, process);
                }
                Input::Thread(tid, name) => {
                    writer.thread(1, *tid, name);
                    let id = named(&mut writer, name, &mut expected);
                    expected.threads.insert((1, *tid), id);
                }
                Input::Agent(node, name) => {
                    let agent = Agent { name: name.clone(), ..Default::default() };
                    writer.agent(1, *node, agent.clone());
                    let name = cut(name, MAX_TEXT).into_owned();
                    expected.agents.insert((1, *node), Agent { name, ..agent });
                }
                Input::Kernel(id, name) => {
                    let name = named(&mut writer, name, &mut expected);
                    let kernel = Kernel { name, ..Default::default() };
                    writer.kernel(0, *id, kernel.clone());
                    expected.kernels.insert(*id, kernel);
                }
                Input::Operation(id, name) => {
                    writer.operation(3, *id, name);
                    let name = named(&mut writer, name, &mut expected);
                    expected.operations.insert((3, *id), name);
                }
                Input::Loss(pid, cause, count) => {
                    writer.loss(*pid, cause, *count);
                    let cause = cut(cause, MAX_TEXT).into_owned();
                    *expected.losses.entry((*pid, cause)).or_default() += count;
                }
                Input::Notice(text) => {
                    writer.notice(text);
                    let text = cut(text, MAX_TEXT).into_owned();
                    if expected.notices.len() < MAX_NOTICES && !expected.notices.contains(&text) {
                        expected.notices.push(text);
                    }
                }
                Input::Flush => writer.flush_chunk().unwrap(),
            }
        }
        prop_assert_eq!(writer.left_out(), 0);
        writer.finish(CLOCK).unwrap();
        let (found, Reading { tables, status, damage }) = read(memory.bytes()).unwrap();
        prop_assert!(damage.is_none(), "{:?}", damage);
        prop_assert!(status.complete);
        prop_assert_eq!(found.len() as u64, events);
        assert_prefix(&found);
        prop_assert!(tables == expected, "the tables differ");
    }
}
