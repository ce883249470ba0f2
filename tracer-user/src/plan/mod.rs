//! Plans where probes go: for each function the cheapest correct site.
//!
//! A probe costs 0.2, 0.4 or 16 µs by the instruction that it is on ([`Class`]), and the first instruction of a
//! function is often the wrong one. `docs/probe-sites.md` has the whole story; this is the planner's promise.
//!
//! # The proof obligation
//!
//! A **site** is a place in a function such that every call which enters the function at its entry executes the
//! instruction at the site **exactly once**, before anything else that matters, with
//!
//! 1. the argument registers `rdi rsi rdx rcx r8 r9` and all memory, including the arguments on the stack, as they were
//!    at the entry, and
//! 2. `rsp` as it was at the entry, pointing at the return address: only then is the argument `n` of
//!    the stack where the record looks for it, and only then may a return probe be placed there.
//!
//! The entry itself is a site, trivially. A place behind it is one if
//!
//! - (a) each instruction before it goes on to the next (no branch, call, return, trap), and writes none of those
//!   registers and no memory: so (1) and (2) hold, and a call that enters at the entry arrives;
//! - (b) no branch of the function lands between the entry and the site or on either: so a call that has passed the
//!   site does not pass it again. Direct branches are decoded, all of them; indirect jumps are ruled out by the unwind
//!   tables (`branches`);
//! - (c) the unwind tables, which the compiler wrote independently of the code, say that a function
//!   begins at the entry and that the CFA is `rsp + 8` from there to the site.
//!
//! If (b) or (c) cannot be shown, or tables are missing or disagree with the symbol, the site is the entry, and a
//! [`Note`] says why. It is assumed and not shown that no code outside jumps into the middle of a function, and that no
//! exception handler begins there (its frame is set up, so (c) excludes it as it does indirect jumps). A property test
//! executes random functions against all of this.
//!
//! # Stubs
//!
//! Exported functions that only pass the call on (all of `hsa_*`, most of HIP 6 and 7's) are followed
//! to their implementations through the process's live table, or the one that the file makes when it is
//! loaded or first called, and planned there.

mod binary;
mod branches;
mod fuzz;
mod getter;
mod hip_served;
mod initial;
mod kernel;
mod live;
mod model;
mod process;
mod prologue;
mod stub;
mod switch;
mod symbolic;
mod tables;
mod unwind;

#[cfg(test)]
mod tests;

pub use binary::{Binary, Identity, PlanError};
pub(crate) use fuzz::Echo;
pub use fuzz::fuzz_plan;
pub use hip_served::HipServed;
pub use kernel::{Class, KernelVersion, Refusal, classify, dispatch_site};
pub use live::{LocateError, Located};
pub use model::{
    FunctionPlan, NotMoved, Note, OutsideCode, Probed, ReachedBy, ReturnProbe, Site, Slot, Stop,
};
pub use process::{LiveProcess, MappedFile, Mapping, ProcessMemory};
pub use tables::Followed;

use std::collections::{BTreeMap, btree_map::Entry};

use process::Destination;
use stub::Stub;
use tables::Live;

use tracer_records::api::capture::CALLS_BACK;

use crate::discover::Function;

/// Plans for one kernel.
#[derive(Clone, Copy, Debug)]
pub struct Planner {
    kernel: KernelVersion,
}

impl Planner {
    /// Plans for `kernel`.
    pub const fn new(kernel: KernelVersion) -> Self {
        Self { kernel }
    }

    /// Plans for the running kernel; for the oldest with `uprobe_multi` if that cannot be told.
    pub fn for_running_kernel() -> Self {
        Self::new(KernelVersion::running().unwrap_or(KernelVersion::new(6, 6)))
    }

    /// The plan for one exported function, probed where it is exported.
    pub fn plan_function(&self, binary: &Binary, function: &Function) -> FunctionPlan {
        self.plan_at(binary, &function.name, function.address, function.size)
    }

    /// The plan for the function at `address` of the image, called `symbol`: for the target of a
    /// redirected table entry, say, or any function known by address. `size` is 0 when not known.
    pub fn plan_at(&self, binary: &Binary, symbol: &str, address: u64, size: u64) -> FunctionPlan {
        self.plan_passing_on(binary, symbol, address, size, None)
    }

    /// The plan for a function that passes its calls on by the jump at the address `passes_on`.
    fn plan_passing_on(
        &self,
        binary: &Binary,
        symbol: &str,
        address: u64,
        size: u64,
        passes_on: Option<u64>,
    ) -> FunctionPlan {
        let (site, notes) = prologue::choose(binary, self.kernel, address, size, passes_on);
        let mut plan = FunctionPlan {
            symbol: symbol.to_owned(),
            aliases: Vec::new(),
            reached: ReachedBy::Exported,
            site,
            notes,
        };
        restrict_return(&mut plan);
        plan
    }

    /// The plans for a library's functions, by site; functions that share a site share a plan.
    ///
    /// Stubs are followed through the tables of `process`, if it has mapped the library, else through the tables that
    /// the file makes. Plans without a site come last.
    pub fn plan_library(
        &self,
        binary: &Binary,
        functions: &[Function],
        process: Option<&dyn ProcessMemory>,
    ) -> Vec<FunctionPlan> {
        let live = Live::new(binary, process);
        let mut by_address: BTreeMap<u64, FunctionPlan> = BTreeMap::new();
        let mut by_site: BTreeMap<u64, FunctionPlan> = BTreeMap::new();
        let mut without = Vec::new();
        for function in functions {
            let plan = match by_address.get(&function.address) {
                Some(plan) => FunctionPlan { symbol: function.name.clone(), ..plan.clone() },
                None => {
                    let plan = self.plan_exported(binary, function, &live);
                    by_address.insert(function.address, plan.clone());
                    plan
                }
            };
            let Some(site) = &plan.site else {
                without.push(plan);
                continue;
            };
            match by_site.entry(site.file_offset) {
                Entry::Occupied(mut planned) => planned.get_mut().aliases.push(plan.symbol),
                Entry::Vacant(free) => {
                    free.insert(plan);
                }
            }
        }
        by_site.into_values().chain(without).map(name).collect()
    }

    fn plan_exported(&self, binary: &Binary, function: &Function, live: &Live<'_>) -> FunctionPlan {
        let Some(stub) = live.stub(function.address) else {
            return self.plan_function(binary, function);
        };
        let slot = stub.slot;
        let target = match live.follow(stub) {
            Destination::Outside(target) => target,
            Destination::Inside(address) => {
                return self.plan_behind(binary, function, stub, Ok(address));
            }
            Destination::Nowhere(reason) => {
                return self.plan_behind(binary, function, stub, Err(reason));
            }
        };
        let initial = live.follow_initial(stub).ok_or("the file does not tell where its entry led");
        let mut plan = self.plan_behind(binary, function, stub, initial);
        if !target.is_shim() {
            let probed = match plan.reached {
                ReachedBy::Implementation { file_offset, .. } => {
                    Probed::Implementation { file_offset }
                }
                _ => Probed::Stub,
            };
            plan.reached = ReachedBy::Redirected { target, slot, probed };
        }
        plan
    }

    /// The plan for the implementation behind a stub; the plan for the stub, if the implementation is not known, or if
    /// the stub alone has a cheap site.
    fn plan_behind(
        &self,
        binary: &Binary,
        function: &Function,
        stub: Stub,
        implementation: Result<u64, &'static str>,
    ) -> FunctionPlan {
        let slot = stub.slot;
        let own = || {
            let Function { name, address, size, .. } = function;
            let plan = self.plan_passing_on(binary, name, *address, *size, Some(stub.jump));
            FunctionPlan { reached: ReachedBy::Stub { slot }, ..plan }
        };
        match implementation {
            Ok(address) => {
                // The symbol's size is that of the stub.
                let plan = self.plan_at(binary, &function.name, address, 0);
                let file_offset = binary.file_offset(address).unwrap_or_default();
                let behind = FunctionPlan {
                    reached: ReachedBy::Implementation { file_offset, slot },
                    ..plan
                };
                if behind.is_cheap() {
                    return behind;
                }
                Some(own()).filter(FunctionPlan::is_cheap).unwrap_or(behind)
            }
            Err(reason) => {
                let mut plan = own();
                plan.notes.push(Note::NotFollowed(reason));
                plan
            }
        }
    }
}

/// Chooses the primary one of a plan's names, and checks them all.
///
/// HSA 1.1 renamed the memory orders: `hsa_signal_store_screlease` was `hsa_signal_store_release`,
/// and programs that were built since call the new name. `silent_store` promises less than `store`.
fn name(mut plan: FunctionPlan) -> FunctionPlan {
    let mut names: Vec<String> = std::mem::take(&mut plan.aliases);
    names.push(std::mem::take(&mut plan.symbol));
    let renamed = |name: &str| {
        ["_scacquire", "_screlease", "_scacq_screl"].iter().any(|order| name.contains(order))
    };
    names.sort_by(|a, b| {
        let key = |n: &String| (n.contains("_silent_"), !renamed(n), n.len());
        (key(a), a).cmp(&(key(b), b))
    });
    names.dedup();
    plan.symbol = names.remove(0);
    plan.aliases = names;
    restrict_return(&mut plan);
    plan
}

/// Forbids return probes on functions that call the caller's code back on the caller's thread.
fn restrict_return(plan: &mut FunctionPlan) {
    let calls_back = plan.names().any(calls_back);
    if let Some(site) = &mut plan.site
        && calls_back
        && site.return_probe == ReturnProbe::Allowed
    {
        site.return_probe = ReturnProbe::CallsBack;
    }
}

/// Whether a function is known to call the caller's code back, or has a name that suggests it in releases that are not
/// known yet.
fn calls_back(name: &str) -> bool {
    CALLS_BACK.iter().any(|(known, _)| *known == name)
        || name.starts_with("hsa_") && name.contains("_iterate_")
}
