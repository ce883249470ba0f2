//! Decides which calls of HSA, and of HIP where a client wants them so, are recorded as they pass through thunks in the
//! runtimes' tables ([`tracer_hooks::calls`]). A function is known by its place in [`tracer_common::slots`].
//!
//! The first `hsa_init` is not seen, since the tables are made inside of it.

#![expect(unsafe_code, reason = "functions of the runtime")]

use core::ffi::c_void;

use tracer_common::calls::Wanted;
use tracer_common::hsa_functions::slot;
use tracer_common::slots::SLOT_COUNT;
use tracer_hooks::calls::{self, CallSink};
use tracer_hooks::{Tables, contained};

/// A library with an interface of its own, which writes records.
pub trait Client: CallSink + Sized {
    /// The parts of a function's calls that it receives; none of a function whose calls it never wants.
    fn wish(&self, slot: usize) -> Option<Wanted>;

    /// Whether calls of a function are to be recorded just now.
    fn is_wanted(&self, slot: usize) -> bool;

    /// Has the wanted calls that pass through these tables recorded. Hooks are installed.
    fn patch(&'static self, tables: &Tables) {
        self.tell_wishes();
        contained(|| calls::patch(tables));
        self.record_all();
    }

    /// Has thunks put into tables that are patched from now on, for all functions whose calls may be wanted.
    fn tell_wishes(&'static self) {
        let wish = |slot| self.wish(slot).map_or(0, Wanted::to_word);
        calls::want((0..SLOT_COUNT).map(wish), self);
    }

    /// The wanted calls have changed for all functions.
    fn record_all(&self) {
        (0..SLOT_COUNT).for_each(|slot| self.record(slot));
    }

    /// The wanted calls of a function have changed.
    fn record(&self, slot: usize) {
        loop {
            let now = self.is_wanted(slot);
            calls::record(slot, now);
            // Another thread may have changed it, and come first.
            if self.is_wanted(slot) == now {
                return;
            }
        }
    }
}

/// A function of the runtime, behind our thunk, so that no sink receives the call. None before the thunk was there.
///
/// # Safety
///
/// `F` is the type of the slot's function.
#[must_use]
pub unsafe fn function<F: Copy>(slot: usize) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    let address = calls::original(slot);
    // SAFETY: as the caller promises; it is not null.
    (address != 0).then(|| unsafe { core::mem::transmute_copy::<usize, F>(&address) })
}

const SUCCESS: u32 = 0;
type Next = unsafe extern "C" fn(u64, *mut c_void) -> u32;
type Agents = unsafe extern "C" fn(Next, *mut c_void) -> u32;
type Pools = unsafe extern "C" fn(u64, Next, *mut c_void) -> u32;

unsafe extern "C" fn add(handle: u64, handles: *mut c_void) -> u32 {
    // SAFETY: what is given to the runtime below.
    unsafe { (*handles.cast::<Vec<u64>>()).push(handle) };
    SUCCESS
}

/// All agents.
#[must_use]
pub fn agents() -> Vec<u64> {
    let mut agents = Vec::new();
    // SAFETY: the runtime's function of that name; it calls back before it returns.
    if let Some(iterate) = unsafe { function::<Agents>(slot("hsa_iterate_agents")) } {
        // SAFETY: as above.
        unsafe { iterate(add, (&raw mut agents).cast()) };
    }
    agents
}

/// The agent that has a pool of memory, or a region, which have the same handles.
#[must_use]
pub fn agent_of_pool(pool: u64) -> Option<u64> {
    // SAFETY: the runtime's function of that name; it calls back before it returns.
    let iterate = unsafe { function::<Pools>(slot("hsa_amd_agent_iterate_memory_pools")) }?;
    agents().into_iter().find(|&agent| {
        let mut pools: Vec<u64> = Vec::new();
        // SAFETY: as above.
        unsafe { iterate(agent, add, (&raw mut pools).cast()) };
        pools.contains(&pool)
    })
}
