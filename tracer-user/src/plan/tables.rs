//! Follows stubs through live tables, also where another tool has redirected their entries.

use std::cell::OnceCell;

use clap::ValueEnum;

use super::{
    binary::Binary,
    initial::Initial,
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
    /// Where functions are probed whose entry is redirected in `process`.
    pub redirected: Redirected,
}

/// A library's tables: those of the process, and those that its file makes.
pub(super) struct Live<'a> {
    binary: &'a Binary,
    tables: Tables<'a>,
    process: Option<Loaded<'a>>,
    initial: OnceCell<Initial<'a>>,
}

impl<'a> Live<'a> {
    pub fn new(binary: &'a Binary, tables: Tables<'a>) -> Self {
        let process = tables.process.and_then(|process| Loaded::find(process, binary));
        Self { binary, tables, process, initial: OnceCell::new() }
    }

    /// Follows a stub's slot in the process to be probed; where that does not tell, in the file.
    pub fn follow(&self, slot: Slot) -> Leads {
        let leads = match &self.process {
            Some(process) => process.follow(slot),
            None => Leads::Nowhere("no process has mapped the library, and its file does not tell"),
        };
        match leads {
            Leads::Nowhere(_) => self.follow_initial(slot).map_or(leads, Leads::Inside),
            Leads::Inside(_) | Leads::Outside(_) => leads,
        }
    }

    /// Follows a stub's slot through the table as the file makes it: nobody has redirected anything there.
    pub fn follow_initial(&self, slot: Slot) -> Option<u64> {
        self.initial.get_or_init(|| Initial::of(self.binary)).follow(slot)
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
