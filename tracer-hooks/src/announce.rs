//! Agents and queues: what is there, and when it becomes known.

use core::sync::atomic::{AtomicU64, Ordering};

use tracer_common::shim;

use crate::abi::info;
use crate::lock::Lock;
use crate::queue::{Queue, life};
use crate::runtime::{self, RUNTIME};
use crate::state::STATE;
use crate::{lifecycle, symbols, sys, view};

/// First CPU agent, for the host's end of a rectangular copy.
static HOST: AtomicU64 = AtomicU64::new(0);
/// The GPU agent if there is exactly one, for queues whose creation was not seen; `u64::MAX`
/// while unknown.
static ONLY_GPU: AtomicU64 = AtomicU64::new(u64::MAX);
/// Where there are several GPUs: kernels and the agents that they are loaded on, in order. What a
/// queue runs tells which GPU it belongs to when its creation was not seen.
static HOMES: Lock<Vec<(u64, u64)>> = Lock::new(Vec::new());
const WAIT_NS: u64 = 100_000_000;

/// The application uses the runtime, which therefore is initialized.
///
/// `OnLoad` is called inside of `hsa_init`; nothing of the runtime is called before this.
pub fn first_use() {
    if !STATE.ready.load(Ordering::Acquire) && lifecycle::installed() {
        learn_agents();
        if !STATE.ready.swap(true, Ordering::AcqRel) && STATE.active() {
            everything(&mut || {});
        }
    }
}

fn learn_agents() {
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

/// Learns what the first doorbells will need: recording is about to begin.
pub fn prepare() {
    learn_agents();
    if several_gpus() {
        let mut homes = symbols::homes_of_everything();
        homes.sort_unstable();
        if let Some(mut known) = HOMES.lock_for(WAIT_NS) {
            *known = homes;
        }
    }
}

/// Forgets what [`prepare`] learned.
pub fn forget() {
    if let Some(mut known) = HOMES.lock_for(WAIT_NS) {
        *known = Vec::new();
    }
}

/// Whether the agent of a queue follows from nothing but what it runs.
pub fn several_gpus() -> bool {
    ONLY_GPU.load(Ordering::Relaxed) == 0
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

/// A queue whose agent is not known runs a kernel: gives it the kernel's; false if that is not
/// known either.
#[cold]
pub fn learn_agent(queue: &Queue, kernel_object: u64) -> bool {
    let Some(known) = HOMES.lock_for(WAIT_NS) else { return false };
    let Ok(at) = known.binary_search_by_key(&kernel_object, |&(kernel, _)| kernel) else {
        return false;
    };
    let agent = known.get(at).map_or(0, |&(_, agent)| agent);
    drop(known);
    queue.agent.store(agent, Ordering::Relaxed);
    tell(queue);
    agent != 0
}

/// Tells the sink of a live queue, unless it is not known yet whose it is.
fn tell(queue: &Queue) {
    if queue.agent.load(Ordering::Relaxed) != 0
        && let Some(sink) = STATE.sink.get()
    {
        sink.queue(record(queue, true));
    }
}

/// How many agents of each type, CPUs and GPUs, there have been.
#[derive(Default)]
pub struct Agents([u32; 2]);

impl Agents {
    /// The record of the next one, from its attributes of 4 bytes and its name; none of what is neither
    /// CPU nor GPU.
    pub fn next(
        &mut self,
        handle: u64,
        number: impl Fn(u32) -> Option<u32>,
        name: impl FnOnce() -> Option<[u8; 64]>,
    ) -> Option<shim::Agent> {
        let device_type = number(info::AGENT_DEVICE)?;
        let next = self.0.get_mut(device_type as usize)?;
        let index = *next;
        *next += 1;
        let full = name().unwrap_or([0; 64]);
        let mut name = [0; 32];
        // One byte stays NUL.
        for (to, from) in name.iter_mut().take(31).zip(runtime::c_bytes(&full)) {
            *to = *from;
        }
        let node_id = number(info::AGENT_NODE).unwrap_or(0);
        Some(shim::Agent { handle, device_type, node_id, index, reserved: 0, name })
    }
}

/// Tells the sink all that is there: recording begins. Calls `between` again and again meanwhile: a
/// program can have thousands of kernels, and a completion must not wait for them.
pub fn everything(between: &mut dyn FnMut()) {
    let Some(&sink) = STATE.sink.get() else { return };
    learn_agents();
    let mut agents = Agents::default();
    RUNTIME.agents(|handle| {
        let number = |attribute| RUNTIME.agent_u32(handle, attribute);
        if let Some(agent) = agents.next(handle, number, || RUNTIME.agent_name(handle)) {
            sink.agent(agent);
        }
    });
    for queue in STATE.registry.objects() {
        if queue.life.load(Ordering::Acquire) == life::LIVE {
            tell(queue);
        }
    }
    between();
    symbols::of_everything(between);
}

fn record(queue: &Queue, created: bool) -> shim::Queue {
    shim::Queue {
        queue_id: queue.id.load(Ordering::Relaxed),
        agent: queue.agent.load(Ordering::Relaxed),
        time_ns: sys::now_ns(),
        size: queue.size.load(Ordering::Relaxed),
        created: u32::from(created),
    }
}

/// The runtime created the queue at `address`. Done also while nothing is recorded: only here the
/// agent of a queue can be learned.
pub fn created(address: usize, agent: u64) {
    if !lifecycle::installed() {
        return;
    }
    let Some(amd) = view::queue(address) else { return };
    let Some(queue) = STATE.registry.insert(address, agent) else { return };
    if STATE.active() {
        RUNTIME.profile_queue(amd);
        queue.begin(STATE.epoch.load(Ordering::Acquire));
        tell(queue);
    }
}

/// A doorbell rings whose queue was created before the tables were patched.
pub fn stranger(address: usize) -> Option<&'static Queue> {
    first_use();
    let agent = ONLY_GPU.load(Ordering::Relaxed);
    let agent = if agent == u64::MAX { 0 } else { agent };
    STATE.registry.meet(address, agent, tell)
}

/// The runtime destroyed a queue.
pub fn destroyed(queue: &'static Queue, address: usize) {
    if STATE.active()
        && queue.agent.load(Ordering::Relaxed) != 0
        && let Some(sink) = STATE.sink.get()
    {
        sink.queue(record(queue, false));
    }
    STATE.registry.remove(address);
    // The worker, or whoever looks next, discards what is left.
    queue.life.store(life::DEAD, Ordering::Release);
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
