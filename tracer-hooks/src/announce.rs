//! Agents and queues: they become known, and the sink is told of them.

use core::sync::atomic::Ordering;

use crate::queue::{Existence, Queue, Stage};
use crate::runtime::RUNTIME;
use crate::state::STATE;
use crate::{agents, symbols, view};

/// The application uses the runtime, which therefore is initialized.
///
/// `OnLoad` is called inside of `hsa_init`; nothing of the runtime is called before this.
pub fn first_use() {
    if !STATE.is_ready() && STATE.is_installed() {
        agents::learn();
        if STATE.becomes_ready() && STATE.active() {
            everything(&mut || {});
        }
    }
}

/// Learns what the first doorbells will need: recording is about to begin.
pub fn prepare() {
    agents::learn();
    if agents::several_gpus() {
        agents::set_gpus_of_kernels(symbols::homes_of_everything());
    }
}

/// Tells the sink all that is there: recording begins. Calls `between` again and again meanwhile: a
/// program can have thousands of kernels, and a completion must not wait for them.
pub fn everything(between: &mut dyn FnMut()) {
    let Some(&sink) = STATE.sink.get() else { return };
    agents::learn();
    agents::records(|agent| sink.agent(agent));
    for queue in STATE.registry.objects() {
        if queue.is(Stage::Live) {
            queue.tell(sink, Existence::Begins);
        }
    }
    between();
    symbols::of_everything(between);
}

fn tell(queue: &Queue) {
    if let Some(&sink) = STATE.sink.get() {
        queue.tell(sink, Existence::Begins);
    }
}

/// The runtime created the queue at `address`. Done also while nothing is recorded: only here the
/// agent of a queue can be learned.
pub fn created(address: usize, agent: u64) {
    if !STATE.is_installed() {
        return;
    }
    let Some(amd) = view::queue(address) else { return };
    let Some(queue) = STATE.registry.insert(address, agent) else { return };
    if STATE.active() {
        RUNTIME.profile_queue(amd);
        // Acquire pairs with the addition in `recording::activate`.
        queue.begin(STATE.epoch.load(Ordering::Acquire));
        tell(queue);
    }
}

/// A doorbell rings whose queue was created before the tables were patched.
pub fn unknown_queue(address: usize) -> Option<&'static Queue> {
    first_use();
    STATE.registry.meet(address, agents::only_gpu(), tell)
}

/// The runtime destroyed a queue.
pub fn destroyed(queue: &'static Queue, address: usize) {
    if STATE.active()
        && let Some(&sink) = STATE.sink.get()
    {
        queue.tell(sink, Existence::Ends);
    }
    STATE.registry.remove(address);
    // The worker, or the thread that looks next, discards the operations that are left.
    queue.becomes(Stage::Dead);
}
