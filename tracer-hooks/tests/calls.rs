//! Thunks in tables that look like the runtime's, in a process of their own: there is one state.

#![expect(unsafe_code, reason = "tables of function pointers")]

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

use tracer_common::bpf::flag;
use tracer_common::calls::{Call, Wanted};
use tracer_common::hsa_functions::{AMD_EXT, CORE, IMAGE, SLOT_COUNT, slot_of};
use tracer_common::hsa_layout::AmdExtLayout::{self, Before5_5, Of5_5, Since5_6};
use tracer_common::slots::tables;
use tracer_hooks::Tables;
use tracer_hooks::abi::ApiTable;
use tracer_hooks::calls::{self, CallSink, Detail};
use tracer_hooks::phase::Event;
use tracer_hooks::state::STATE;

type Function =
    unsafe extern "C-unwind" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u64;

/// A table: version, then entries.
#[repr(C)]
struct Table {
    version: [AtomicU32; 4],
    entries: [AtomicUsize; 125],
}

impl Table {
    const fn empty() -> Self {
        Self {
            version: [const { AtomicU32::new(0) }; 4],
            entries: [const { AtomicUsize::new(0) }; 125],
        }
    }

    fn fill(&self, major: u32, entries: usize) {
        self.version[0].store(major, Ordering::Relaxed);
        self.version[1].store(16 + 8 * entries as u32, Ordering::Relaxed);
        for entry in &self.entries[..entries] {
            entry.store(original as *const () as usize, Ordering::Relaxed);
        }
    }

    /// What stands at `offset`.
    fn function(&self, offset: u64) -> Function {
        let index = (offset as usize - 16) / 8;
        // SAFETY: every entry is such a function, or a thunk of one.
        unsafe { core::mem::transmute(self.entries[index].load(Ordering::Relaxed)) }
    }
}

/// The tables of a release.
struct Release {
    layout: AmdExtLayout,
    major: u32,
    core: Table,
    amd: Table,
    image: Table,
    /// How many entries the tables have.
    amd_entries: usize,
    image_entries: usize,
    /// Offsets in the AMD table of the functions that have words on the stack, and how many: counted in
    /// the release's own headers.
    with_stack: &'static [(u64, usize)],
}

/// In this program, as are the functions: as the runtime's are in its library.
static RELEASES: [Release; 3] = [
    Release {
        layout: Before5_5,
        major: 1,
        core: Table::empty(),
        amd: Table::empty(),
        image: Table::empty(),
        amd_entries: 48,
        image_entries: 13,
        with_stack: &[(88, 1), (136, 2), (200, 2), (296, 2), (320, 4), (336, 1)],
    },
    Release {
        layout: Of5_5,
        major: 1,
        core: Table::empty(),
        amd: Table::empty(),
        image: Table::empty(),
        amd_entries: 51,
        image_entries: 13,
        with_stack: &[(88, 1), (136, 2), (200, 2), (296, 2), (320, 4), (336, 1)],
    },
    Release {
        layout: Since5_6,
        major: 2,
        core: Table::empty(),
        amd: Table::empty(),
        image: Table::empty(),
        amd_entries: 76,
        image_entries: 14,
        with_stack: &[
            (88, 1),
            (136, 2),
            (144, 4),
            (216, 2),
            (312, 2),
            (336, 4),
            (352, 1),
            (584, 1),
        ],
    },
];

impl Release {
    fn patch(&'static self) {
        let address = |table: &'static Table| core::ptr::from_ref(table) as u64;
        let root: &'static [u64; 6] = Box::leak(Box::new([
            u64::from(self.major) | 48 << 32,
            0,
            address(&self.core),
            address(&self.amd),
            0,
            address(&self.image),
        ]));
        // SAFETY: laid out as `ApiTable`; all of it stays.
        let tables = unsafe { Tables::of(root.as_ptr().cast::<ApiTable>()) };
        calls::patch(&tables.expect("known"));
    }

    /// Each function: its slot, its table, where it is there, how many words it takes from the stack.
    fn every(&'static self, each: impl Fn(usize, &Table, u64, usize)) {
        let words = |of: &[(u64, usize)], offset| {
            of.iter().find(|(at, _)| *at == offset).map_or(0, |(_, words)| *words)
        };
        for slot in CORE.skip(1) {
            let offset = 16 + 8 * slot as u64;
            each(slot, &self.core, offset, words(&[(72, 2)], offset));
        }
        let mut seen = 0;
        for slot in AMD_EXT {
            if let Some(offset) = self.layout.offset(slot) {
                each(slot, &self.amd, offset, words(self.with_stack, offset));
                seen += 1;
            }
        }
        assert_eq!(seen, self.amd_entries);
        for slot in IMAGE.take(self.image_entries) {
            let offset = 16 + 8 * (slot - IMAGE.start) as u64;
            each(slot, &self.image, offset, words(&[(104, 1), (112, 2)], offset));
        }
    }
}

/// What the last call was called with.
static CALLED: Mutex<[u64; 10]> = Mutex::new([0; 10]);

unsafe extern "C-unwind" fn original(
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
    g: u64,
    h: u64,
    i: u64,
    j: u64,
) -> u64 {
    *CALLED.lock().expect("not poisoned") = [a, b, c, d, e, f, g, h, i, j];
    if a == 13 {
        resume_unwind(Box::new("thrown"));
    }
    0
}

/// Keeps what it is told.
struct Sink {
    open: AtomicU64,
    ended: Mutex<Vec<Call>>,
    /// Words on the stack of calls that were entered, and how many were left since.
    entered: Mutex<Vec<Vec<u64>>>,
    left: AtomicU64,
}

impl CallSink for Sink {
    fn begins(&self, call: &mut Call, _: usize) -> Detail {
        call.correlation_id = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        Detail::All
    }

    fn ends(&self, call: &Call, _: usize) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.ended.lock().expect("not poisoned").push(*call);
    }

    fn entered(&self, call: &Call, stack: &[u64], _: usize) {
        assert_ne!(self.open.load(Ordering::Relaxed), 0, "after its begin");
        self.entered.lock().expect("not poisoned").push(stack.to_vec());
        if call.args[0] == 17 {
            resume_unwind(Box::new("refused"));
        }
    }

    fn left(&self, call: &Call, _: usize) {
        let last = self.ended.lock().expect("not poisoned").last().copied();
        assert_eq!(last.map(|last| last.correlation_id), Some(call.correlation_id));
        self.left.fetch_add(1, Ordering::Relaxed);
    }
}

static SINK: Sink = Sink {
    open: AtomicU64::new(0),
    ended: Mutex::new(Vec::new()),
    entered: Mutex::new(Vec::new()),
    left: AtomicU64::new(0),
};

/// The words on the stack of calls that were entered, as many as were left.
fn take_entered() -> Vec<Vec<u64>> {
    let entered = core::mem::take(&mut *SINK.entered.lock().expect("not poisoned"));
    assert_eq!(SINK.left.swap(0, Ordering::Relaxed), entered.len() as u64);
    entered
}

fn take() -> Vec<Call> {
    assert_eq!(SINK.open.load(Ordering::Relaxed), 0, "every call is told of twice");
    core::mem::take(&mut *SINK.ended.lock().expect("not poisoned"))
}

/// Calls an entry with ten arguments: those on the stack that a function does not have are its
/// caller's business.
fn call(table: &Table, offset: u64, first: u64) -> u64 {
    let function = table.function(offset);
    // SAFETY: see `Table::function`.
    unsafe { function(first, 2, 3, 4, 5, 6, 7, 8, 9, 10) }
}

/// One test: the steps share the one state.
#[test]
fn thunks_pass_everything_on_and_tell_what_they_are_asked_for() {
    let wishes: Vec<u64> = (0..SLOT_COUNT)
        .map(|slot| {
            let args = (slot % 7) as u8;
            Wanted { operation: slot as u16, args, stack_args: 3, ..Wanted::default() }.to_word()
        })
        .collect();
    assert!(calls::want(wishes.into_iter(), &SINK));
    assert_eq!(calls::in_place(), 0);
    for release in &RELEASES {
        release.core.fill(release.major, CORE.len());
        release.amd.fill(release.major, release.amd_entries);
        release.image.fill(release.major, release.image_entries);
        release.patch();
        release.patch();
        assert_eq!(calls::in_place(), tables::CORE | tables::IMAGE);
        let init = release.core.entries[0].load(Ordering::Relaxed);
        assert_eq!(init, original as *const () as usize, "left out");
    }

    let passed = |slot: usize, words: usize| {
        let called = *CALLED.lock().expect("not poisoned");
        let expected: Vec<u64> = std::iter::once(slot as u64 + 1000).chain(2..=10).collect();
        assert_eq!(called[..6 + words], expected[..6 + words], "slot {slot}");
    };
    let called = |slot: usize, table: &Table, offset: u64, words: usize| {
        *CALLED.lock().expect("not poisoned") = [0; 10];
        assert_eq!(call(table, offset, slot as u64 + 1000), 0);
        passed(slot, words);
    };
    // Not yet recording: neither told to begin, nor active.
    RELEASES.iter().for_each(|release| release.every(called));
    calls::begin(0..SLOT_COUNT);
    RELEASES.iter().for_each(|release| release.every(called));
    assert_eq!(take(), [], "dormant");

    for event in [Event::Install, Event::Begin] {
        assert!(STATE.phase.apply(event).is_ok());
    }
    for release in &RELEASES {
        release.every(|slot, table, offset, words| {
            called(slot, table, offset, words);
            let [recorded] = take()[..] else { panic!("one call") };
            assert_eq!(usize::from(recorded.operation), slot);
            assert_eq!(usize::from(recorded.arg_count), slot % 7);
            assert_eq!(recorded.args[1], 2);
            // As many as there are, of the three that were asked for.
            let stack = words.min(3);
            assert_eq!(usize::from(recorded.extra_count), stack, "slot {slot}");
            assert_eq!(recorded.extra[..stack], [7, 8, 9][..stack]);
            assert!(recorded.begin_ns <= recorded.end_ns && recorded.begin_ns > 0);
            assert_eq!(take_entered(), [[7, 8, 9, 10][..words].to_vec()], "slot {slot}");
        });
    }

    // An exception goes through, and the call is told as left.
    let [Release { core, .. }, ..] = &RELEASES;
    let thrown = catch_unwind(AssertUnwindSafe(|| call(core, 56, 13)));
    assert_eq!(thrown.expect_err("thrown").downcast_ref(), Some(&"thrown"));
    let [recorded] = take()[..] else { panic!("one call") };
    assert_eq!((recorded.flags & flag::ENTRY_ONLY, recorded.ret), (flag::ENTRY_ONLY, 0));
    assert_eq!(take_entered().len(), 1);

    // Who is told of a begin refuses it: the function is not called.
    *CALLED.lock().expect("not poisoned") = [0; 10];
    let refused = catch_unwind(AssertUnwindSafe(|| call(core, 56, 17)));
    assert_eq!(refused.expect_err("refused").downcast_ref(), Some(&"refused"));
    let [recorded] = take()[..] else { panic!("one call") };
    assert_eq!(recorded.flags & flag::ENTRY_ONLY, flag::ENTRY_ONLY);
    assert_eq!((take_entered().len(), *CALLED.lock().expect("not poisoned")), (1, [0; 10]));

    // An output is read after success.
    let signal = slot_of("hsa_signal_create").expect("a slot");
    let wanted = Wanted { operation: 1, args: 4, out_arg: 1, ..Wanted::default() }.to_word();
    let words = (0..SLOT_COUNT).map(|slot| if slot == signal { wanted } else { 0 });
    calls::want(words, &SINK);
    calls::begin(0..SLOT_COUNT);
    let output = 4711u64;
    let create = || call(core, 312, &raw const output as u64);
    create();
    call(core, 56, 1);
    let [recorded] = take()[..] else { panic!("only what is wanted") };
    assert_eq!((recorded.flags, recorded.extra[0]), (flag::OUT_VALUE, 4711));

    // Nobody tells anything after the end, and neither does a forked child.
    calls::end();
    create();
    calls::begin(0..SLOT_COUNT);
    assert!(STATE.phase.apply(Event::Fork).is_ok());
    create();
    assert_eq!(take(), []);
}
