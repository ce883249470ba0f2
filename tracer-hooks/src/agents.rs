//! The runtime's agents: which there are, and which one a kernel is loaded on.

use core::sync::atomic::{AtomicU64, Ordering};

use tracer_common::shim;

use crate::abi::info;
use crate::lock::Lock;
use crate::runtime::{self, RUNTIME};
use crate::sys;

/// First CPU agent, for the host's end of a rectangular copy.
static HOST: AtomicU64 = AtomicU64::new(0);
/// The GPU agent if there is exactly one, for queues whose creation was not seen; `u64::MAX`
/// while unknown.
static ONLY_GPU: AtomicU64 = AtomicU64::new(u64::MAX);
/// Where there are several GPUs: kernels and the agents that they are loaded on, in order. For a queue whose creation
/// was not seen, the kernel that it runs tells its GPU.
static HOMES: Lock<Vec<(u64, u64)>> = Lock::new(Vec::new());
const WAIT_NS: u64 = 100_000_000;

/// Learns which agents there are.
pub fn learn() {
    let mut gpus = 0;
    let mut first = 0;
    RUNTIME.agents(|agent| match RUNTIME.agent_u32(agent, info::AGENT_DEVICE) {
        Some(0) => {
            let _ = HOST.compare_exchange(0, agent, Ordering::Relaxed, Ordering::Relaxed);
        }
        Some(1) => {
            gpus += 1;
            first = agent;
        }
        _ => {}
    });
    ONLY_GPU.store(if gpus == 1 { first } else { 0 }, Ordering::Relaxed);
}

/// The process's GPU agent; 0 if there are several, or nobody has looked yet.
pub fn only_gpu() -> u64 {
    match ONLY_GPU.load(Ordering::Relaxed) {
        u64::MAX => 0,
        agent => agent,
    }
}

/// Whether the agent of a queue follows from nothing but what it runs.
pub fn several_gpus() -> bool {
    ONLY_GPU.load(Ordering::Relaxed) == 0
}

/// Kernels, each with the agent that it is loaded on, are all that there are.
pub fn set_gpus_of_kernels(mut homes: Vec<(u64, u64)>) {
    homes.sort_unstable();
    if let Some(mut known) = HOMES.lock_for(WAIT_NS) {
        *known = homes;
    }
}

/// Kernels were loaded.
pub fn learn_homes(homes: impl Iterator<Item = (u64, u64)>) {
    if let Some(mut known) = HOMES.lock_for(WAIT_NS) {
        for home in homes {
            sys::push(&mut known, home);
        }
        known.sort_unstable();
        known.dedup();
    }
}

/// Forgets which agents kernels are loaded on.
pub fn forget_homes() {
    set_gpus_of_kernels(Vec::new());
}

/// The agent that a kernel is loaded on, if that is known.
pub fn home_of(kernel_object: u64) -> Option<u64> {
    let known = HOMES.lock_for(WAIT_NS)?;
    let at = known.binary_search_by_key(&kernel_object, |&(kernel, _)| kernel).ok()?;
    known.get(at).map(|&(_, agent)| agent)
}

/// Calls `each` with the record of every agent.
pub fn records(mut each: impl FnMut(shim::Agent)) {
    // CPUs and GPUs so far.
    let mut counts = [0; 2];
    RUNTIME.agents(|handle| each_record(handle, &mut counts).into_iter().for_each(&mut each));
}

/// Whether an agent is a GPU, and its node of the driver's. Asks the runtime.
pub fn device(handle: u64) -> Option<(bool, u32)> {
    let device_type = RUNTIME.agent_u32(handle, info::AGENT_DEVICE)?;
    Some((device_type == 1, RUNTIME.agent_u32(handle, info::AGENT_NODE)?))
}

/// The record of the next agent; none of what is neither CPU nor GPU.
fn each_record(handle: u64, counts: &mut [u32; 2]) -> Option<shim::Agent> {
    let device_type = RUNTIME.agent_u32(handle, info::AGENT_DEVICE)?;
    let next = counts.get_mut(device_type as usize)?;
    let index = *next;
    *next += 1;
    let full = RUNTIME.agent_name(handle).unwrap_or([0; 64]);
    let mut name = [0; 32];
    // One byte stays NUL.
    for (to, from) in name.iter_mut().take(31).zip(runtime::c_bytes(&full)) {
        *to = *from;
    }
    let node_id = RUNTIME.agent_u32(handle, info::AGENT_NODE).unwrap_or(0);
    Some(shim::Agent { handle, device_type, node_id, index, reserved: 0, name })
}

/// Destination and source agent of a rectangular copy by `agent` in `hsa_amd_copy_direction_t`.
pub fn ends(agent: u64, direction: u32) -> (u64, u64) {
    const HOST_TO_DEVICE: u32 = 1;
    const DEVICE_TO_HOST: u32 = 2;
    let host = HOST.load(Ordering::Relaxed);
    match direction {
        HOST_TO_DEVICE => (agent, host),
        DEVICE_TO_HOST => (host, agent),
        _ => (agent, agent),
    }
}
