//! Calls of HSA, which pass through thunks in the runtime's tables ([`tracer_hooks::calls`]): which are recorded.
//!
//! The first `hsa_init` is not told of, since the tables are made inside of it.

use tracer_common::calls::Wanted;
use tracer_common::hsa_functions::SLOT_COUNT;
use tracer_hooks::calls::{self, CallSink};
use tracer_hooks::{Tables, contained};

/// Whose records they are: a library with an interface of its own.
pub trait Client: CallSink + Sized {
    /// What it is told of a function's calls; none of one whose calls it never wants.
    fn wish(&self, slot: usize) -> Option<Wanted>;

    /// Whether calls of a function are to be recorded just now.
    fn is_wanted(&self, slot: usize) -> bool;

    /// Has calls recorded that pass through these tables, as is wanted. Hooks are installed.
    fn patch(&'static self, tables: &Tables) {
        let wish = |slot| self.wish(slot).map_or(0, Wanted::to_word);
        calls::want((0..SLOT_COUNT).map(wish), self);
        contained(|| calls::patch(tables));
        self.record_all();
    }

    /// What is wanted of all functions has changed.
    fn record_all(&self) {
        (0..SLOT_COUNT).for_each(|slot| self.record(slot));
    }

    /// What is wanted of a function has changed.
    fn record(&self, slot: usize) {
        loop {
            let now = self.is_wanted(slot);
            calls::record(slot, now);
            // Another thread may have changed it, and come first.
            if self.is_wanted(slot) == now {
                return;
            }
        }
    }
}
