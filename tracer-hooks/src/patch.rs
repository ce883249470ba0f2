//! Our hooks are put into the runtime's tables, and what stood there is saved.

use crate::abi::Entry;
use crate::originals::{self, Patched, Verdict};
use crate::runtime::{RUNTIME, Tables, Unsupported};
use crate::{calls, hooks};

/// Saves what is needed of `tables` in [`RUNTIME`] and patches the entries that are intercepted.
///
/// It does not matter whether the tables are about to be used for the first time or live: an
/// entry's original is saved before its hook can be called.
///
/// The helpers of a runtime are those of its own tables, for ever: threads may be inside of its hooks.
///
/// # Errors
///
/// [`Unsupported`]; nothing was changed.
pub fn save_and_patch(tables: &Tables, patched: Patched) -> Result<(), Unsupported> {
    let Tables { core, amd, .. } = tables;
    let to = &RUNTIME;
    to.check_that_it_is_of(core, amd)?;
    macro_rules! pairs {
        (
            $($table:ident . $entry:ident => $saved:ident $(, $hook:path)?;)*
            // Some releases have these.
            $(? $maybe:ident . $later:ident => $kept:ident, $late_hook:path;)*
        ) => {
            $(let $later = $maybe.$later.filter(|entry| entry.address() != 0);)*
            if $($table.$entry.address() == 0)||* {
                return Err(Unsupported::Entry);
            }
            if $($table.$entry.verdict(&to.$saved, pairs!(@address $($hook)?), patched)
                == Verdict::Covered)||*
                $(|| $later.is_some_and(|entry| {
                    entry.verdict(&to.$kept, pairs!(@address $late_hook), patched)
                        == Verdict::Covered
                }))*
            {
                return Err(Unsupported::Covered);
            }
            to.remember_tables(core, amd);
            // What is only called goes first, so that it is there when the first hook runs.
            $(pairs!(@save $table.$entry, $saved $(, $hook)?);)*
            $(pairs!(@patch $table.$entry, $saved $(, $hook)?);)*
            $(if let Some(entry) = $later {
                pairs!(@patch entry, $kept, $late_hook);
            })*
        };
        (@address) => { 0 };
        (@address $hook:path) => { $hook as *const () as usize };
        (@save $from:expr, $saved:ident) => { $from.save(&to.$saved, patched); };
        (@save $from:expr, $saved:ident, $hook:path) => {};
        (@patch $from:expr, $saved:ident) => {};
        (@patch $from:expr, $saved:ident, $hook:path) => {
            $from.patch(&to.$saved, pairs!(@address $hook), patched);
        };
    }
    pairs! {
        core.init => init;
        core.iterate_agents => iterate_agents;
        core.agent_get_info => agent_get_info;
        core.signal_destroy => signal_destroy;
        core.signal_subtract_screlease => subtract_screlease;
        core.executable_get_info => executable_get_info;
        core.executable_symbol_get_info => symbol_get_info;
        core.system_get_major_extension_table => major_extension_table;
        core.executable_iterate_agent_symbols => iterate_agent_symbols;
        amd.profiling_set_profiler_enabled => set_profiler;
        amd.profiling_convert_tick_to_system_domain => convert_tick;
        amd.signal_create => signal_create;
        amd.profiling_get_async_copy_time => copy_time, hooks::get_async_copy_time;
        amd.profiling_async_copy_enable => copy_profiling, hooks::async_copy_enable;
        core.shut_down => shut_down, hooks::shut_down;
        core.queue_create => queue_create, hooks::queue_create;
        core.queue_destroy => queue_destroy, hooks::queue_destroy;
        core.queue_store_write_index_relaxed => store_write_index_relaxed, hooks::store_write_index_relaxed;
        core.queue_store_write_index_screlease => store_write_index_screlease, hooks::store_write_index_screlease;
        core.queue_cas_write_index_scacq_screl => cas_write_index_scacq_screl, hooks::cas_write_index_scacq_screl;
        core.queue_cas_write_index_scacquire => cas_write_index_scacquire, hooks::cas_write_index_scacquire;
        core.queue_cas_write_index_relaxed => cas_write_index_relaxed, hooks::cas_write_index_relaxed;
        core.queue_cas_write_index_screlease => cas_write_index_screlease, hooks::cas_write_index_screlease;
        core.queue_add_write_index_scacq_screl => add_write_index_scacq_screl, hooks::add_write_index_scacq_screl;
        core.queue_add_write_index_scacquire => add_write_index_scacquire, hooks::add_write_index_scacquire;
        core.queue_add_write_index_relaxed => add_write_index_relaxed, hooks::add_write_index_relaxed;
        core.queue_add_write_index_screlease => add_write_index_screlease, hooks::add_write_index_screlease;
        core.executable_destroy => executable_destroy, hooks::executable_destroy;
        core.executable_freeze => executable_freeze, hooks::executable_freeze;
        amd.memory_async_copy => async_copy, hooks::async_copy;
        amd.memory_async_copy_rect => async_copy_rect, hooks::async_copy_rect;
        core.signal_wait_relaxed => wait_relaxed, hooks::wait_relaxed;
        core.signal_wait_scacquire => wait_scacquire, hooks::wait_scacquire;
        core.signal_load_relaxed => load_relaxed, hooks::load_relaxed;
        core.signal_load_scacquire => load_scacquire, hooks::load_scacquire;
        amd.signal_async_handler => async_handler, hooks::async_handler;
        amd.signal_wait_any => wait_any, hooks::wait_any;
        core.signal_store_relaxed => store_relaxed, hooks::store_relaxed;
        core.signal_store_screlease => store_screlease, hooks::store_screlease;
        core.signal_silent_store_relaxed => silent_store_relaxed, hooks::silent_store_relaxed;
        core.signal_silent_store_screlease => silent_store_screlease, hooks::silent_store_screlease;
        ? amd.memory_async_copy_on_engine => async_copy_on_engine, hooks::async_copy_on_engine;
        ? amd.signal_wait_all => wait_all, hooks::wait_all;
    }
    Ok(())
}

impl<F: Copy> Entry<F> {
    /// The verdict on this entry of a table, whose original we call, or have called, as `saved`, before `hook` is put
    /// there; `hook` is 0 if none is.
    fn verdict(&self, saved: &Self, hook: usize, patched: Patched) -> Verdict {
        let current = calls::beneath(self.address());
        originals::verdict(&self.0, current, hook, saved.address(), patched)
    }

    /// Saves the function that this entry of a table leads to, if nobody who calls us can be below.
    fn save(&self, saved: &Self, patched: Patched) {
        if self.verdict(saved, 0, patched) == Verdict::Ours {
            saved.set(calls::beneath(self.address()));
        }
    }

    /// Saves this table entry in `saved` and puts `hook` in its place, as far as that is right.
    fn patch(&self, saved: &Self, hook: usize, patched: Patched) {
        loop {
            let current = self.address();
            let behind_calls = calls::beneath(current);
            if self.verdict(saved, hook, patched) != Verdict::Ours {
                return;
            }
            saved.set(behind_calls);
            if originals::replace(&self.0, current, hook) {
                return;
            }
        }
    }
}
