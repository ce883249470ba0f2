//! The four functions (`roctracer_plugin.h`).

#![expect(unsafe_code, reason = "exports, and records of the tool's")]

use core::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{process, slice};

use capi_common::messages;
use tracer_common::activity::ActivityRecord;
use tracer_hooks::{contained, sys};

use crate::plugin::{Error, Options, Plugin};

/// The version that this serves: records of another major version may differ, and a lower minor version may not tell
/// everything that is needed.
const MAJOR: u32 = 4;
const LEAST_MINOR: u32 = 1;

const SUCCESS: c_int = 0;
const ERROR: c_int = -1;

static PLUGIN: Mutex<Option<Plugin>> = Mutex::new(None);
/// The process that has begun; 0 if none has.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The plugin, in its own process: in a forked child the plugin may be locked for ever, and its files are the parent's.
fn plugin() -> Result<MutexGuard<'static, Option<Plugin>>, Error> {
    if OWNER.load(Ordering::Relaxed) != process::id() {
        return Err(Error::NoSuchCall);
    }
    // A panic in the middle of a line leaves all others as they are.
    Ok(PLUGIN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The result of a function. A panic, which is a bug, is an error.
fn answer(act: impl FnOnce() -> Result<(), Error>) -> c_int {
    match contained(|| act().is_ok()) {
        Some(true) => SUCCESS,
        _ => ERROR,
    }
}

/// Begins.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_plugin_initialize(major: u32, minor: u32) -> c_int {
    let begin = || {
        if major != MAJOR || minor < LEAST_MINOR {
            messages::warn(format_args!(
                "the file plugin serves version {MAJOR}.{LEAST_MINOR} of roctracer, not {major}.{minor}"
            ));
            return false;
        }
        let owner = OWNER.compare_exchange(0, process::id(), Ordering::Relaxed, Ordering::Relaxed);
        if owner.is_err() {
            messages::warn(format_args!("the file plugin is in use already"));
            return false;
        }
        let made = Plugin::new(Options::of_environment(), sys::now_ns());
        let is_made = made.is_ok();
        match plugin() {
            Ok(mut plugin) if is_made => *plugin = made.ok(),
            _ => OWNER.store(0, Ordering::Relaxed),
        }
        is_made
    };
    if contained(begin) == Some(true) { SUCCESS } else { ERROR }
}

/// Ends: the records that were handed over are written.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_plugin_finalize() {
    contained(|| {
        let Ok(mut plugin) = plugin() else { return };
        if let Some(mut plugin) = plugin.take() {
            // The error was said.
            let _ = plugin.flush();
        }
        OWNER.store(0, Ordering::Relaxed);
    });
}

/// Writes a call.
///
/// # Safety
///
/// `record` is null or a record, and `data` null or what callbacks of its domain are given.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctracer_plugin_write_callback_record(
    record: *const ActivityRecord,
    data: *const c_void,
) -> c_int {
    answer(|| {
        // SAFETY: as the caller promises.
        let record = unsafe { record.as_ref() }.ok_or(Error::NoSuchCall)?;
        let mut plugin = plugin()?;
        let plugin = plugin.as_mut().ok_or(Error::NoSuchCall)?;
        // SAFETY: as the caller promises.
        unsafe { plugin.call(record, data) }
    })
}

/// Writes the records from `begin` to before `end`, and the lines that are in memory.
///
/// # Safety
///
/// They are records.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctracer_plugin_write_activity_records(
    begin: *const ActivityRecord,
    end: *const ActivityRecord,
) -> c_int {
    answer(|| {
        let bytes = end.addr().checked_sub(begin.addr()).ok_or(Error::NoSuchCall)?;
        if begin.is_null() || !begin.is_aligned() {
            return Err(Error::NoSuchCall);
        }
        let count = bytes / size_of::<ActivityRecord>();
        // SAFETY: as the caller promises.
        let records = unsafe { slice::from_raw_parts(begin, count) };
        let mut plugin = plugin()?;
        let plugin = plugin.as_mut().ok_or(Error::NoSuchCall)?;
        // All of them, also behind one that cannot be written.
        // SAFETY: as the caller promises.
        let write = |record| unsafe { plugin.activity(record) };
        let written = records.iter().map(write).fold(Ok(()), Result::and);
        plugin.flush().and(written)
    })
}
