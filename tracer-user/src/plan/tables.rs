//! Follows stubs through live tables, also where another tool has redirected their entries.

use std::cell::OnceCell;

use clap::ValueEnum;

use super::{
    binary::Binary,
    model::Slot,
    process::{Leads, Loaded, ProcessMemory},
    wrapper::Wrappers,
};

/// Where functions are probed whose table entries another tool has redirected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Redirected {
    /// Behind the other tool, in the library: the calls that it passes on, and as it does.
    #[default]
    Implementation,
    /// At the other tool's function, which the table leads to: the calls as the program makes them; the
    /// implementation where that tool's function cannot be probed cheaply.
    Wrapper,
}

/// The tables that the stubs of a library are followed through.
#[derive(Clone, Copy, Default)]
pub struct Tables<'a> {
    /// The process that is to be probed; none when it does not run yet.
    pub process: Option<&'a dyn ProcessMemory>,
    /// A process in which nobody has redirected an entry. It is looked at only when it is needed: where
    /// `process` has not mapped the library, and for entries that are redirected there.
    pub untouched: Option<&'a dyn ProcessMemory>,
    /// Where functions are probed whose entry is redirected in `process`.
    pub redirected: Redirected,
}

/// A library in those processes.
pub(super) struct Live<'a> {
    binary: &'a Binary,
    tables: Tables<'a>,
    process: Option<Loaded<'a>>,
    untouched: OnceCell<Option<Loaded<'a>>>,
}

impl<'a> Live<'a> {
    pub fn new(binary: &'a Binary, tables: Tables<'a>) -> Self {
        let process = tables.process.and_then(|process| Loaded::find(process, binary));
        Self { binary, tables, process, untouched: OnceCell::new() }
    }

    /// Follows a stub's slot in the process to be probed; where that has not mapped the library, in the
    /// untouched one.
    pub fn follow(&self, slot: Slot) -> Leads {
        match &self.process {
            Some(process) => process.follow(slot),
            None => self.follow_untouched(slot),
        }
    }

    /// Follows a stub's slot in the untouched process.
    pub fn follow_untouched(&self, slot: Slot) -> Leads {
        let find = || self.tables.untouched.and_then(|process| Loaded::find(process, self.binary));
        match self.untouched.get_or_init(find) {
            Some(untouched) => untouched.follow(slot),
            None => Leads::Nowhere("no process that has mapped the library"),
        }
    }

    /// The wrappers behind the entries at `slots`, where those are to be probed.
    pub fn wrappers(&self, slots: impl IntoIterator<Item = Slot>) -> Option<Wrappers<'a>> {
        let (Some(process), Some(loaded), Redirected::Wrapper) =
            (self.tables.process, &self.process, self.tables.redirected)
        else {
            return None;
        };
        let leads = slots.into_iter().map(|slot| (slot, loaded.follow(slot)));
        Some(Wrappers::new(process, leads))
    }
}
