//! Calls of the HSA runtime and of HIP, recorded as they pass through their tables: HIP's are found by [`hip`].
//!
//! A function of [`thunks`] stands in each entry whose calls somebody wants, in front of everything
//! else, our own hooks among it. While its calls are not wanted, one costs a load, a branch and a
//! jump. Else a [`CallSink`] is told when it begins and when it is over.
//!
//! Calls that our own code makes go to the saved originals and do not pass here. Exceptions that the
//! application's callbacks throw do: a thunk is an ordinary function with unwind tables.

#![expect(unsafe_code, reason = "the runtime's tables, the application's arguments")]

mod hip;
mod open;
mod thunks;

use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use tracer_common::calls::Wanted;
use tracer_common::hsa_functions::{AMD_EXT, CORE, IMAGE, LEFT_OUT, SLOTS};
use tracer_common::slots::{self, tables};

use crate::abi::Version;
use crate::originals::{self, Patched, Verdict};
use crate::runtime::Tables;

pub use hip::{follow as follow_hip, patch as patch_hip};
pub use open::{CallSink, Detail};
use open::{SINK, SLOT_STATES, SlotState};

/// The number of times that the HSA runtime made its tables. HIP's are made once.
static MADE: AtomicU32 = AtomicU32::new(1);

/// Sets the calls that are to be recorded whenever we record, as [`Wanted`] words by slot, and the sink that receives
/// them. True if there are any.
pub fn want(wishes: impl Iterator<Item = u64>, sink: &'static dyn CallSink) -> bool {
    SINK.get_or_init(|| sink);
    let mut any = false;
    for (state, wish) in SLOT_STATES.iter().zip(wishes) {
        let wish = Wanted::from_word(wish).map_or(0, Wanted::to_word);
        state.wish.store(wish, Ordering::Relaxed);
        any |= wish != 0;
    }
    any
}

/// The runtime has made its tables anew: no thunk is in them.
pub(crate) fn on_new_tables() {
    MADE.fetch_add(1, Ordering::AcqRel);
}

/// Puts thunks into the entries of wanted functions, in front of what stands there, where that is
/// right: see [`originals`].
///
/// To be called when the hooks are installed, since the tables are known to be right then.
pub fn patch(tables: &Tables) {
    let &Tables { core, amd, layout, image } = tables;
    let at = |table: &'static Version, slots: Range<usize>| {
        let first = slots.start;
        let offset = |slot: usize| Some(size_of::<Version>() + 8 * (slot - first));
        patch_table(table, slots, offset);
    };
    at(&core.version, CORE);
    patch_table(amd.version, AMD_EXT, |slot| layout.offset(slot).map(|at| at as usize));
    if let Some(image) = image {
        at(image, IMAGE);
    }
}

/// As [`patch`], a table of a known layout: `offset` tells where the entry of each of its `slots` is.
fn patch_table(
    table: &'static Version,
    slots: Range<usize>,
    offset: impl Fn(usize) -> Option<usize>,
) {
    for slot in slots {
        let (Some(state), Some(function)) = (SLOT_STATES.get(slot), SLOTS.get(slot)) else {
            continue;
        };
        let has = |at: &usize| at + size_of::<AtomicUsize>() <= table.minor as usize;
        let Some(offset) = offset(slot).filter(has) else { continue };
        if state.wish.load(Ordering::Relaxed) == 0 || function.name == LEFT_OUT {
            continue;
        }
        // SAFETY: the table is as long as its version says, as the code that accepted it has checked, and made of
        // words, which others may call through at any time.
        let entry = unsafe { &*ptr::from_ref(table).byte_add(offset).cast::<AtomicUsize>() };
        state.cover(entry, thunks::address(slot), MADE.load(Ordering::Acquire));
    }
}

impl SlotState {
    /// Puts `thunk` into `entry`, if what is there can be its original. The table is the `made`th of its kind.
    fn cover(&self, entry: &AtomicUsize, thunk: usize, made: u32) {
        loop {
            // Acquire pairs with the store by which we or another tool put a function there.
            let current = entry.load(Ordering::Acquire);
            if current == 0 {
                return;
            }
            // Acquire, here and below, pairs with the Releases that follow.
            let same = self.made.load(Ordering::Acquire) == made;
            let patched = if same { Patched::Already } else { Patched::NotYet };
            let saved = self.original.load(Ordering::Acquire);
            if originals::verdict(entry, current, thunk, saved, patched) != Verdict::Ours {
                return;
            }
            // Before the thunk can be called.
            self.original.store(current, Ordering::Release);
            self.made.store(made, Ordering::Release);
            if originals::replace(entry, current, thunk) {
                return;
            }
        }
    }
}

/// The function that an entry of the HSA runtime's tables leads to behind our thunk, if the thunk stands there.
pub(crate) fn beneath(address: usize) -> usize {
    let mut slots = slots::HSA;
    let slot = slots.find(|&slot| thunks::address(slot) == address && address != 0);
    let state = slot.and_then(|slot| SLOT_STATES.get(slot));
    // Acquire pairs with the Release in `cover`.
    state.map_or(address, |state| state.original.load(Ordering::Acquire))
}

/// The function of a slot's entry, which our thunk leads to; 0 while that has not been there.
pub fn original(slot: usize) -> usize {
    // Acquire pairs with the Release in `cover`.
    SLOT_STATES.get(slot).map_or(0, |state| state.original.load(Ordering::Acquire))
}

/// The tables in which thunks are whose calls are wanted: bits of [`tables`].
pub fn in_place() -> u8 {
    let mut bits = hip::in_place();
    for (slot, state) in SLOT_STATES.iter().enumerate().take(slots::HSA.end) {
        let wanted = state.wish.load(Ordering::Relaxed) != 0;
        // Acquire pairs with the Release in `cover`.
        if wanted && state.original.load(Ordering::Acquire) != 0 {
            bits |= tables::of_slot(slot);
        }
    }
    bits
}

/// Begins to record the wanted parts of calls of these slots.
pub fn begin(slots: Range<usize>) {
    for state in SLOT_STATES.get(slots).into_iter().flatten() {
        state.wanted.store(state.wish.load(Ordering::Relaxed), Ordering::Release);
    }
}

/// Begins or stops to record the calls of a slot that [`want`] named.
pub fn record(slot: usize, on: bool) {
    if let Some(state) = SLOT_STATES.get(slot) {
        let wanted = if on { state.wish.load(Ordering::Relaxed) } else { 0 };
        state.wanted.store(wanted, Ordering::Release);
    }
}

/// Stops to record. Calls that are open are told of when they end.
pub fn end() {
    for state in &SLOT_STATES {
        state.wanted.store(0, Ordering::Release);
    }
}
