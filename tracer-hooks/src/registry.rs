//! Which [`Queue`] stands for a queue of the runtime: a table by address that a doorbell reads
//! without a lock.
//!
//! Objects live for ever and are used again, so a stale look finds a live object or none, never
//! freed memory; one whose lock a thread never gave back is not used again, as that thread may come
//! back. Changes happen under a lock. Queues that cannot be added are left alone.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::lock::Lock;
use crate::queue::{Queue, Stage};
use crate::{sys, view};

/// Most queues at once.
pub const CAPACITY: usize = 1024;
const SLOTS: usize = 2 * CAPACITY;
const WAIT_NS: u64 = 1_000_000_000;
/// A key whose queue is gone; looked past, and used again.
const GONE: usize = 1;

/// The table.
pub struct Registry {
    keys: [AtomicUsize; SLOTS],
    values: [AtomicPtr<Queue>; SLOTS],
    /// Every object that was ever made, `None`s at the end.
    objects: [AtomicPtr<Queue>; CAPACITY],
    changes: Lock<usize>,
}

impl Registry {
    /// An empty table.
    pub const fn new() -> Self {
        Self {
            keys: [const { AtomicUsize::new(0) }; SLOTS],
            values: [const { AtomicPtr::new(core::ptr::null_mut()) }; SLOTS],
            objects: [const { AtomicPtr::new(core::ptr::null_mut()) }; CAPACITY],
            changes: Lock::new(0),
        }
    }

    fn probe(address: usize) -> impl Iterator<Item = usize> {
        // Queues are page-aligned; the multiplication spreads them.
        let first = (address >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SLOTS.ilog2());
        (0..SLOTS).map(move |i| (first + i) & (SLOTS - 1))
    }

    /// The live object of the queue at `address`.
    #[inline]
    pub fn find(&self, address: usize) -> Option<&'static Queue> {
        for at in Self::probe(address) {
            // Acquire pairs with the Release in `add`: the value was stored before the key.
            match self.keys[at].load(Ordering::Acquire) {
                0 => return None,
                key if key == address => {
                    return object(&self.values[at]).filter(|q| {
                        q.is(Stage::Live) && q.address.load(Ordering::Relaxed) == address
                    });
                }
                _ => {}
            }
        }
        None
    }

    /// Every object that exists, whatever its life.
    pub fn objects(&self) -> impl Iterator<Item = &'static Queue> {
        self.objects.iter().map_while(object)
    }

    /// Makes the queue that was just created at `address` known; `None` when there are too many. An
    /// object that stood for the address before is declared dead: the runtime has used the memory
    /// again.
    pub fn insert(&self, address: usize, agent: u64) -> Option<&'static Queue> {
        let mut made = self.changes.lock_or_lose(WAIT_NS)?;
        if let Some(old) = self.find(address) {
            old.becomes(Stage::Dead);
        }
        self.add(&mut made, address, agent)
    }

    /// Makes the queue at `address` known whose creation was not seen; calls `new` if it was not
    /// known yet. Its producers may all come here at once: they get the same object.
    pub fn meet(
        &self,
        address: usize,
        agent: u64,
        new: impl FnOnce(&'static Queue),
    ) -> Option<&'static Queue> {
        let mut made = self.changes.lock_or_lose(WAIT_NS)?;
        if let Some(known) = self.find(address) {
            return Some(known);
        }
        let queue = self.add(&mut made, address, agent)?;
        drop(made);
        new(queue);
        Some(queue)
    }

    fn add(&self, made: &mut usize, address: usize, agent: u64) -> Option<&'static Queue> {
        let amd = view::queue(address)?;
        let at = Self::probe(address).find(|&at| {
            let key = self.keys[at].load(Ordering::Relaxed);
            key == 0 || key == GONE || key == address
        })?;
        let free = self.objects().find(|q| q.is_reusable());
        let queue = match free {
            Some(queue) => queue,
            None => {
                let place = self.objects.get(*made)?;
                let queue = &*Box::leak(sys::boxed(Queue::new())?);
                // Release pairs with the Acquire in `object`: the queue was made before.
                place.store(core::ptr::from_ref(queue).cast_mut(), Ordering::Release);
                *made += 1;
                queue
            }
        };
        queue.address.store(address, Ordering::Relaxed);
        queue.agent.store(agent, Ordering::Relaxed);
        queue.id.store(amd.id.load(Ordering::Relaxed), Ordering::Relaxed);
        queue.size.store(amd.size.load(Ordering::Relaxed), Ordering::Relaxed);
        queue.held.store(false, Ordering::Relaxed);
        queue.becomes(Stage::Live);
        // Release pairs with the Acquire in `object`.
        self.values[at].store(core::ptr::from_ref(queue).cast_mut(), Ordering::Release);
        // The address may have an older key further on, if the place of a queue that is gone was used
        // here. A look-up stops at the first key, which is this one, and `remove` clears them all.
        // Release pairs with the Acquire in `find`: the value was stored before.
        self.keys[at].store(address, Ordering::Release);
        Some(queue)
    }

    /// Forgets the address of a queue that is gone.
    pub fn remove(&self, address: usize) {
        if let Some(_changes) = self.changes.lock_or_lose(WAIT_NS) {
            for at in Self::probe(address) {
                match self.keys[at].load(Ordering::Relaxed) {
                    0 => return,
                    key if key == address => self.keys[at].store(GONE, Ordering::Release),
                    _ => {}
                }
            }
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(unsafe_code, reason = "addresses of objects that live for ever")]
#[inline]
fn object(place: &AtomicPtr<Queue>) -> Option<&'static Queue> {
    // Acquire pairs with the Releases in `Registry::add`. SAFETY: null, or a leaked `Queue`.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::AmdQueue;

    #[expect(unsafe_code, reason = "makes queues of zeros")]
    fn queues(count: usize) -> Vec<usize> {
        let layout = core::alloc::Layout::array::<AmdQueue>(count).expect("fits");
        // SAFETY: an amd_queue_t of zeros is valid; the memory is leaked.
        let base = unsafe { std::alloc::alloc_zeroed(layout) } as usize;
        (0..count).map(|i| base + i * size_of::<AmdQueue>()).collect()
    }

    #[test]
    fn queues_come_and_go_and_objects_are_used_again() {
        let registry: &'static Registry = Box::leak(Box::default());
        let addresses = queues(3000);
        for round in addresses.chunks(500) {
            for &address in round {
                let queue = registry.insert(address, 7).expect("room");
                assert!(core::ptr::eq(queue, registry.find(address).expect("found")));
            }
            for &address in round {
                let queue = registry.find(address).expect("still there");
                queue.becomes(Stage::Free);
                registry.remove(address);
                assert!(registry.find(address).is_none());
            }
        }
        assert_eq!(registry.objects().count(), 500);
        for &address in &addresses[..CAPACITY] {
            assert!(registry.insert(address, 7).is_some());
        }
        assert!(registry.insert(addresses[CAPACITY], 7).is_none(), "full");
        assert!(registry.find(addresses[CAPACITY - 1]).is_some());
    }

    #[test]
    fn an_address_that_is_used_again_stands_for_the_new_queue() {
        let registry: &'static Registry = Box::leak(Box::default());
        let address = queues(1)[0];
        let old = registry.insert(address, 1).expect("room");
        let new = registry.insert(address, 2).expect("room");
        assert_eq!(old.stage(), Stage::Dead);
        assert!(core::ptr::eq(registry.find(address).expect("found"), new));
    }

    #[test]
    fn all_producers_of_a_queue_meet_the_same_object() {
        for _ in 0..200 {
            let registry: &'static Registry = Box::leak(Box::default());
            let address = queues(1)[0];
            let news = AtomicUsize::new(0);
            let start = std::sync::Barrier::new(4);
            let met = || {
                start.wait();
                let new = |_: &_| {
                    news.fetch_add(1, Ordering::Relaxed);
                };
                core::ptr::from_ref(registry.meet(address, 1, new).expect("room")) as usize
            };
            let all: Vec<usize> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(met)).collect();
                threads.into_iter().map(|t| t.join().expect("no panic")).collect()
            });
            assert!(all.iter().all(|&one| one == all[0]));
            assert_eq!(news.load(Ordering::Relaxed), 1);
            assert_eq!(registry.objects().count(), 1);
        }
    }
}
