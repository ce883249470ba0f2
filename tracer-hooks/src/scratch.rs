//! Scratch memory of queues: the runtime tells a tool when it allocates some and when it frees it, since ROCm 6.1.
//!
//! It calls functions of a table that is there for one tool alone, and empty without one.

use core::sync::atomic::Ordering;

use crate::abi::ToolEvent;
use crate::queue::Queue;
use crate::runtime::Tables;
use crate::state::STATE;

/// The runtime calls these from now on: at the begin and at the end of allocating, of freeing, and of reclaiming from an
/// idle queue. Whether it does; not where another tool has set its own, or the runtime tells nobody.
pub fn tell(tables: &Tables, functions: &[ToolEvent; 6]) -> bool {
    let Some(table) = tables.tool_table() else { return false };
    let set = |(entry, function): (&crate::abi::Entry<ToolEvent>, &ToolEvent)| {
        let own = *function as usize;
        // Release pairs with the Acquire in `Entry::address`, though the runtime reads it as it likes.
        let before = entry.0.compare_exchange(0, own, Ordering::Release, Ordering::Relaxed);
        before.is_ok() || before == Err(own)
    };
    // All of them, though one is another's.
    table.scratch.iter().zip(functions).map(set).fold(true, |all, is_set| all & is_set)
}

/// The agent of a queue, by its address, and the id that is told of it; also of one that is being destroyed. None of one
/// that is not known.
pub fn queue(address: usize) -> Option<(u64, u64)> {
    let is_at = |queue: &&'static Queue| queue.address.load(Ordering::Relaxed) == address;
    let registry = &STATE.registry;
    let queue = registry.find(address).or_else(|| registry.objects().find(is_at))?;
    Some((queue.agent.load(Ordering::Relaxed), queue.id.load(Ordering::Relaxed)))
}
