//! The plugin, which one thread at a time calls.

#![expect(unsafe_code, reason = "functions of a library that is loaded")]

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use std::mem;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use capi_common::messages;
use capi_common::plugin::Error;
use tracer_common::activity::ActivityRecord;
use tracer_hooks::sys;

/// The time that the end waits for a thread that is in the plugin.
const PATIENCE: Duration = Duration::from_secs(5);

/// A plugin that has begun.
pub struct Plugin {
    functions: capi_common::plugin::Plugin,
    /// Whether it is in use; the thread that calls it holds the lock.
    in_use: Mutex<bool>,
    /// A thread that was in it when the process ended has not left it: no thread waits for that any more.
    is_given_up: AtomicBool,
    /// The number of times that it could not write.
    failures: AtomicU64,
    /// Calls that threads made inside of the plugin.
    left_out: AtomicU64,
}

thread_local! {
    /// The thread is in the plugin. The plugin is not told of calls that it makes of HIP or HSA itself, nor of those of
    /// handlers of signals meanwhile.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The thread is in the plugin until this is dropped.
struct Inside<'a> {
    in_use: MutexGuard<'a, bool>,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

impl Plugin {
    /// Loads a plugin, which stays, and has it begin.
    pub fn load(path: &Path) -> Result<Self, Error> {
        INSIDE.set(true);
        let functions = capi_common::plugin::Plugin::load(path);
        INSIDE.set(false);
        Ok(Self {
            functions: functions?,
            in_use: Mutex::new(true),
            is_given_up: AtomicBool::new(false),
            failures: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        })
    }

    /// The plugin, for the calling thread; none if it is in the plugin already.
    fn enter(&self) -> Option<Inside<'_>> {
        if INSIDE.get() {
            return None;
        }
        let in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        INSIDE.set(true);
        Some(Inside { in_use })
    }

    /// Writes while signals wait: a handler that left by a jump would leave the plugin taken, and one that made a call
    /// would wait for its own thread.
    fn write<'a>(
        &'a self,
        enter: impl FnOnce(&'a Self) -> Option<Inside<'a>>,
        records: u64,
        write: impl FnOnce() -> c_int,
    ) {
        let status = sys::uninterrupted(|| {
            let Some(inside) = enter(self) else {
                self.left_out.fetch_add(records, Ordering::Relaxed);
                return 0;
            };
            // Threads that go on while the process ends come too late: nobody misses their calls.
            if *inside.in_use { write() } else { 0 }
        });
        if status != 0 && self.failures.fetch_add(1, Ordering::Relaxed) == 0 {
            let path = self.functions.path().display();
            messages::warn(format_args!(
                "the plugin {path} has returned an error: lines are missing in what it writes"
            ));
        }
    }

    /// Hands a call over.
    ///
    /// # Safety
    ///
    /// `data` is what callbacks of the record's domain are given.
    pub unsafe fn call(&self, record: &ActivityRecord, data: *const c_void) {
        // SAFETY: the plugin's function, with what it takes, as the caller promises.
        self.write(Self::enter, 1, || unsafe { self.functions.write_call(record, data) });
    }

    /// Hands activities over.
    ///
    /// # Safety
    ///
    /// They are records, from `begin` to before `end`.
    pub unsafe fn activities<'a>(
        &'a self,
        begin: *const ActivityRecord,
        end: *const ActivityRecord,
    ) {
        let count = end.addr().saturating_sub(begin.addr()) / size_of::<ActivityRecord>();
        let enter = |plugin: &'a Self| plugin.enter_while(|| !plugin.is_given_up());
        // SAFETY: the plugin's function, with what it takes, as the caller promises.
        let write = || unsafe { self.functions.write_activities(begin, end) };
        self.write(enter, count as u64, write);
    }

    /// Hands over no record: our plugin then writes the lines that it has in memory.
    pub fn flush(&self) {
        let nothing = ActivityRecord::default();
        // SAFETY: no records.
        unsafe { self.activities(&raw const nothing, &raw const nothing) };
    }

    /// The process ends. Waits for a thread that is in the plugin, but not for ever; from then on no thread waits for
    /// it. Returns whether more can be handed over.
    pub fn begin_to_end(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let is_free = self.enter_while(|| Instant::now() < deadline).is_some();
        if !is_free {
            self.is_given_up.store(true, Ordering::Relaxed);
            let path = self.functions.path().display();
            messages::warn(format_args!(
                "a thread does not leave the plugin {path}: what it has not written is missing"
            ));
        }
        is_free
    }

    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// Has the plugin end, and says which records are missing.
    pub fn end(&self) {
        let path = self.functions.path().display();
        let deadline = Instant::now() + PATIENCE;
        let entered = self.enter_while(|| !self.is_given_up() && Instant::now() < deadline);
        let Some(mut inside) = entered else { return };
        if mem::replace(&mut *inside.in_use, false) {
            // SAFETY: the plugin's function, after all others.
            unsafe { self.functions.finalize() };
        }
        drop(inside);
        let (failures, left_out) =
            (self.failures.load(Ordering::Relaxed), self.left_out.load(Ordering::Relaxed));
        if failures > 1 {
            messages::warn(format_args!("the plugin {path} has returned {failures} errors"));
        }
        if left_out > 0 {
            messages::warn(format_args!(
                "{left_out} records are missing: they are of calls that were made inside of the plugin"
            ));
        }
    }

    /// As [`Plugin::enter`], but waits for the plugin as long as `waits` holds.
    fn enter_while(&self, waits: impl Fn() -> bool) -> Option<Inside<'_>> {
        if INSIDE.get() {
            return None;
        }
        loop {
            let in_use = match self.in_use.try_lock() {
                Ok(in_use) => in_use,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if waits() => {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                Err(TryLockError::WouldBlock) => return None,
            };
            INSIDE.set(true);
            return Some(Inside { in_use });
        }
    }
}
