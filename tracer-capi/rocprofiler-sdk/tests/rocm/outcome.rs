//! What the tool was told, and what the GPU did.

use std::collections::BTreeMap;

use emulated_gpu::truth::Operation;

use crate::kinds::function;

/// Agents are numbered by the driver's nodes.
pub const FIRST_AGENT: u64 = 0x4_0000;

/// A record of a call.
#[derive(Debug)]
pub struct Call {
    pub name: &'static str,
    pub correlation_id: u64,
    /// The id of the call around it.
    pub ancestor: u64,
    pub external_id: u64,
    pub thread: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// A record of a kernel.
#[derive(Debug)]
pub struct Kernel {
    pub correlation_id: u64,
    pub external_id: u64,
    pub thread: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub agent: u64,
    pub queue: u64,
    pub kernel: u64,
    pub dispatch: u64,
    pub private_bytes: u64,
    pub group_bytes: u64,
    pub workgroup: [u64; 3],
    pub grid: [u64; 3],
}

/// A record of a copy.
#[derive(Debug)]
pub struct Copy {
    pub correlation_id: u64,
    pub external_id: u64,
    pub thread: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub operation: u64,
    pub to: u64,
    pub from: u64,
    pub bytes: u64,
    pub to_address: u64,
    pub from_address: u64,
}

/// What was told of a correlation id.
#[derive(Debug, Default)]
pub struct Id {
    /// Records of its call and of work, and callbacks of the call.
    pub records: usize,
    /// The last end of those, ns.
    pub end_ns: u64,
    /// When it was retired, ns.
    pub retired_ns: Option<u64>,
}

/// A call that a callback was told of.
#[derive(Debug)]
pub struct CalledBack {
    pub name: &'static str,
    pub correlation_id: u64,
    pub ancestor: u64,
    pub external_id: u64,
    pub thread: u64,
    /// That of HSA's functions.
    pub result: u64,
    pub exits: bool,
    /// By name.
    pub arguments: BTreeMap<String, String>,
}

/// A stream that a call makes (1), destroys (2) or uses (3): then it is told at the begin (1) and at the end (2), else once (0).
#[cfg(feature = "v1")]
#[derive(Debug)]
pub struct StreamCallback {
    pub operation: u64,
    pub phase: u64,
    pub thread: u64,
    pub id: u64,
    pub stream: u64,
}

/// Memory that a call allocates (1, 2) or gives back (3, 4).
#[cfg(feature = "v1")]
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Allocation {
    pub correlation_id: u64,
    pub operation: u64,
    pub external_id: u64,
    pub thread: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub agent: u64,
    pub address: u64,
    pub bytes: u64,
}

/// Scratch memory of a queue that is allocated (1), freed (2), or reclaimed (3).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Scratch {
    pub operation: u64,
    pub correlation_id: u64,
    pub external_id: u64,
    pub thread: u64,
    pub agent: u64,
    pub queue: u64,
    pub flags: u64,
    pub bytes: u64,
    pub packet: u64,
}

/// A kernel of a code object.
#[derive(Debug)]
pub struct Symbol {
    /// Without the ending of a descriptor's.
    pub name: String,
    pub object: u64,
    pub vector_registers: u64,
    pub is_unloaded: bool,
}

/// What the tool was told, and what the GPU did.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Code objects: their agents, and whether they were unloaded.
    pub objects: BTreeMap<u64, (u64, bool)>,
    pub symbols: BTreeMap<u64, Symbol>,
    /// By what the tool keeps of it.
    pub called_back: BTreeMap<u64, CalledBack>,
    /// In the order in which they were told.
    #[cfg(feature = "v1")]
    pub streams: Vec<StreamCallback>,
    /// Arguments that records have, by name, by correlation id.
    #[cfg(feature = "v1")]
    pub recorded: BTreeMap<u64, BTreeMap<String, String>>,
    /// Memory that was allocated and given back, as records tell it, and as callbacks do.
    #[cfg(feature = "v1")]
    pub allocations: [Vec<Allocation>; 2],
    /// Scratch memory, as records tell of it, and as callbacks do at its end.
    pub scratch: [Vec<Scratch>; 2],
    /// The versions of runtimes that began, by whether a callback told it or a record, and by operation.
    #[cfg(feature = "v1")]
    pub runtimes: BTreeMap<(bool, u64), u64>,
    /// How often the program says that it has called each function.
    pub counts: BTreeMap<String, u64>,
    pub calls: Vec<Call>,
    pub kernels: Vec<Kernel>,
    pub copies: Vec<Copy>,
    pub ids: BTreeMap<u64, Id>,
    /// When the context had been started, ns.
    pub starts: Vec<u64>,
    pub dropped: u64,
    /// Kernels and copies that callbacks were told of when they were enqueued.
    pub enqueued: usize,
    /// Those of them of which callbacks were told by another thread, when they were done.
    pub called_back_late: usize,
    /// Threads that the library was about to create, has created, and has.
    pub threads: [u64; 3],
    /// Tables that the tool got, as `rocprofiler_intercept_table_t` numbers them.
    pub tables: Vec<u64>,
    /// Calls that passed through functions of the tool's own in tables: of `hsa_agent_get_info` and of `roctxMarkA`.
    pub passed: [usize; 2],
    pub truth: Vec<Operation>,
}

impl Outcome {
    /// A line that the tool has written.
    pub fn take(&mut self, line: &str) {
        let (word, numbers) = line.split_once(' ').unwrap_or((line, ""));
        if word.contains("load") {
            self.take_load(word, numbers);
            return;
        }
        if word == "argument" {
            let [kept, _, name, value] = numbers.splitn(4, ' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let call = self.called_back.get_mut(&kept.parse().expect("a number")).expect("a call");
            assert!(call.exits, "{line}");
            assert_eq!(call.arguments.insert(name.into(), value.into()), None, "{line}");
            return;
        }
        #[cfg(feature = "v1")]
        if word == "recorded" {
            let [id, _, name, value] = numbers.splitn(4, ' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let arguments = self.recorded.entry(id.parse().expect("a number")).or_default();
            assert_eq!(arguments.insert(name.into(), value.into()), None, "{line}");
            return;
        }
        let numbers = numbers.split_whitespace().map(|n| n.parse().expect("a number"));
        let numbers: Vec<u64> = numbers.collect();
        self.note_id(word, &numbers);
        match (word, &numbers[..]) {
            (
                "kernel",
                &[
                    correlation_id,
                    external_id,
                    thread,
                    begin_ns,
                    end_ns,
                    agent,
                    queue,
                    kernel,
                    dispatch,
                    private_bytes,
                    group_bytes,
                    ref sizes @ ..,
                ],
            ) => {
                let [wide, high, deep, x, y, z] = sizes[..] else { panic!("{line}") };
                self.kernels.push(Kernel {
                    correlation_id,
                    external_id,
                    thread,
                    begin_ns,
                    end_ns,
                    agent,
                    queue,
                    kernel,
                    dispatch,
                    private_bytes,
                    group_bytes,
                    workgroup: [wide, high, deep],
                    grid: [x, y, z],
                });
            }
            (
                "copy",
                &[
                    correlation_id,
                    external_id,
                    thread,
                    begin_ns,
                    end_ns,
                    operation,
                    to,
                    from,
                    bytes,
                    to_address,
                    from_address,
                ],
            ) => {
                self.copies.push(Copy {
                    correlation_id,
                    external_id,
                    thread,
                    begin_ns,
                    end_ns,
                    operation,
                    to,
                    from,
                    bytes,
                    to_address,
                    from_address,
                });
            }
            ("call", &[kind, number, ref ids @ ..]) => {
                let [correlation_id, ancestor, external_id, thread, begin_ns, end_ns] = ids[..]
                else {
                    panic!("{line}")
                };
                self.calls.push(Call {
                    name: function(kind, number),
                    correlation_id,
                    ancestor,
                    external_id,
                    thread,
                    begin_ns,
                    end_ns,
                });
            }
            ("retired", _) => {}
            ("enter", &[kind, number, correlation_id, ancestor, external_id, thread, kept, 0]) => {
                let call = CalledBack {
                    name: function(kind, number),
                    correlation_id,
                    ancestor,
                    external_id,
                    thread,
                    result: 0,
                    exits: false,
                    arguments: BTreeMap::new(),
                };
                assert!(self.called_back.insert(kept, call).is_none(), "{line}");
            }
            (
                "exit",
                &[kind, number, correlation_id, ancestor, external_id, thread, kept, result],
            ) => {
                let call = self.called_back.get_mut(&kept).unwrap_or_else(|| panic!("{line}"));
                assert_eq!(call.name, function(kind, number), "{line}");
                let ids = [call.correlation_id, call.ancestor, call.external_id, call.thread];
                assert_eq!(ids, [correlation_id, ancestor, external_id, thread], "{line}");
                assert!(!std::mem::replace(&mut call.exits, true), "{line}");
                call.result = result;
            }
            #[cfg(feature = "v1")]
            ("stream", &[operation, phase, thread, id, stream]) => {
                self.streams.push(StreamCallback { operation, phase, thread, id, stream });
            }
            #[cfg(feature = "v1")]
            (
                "allocation-record" | "allocation-told",
                &[operation, id, external, ref rest @ ..],
            ) => {
                let [thread, begin_ns, end_ns, agent, address, bytes] = rest[..] else {
                    panic!("{line}")
                };
                let allocation = Allocation {
                    operation,
                    correlation_id: id,
                    external_id: external,
                    thread,
                    begin_ns,
                    end_ns,
                    agent,
                    address,
                    bytes,
                };
                self.allocations[usize::from(word == "allocation-told")].push(allocation);
            }
            ("scratch-record" | "scratch-told", &[operation, ref rest @ ..]) => {
                let [correlation_id, external_id, thread, agent, queue, flags, bytes, packet] =
                    rest[..]
                else {
                    panic!("{line}")
                };
                self.scratch[usize::from(word == "scratch-told")].push(Scratch {
                    operation,
                    correlation_id,
                    external_id,
                    thread,
                    agent,
                    queue,
                    flags,
                    bytes,
                    packet,
                });
            }
            #[cfg(feature = "v1")]
            ("runtime-record" | "runtime-told", &[runtime, version, instance]) => {
                assert_eq!(instance, 0, "{line}");
                let key = (word == "runtime-told", runtime);
                assert_eq!(self.runtimes.insert(key, version), None, "{line}");
            }
            ("dropped", &[count]) => self.dropped = count.max(self.dropped),
            ("enqueued", &[count, late]) => {
                self.enqueued += count as usize;
                self.called_back_late += late as usize;
            }
            ("threads", &[before, after, there]) => self.threads = [before, after, there],
            ("table", &[kind, _version]) => self.tables.push(kind),
            ("passed", &[agents, marks]) => self.passed = [agents as usize, marks as usize],
            ("started", &[now]) => self.starts.push(now),
            ("stopped" | "end", []) => {}
            _ => panic!("{line}"),
        }
    }

    /// A line of the tool's: of an id that was retired nothing follows.
    fn note_id(&mut self, word: &str, numbers: &[u64]) {
        let (id, end_ns) = match (word, numbers) {
            ("kernel" | "copy", &[id, _, _, _, end_ns, ..]) => (id, end_ns),
            ("call", &[_, _, id, .., end_ns]) => (id, end_ns),
            ("allocation-record", &[_, id, _, _, _, end_ns, ..]) => (id, end_ns),
            // When it was told is not said.
            ("enter" | "exit", &[_, _, id, ..]) => (id, 0),
            ("retired", &[id, time_ns]) => {
                let id = self.ids.entry(id).or_default();
                assert_eq!(id.retired_ns.replace(time_ns), None, "twice");
                return;
            }
            _ => return,
        };
        let id = self.ids.entry(id).or_default();
        assert_eq!(id.retired_ns, None, "{word} {numbers:?} of an id that was retired");
        id.records += 1;
        id.end_ns = end_ns.max(id.end_ns);
    }

    /// A line of a code object, or of a kernel.
    fn take_load(&mut self, word: &str, rest: &str) {
        let fields: Vec<&str> = rest.splitn(5, ' ').collect();
        let number = |at: usize| fields[at].parse::<u64>().expect("a number");
        match word {
            "load" => {
                let (agent, bytes, uri) = (number(1), number(2), fields[3]);
                let is_named = uri.starts_with("file://") || uri.starts_with("memory://");
                assert!(bytes > 0 && is_named && agent > FIRST_AGENT, "{rest}");
                assert_eq!(self.objects.insert(number(0), (agent, false)), None, "{rest}");
            }
            "unload" => {
                let (_, is_unloaded) = self.objects.get_mut(&number(0)).expect("loaded");
                assert!(!std::mem::replace(is_unloaded, true), "{rest}");
            }
            "load-kernel" => {
                let (object, vector_registers) = (number(1), number(2));
                assert!(!self.objects[&object].1 && number(3) > 0, "{rest}");
                let name = fields[4].strip_suffix(".kd").expect("a descriptor").to_owned();
                let symbol = Symbol { name, object, vector_registers, is_unloaded: false };
                assert!(self.symbols.insert(number(0), symbol).is_none(), "{rest}");
            }
            "unload-kernel" => {
                let symbol = self.symbols.get_mut(&number(0)).expect("loaded");
                assert!(self.objects[&symbol.object].1, "{rest}");
                assert!(!std::mem::replace(&mut symbol.is_unloaded, true), "{rest}");
            }
            _ => panic!("{word} {rest}"),
        }
    }
}
