//! The table that the first call of a getter makes, worked out from the file.
//!
//! HIP 6 and 7 make their tables at the first call of any function, hundreds of entries one after the other, in the
//! getter that every exported function calls. A function-local static guards the tables. Whether the guard was free
//! is not computed: the getter is read along all its ways, and the tables that they make must agree.

use std::collections::{BTreeMap, BTreeSet};

use super::symbolic::{BranchChoices, LoadedMemory, Machine, Value};

/// Instructions that are read of one getter, on all its ways together; HIP 7's has a thousand on one.
const MAX_STEPS: usize = 1 << 15;

/// A table that is made at the first call.
pub(super) struct LazyTable {
    table: u64,
    /// The words that the first call writes; none if the ways do not agree.
    words: BTreeMap<u64, Value>,
}

impl LazyTable {
    /// The table that the first call of `getter` makes in a library that has just been `loaded`: the call leaves the
    /// table's address in the variable `pointer`, and returns it. None if a way of the getter is not understood, or if
    /// different ways make different tables.
    pub fn at_first_call(loaded: &LoadedMemory<'_>, getter: u64, pointer: u64) -> Option<Self> {
        let (mut table, mut ways) = (None, Vec::new());
        let (mut next, mut steps) = (Some(BranchChoices::default()), MAX_STEPS);
        while let Some(choices) = next {
            let mut memory = loaded.later();
            let (returned, choices, left) = Machine::new(&mut memory, steps).call(getter, choices);
            (next, steps) = (choices.next(), left);
            let (address, returned) = (memory.word(pointer)?, returned?);
            if address == 0 {
                // This is the way of later calls, which find the table made.
                continue;
            }
            if returned != Some(address) || *table.get_or_insert(address) != address {
                return None;
            }
            ways.push(memory);
        }
        let written: BTreeSet<u64> = ways.iter().flat_map(LoadedMemory::written).collect();
        let agreed = |address| {
            let mut words = ways.iter().map(|memory| memory.word(address));
            let first = words.next().flatten();
            first.filter(|_| words.all(|word| word == first))
        };
        let words = written.into_iter().map(|address| (address, agreed(address))).collect();
        Some(Self { table: table?, words })
    }

    /// The word at `offset` in the table, for a library that had been `loaded`.
    pub fn entry(&self, loaded: &LoadedMemory<'_>, offset: u64) -> Value {
        let address = self.table.wrapping_add(offset);
        self.words.get(&address).copied().unwrap_or_else(|| loaded.word(address))
    }
}
