//! What was told of the agents and kernels of one process.

use std::collections::HashMap;

use tracer_common::shim::{self, Symbol};
use tracer_records::{
    demangle::demangle,
    model::{Agent, Kernel, StringId},
    sink::RecordSink,
};

use crate::budget::Budget;

/// A kernel symbol from some moment on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownKernel {
    since_ns: u64,
    /// What the sink knows it by.
    pub id: u32,
    /// Raw name.
    pub name: StringId,
    /// Demangled name.
    pub demangled: StringId,
}

/// An agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownAgent {
    /// KFD node id.
    pub node_id: u32,
    /// Whether it is a GPU.
    pub gpu: bool,
}

/// Bytes of names that all living processes may have told.
pub const MOST_BYTES: usize = 256 << 20;
/// Bytes of names that one process may have told, if its share of [`MOST_BYTES`] is as much.
const MOST_OF_A_PROCESS: usize = 64 << 20;
/// What is counted for an agent or a kernel beside its names.
const ENTRY_BYTES: usize = 128;
/// Kernels that are remembered at one address; of more, the oldest are forgotten.
const MOST_AT_ONE_ADDRESS: usize = 64;

/// Agents and kernels of one process.
#[derive(Default)]
pub struct Inventory {
    agents: HashMap<u64, KnownAgent>,
    kernels: HashMap<u64, Vec<KnownKernel>>,
    /// Agents and kernels that were told beyond it.
    pub left_out: u64,
}

impl Inventory {
    /// Takes an agent of process `pid`, if `names` have room for it.
    pub fn agent<S: RecordSink>(
        &mut self,
        (pid, names): (u32, &mut Budget<u32>),
        agent: &shim::Agent,
        sink: &mut S,
    ) {
        let length = agent.name.iter().position(|&b| b == 0).unwrap_or(agent.name.len());
        if !self.takes((pid, names), length) {
            return;
        }
        let gpu = agent.device_type == 1;
        self.agents.insert(agent.handle, KnownAgent { node_id: agent.node_id, gpu });
        let name = String::from_utf8_lossy(&agent.name[..length]).into_owned();
        sink.agent(pid, agent.node_id, Agent { name, gpu, index: agent.index });
    }

    /// Takes a kernel symbol of process `pid`, under a new id; false if `names` have no room for it.
    pub fn symbol<S: RecordSink>(
        &mut self,
        (pid, names): (u32, &mut Budget<u32>),
        id: u32,
        symbol: &Symbol,
        raw: &str,
        sink: &mut S,
    ) -> bool {
        let raw = raw.strip_suffix(".kd").unwrap_or(raw);
        if !self.takes((pid, names), raw.len()) {
            return false;
        }
        let name = sink.string(pid, raw);
        let demangled = demangle(raw).map_or(name, |demangled| {
            // Without, whoever shows the kernel demangles its name.
            if names.take(pid, demangled.len()) { sink.string(pid, &demangled) } else { 0 }
        });
        let Symbol { vgpr_count, accum_vgpr_count, sgpr_count, .. } = *symbol;
        sink.kernel(pid, id, Kernel { name, vgpr_count, accum_vgpr_count, sgpr_count });
        let known = self.kernels.entry(symbol.kernel_object).or_default();
        if known.len() >= MOST_AT_ONE_ADDRESS {
            known.remove(0);
        }
        let place = known.partition_point(|kernel| kernel.since_ns <= symbol.since_ns);
        known.insert(place, KnownKernel { since_ns: symbol.since_ns, id, name, demangled });
        true
    }

    /// Whether there is room for an entry with so many bytes of names; if not, counts it.
    fn takes(&mut self, (pid, names): (u32, &mut Budget<u32>), name_bytes: usize) -> bool {
        let bytes = ENTRY_BYTES + name_bytes;
        let takes = names.of(pid) + bytes <= MOST_OF_A_PROCESS && names.take(pid, bytes);
        self.left_out += u64::from(!takes);
        takes
    }

    /// The agent of a handle.
    pub fn known_agent(&self, handle: u64) -> Option<KnownAgent> {
        self.agents.get(&handle).copied()
    }

    /// The kernel whose descriptor was at an address at some time: an address can be used again.
    pub fn kernel(&self, kernel_object: u64, time_ns: u64) -> Option<KnownKernel> {
        let known = self.kernels.get(&kernel_object)?;
        // A symbol that was seen only after its first launch counts for that launch too.
        known.iter().rev().find(|k| k.since_ns <= time_ns).or(known.first()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_address_resolves_by_time() {
        let mut inventory = Inventory::default();
        let kernel = |since_ns, id| KnownKernel { since_ns, id, name: id, demangled: id };
        inventory.kernels.insert(64, vec![kernel(100, 1), kernel(200, 2)]);
        let at = |time| inventory.kernel(64, time).map(|k| k.id);
        assert_eq!([at(50), at(150), at(250)], [Some(1), Some(1), Some(2)]);
        assert_eq!(inventory.kernel(65, 150), None);
    }
}
