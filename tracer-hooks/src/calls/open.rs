//! A call that passes through one of the thunks, and the sink that receives it.

use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;

use tracer_common::bpf::flag;
use tracer_common::calls::{Call, Wanted};
use tracer_common::slots::SLOT_COUNT;

use crate::abi;
use crate::contained::contained_without_points;
use crate::state::STATE;
use crate::sys;

/// Receives calls.
///
/// Everything is called on the calling thread, so nothing may panic or call the runtimes, and what waits holds up the program.
/// [`begins`](CallSink::begins) and [`ends`](CallSink::ends) are no cancellation points.
/// `at` is an address in the call's stack frame: what lies below belongs to calls inside of it.
pub trait CallSink: Sync {
    /// A call begins. Fills in the ids, and returns how much the sink wants to hear of the call.
    fn begins(&self, call: &mut Call, at: usize) -> Detail;

    /// A call is over.
    fn ends(&self, call: &Call, at: usize);

    /// Right after [`CallSink::begins`], with the words of the arguments on the stack. The thread is in nothing of ours: this
    /// may wait, call the runtime, and throw, which leaves the call.
    fn entered(&self, _call: &Call, _stack: &[u64], _at: usize) {}

    /// The same right after [`CallSink::ends`]. It may not throw where an exception leaves the call.
    fn left(&self, _call: &Call, _at: usize) {}

    /// HIP's tables were patched while something is recorded: their calls can be.
    fn hip_is_patched(&self) {}
}

/// How much of a call that has begun the [`CallSink`] wants to hear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Nothing: it is not recorded.
    Nothing,
    /// When it [ends](CallSink::ends).
    End,
    /// As [`Detail::End`], and when it was [entered](CallSink::entered) and [left](CallSink::left).
    All,
}

/// A function in the tables of a runtime: whether its calls are recorded, and what stood in its entry.
pub struct SlotState {
    /// The parts of the call that are recorded now: a [`Wanted`] word.
    pub wanted: AtomicU64,
    /// The parts that are to be recorded whenever we record.
    pub wish: AtomicU64,
    /// The function that stood in the entry; 0 while the thunk has not been there.
    pub original: AtomicUsize,
    /// The count of tables that the HSA runtime had made when the thunk was put there.
    pub made: AtomicU32,
}

/// The entries, by slot.
pub static SLOT_STATES: [SlotState; SLOT_COUNT] = [const {
    SlotState {
        wanted: AtomicU64::new(0),
        wish: AtomicU64::new(0),
        original: AtomicUsize::new(0),
        made: AtomicU32::new(0),
    }
}; SLOT_COUNT];

/// The sink that receives the calls.
pub static SINK: OnceLock<&'static dyn CallSink> = OnceLock::new();

/// A call that a thunk is making. Dropped by an exception that leaves the call, too.
pub struct Open {
    call: Call,
    out_arg: u8,
    detail: Detail,
    /// The sink that receives this call.
    sink: Option<&'static dyn CallSink>,
}

impl Open {
    /// A call that no sink has received.
    #[inline]
    pub fn new() -> Self {
        Self { call: Call::default(), out_arg: 0, detail: Detail::Nothing, sink: None }
    }

    #[inline]
    fn at(&self) -> usize {
        ptr::from_ref(self) as usize
    }

    /// A call of `slot` begins while something is recorded.
    #[inline(never)]
    pub fn begin(&mut self, slot: usize, args: &[u64; 6], stack: &[u64]) {
        contained_without_points(|| {
            let word =
                SLOT_STATES.get(slot).map_or(0, |state| state.wanted.load(Ordering::Relaxed));
            let (Some(wanted), Some(&sink)) = (Wanted::from_word(word), SINK.get()) else { return };
            let call = &mut self.call;
            (call.domain, call.operation) = (wanted.domain, wanted.operation);
            call.arg_count = wanted.args;
            call.args = *args;
            if wanted.stack_args > 0 {
                let words = stack.iter().take(wanted.stack_args.into());
                call.extra.iter_mut().zip(words).for_each(|(to, from)| *to = *from);
                call.extra_count = wanted.stack_args.min(stack.len() as u8);
                call.flags = flag::STACK_ARGS;
            }
            self.out_arg = wanted.out_arg;
            call.begin_ns = sys::now_ns();
            let at = self.at();
            self.detail = sink.begins(&mut self.call, at);
            self.sink = (self.detail != Detail::Nothing).then_some(sink);
        });
        if self.detail == Detail::All
            && let Some(sink) = self.sink
        {
            sink.entered(&self.call, stack, self.at());
        }
    }

    /// The call returned `ret`.
    #[inline(never)]
    pub fn returned(&mut self, ret: u64) {
        let Some(sink) = self.sink.take() else { return };
        contained_without_points(|| {
            self.call.end_ns = sys::now_ns();
            self.call.ret = ret;
            self.read_output();
            self.tell(sink);
        });
        self.tell_outside(sink);
    }

    /// Reads what the output argument points at. Only after success: then the function has written
    /// there, and the address is right. All functions with such an argument return a status.
    fn read_output(&mut self) {
        let index = usize::from(self.out_arg).wrapping_sub(1);
        let Some(&address) = self.call.args.get(index) else { return };
        if self.call.ret as u32 == abi::SUCCESS && address != 0 {
            // SAFETY: see above; an output is 8 bytes, at an address of the application's choice.
            self.call.extra[0] = unsafe { (address as *const u64).read_unaligned() };
            self.call.extra_count = 1;
            self.call.flags |= flag::OUT_VALUE;
        }
    }

    fn tell(&self, sink: &dyn CallSink) {
        // In a forked child the thread's ring is its parent's.
        if !STATE.phase.is_inert() {
            sink.ends(&self.call, self.at());
        }
    }

    fn tell_outside(&self, sink: &dyn CallSink) {
        if self.detail == Detail::All && !STATE.phase.is_inert() {
            sink.left(&self.call, self.at());
        }
    }
}

impl Drop for Open {
    #[inline]
    fn drop(&mut self) {
        if let Some(sink) = self.sink.take() {
            contained_without_points(|| {
                self.call.end_ns = sys::now_ns();
                self.call.flags |= flag::ENTRY_ONLY;
                self.tell(sink);
            });
            self.tell_outside(sink);
        }
    }
}
