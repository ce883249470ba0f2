//! The calls of a runtime that a thread is in, innermost last.

#![expect(unsafe_code, reason = "the thread's own memory")]

use core::cell::Cell;
use core::{mem, ptr};
use std::thread::LocalKey;

/// A call, and the data that is kept of it.
#[derive(Default)]
pub struct Call<T> {
    /// An address in its stack frame: addresses below belong to calls inside of it.
    pub at: usize,
    /// Its correlation id.
    pub id: u64,
    /// The other data that is kept of it.
    pub kept: T,
}

/// The client's callback of the begin of a call.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub enum CallbackState {
    /// It was not called.
    #[default]
    NotCalled,
    /// It has not returned: it is being called, or was left by an exception.
    Entered,
    /// It has returned.
    Returned,
}

/// Those of a thread.
#[derive(Default)]
pub struct Calls<T> {
    /// The calls that the thread is in, up to `depth`; those behind are free for the next calls. Runtimes and clients
    /// have pointers to them: they stay where they are.
    calls: Vec<Box<Call<T>>>,
    depth: usize,
}

impl<T: Default> Calls<T> {
    /// A call begins. Its data is that of an earlier call, to be used again. None if there is no memory.
    pub fn begin(&mut self, at: usize, id: u64) -> Option<&mut Call<T>> {
        if self.depth == self.calls.len() {
            self.calls.try_reserve(1).ok()?;
            self.calls.push(Box::default());
        }
        let call = &mut **self.calls.get_mut(self.depth)?;
        self.depth += 1;
        (call.at, call.id) = (at, id);
        Some(call)
    }

    /// The innermost.
    pub fn innermost(&mut self) -> Option<&mut Call<T>> {
        self.innermost_of(|_| true)
    }

    /// The innermost call for which `is_meant` holds, to be changed.
    pub fn innermost_of(&mut self, is_meant: impl Fn(&Call<T>) -> bool) -> Option<&mut Call<T>> {
        let calls = self.calls.get_mut(..self.depth)?.iter_mut().rev();
        calls.map(|call| &mut **call).find(|call| is_meant(call))
    }

    /// The correlation id of the innermost; 0 if there is none.
    pub fn innermost_id(&mut self) -> u64 {
        self.innermost().map_or(0, |call| call.id)
    }

    /// The innermost call for which `is_meant` holds.
    pub fn find(&self, is_meant: impl Fn(&Call<T>) -> bool) -> Option<&Call<T>> {
        self.calls.get(..self.depth)?.iter().rev().map(|call| &**call).find(|&call| is_meant(call))
    }

    /// The innermost call for which `is_meant` holds has ended. For the calls inside of it no end was reported.
    pub fn end(&mut self, is_meant: impl Fn(&Call<T>) -> bool) -> Option<&mut Call<T>> {
        self.depth = self.calls[..self.depth].iter().rposition(|call| is_meant(call))?;
        self.calls.get_mut(self.depth).map(|call| &mut **call)
    }

    /// Forgets calls that were left by a jump: their frames are below this one.
    pub fn leave_below(&mut self, at: usize) {
        while self.innermost().is_some_and(|call| call.at < at) {
            self.depth -= 1;
        }
    }
}

/// The place of a thread's calls of a runtime. Without a destructor: a program calls the runtime in destructors of its
/// own, to a thread's very end.
pub type CallsOfThread<T> = LocalKey<Cell<*mut Calls<T>>>;

/// Gives the calls back when the thread ends. Calls that come later stay.
pub struct AtEnd<T: 'static>(pub &'static CallsOfThread<T>);

impl<T> Drop for AtEnd<T> {
    fn drop(&mut self) {
        let calls = self.0.get();
        // SAFETY: null, or the thread's own, which nobody else uses.
        let is_in_none = unsafe { calls.as_ref() }.is_some_and(|calls| calls.depth == 0);
        if is_in_none {
            self.0.set(ptr::null_mut());
            // SAFETY: it was made from a box, and is no one's any more.
            drop(unsafe { Box::from_raw(calls) });
        }
    }
}

/// The calls of every thread, with a value of this type for each call: an [`OfThreads`], for a constant.
#[macro_export]
macro_rules! calls_of_threads {
    ($kept:ty) => {{
        use core::cell::Cell;
        use $crate::open::{AtEnd, Calls, OfThreads};
        thread_local! {
            static CALLS: Cell<*mut Calls<$kept>> = const { Cell::new(core::ptr::null_mut()) };
            static AT_END: AtEnd<$kept> = const { AtEnd(&CALLS) };
        }
        OfThreads { place: &CALLS, at_end: &AT_END }
    }};
}

/// The calls of every thread.
pub struct OfThreads<T: 'static> {
    /// Where they are.
    pub place: &'static CallsOfThread<T>,
    /// The guard that gives them back.
    pub at_end: &'static LocalKey<AtEnd<T>>,
}

impl<T: Default> OfThreads<T> {
    /// The calling thread's, if it has had any. No code of others' is called while they are borrowed.
    pub fn known<'a>(&self) -> Option<&'a mut Calls<T>> {
        // SAFETY: null, or the thread's own, which is not borrowed: nobody who has it comes here again.
        unsafe { self.place.get().as_mut() }
    }

    /// The same; they are made if there are none.
    pub fn own<'a>(&self) -> &'a mut Calls<T> {
        self.place.with(|place| {
            if place.get().is_null() {
                place.set(Box::into_raw(Box::default()));
                // A thread that is ending gives nothing back any more.
                let _ = self.at_end.try_with(|_| ());
            }
            // SAFETY: as above, and made above.
            unsafe { &mut *place.get() }
        })
    }

    /// A call begins, whose frame is at `at`. None if there is no memory.
    pub fn begin<'a>(&self, at: usize, id: u64) -> Option<&'a mut T> {
        let own = self.own();
        own.leave_below(at);
        own.begin(at, id).map(|call| &mut call.kept)
    }

    /// The call whose frame is at `at`.
    pub fn find<'a>(&self, at: usize) -> Option<&'a mut T> {
        let own = self.known()?;
        own.leave_below(at);
        own.innermost().filter(|call| call.at == at).map(|call| &mut call.kept)
    }

    /// The call whose frame is at `at` has ended.
    pub fn end(&self, at: usize) {
        if let Some(own) = self.known() {
            own.leave_below(at + 1);
        }
    }

    /// As [`Self::end`]; returns the data that was kept of the call.
    pub fn take(&self, at: usize) -> Option<T> {
        let kept = mem::take(self.find(at)?);
        self.end(at);
        Some(kept)
    }

    /// The innermost call that the thread is in, of those whose frames are known.
    pub fn innermost<'a>(&self) -> Option<&'a mut Call<T>> {
        self.innermost_of(|_| true)
    }

    /// The innermost call whose data `is_meant` holds for.
    pub fn innermost_of<'a>(&self, is_meant: impl Fn(&T) -> bool) -> Option<&'a mut Call<T>> {
        let here = 0u8;
        self.innermost_around(ptr::from_ref(&here) as usize, is_meant)
    }

    /// The innermost of those around the frame at `at`, where no other call is inside of that.
    pub fn innermost_around<'a>(
        &self,
        at: usize,
        is_meant: impl Fn(&T) -> bool,
    ) -> Option<&'a mut Call<T>> {
        let own = self.known()?;
        own.leave_below(at);
        own.innermost_of(|call| is_meant(&call.kept))
    }

    /// Its correlation id; 0 if there is none.
    pub fn innermost_id(&self) -> u64 {
        self.innermost().map_or(0, |call| call.id)
    }
}
