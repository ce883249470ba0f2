//! Follows stubs through live tables, also where another tool has redirected their entries.

use std::cell::OnceCell;

use clap::ValueEnum;

use super::{
    binary::Binary,
    initial::Initial,
    model::Slot,
    process::{Leads, Loaded, ProcessMemory},
    stub,
    wrapper::Wrappers,
};
use crate::discover::Function;

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

/// Where the stubs of a library led when it was planned. A process may lead its own wherever it likes: the
/// plan holds for those alone in which they lead there too.
pub struct Followed {
    binary: Binary,
    led: Vec<(Slot, Option<u64>)>,
}

impl Followed {
    /// The stubs among `functions`, in `process`.
    pub fn new(
        binary: Binary,
        functions: &[Function],
        process: Option<&dyn ProcessMemory>,
    ) -> Self {
        let slots = functions.iter().filter_map(|f| stub::recognise(&binary, f.address));
        let slots: Vec<Slot> = slots.collect();
        let led = follow(&binary, slots, process);
        Self { binary, led }
    }

    /// Whether they lead to the same places in `process`.
    pub fn holds_in(&self, process: Option<&dyn ProcessMemory>) -> bool {
        let slots = self.led.iter().map(|(slot, _)| *slot);
        follow(&self.binary, slots, process) == self.led
    }
}

/// An address of the image, or of the process where another tool's function is there.
fn follow(
    binary: &Binary,
    slots: impl IntoIterator<Item = Slot>,
    process: Option<&dyn ProcessMemory>,
) -> Vec<(Slot, Option<u64>)> {
    let live = Live::new(binary, Tables { process, ..Tables::default() });
    let led = |slot| match live.follow(slot) {
        Leads::Inside(address) => Some(address),
        Leads::Outside(target) => Some(target.address),
        Leads::Nowhere(_) => None,
    };
    slots.into_iter().map(|slot| (slot, led(slot))).collect()
}
