//! Correlation ids that the program gives: a stack of them for each context and thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

/// Those of a context, by thread.
#[derive(Default)]
pub struct ExternalIds {
    stacks: RwLock<HashMap<u64, Vec<u64>>>,
    /// Some have been given: until then nobody looks.
    any: AtomicBool,
}

impl ExternalIds {
    /// What a thread does from now on belongs to `id`.
    pub fn push(&self, thread: u64, id: u64) {
        self.any.store(true, Ordering::Relaxed);
        let mut stacks = self.stacks.write().unwrap_or_else(PoisonError::into_inner);
        stacks.entry(thread).or_default().push(id);
    }

    /// It belongs to what it belonged to before. The id that ends, 0 if there was none.
    pub fn pop(&self, thread: u64) -> u64 {
        let mut stacks = self.stacks.write().unwrap_or_else(PoisonError::into_inner);
        let Some(stack) = stacks.get_mut(&thread) else { return 0 };
        let id = stack.pop().unwrap_or(0);
        if stack.is_empty() {
            stacks.remove(&thread);
        }
        id
    }

    /// Whether any was ever given.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// What a thread does belongs to this; 0 if it has no id. `process` is the number of the first thread, whose id is that
    /// of threads without one of their own.
    #[inline]
    pub fn innermost(&self, thread: u64, process: u64) -> u64 {
        if !self.any() {
            return 0;
        }
        let stacks = self.stacks.read().unwrap_or_else(PoisonError::into_inner);
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
        ids.push(1, 10);
        ids.push(2, 20);
        ids.push(2, 21);
        assert_eq!([1, 2, 3].map(|thread| ids.innermost(thread, 1)), [10, 21, 10]);
        assert_eq!((ids.pop(2), ids.innermost(2, 1)), (21, 20));
        assert_eq!((ids.pop(2), ids.innermost(2, 1)), (20, 10));
        assert_eq!((ids.pop(1), ids.innermost(2, 1)), (10, 0));
    }
}
