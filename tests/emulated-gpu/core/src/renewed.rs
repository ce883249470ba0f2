//! What a process has one of, and a fork's child can have anew.
#![expect(unsafe_code, reason = "a pointer that is null or leaked")]

use std::sync::atomic::{AtomicPtr, Ordering};

/// One of it, made when it is first asked for. A child has its parent's until it asks for its own: threads
/// are gone there, and memory is a copy.
pub struct Renewed<T: 'static>(AtomicPtr<Made<T>>);

struct Made<T> {
    pid: u32,
    value: T,
}

impl<T: Sync> Renewed<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// What there is.
    pub fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        match self.current() {
            Some(made) => &made.value,
            None => self.replace(None, make()),
        }
    }

    /// The same, made anew if it is the parent's.
    pub fn of_this_process(&self, make: impl FnOnce() -> T) -> &'static T {
        match self.current() {
            Some(made) if made.pid == std::process::id() => &made.value,
            old => self.replace(old, make()),
        }
    }

    fn current(&self) -> Option<&'static Made<T>> {
        // SAFETY: what is stored was leaked by `replace`. Acquire pairs with the release there.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Puts `value` in the place of `old`, unless another thread was faster: then its one counts.
    fn replace(&self, old: Option<&'static Made<T>>, value: T) -> &'static T {
        let old = old.map_or(std::ptr::null_mut(), |old| std::ptr::from_ref(old).cast_mut());
        let new = Box::into_raw(Box::new(Made { pid: std::process::id(), value }));
        // Release pairs with the acquire in `current`, and on failure with the other thread's release.
        let made = match self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(theirs) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                theirs
            }
        };
        // SAFETY: leaked, by us or by the other thread.
        &unsafe { &*made }.value
    }
}

#[cfg(test)]
mod tests {
    use super::Renewed;

    #[test]
    fn it_is_made_once() {
        static ONE: Renewed<u32> = Renewed::new();
        assert_eq!((*ONE.get(|| 1), *ONE.get(|| 2), *ONE.of_this_process(|| 3)), (1, 1, 1));
    }

    #[test]
    fn a_child_has_its_own() {
        static ONE: Renewed<u32> = Renewed::new();
        assert_eq!(*ONE.get(|| 1), 1);
        let own = || u32::from(*ONE.get(|| 2) == 1 && *ONE.of_this_process(|| 3) == 3);
        assert_eq!(crate::sys::exit_status_of_a_child(|| own() as i32), 1);
        assert_eq!(*ONE.of_this_process(|| 4), 1);
    }
}
