//! Whether a function of ours may be put into an entry of the runtime's tables.
//!
//! Other tools do what we do: they save the function that stands in an entry and put a function of theirs there that
//! calls it. One that came after us calls us. If we saved its function as the original and put ours there once more,
//! the two would call each other without end. So **the function in an entry is saved as its original only if nobody
//! there can have us below**: we have never been in the entry; or it holds the runtime's own function, beneath which
//! there is nobody; or tables that were made anew hold the function that was beneath us before. An entry that is left
//! alone reaches us already, through the other tool.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::sys;

/// Whether tables have our functions in them, as far as we know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patched {
    /// The runtime has made them afresh.
    NotYet,
    /// Since they were made.
    Already,
}

/// The way in which an entry is treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The function in it is its original, and ours may be put there.
    Ours,
    /// Nothing is done: ours is in it, or another tool's that leads to ours.
    Leave,
    /// Nothing is done: another tool's function is in it that may lead to ours, or not.
    Covered,
}

/// The verdict on `entry`, which holds `current`, before `ours` is put there; `saved` is the original that we have had
/// there, 0 for none.
pub fn verdict(
    entry: &AtomicUsize,
    current: usize,
    ours: usize,
    saved: usize,
    patched: Patched,
) -> Verdict {
    match patched {
        _ if current == ours => Verdict::Leave,
        _ if saved == 0 || is_the_runtimes(entry, current) => Verdict::Ours,
        Patched::Already => Verdict::Leave,
        Patched::NotYet if saved == current => Verdict::Ours,
        Patched::NotYet => Verdict::Covered,
    }
}

/// Whether `function` is in the library that the table is in.
fn is_the_runtimes(entry: &AtomicUsize, function: usize) -> bool {
    let table = sys::library_of(core::ptr::from_ref(entry) as usize);
    table.is_some() && table == sys::library_of(function)
}

/// Puts `to` into `entry` if it still holds `from`.
pub fn replace(entry: &AtomicUsize, from: usize, to: usize) -> bool {
    entry.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_us_below_is_never_an_original() {
        let entry = AtomicUsize::new(0);
        for (current, saved, patched, expected) in [
            (16, 0, Patched::NotYet, Verdict::Ours),
            (16, 0, Patched::Already, Verdict::Ours),
            (16, 16, Patched::NotYet, Verdict::Ours),
            (16, 32, Patched::NotYet, Verdict::Covered),
            (16, 32, Patched::Already, Verdict::Leave),
            (16, 16, Patched::Already, Verdict::Leave),
        ] {
            assert_eq!(verdict(&entry, current, 64, saved, patched), expected);
            assert_eq!(verdict(&entry, 64, 64, saved, patched), Verdict::Leave);
        }
        // In a library's own table its own functions are the last.
        static TABLE: AtomicUsize = AtomicUsize::new(0);
        let own = replace as *const () as usize;
        for patched in [Patched::NotYet, Patched::Already] {
            assert_eq!(verdict(&TABLE, own, 64, 32, patched), Verdict::Ours);
            let other = libc::getpid as *const () as usize;
            assert_ne!(verdict(&TABLE, other, 64, 32, patched), Verdict::Ours);
        }
    }
}
