//! The values of a library's variables when it has just been loaded, worked out from its file.
//!
//! Stubs are followed through tables. The first contents of a table are a property of the file: its bytes, relocations,
//! and the words that the functions of `.init_array` write. Those functions are read, instruction by instruction, and
//! never executed; a function that branches is read up to the branch.

use std::{
    cell::RefCell,
    collections::{BTreeMap, btree_map::Entry},
};

use super::{
    binary::Binary,
    getter::LazyTable,
    model::Slot,
    stub::Stub,
    symbolic::{LoadedMemory, Machine, Value},
};

/// Relocations that are read; large libraries have some 100,000.
const MAX_RELOCATIONS: u64 = 1 << 20;
/// Relocations that are read at once.
const AT_ONCE: u64 = 1 << 15;
/// Bytes of a relocation, and of a symbol.
const ENTRY_BYTES: u64 = 24;
/// Functions of `.init_array` that are read.
const MAX_FUNCTIONS: u64 = 1 << 14;
/// Instructions that are read, all functions together.
const MAX_STEPS: usize = 1 << 18;
/// Bytes of a dynamic section that are read.
const MAX_DYNAMIC: u64 = 1 << 14;
/// Getters of one library whose tables are worked out; HIP has one for its functions and one for the compiler's.
const MAX_GETTERS: usize = 8;

/// The variables of a library that has just been loaded.
pub(super) struct Initial<'a> {
    memory: LoadedMemory<'a>,
    /// The tables that getters make, by the getter and the variable.
    made: RefCell<BTreeMap<(u64, u64), Option<LazyTable>>>,
}

impl<'a> Initial<'a> {
    /// The variables of `binary`.
    pub fn of(binary: &'a Binary) -> Self {
        let dynamic = Dynamic::of(binary);
        let mut memory = LoadedMemory::new(binary, dynamic.relocations(binary));
        let functions = dynamic.get(dynamic::INIT_ARRAY).map_or(0..0, |start| {
            let bytes = dynamic.get(dynamic::INIT_ARRAY_BYTES).unwrap_or(0).min(MAX_FUNCTIONS * 8);
            start..start.saturating_add(bytes)
        });
        let functions: Vec<u64> = functions.step_by(8).filter_map(|at| memory.word(at)).collect();
        let mut machine = Machine::new(&mut memory, MAX_STEPS);
        functions.into_iter().for_each(|function| machine.run(function));
        Self { memory, made: RefCell::default() }
    }

    /// The address of the code that a stub leads to; if its first call makes its table, from that call on.
    pub fn follow(&self, stub: Stub) -> Option<u64> {
        let target = match stub.slot {
            Slot::Variable { address } => self.memory.word(address)?,
            Slot::Table { pointer, offset } => match self.memory.word(pointer)? {
                0 => self.made_by(stub.getter?, pointer, offset)?,
                table => self.memory.word(table.wrapping_add(offset))?,
            },
        };
        self.memory.binary.begins_function(target).then_some(target)
    }

    /// The entry at `offset` of the table that `getter` makes.
    fn made_by(&self, getter: u64, pointer: u64, offset: u64) -> Option<u64> {
        let mut made = self.made.borrow_mut();
        let known = made.len();
        let made = match made.entry((getter, pointer)) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(_) if known == MAX_GETTERS => return None,
            Entry::Vacant(free) => {
                free.insert(LazyTable::at_first_call(&self.memory, getter, pointer))
            }
        };
        made.as_ref()?.entry(&self.memory, offset)
    }
}

/// Tags of the dynamic section.
mod dynamic {
    pub const JUMP_SLOTS_BYTES: u64 = 2;
    pub const SYMBOLS: u64 = 6;
    pub const RELOCATIONS: u64 = 7;
    pub const RELOCATIONS_BYTES: u64 = 8;
    pub const JUMP_SLOTS: u64 = 23;
    pub const INIT_ARRAY: u64 = 25;
    pub const INIT_ARRAY_BYTES: u64 = 27;
}

/// The dynamic section, by tag.
struct Dynamic(BTreeMap<u64, u64>);

impl Dynamic {
    fn of(binary: &Binary) -> Self {
        let section = binary
            .dynamic()
            .and_then(|(address, bytes)| binary.bytes(address, bytes.min(MAX_DYNAMIC) & !15));
        let section = section.unwrap_or_default();
        let (pairs, _) = section.as_chunks::<16>();
        let pair = |bytes: &[u8; 16]| {
            let value = u128::from_le_bytes(*bytes);
            (value as u64, (value >> 64) as u64)
        };
        Self(pairs.iter().map(pair).take_while(|(tag, _)| *tag != 0).collect())
    }

    fn get(&self, tag: u64) -> Option<u64> {
        self.0.get(&tag).copied()
    }

    /// The words that relocations write.
    fn relocations(&self, binary: &Binary) -> BTreeMap<u64, Value> {
        use dynamic::{JUMP_SLOTS, JUMP_SLOTS_BYTES, RELOCATIONS, RELOCATIONS_BYTES};
        let mut words = BTreeMap::new();
        for (table, bytes) in [(RELOCATIONS, RELOCATIONS_BYTES), (JUMP_SLOTS, JUMP_SLOTS_BYTES)] {
            let (Some(table), Some(bytes)) = (self.get(table), self.get(bytes)) else { continue };
            let count = (bytes / ENTRY_BYTES).min(MAX_RELOCATIONS);
            for first in (0..count).step_by(AT_ONCE as usize) {
                let at = table.wrapping_add(first * ENTRY_BYTES);
                let bytes = AT_ONCE.min(count - first) * ENTRY_BYTES;
                let entries = binary.bytes(at, bytes).unwrap_or_default();
                let (entries, _) = entries.as_chunks::<{ ENTRY_BYTES as usize }>();
                words.extend(entries.iter().map(|entry| self.relocation(binary, entry)));
            }
        }
        words
    }

    /// A word that is relocated, and its value.
    fn relocation(&self, binary: &Binary, entry: &[u8; ENTRY_BYTES as usize]) -> (u64, Value) {
        const ABSOLUTE: u32 = 1;
        const GLOBAL: u32 = 6;
        const JUMP_SLOT: u32 = 7;
        const RELATIVE: u32 = 8;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| entry[at + i]));
        let (address, info, addend) = (word(0), word(8), word(16));
        let symbol = || self.symbol(binary, info >> 32);
        let value = match info as u32 {
            RELATIVE => Some(addend),
            ABSOLUTE => symbol().map(|symbol| symbol.wrapping_add(addend)),
            GLOBAL | JUMP_SLOT => symbol(),
            _ => None,
        };
        (address, value)
    }

    /// The address of a symbol that the file defines.
    fn symbol(&self, binary: &Binary, index: u64) -> Option<u64> {
        const CHOSEN_BY_A_FUNCTION: u8 = 10;
        let at = self.get(dynamic::SYMBOLS)?.checked_add(index * ENTRY_BYTES)?;
        let entry = binary.bytes(at, ENTRY_BYTES)?;
        let defined = entry[6..8] != [0, 0] && entry[4] & 0xf != CHOSEN_BY_A_FUNCTION;
        defined.then(|| u64::from_le_bytes(std::array::from_fn(|i| entry[8 + i])))
    }
}
