//! Thunks in tables that look like the runtime's, in a process of their own: there is one state.

#![expect(unsafe_code, reason = "tables of function pointers")]

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

use tracer_common::bpf::flag;
use tracer_common::calls::{Call, Wanted};
use tracer_common::hsa_functions::{AMD_EXT, CORE, SLOT_COUNT, SLOTS, slot_of, tables};
use tracer_hooks::abi::ApiTable;
use tracer_hooks::calls::{self, CallSink, CallTables};
use tracer_hooks::phase::Event;
use tracer_hooks::state::STATE;

type Function =
    unsafe extern "C-unwind" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u64;

/// A table: version, then entries.
#[repr(C)]
struct Table {
    version: [u32; 4],
    entries: [AtomicUsize; 125],
}

impl Table {
    fn of(entries: usize, function: Function) -> Self {
        let table = Self {
            version: [1, 16 + 8 * entries as u32, 0, 0],
            entries: [const { AtomicUsize::new(0) }; 125],
        };
        for entry in &table.entries[..entries] {
            entry.store(function as usize, Ordering::Relaxed);
        }
        table
    }

    fn function(&self, index: usize) -> Function {
        // SAFETY: every entry is such a function, or a thunk of one.
        unsafe { core::mem::transmute(self.entries[index].load(Ordering::Relaxed)) }
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
}

impl CallSink for Sink {
    fn begins(&self, call: &mut Call, _: usize) -> bool {
        call.correlation_id = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        true
    }

    fn ends(&self, call: &Call, _: usize) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.ended.lock().expect("not poisoned").push(*call);
    }
}

static SINK: Sink = Sink { open: AtomicU64::new(0), ended: Mutex::new(Vec::new()) };

fn take() -> Vec<Call> {
    assert_eq!(SINK.open.load(Ordering::Relaxed), 0, "every call is told of twice");
    core::mem::take(&mut *SINK.ended.lock().expect("not poisoned"))
}

/// Calls an entry with ten arguments: those on the stack that a function does not have are its
/// caller's business.
fn call(table: &Table, index: usize, first: u64) -> u64 {
    let function = table.function(index);
    // SAFETY: see `Table::function`.
    unsafe { function(first, 2, 3, 4, 5, 6, 7, 8, 9, 10) }
}

fn patch(core: &Table, amd: &Table) {
    let core = core::ptr::from_ref(core).cast::<c_void>();
    let amd = core::ptr::from_ref(amd).cast::<c_void>();
    let root: [u64; 4] = [1 | 32 << 32, 0, core as u64, amd as u64];
    // SAFETY: laid out as `ApiTable`: version, core table, AMD table.
    unsafe { calls::patch(CallTables::of(root.as_ptr().cast::<ApiTable>())) };
}

/// One test: the steps share the one state.
#[test]
fn thunks_pass_everything_on_and_tell_what_they_are_asked_for() {
    let core = Table::of(CORE.len(), original);
    // One entry less than the known ones: a table of an older release.
    let amd = Table::of(AMD_EXT.len() - 1, original);
    let wishes: Vec<u64> = (0..SLOT_COUNT)
        .map(|slot| {
            let args = (slot % 7) as u8;
            let stack_args = SLOTS[slot].stack_words.min(3) as u8;
            Wanted { operation: slot as u16, args, stack_args, out_arg: 0 }.to_word()
        })
        .collect();
    assert!(calls::want(wishes.into_iter(), &SINK));
    assert_eq!(calls::in_place(), 0);
    patch(&core, &amd);
    patch(&core, &amd);
    assert_eq!(calls::in_place(), tables::CORE);
    let init = slot_of("hsa_shut_down").expect("a slot") - 1;
    assert_eq!(
        core.entries[init].load(Ordering::Relaxed),
        original as *const () as usize,
        "left out"
    );

    let every = |each: &dyn Fn(usize, &Table, usize)| {
        for slot in CORE.skip(1) {
            each(slot, &core, slot);
        }
        for slot in AMD_EXT.take(AMD_EXT.len() - 1) {
            each(slot, &amd, slot - AMD_EXT.start);
        }
    };
    let passed = |slot: usize| {
        let called = *CALLED.lock().expect("not poisoned");
        let count = 6 + SLOTS[slot].stack_words;
        let expected: Vec<u64> = std::iter::once(slot as u64 + 1000).chain(2..=10).collect();
        assert_eq!(called[..count], expected[..count], "{}", SLOTS[slot].name);
    };
    // Not yet recording: neither told to begin, nor active.
    every(&|slot, table, index| {
        assert_eq!(call(table, index, slot as u64 + 1000), 0);
        passed(slot);
    });
    calls::begin();
    every(&|slot, table, index| {
        call(table, index, slot as u64 + 1000);
        passed(slot);
    });
    assert_eq!(take(), [], "dormant");

    for event in [Event::Install, Event::Begin] {
        assert!(STATE.phase.apply(event).is_ok());
    }
    every(&|slot, table, index| {
        assert_eq!(call(table, index, slot as u64 + 1000), 0);
        passed(slot);
        let [told] = take()[..] else { panic!("one call") };
        assert_eq!(usize::from(told.operation), slot);
        assert_eq!(usize::from(told.arg_count), slot % 7);
        assert_eq!(told.args[1], 2);
        let stack = SLOTS[slot].stack_words.min(3);
        assert_eq!(
            (usize::from(told.extra_count), told.flags & flag::STACK_ARGS != 0),
            (stack, stack > 0)
        );
        assert_eq!(told.extra[..stack], [7, 8, 9][..stack]);
        assert!(told.begin_ns <= told.end_ns && told.begin_ns > 0);
    });

    // An exception goes through, and the call is told as left.
    let thrown = catch_unwind(AssertUnwindSafe(|| call(&core, 5, 13)));
    assert_eq!(thrown.expect_err("thrown").downcast_ref(), Some(&"thrown"));
    let [told] = take()[..] else { panic!("one call") };
    assert_eq!((told.flags, told.ret), (flag::ENTRY_ONLY, 0));

    // An output is read after success.
    let signal = slot_of("hsa_signal_create").expect("a slot");
    let wanted = Wanted { operation: 1, args: 4, stack_args: 0, out_arg: 1 }.to_word();
    let words = (0..SLOT_COUNT).map(|slot| if slot == signal { wanted } else { 0 });
    calls::want(words, &SINK);
    calls::begin();
    let output = 4711u64;
    call(&core, signal, &raw const output as u64);
    call(&core, 5, 1);
    let [told] = take()[..] else { panic!("only what is wanted") };
    assert_eq!((told.flags, told.extra[0]), (flag::OUT_VALUE, 4711));

    // Nobody tells anything after the end, and neither does a forked child.
    calls::end();
    call(&core, signal, &raw const output as u64);
    calls::begin();
    assert!(STATE.phase.apply(Event::Fork).is_ok());
    call(&core, signal, &raw const output as u64);
    assert_eq!(take(), []);
}
