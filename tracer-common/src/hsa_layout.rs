//! The places of the functions of [`crate::hsa_functions`] in the tables of a release of the HSA runtime.
//!
//! A table begins with its version, 16 bytes whose second word is the table's size, and goes on with one function
//! pointer after the other. The core table and that of images are the same in all releases seen, but for entries that
//! were added at the end. **AMD's extension table changed its order twice**, with ROCm 5.5 and 5.6, which inserted
//! three and two entries in the middle and left the major version at 1: a tool that takes one for an earlier one calls
//! other functions, and passes arguments on to them.
//!
//! So the code checks a table's version against the runtime's exported functions, which are stubs:
//! `mov TABLE(%rip),%rax; jmp *OFFSET(%rax)`. A stub with another offset than the layout's refutes the layout,
//! whatever the version. For a version that nobody has seen every single stub has to confirm the layout.

use core::fmt;
use core::ops::Range;

use crate::hsa_functions::{AMD_EXT, CORE, IMAGE, LEFT_OUT, SLOTS, slot};

/// Bytes of a table's version, after which its entries begin.
pub const VERSION_BYTES: u64 = 16;
/// Bytes of an entry.
const ENTRY_BYTES: u64 = 8;

/// The orders of `AmdExtTable`'s entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AmdExtLayout {
    /// ROCm 4.5 to 5.4.
    Before5_5,
    /// ROCm 5.5, which inserted three entries in the middle.
    Of5_5,
    /// ROCm 5.6 and later: seen in 5.7, 6.4 and 7.2, each of which only added entries at the end.
    Since5_6,
}

/// The slots of `AmdExtTable` that ROCm 5.4 has, too.
const BEFORE_5_5: [Range<usize>; 3] = [
    AMD_EXT.start..slot("hsa_amd_memory_async_copy_on_engine"),
    slot("hsa_amd_agent_memory_pool_get_info")..slot("hsa_amd_spm_acquire"),
    slot("hsa_amd_queue_cu_get_mask")..slot("hsa_amd_portable_export_dmabuf"),
];
/// The slots that ROCm 5.5 has.
const OF_5_5: [Range<usize>; 2] = [
    AMD_EXT.start..slot("hsa_amd_memory_async_copy_on_engine"),
    slot("hsa_amd_agent_memory_pool_get_info")..slot("hsa_amd_portable_export_dmabuf"),
];
/// The slots that ROCm 5.6 and later have.
const SINCE_5_6: [Range<usize>; 1] = [AMD_EXT];

impl AmdExtLayout {
    /// The place of the entry of `slot`, bytes from the table's beginning; none if the table has no such entry.
    pub const fn offset(self, slot: usize) -> Option<u64> {
        let ranges: &[Range<usize>] = match self {
            Self::Before5_5 => &BEFORE_5_5,
            Self::Of5_5 => &OF_5_5,
            Self::Since5_6 => &SINCE_5_6,
        };
        let (mut before, mut range) = (0, 0);
        while range < ranges.len() {
            let Range { start, end } = ranges[range];
            if slot >= start && slot < end {
                return Some(entry(before + slot - start));
            }
            before += end - start;
            range += 1;
        }
        None
    }

    /// The layout of a table of a size and major version that were seen.
    const fn of(version: TableVersion) -> Option<Self> {
        match (version.major, version.bytes) {
            (1, 328..=400) => Some(Self::Before5_5),
            (1, 424) => Some(Self::Of5_5),
            (2, 560 | 592 | 624) => Some(Self::Since5_6),
            _ => None,
        }
    }
}

/// The slots of a release in the order of its tables, of which one follows the other. `exports` tells whether its
/// runtime exports a function: each one of the tables, but three.
pub fn slots_of_release(exports: impl Fn(&'static str) -> bool) -> impl Iterator<Item = usize> {
    let slots = SLOTS.iter().map(|slot| slot.name).enumerate();
    let has =
        move |&(_, name): &(usize, &'static str)| NOT_EXPORTED.contains(&name) || exports(name);
    slots.filter(has).map(|(slot, _)| slot)
}

/// The offset of the entry at `position`.
const fn entry(position: usize) -> u64 {
    VERSION_BYTES + position as u64 * ENTRY_BYTES
}

/// `ApiTableVersion`, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableVersion {
    /// Rises when entries change their places, as a rule.
    pub major: u32,
    /// The table's size, which the runtime calls the minor version.
    pub bytes: u32,
}

impl TableVersion {
    /// From a table's first word.
    pub const fn of_word(word: u64) -> Self {
        Self { major: word as u32, bytes: (word >> 32) as u32 }
    }
}

/// Which of the runtime's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    /// `CoreApiTable`.
    Core,
    /// `AmdExtTable`.
    AmdExt,
    /// `ImageExtTable`.
    Image,
}

/// The reason for which the entries of a table are not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mismatch {
    /// It is too short to have what is needed.
    Short(Table, TableVersion),
    /// A function's stub goes to this offset, and the layout has another one.
    Stub(Table, TableVersion, &'static str, u64),
    /// Nobody has seen this version, and the offset of a function's stub cannot be read.
    Unread(Table, TableVersion, &'static str),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (&Self::Short(table, version)
        | &Self::Stub(table, version, ..)
        | &Self::Unread(table, version, _)) = self;
        let table = match table {
            Table::Core => "core",
            Table::AmdExt => "AMD extension",
            Table::Image => "image",
        };
        write!(f, "the HSA {table} table, version {}.{}, ", version.major, version.bytes)?;
        match self {
            Self::Short(..) => write!(f, "is too short"),
            Self::Stub(_, _, function, offset) => {
                let offset = *offset as i64;
                write!(f, "has another order than is known: {function} is at offset {offset}")
            }
            Self::Unread(_, _, function) => write!(
                f,
                "is of no release that is known, and the code of {function} does not tell its place"
            ),
        }
    }
}

/// Whether the core table is as it is known. `stub` tells where a function's exported stub finds its
/// entry, bytes from the table's beginning (beyond its end where that is another table's); none if there
/// is no such stub, or it cannot be read.
///
/// # Errors
///
/// [`Mismatch`].
pub fn core(
    version: TableVersion,
    stub: impl Fn(&'static str) -> Option<u64>,
) -> Result<(), Mismatch> {
    let seen = matches!((version.major, version.bytes), (1 | 2, 1016));
    let offset = |slot: usize| Some(entry(slot - CORE.start));
    let shape = Shape { table: Table::Core, version, seen, needed: &[slot(LAST_OF_CORE)] };
    shape.check(CORE, offset, stub)
}

/// The order of the AMD extension table; `stub` as for [`core()`].
///
/// # Errors
///
/// [`Mismatch`].
pub fn amd_ext(
    version: TableVersion,
    stub: impl Fn(&'static str) -> Option<u64>,
) -> Result<AmdExtLayout, Mismatch> {
    let seen = AmdExtLayout::of(version);
    let check = |layout: AmdExtLayout| {
        let needed = &[slot(LAST_OF_AMD_EXT)];
        let shape = Shape { table: Table::AmdExt, version, seen: seen.is_some(), needed };
        shape.check(AMD_EXT, |slot| layout.offset(slot), &stub).map(|()| layout)
    };
    match seen {
        Some(layout) => check(layout),
        None => check(AmdExtLayout::Since5_6).or_else(|mismatch| {
            let earlier = check(AmdExtLayout::Of5_5).or_else(|_| check(AmdExtLayout::Before5_5));
            earlier.map_err(|_| mismatch)
        }),
    }
}

/// Whether the table of images is as it is known; `stub` as for [`core()`].
///
/// # Errors
///
/// [`Mismatch`].
pub fn image(
    version: TableVersion,
    stub: impl Fn(&'static str) -> Option<u64>,
) -> Result<(), Mismatch> {
    let seen = matches!((version.major, version.bytes), (1 | 2, 120) | (2, 128));
    let offset = |slot: usize| Some(entry(slot - IMAGE.start));
    Shape { table: Table::Image, version, seen, needed: &[] }.check(IMAGE, offset, stub)
}

/// The last function of the core table.
const LAST_OF_CORE: &str = "hsa_executable_iterate_program_symbols";
/// The last function of the extension's that the shim cannot do without.
const LAST_OF_AMD_EXT: &str = "hsa_amd_memory_async_copy_rect";
/// In the table, and no function of the library.
const NOT_EXPORTED: [&str; 3] = [
    "hsa_amd_queue_intercept_create",
    "hsa_amd_queue_intercept_register",
    "hsa_amd_runtime_queue_create_register",
];

/// A table that is to be checked for the entries that it should have.
struct Shape<'a> {
    table: Table,
    version: TableVersion,
    /// Whether its version is one that was seen.
    seen: bool,
    /// Slots that it must be long enough for.
    needed: &'a [usize],
}

impl Shape<'_> {
    fn check(
        &self,
        slots: Range<usize>,
        offset: impl Fn(usize) -> Option<u64>,
        stub: impl Fn(&'static str) -> Option<u64>,
    ) -> Result<(), Mismatch> {
        let &Self { table, version, seen, needed } = self;
        let has = |at: u64| at + ENTRY_BYTES <= u64::from(version.bytes);
        if !needed.iter().all(|&slot| offset(slot).is_some_and(has)) {
            return Err(Mismatch::Short(table, version));
        }
        for slot in slots {
            let Some(function) = SLOTS.get(slot).map(|slot| slot.name) else { continue };
            // One that the table is too short for, or does not have, has no stub either.
            let expected = offset(slot).filter(|&at| has(at));
            match stub(function) {
                Some(found) if Some(found) == expected => {}
                Some(found) => return Err(Mismatch::Stub(table, version, function, found)),
                None if seen || expected.is_none() || needs_no_stub(function) => {}
                None => return Err(Mismatch::Unread(table, version, function)),
            }
        }
        Ok(())
    }
}

/// Whether the place of a function follows from those of its neighbours. `hsa_init` is the first, and no
/// pure stub from ROCm 5.7 on.
fn needs_no_stub(function: &str) -> bool {
    function == LEFT_OUT || NOT_EXPORTED.contains(&function)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hsa_functions::slot_of;

    fn version(major: u32, bytes: u32) -> TableVersion {
        TableVersion { major, bytes }
    }

    /// Stubs of a runtime whose table is as `layout` says, `bytes` long.
    fn stubs(layout: AmdExtLayout, bytes: u32) -> impl Fn(&'static str) -> Option<u64> {
        move |function| {
            let exported = !needs_no_stub(function);
            let offset = slot_of(function).and_then(|slot| layout.offset(slot));
            offset.filter(|&at| exported && at + 8 <= bytes.into())
        }
    }

    #[test]
    fn offsets_are_those_of_the_headers() {
        use AmdExtLayout::{Before5_5, Of5_5, Since5_6};
        for (function, before, of_5_5, since) in [
            ("hsa_amd_coherency_get_type", Some(16), Some(16), 16),
            ("hsa_amd_profiling_set_profiler_enabled", Some(32), Some(32), 32),
            ("hsa_amd_signal_async_handler", Some(72), Some(72), 72),
            ("hsa_amd_memory_async_copy", Some(136), Some(136), 136),
            ("hsa_amd_memory_async_copy_on_engine", None, None, 144),
            ("hsa_amd_memory_copy_engine_status", None, None, 152),
            ("hsa_amd_agent_memory_pool_get_info", Some(144), Some(144), 160),
            ("hsa_amd_signal_create", Some(264), Some(264), 280),
            ("hsa_amd_queue_intercept_create", Some(296), Some(296), 312),
            ("hsa_amd_queue_intercept_register", Some(304), Some(304), 320),
            ("hsa_amd_memory_async_copy_rect", Some(320), Some(320), 336),
            ("hsa_amd_spm_acquire", None, Some(392), 408),
            ("hsa_amd_queue_cu_get_mask", Some(392), Some(416), 432),
            ("hsa_amd_portable_export_dmabuf", None, None, 440),
            ("hsa_amd_signal_wait_all", None, None, 584),
            ("hsa_amd_ais_file_read", None, None, 616),
        ] {
            let slot = slot(function);
            assert_eq!(Before5_5.offset(slot), before, "{function}");
            assert_eq!(Of5_5.offset(slot), of_5_5, "{function}");
            assert_eq!(Since5_6.offset(slot), Some(since), "{function}");
        }
        assert_eq!(Since5_6.offset(AMD_EXT.end), None);
        assert_eq!(Before5_5.offset(AMD_EXT.start - 1), None);
    }

    #[test]
    fn a_version_that_was_seen_needs_no_stubs_and_is_refuted_by_one() {
        use AmdExtLayout::{Before5_5, Of5_5, Since5_6};
        for (major, bytes, layout) in [
            (1, 328, Before5_5),
            (1, 400, Before5_5),
            (1, 424, Of5_5),
            (2, 560, Since5_6),
            (2, 592, Since5_6),
            (2, 624, Since5_6),
        ] {
            let version = version(major, bytes);
            assert_eq!(amd_ext(version, |_| None), Ok(layout));
            assert_eq!(amd_ext(version, stubs(layout, bytes)), Ok(layout));
            let other = if layout == Since5_6 { Before5_5 } else { Since5_6 };
            let refuted = amd_ext(version, stubs(other, bytes));
            assert!(matches!(refuted, Err(Mismatch::Stub(Table::AmdExt, ..))), "{refuted:?}");
        }
        assert_eq!(core(version(2, 1016), |_| None), Ok(()));
        let wrong = |function| (function == "hsa_shut_down").then_some(32);
        let expected = Mismatch::Stub(Table::Core, version(1, 1016), "hsa_shut_down", 32);
        assert_eq!(core(version(1, 1016), wrong), Err(expected));
        assert_eq!(image(version(2, 128), |_| None), Ok(()));
    }

    #[test]
    fn an_unknown_version_is_what_all_of_its_stubs_say() {
        use AmdExtLayout::{Before5_5, Of5_5, Since5_6};
        // ROCm 5.6 as its history tells, a later one, and three that nobody has.
        for (major, bytes, layout) in [
            (1, 456, Since5_6),
            (2, 640, Since5_6),
            (3, 560, Since5_6),
            (2, 400, Before5_5),
            (2, 424, Of5_5),
        ] {
            let version = version(major, bytes);
            assert_eq!(amd_ext(version, stubs(layout, bytes)), Ok(layout), "{version:?}");
            let nothing = amd_ext(version, |_| None);
            assert!(matches!(nothing, Err(Mismatch::Unread(..))), "{nothing:?}");
            // One that cannot be read is one too many.
            let all = stubs(layout, bytes);
            let gap = |function| all(function).filter(|_| function != "hsa_amd_memory_unlock");
            assert!(amd_ext(version, gap).is_err());
            // So is one that goes elsewhere, such as through another table.
            let all = stubs(layout, bytes);
            let astray = |function| match all(function) {
                Some(_) if function == "hsa_amd_memory_lock" => Some(u64::MAX - 7),
                offset => offset,
            };
            assert!(amd_ext(version, astray).is_err());
        }
        assert!(amd_ext(version(1, 320), |_| None).is_err());
        assert!(core(version(3, 1024), |_| None).is_err());
        let all = |function| {
            let at = slot_of(function)?;
            CORE.contains(&at).then(|| entry(at))
        };
        assert_eq!(core(version(3, 1024), all), Ok(()));
        assert_eq!(
            core(version(2, 1008), all),
            Err(Mismatch::Short(Table::Core, version(2, 1008)))
        );
    }
}
