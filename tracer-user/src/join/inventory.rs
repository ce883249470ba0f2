//! The agents and kernels of one process.

use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasher as _,
};

use tracer_common::shim::{self, Symbol};
use tracer_records::{
    demangle::demangle,
    model::{Agent, Kernel, StringId},
    sink::RecordSink,
};

use crate::budget::Budget;

/// A kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownKernel {
    /// The id by which the sink knows it.
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

/// Most bytes of names that all living processes together may have sent.
pub const MOST_BYTES: usize = 256 << 20;
/// Most bytes of names that one process may have sent, if its share of [`MOST_BYTES`] is as much.
const MOST_OF_A_PROCESS: usize = 64 << 20;
/// The bytes that count for an agent or a kernel beside its names.
const ENTRY_BYTES: usize = 128;
/// The bytes that count for each further kernel at an address.
const SINCE_BYTES: usize = 32;
/// How many kernels are remembered for one address: code objects are loaded and unloaded at the same place, faster than
/// operations are done. If there are more, the oldest are forgotten.
const MOST_AT_ONE_ADDRESS: usize = 4096;

/// The kernels that were at one address.
#[derive(Default)]
struct KernelsAtAddress {
    /// The kernels, each with the time since when it was there, in order.
    since: VecDeque<(u64, KnownKernel)>,
    /// Whether there were kernels before the first of these.
    forgot: bool,
}

impl KernelsAtAddress {
    fn forget_one(&mut self) {
        self.forgot |= self.since.pop_front().is_some();
    }

    fn add(&mut self, since_ns: u64, kernel: KnownKernel) {
        let place = self.since.partition_point(|&(since, _)| since <= since_ns);
        self.since.insert(place, (since_ns, kernel));
    }

    fn at(&self, time_ns: u64) -> Option<KnownKernel> {
        let behind = self.since.partition_point(|&(since, _)| since <= time_ns);
        let last = behind.checked_sub(1).and_then(|last| self.since.get(last));
        // A symbol that was seen only after its first launch counts for that launch too.
        let first = self.since.front().filter(|_| !self.forgot);
        last.or(first).map(|&(_, kernel)| kernel)
    }
}

/// A hash of a kernel's address, name and registers: the same when a code object is loaded again.
type Identity = u64;

/// Agents and kernels of one process.
#[derive(Default)]
pub struct Inventory {
    agents: HashMap<u64, KnownAgent>,
    kernels: HashMap<Identity, KnownKernel>,
    places: HashMap<u64, KernelsAtAddress>,
    /// The agents and kernels that were sent beyond the limit.
    pub left_out: u64,
    /// How many symbols have come.
    pub symbols: u32,
}

impl Inventory {
    /// Takes an agent of process `pid`, if `names` have room for it.
    pub fn agent(
        &mut self,
        (pid, names): (u32, &mut Budget<u32>),
        agent: &shim::Agent,
        sink: &mut dyn RecordSink,
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

    /// Takes a kernel symbol of process `pid`, under a new id if there was none like it at its address, and returns
    /// true then. `names` may have no room for it.
    pub fn symbol(
        &mut self,
        (pid, names): (u32, &mut Budget<u32>),
        id: u32,
        symbol: &Symbol,
        raw: &str,
        sink: &mut dyn RecordSink,
    ) -> bool {
        let raw = raw.strip_suffix(".kd").unwrap_or(raw);
        let Symbol { kernel_object, since_ns, .. } = *symbol;
        let Symbol { vgpr_count, accum_vgpr_count, sgpr_count, .. } = *symbol;
        let registers = [vgpr_count, accum_vgpr_count, sgpr_count];
        let identity = self.kernels.hasher().hash_one((kernel_object, raw, registers));
        if let Some(&kernel) = self.kernels.get(&identity) {
            let place = self.places.entry(kernel_object).or_default();
            if place.since.len() >= MOST_AT_ONE_ADDRESS || !names.take(pid, SINCE_BYTES) {
                place.forget_one();
            }
            place.add(since_ns, kernel);
            return false;
        }
        if !self.takes((pid, names), raw.len()) {
            return false;
        }
        let name = sink.string(pid, raw);
        let demangled = demangle(raw).map_or(name, |demangled| {
            // If the trace has no demangled name, the reader demangles the name.
            if names.take(pid, demangled.len()) { sink.string(pid, &demangled) } else { 0 }
        });
        sink.kernel(pid, id, Kernel { name, vgpr_count, accum_vgpr_count, sgpr_count });
        let kernel = KnownKernel { id, name, demangled };
        self.kernels.insert(identity, kernel);
        self.places.entry(kernel_object).or_default().add(since_ns, kernel);
        true
    }
    /// Whether there is room for an entry with this many bytes of names; if not, counts the entry.
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

    /// Whether at least this many symbols have come.
    pub fn has_symbols(&self, count: u32) -> bool {
        self.symbols.wrapping_sub(count).cast_signed() >= 0
    }

    /// The kernel whose descriptor was at an address at some time: an address can be used again.
    pub fn kernel(&self, kernel_object: u64, time_ns: u64) -> Option<KnownKernel> {
        self.places.get(&kernel_object)?.at(time_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn kernel(id: u32) -> KnownKernel {
        KnownKernel { id, name: id, demangled: id }
    }

    #[test]
    fn a_reused_address_resolves_by_time() {
        let mut inventory = Inventory::default();
        let place = inventory.places.entry(64).or_default();
        place.add(200, kernel(2));
        place.add(100, kernel(1));
        place.add(300, kernel(1));
        let at = |time| inventory.kernel(64, time).map(|k| k.id);
        assert_eq!([50, 150, 200, 250, 300].map(at), [1, 1, 2, 2, 1].map(Some));
        assert_eq!(inventory.kernel(65, 150), None);
    }

    #[test]
    fn what_was_forgotten_is_not_taken_for_another() {
        let mut place = KernelsAtAddress::default();
        place.add(100, kernel(1));
        place.add(200, kernel(2));
        place.forget_one();
        let at = |time| place.at(time).map(|k| k.id);
        assert_eq!([150, 250].map(at), [None, Some(2)]);
    }
}
