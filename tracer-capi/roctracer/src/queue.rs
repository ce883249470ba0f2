//! A queue into which many threads push, from which one takes, and in which nobody waits.
//!
//! It is a list, the newest value first. A thread that pushes exchanges its begin; the thread that takes takes all of
//! it, and turns it round. So a thread that stops in the middle of either holds up nobody; in a queue with places for
//! values it would.

#![expect(unsafe_code, reason = "a list without locks")]

use std::marker::PhantomData;
use std::ptr;

#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicPtr, Ordering};

use tracer_hooks::sys;

/// The queue.
pub struct Queue<T> {
    newest: AtomicPtr<Node<T>>,
    /// It has values.
    values: PhantomData<T>,
}

struct Node<T> {
    value: T,
    older: *mut Self,
}

/// The values that were taken, the oldest first.
pub struct TakenValues<T>(*mut Node<T>);

// SAFETY: values go from the thread that pushes to the one that takes.
unsafe impl<T: Send> Send for Queue<T> {}
// SAFETY: nobody has a reference to a value that is in it.
unsafe impl<T: Send> Sync for Queue<T> {}

impl<T> Queue<T> {
    /// An empty queue.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()), values: PhantomData }
    }

    /// The same; atomics of loom are not constant.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()), values: PhantomData }
    }

    /// Adds a value; false, and nothing, without memory for it.
    pub fn push(&self, value: T) -> bool {
        let Some(node) = sys::boxed(Node { value, older: ptr::null_mut() }) else { return false };
        let node = Box::into_raw(node);
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: from the box above; nobody else has it.
            unsafe { (*node).older = newest };
            // Release pairs with the Acquire in `take`: the node is whole. The earlier nodes are, too: every exchange
            // continues the release sequence of the one before.
            let exchanged = self.newest.compare_exchange_weak(
                newest,
                node,
                Ordering::Release,
                Ordering::Relaxed,
            );
            match exchanged {
                Ok(_) => return true,
                Err(now) => newest = now,
            }
        }
    }

    /// Takes all values.
    pub fn take(&self) -> TakenValues<T> {
        // Acquire pairs with the Release in `push`.
        let mut newest = self.newest.swap(ptr::null_mut(), Ordering::Acquire);
        let mut oldest = ptr::null_mut();
        while !newest.is_null() {
            // SAFETY: a node that was pushed, which nobody else has any more.
            let older = unsafe { ptr::replace(&raw mut (*newest).older, oldest) };
            (oldest, newest) = (newest, older);
        }
        TakenValues(oldest)
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.newest.load(Ordering::Relaxed).is_null()
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> Default for TakenValues<T> {
    /// Nothing.
    fn default() -> Self {
        Self(ptr::null_mut())
    }
}

impl<T> Iterator for TakenValues<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: a node that was taken, made from a box.
        let node = *unsafe { Box::from_raw(self.0) };
        // `take` has turned the list round.
        self.0 = node.older;
        Some(node.value)
    }
}

impl<T> Drop for TakenValues<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_is_pushed_first_is_taken_first() {
        let queue = Queue::new();
        assert!(queue.is_empty() && queue.take().next().is_none());
        assert!((0..3).all(|n| queue.push(n)) && !queue.is_empty());
        let mut taken = queue.take();
        assert_eq!(taken.next(), Some(0));
        assert!(queue.is_empty() && queue.push(3));
        assert_eq!(taken.collect::<Vec<_>>(), [1, 2]);
        assert_eq!(queue.take().collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn what_nobody_takes_is_dropped() {
        let value = Arc::new(());
        let queue = Queue::new();
        assert!((0..3).all(|_| queue.push(Arc::clone(&value))));
        let mut taken = queue.take();
        assert!(taken.next().is_some() && queue.push(Arc::clone(&value)));
        drop((taken, queue));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Each value is taken once, and those of a thread in the order in which it has pushed them.
    #[test]
    fn each_value_is_taken_once_and_in_order() {
        let mut model = loom::model::Builder::new();
        // All of them take minutes.
        model.preemption_bound = Some(3);
        model.check(|| {
            let queue = Arc::new(Queue::new());
            let pushers = [10, 20].map(|first| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    assert!(queue.push(Box::new(first)) && queue.push(Box::new(first + 1)));
                })
            });
            let mut taken: Vec<_> = queue.take().map(|value| *value).collect();
            taken.extend(queue.take().map(|value| *value));
            for pusher in pushers {
                pusher.join().expect("no panic");
            }
            taken.extend(queue.take().map(|value| *value));
            let (first, second): (Vec<_>, Vec<_>) = taken.into_iter().partition(|&n| n < 20);
            assert_eq!((first, second), (vec![10, 11], vec![20, 21]));
        });
    }
}
