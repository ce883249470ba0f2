//! HIP's dispatch tables (6.0 and later): found in the library that is loaded, and patched.
//!
//! HIP makes each table when one of its functions is first called. Before that there is nothing to patch:
//! [`follow`] looks again when the process goes on to use the HSA runtime, as HIP does at its first call that
//! needs a GPU.
//!
//! This code calls nothing of HIP. The exported functions of HIP say where the tables are, and which entry belongs to
//! which function ([`tracer_common::hip_wrappers`]). Calls of a function whose code is not as known are left to other
//! sources, and so are all calls of HIP where several HIP libraries are loaded, each of which has tables of its own.

use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tracer_common::hip_functions::{COMPILER, LEFT_OUT, RUNTIME, SLOT_COUNT, SLOTS, offset};
use tracer_common::hip_wrappers::{Code, Getter, Getters};
use tracer_common::slots::{self, tables};

use super::open::{SINK, SLOT_STATES};
use super::thunks;
use crate::lock::Lock;
use crate::state::STATE;
use crate::sys;

/// The beginning of the file's name.
const NAME: &[u8] = b"libamdhip64";
/// Entries of a table that is believed, at most.
const MAX_ENTRIES: usize = 4 * SLOT_COUNT;

/// HIP makes its tables once.
const MADE_ONCE: u32 = 1;

/// The tables in which functions of ours are, as they were wanted last: bits of [`tables`].
static IN_PLACE: AtomicU8 = AtomicU8::new(0);
/// The tables that are wanted and that HIP had not made yet.
static AWAITED: AtomicU8 = AtomicU8::new(0);
/// HIP, as [`patch`] found it last.
static FOUND: Lock<Option<Library>> = Lock::new(None);

/// The tables in which functions of ours are whose calls are wanted.
pub fn in_place() -> u8 {
    // Acquire pairs with the Release in `cover`.
    IN_PLACE.load(Ordering::Acquire)
}

/// Puts functions of ours into the entries of wanted functions in HIP's tables, as far as these are made by now.
pub fn patch() {
    let wanted =
        |slots: Range<usize>, table| if slots.into_iter().any(is_wanted) { table } else { 0 };
    let Some(mut found) = FOUND.try_lock() else { return };
    IN_PLACE.store(0, Ordering::Relaxed);
    let all = wanted(RUNTIME, tables::HIP) | wanted(COMPILER, tables::HIP_COMPILER);
    *found = if all == 0 { None } else { Library::the_only() };
    AWAITED.store(if found.is_some() { all } else { 0 }, Ordering::Relaxed);
    found.iter().for_each(Library::cover);
}

/// As [`patch`], for tables that HIP had not made when that was called; tells the sink of new ones. Takes no lock of
/// the dynamic linker's: a thread that calls a runtime may hold others.
pub fn follow() {
    if AWAITED.load(Ordering::Relaxed) == 0 {
        return;
    }
    let before = in_place();
    if let Some(found) = FOUND.try_lock() {
        found.iter().for_each(Library::cover);
    }
    if in_place() != before
        && STATE.active()
        && let Some(sink) = SINK.get()
    {
        sink.hip_is_patched();
    }
}

/// Whether calls of a slot of HIP's are wanted.
fn is_wanted(slot: usize) -> bool {
    let state = SLOT_STATES.get(slots::HIP.start + slot);
    state.is_some_and(|state| state.wish.load(Ordering::Relaxed) != 0)
        && SLOTS.get(slot).is_some_and(|function| !LEFT_OUT.contains(&function.name))
}

/// A table that is made.
#[derive(Clone, Copy)]
struct Table {
    address: usize,
    /// Its first word.
    bytes: usize,
}

/// HIP.
struct Library {
    extent: sys::Extent,
    getters: Getters,
    /// The functions whose calls go through the tables.
    served: [bool; SLOT_COUNT],
}

impl Library {
    /// HIP, if it is loaded once and has tables. It stays loaded from then on.
    fn the_only() -> Option<Self> {
        let extent = sys::the_only_library(NAME)?;
        let library = sys::Library::of(extent.data)?;
        let own = |address: u64| {
            usize::try_from(address).ok().filter(|at| (extent.begin..extent.data).contains(at))
        };
        let exported = |name: &str| code(library.function(name)?);
        let getters = Getters::find(exported, |address| own(address).and_then(code));
        if getters.of.iter().all(Option::is_none) || !sys::pin(extent.data) {
            return None;
        }
        let mut served = [false; SLOT_COUNT];
        for ((slot, function), served) in SLOTS.iter().enumerate().zip(&mut served) {
            *served = exported(function.name).is_some_and(|code| getters.serve(slot, &code));
        }
        Some(Self { extent, getters, served })
    }

    /// Puts our functions into the awaited tables that are made by now.
    fn cover(&self) {
        let awaited = AWAITED.load(Ordering::Relaxed);
        let [runtime, compiler] = self.getters.of;
        let all = [(RUNTIME, tables::HIP, runtime), (COMPILER, tables::HIP_COMPILER, compiler)];
        for (slots, bit, getter) in all.into_iter().filter(|(_, bit, _)| awaited & bit != 0) {
            let table = getter.and_then(|getter| self.table(getter));
            if let Some(table) = table {
                slots.for_each(|slot| self.cover_entry(table, slot));
                // Release pairs with the Acquire in `in_place`.
                IN_PLACE.fetch_or(bit, Ordering::Release);
            }
            if table.is_some() || getter.is_none() {
                AWAITED.fetch_and(!bit, Ordering::Relaxed);
            }
        }
    }

    /// The table that a getter returns, if it has made it.
    fn table(&self, getter: Getter) -> Option<Table> {
        let made = usize::try_from(getter.made).ok()?;
        let pointer = usize::try_from(getter.table).ok()?;
        if !self.holds(made) || !self.holds(pointer) {
            return None;
        }
        // SAFETY: they can be read, and are variables of the library's own code, of these types. Acquire pairs with
        // what HIP does when the table is made.
        let address = unsafe {
            let is_made = AtomicU8::from_ptr(made as *mut u8).load(Ordering::Acquire) != 0;
            is_made.then(|| AtomicUsize::from_ptr(pointer as *mut usize).load(Ordering::Relaxed))?
        };
        if !address.is_multiple_of(align_of::<usize>()) || !self.holds(address) {
            return None;
        }
        // SAFETY: it can be read, and is a variable of the library's.
        let bytes = unsafe { AtomicUsize::from_ptr(address as *mut usize) }.load(Ordering::Relaxed);
        let entries = (bytes / size_of::<usize>()).wrapping_sub(1);
        let is_sane =
            (1..=MAX_ENTRIES).contains(&entries) && bytes.is_multiple_of(size_of::<usize>());
        let last = address + bytes - size_of::<usize>();
        (is_sane && self.holds(last)).then_some(Table { address, bytes })
    }

    /// Whether the word around `address` is the library's, and can be read.
    fn holds(&self, address: usize) -> bool {
        let word = address & !(align_of::<usize>() - 1);
        (self.extent.begin..self.extent.end).contains(&address)
            && sys::is_readable(word, size_of::<usize>())
    }

    /// Puts our function into the entry of a slot, if calls of it are wanted and pass through there.
    fn cover_entry(&self, table: Table, slot: usize) {
        let is_served = self.served.get(slot).copied().unwrap_or_default();
        let (at, thunk) = (offset(slot), slots::HIP.start + slot);
        if !is_served || !is_wanted(slot) || at + size_of::<usize>() > table.bytes {
            return;
        }
        // SAFETY: the table is as long as it says, and made of words, which others may call through at any time.
        let entry = unsafe { &*((table.address + at) as *const AtomicUsize) };
        if let Some(state) = SLOT_STATES.get(thunk) {
            state.cover(entry, thunks::address(thunk), MADE_ONCE);
        }
    }
}

/// The code at `address`, if as much of it as is looked at can be read.
fn code(address: usize) -> Option<Code> {
    Some(Code { address: address as u64, bytes: sys::read_code(address)? })
}
