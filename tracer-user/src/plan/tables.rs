//! Follows stubs through live tables, also where another tool has redirected their entries.

use std::cell::OnceCell;

use super::{
    binary::Binary,
    initial::Initial,
    model::Slot,
    process::{Destination, Loaded, ProcessMemory},
    stub::{Stub, Stubs},
};
use crate::discover::Function;

/// A library's tables: those of the process, and those that its file makes.
pub(super) struct Live<'a> {
    binary: &'a Binary,
    stubs: Stubs<'a>,
    process: Option<Loaded<'a>>,
    initial: OnceCell<Initial<'a>>,
}

impl<'a> Live<'a> {
    /// The tables of `process`, if it is given and has mapped the library.
    pub fn new(binary: &'a Binary, process: Option<&'a dyn ProcessMemory>) -> Self {
        let process = process.and_then(|process| Loaded::find(process, binary));
        Self { binary, stubs: Stubs::new(binary), process, initial: OnceCell::new() }
    }

    /// The stub at `address`, if the exported function there is one.
    pub fn stub(&self, address: u64) -> Option<Stub> {
        self.stubs.recognise(address)
    }

    /// Follows a stub in the process to be probed; if that does not tell, in the file.
    pub fn follow(&self, stub: Stub) -> Destination {
        let destination = match &self.process {
            Some(process) => process.follow(stub.slot),
            None => Destination::Nowhere(
                "no process has mapped the library, and its file does not tell",
            ),
        };
        match destination {
            Destination::Nowhere(_) => {
                self.follow_initial(stub).map_or(destination, Destination::Inside)
            }
            Destination::Inside(_) | Destination::Outside(_) => destination,
        }
    }

    /// Follows a stub through the table as the file makes it, which no tool has redirected.
    pub fn follow_initial(&self, stub: Stub) -> Option<u64> {
        self.initial.get_or_init(|| Initial::of(self.binary)).follow(stub)
    }
}

/// Where the stubs of a library led when it was planned. A process can make its own stubs lead anywhere: the plan holds
/// only in processes in which they lead to the same places.
pub struct Followed {
    binary: Binary,
    led: Vec<Led>,
}

/// A stub, its target by the file, and its target at the time of planning.
struct Led {
    slot: Slot,
    initial: Option<u64>,
    to: Option<u64>,
}

impl Followed {
    /// Follows the stubs among `functions`, in `process`.
    pub fn new(
        binary: Binary,
        functions: &[Function],
        process: Option<&dyn ProcessMemory>,
    ) -> Self {
        let live = Live::new(&binary, None);
        let loaded = process.and_then(|process| Loaded::find(process, &binary));
        let stubs = functions.iter().filter_map(|f| live.stub(f.address));
        let led = stubs.map(|stub| {
            let (slot, initial) = (stub.slot, live.follow_initial(stub));
            Led { slot, initial, to: led(loaded.as_ref(), slot, initial) }
        });
        let led = led.collect();
        Self { led, binary }
    }

    /// Whether the stubs lead to the same places in `process`.
    pub fn holds_in(&self, process: Option<&dyn ProcessMemory>) -> bool {
        let loaded = process.and_then(|process| Loaded::find(process, &self.binary));
        self.led
            .iter()
            .all(|Led { slot, initial, to }| led(loaded.as_ref(), *slot, *initial) == *to)
    }
}

/// The target of a stub: an address of the image, or of the process if another tool's function is there.
fn led(loaded: Option<&Loaded<'_>>, slot: Slot, initial: Option<u64>) -> Option<u64> {
    match loaded.map(|loaded| loaded.follow(slot)) {
        Some(Destination::Inside(address)) => Some(address),
        Some(Destination::Outside(target)) => Some(target.address),
        Some(Destination::Nowhere(_)) | None => initial,
    }
}
