//! Correlation ids that the program gives: a stack of them for each context and thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use tracer_hooks::lock::{Guard, Lock};

/// The time that a thread waits for another one that gives or ends an id. The first thread that never comes back from
/// that is the last to be waited for: from then on there are no ids. A handler of a signal that has interrupted its own
/// thread in here goes without one.
const WAIT_NS: u64 = 1_000_000_000;

/// Ids by thread, the innermost last.
type Stacks = HashMap<u64, Vec<u64>>;

/// Those of a context, by thread.
pub struct ExternalIds {
    stacks: Lock<Stacks>,
    /// There are some ids: without any, nobody looks.
    any: AtomicBool,
}

impl Default for ExternalIds {
    fn default() -> Self {
        Self { stacks: Lock::new(Stacks::new()), any: AtomicBool::new(false) }
    }
}

impl ExternalIds {
    fn lock(&self) -> Option<Guard<'_, Stacks>> {
        let wait = || if self.stacks.is_own() { None } else { self.stacks.lock_or_lose(WAIT_NS) };
        self.stacks.try_lock().or_else(wait)
    }

    /// The thread's work belongs to `id` from now on; false if it does not, since another thread did not come back in
    /// time.
    #[must_use]
    pub fn push(&self, thread: u64, id: u64) -> bool {
        let Some(mut stacks) = self.lock() else { return false };
        stacks.entry(thread).or_default().push(id);
        self.any.store(true, Ordering::Relaxed);
        true
    }

    /// The thread's work belongs to the id of before again. Returns the id that ends, 0 if there was none.
    pub fn pop(&self, thread: u64) -> u64 {
        let Some(mut stacks) = self.lock() else { return 0 };
        let Some(stack) = stacks.get_mut(&thread) else { return 0 };
        let id = stack.pop().unwrap_or(0);
        if stack.is_empty() {
            stacks.remove(&thread);
        }
        self.any.store(!stacks.is_empty(), Ordering::Relaxed);
        id
    }

    /// Whether there is any.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// The id to which a thread's work belongs; 0 if it has no id. `process` is the number of the first thread, whose
    /// id is that of threads without one of their own.
    #[inline]
    pub fn innermost(&self, thread: u64, process: u64) -> u64 {
        if !self.any() {
            return 0;
        }
        let Some(stacks) = self.lock() else { return 0 };
        let stack = stacks.get(&thread).or_else(|| stacks.get(&process));
        stack.and_then(|stack| stack.last().copied()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_threads_own_or_those_of_the_first_thread() {
        let ids = ExternalIds::default();
        assert_eq!((ids.innermost(1, 1), ids.pop(1)), (0, 0));
        assert!(ids.push(1, 10) && ids.push(2, 20) && ids.push(2, 21));
        assert_eq!([1, 2, 3].map(|thread| ids.innermost(thread, 1)), [10, 21, 10]);
        assert_eq!((ids.pop(2), ids.innermost(2, 1)), (21, 20));
        assert_eq!((ids.pop(2), ids.innermost(2, 1)), (20, 10));
        assert_eq!((ids.pop(1), ids.innermost(2, 1)), (10, 0));
    }

    #[test]
    fn who_is_interrupted_in_here_goes_without_an_id_once() {
        let ids = ExternalIds::default();
        assert!(ids.push(1, 10));
        let interrupted = ids.lock().expect("free");
        assert_eq!((ids.innermost(1, 1), ids.push(1, 11), ids.pop(1)), (0, false, 0));
        drop(interrupted);
        assert_eq!((ids.innermost(1, 1), ids.push(1, 11), ids.pop(1)), (10, true, 11));
    }
}
