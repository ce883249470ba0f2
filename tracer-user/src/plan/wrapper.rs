//! Plans probes at the functions that other tools have put in a table's place.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    binary::Binary,
    model::{FunctionPlan, NoWrapper, OutsideCode, Probed, Reached, Slot},
    process::{Leads, ProcessMemory},
};

/// The wrappers that a process's tables lead to.
pub(super) struct Wrappers<'a> {
    process: &'a dyn ProcessMemory,
    /// The entries that lead to each, by its address.
    entries: BTreeMap<u64, BTreeSet<Slot>>,
    /// The files that they are in, by where those are mapped.
    files: BTreeMap<u64, Result<Binary, NoWrapper>>,
}

impl<'a> Wrappers<'a> {
    /// Those that `leads` names, in `process`.
    pub fn new(
        process: &'a dyn ProcessMemory,
        leads: impl IntoIterator<Item = (Slot, Leads)>,
    ) -> Self {
        let mut entries: BTreeMap<u64, BTreeSet<Slot>> = BTreeMap::new();
        for (slot, leads) in leads {
            if let Leads::Outside(target) = leads {
                entries.entry(target.address).or_default().insert(slot);
            }
        }
        Self { process, entries, files: BTreeMap::new() }
    }

    /// The plan for a function at its wrapper `target`, which `slot` leads to; `plan_at` makes it for an
    /// address.
    pub fn plan(
        &mut self,
        slot: Slot,
        target: &OutsideCode,
        plan_at: impl FnOnce(&Binary, u64) -> FunctionPlan,
    ) -> Result<FunctionPlan, NoWrapper> {
        if self.entries.get(&target.address).is_some_and(|slots| slots.len() > 1) {
            return Err(NoWrapper::Shared);
        }
        let offset = target.file_offset.ok_or(NoWrapper::Anonymous)?;
        let binary = self.file(target.address)?;
        let address = binary.address_of(offset).ok_or(NoWrapper::NotCode)?;
        let mut plan = plan_at(binary, address);
        if !plan.is_cheap() {
            return Err(NoWrapper::NotCheap);
        }
        let probed = Probed::Wrapper { file: binary.path().to_owned(), held: binary.held() };
        plan.reached = Reached::Redirected { target: target.clone(), slot, probed };
        Ok(plan)
    }

    /// The file whose code is at `address` of the process.
    fn file(&mut self, address: u64) -> Result<&Binary, NoWrapper> {
        let mapping = self.process.code_at(address).ok_or(NoWrapper::NotCode)?;
        let open =
            || self.process.open(mapping).map_err(|error| NoWrapper::Unreadable(error.to_string()));
        self.files.entry(mapping.start).or_insert_with(open).as_ref().map_err(Clone::clone)
    }
}
