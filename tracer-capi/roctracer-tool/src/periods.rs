//! Threads that start and stop tracing, and that have the recorded activities delivered. They end with the process.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use capi_common::messages;
use tracer_hooks::sys;

use crate::roctracer::Roctracer;

/// Whether the end has come.
struct End {
    has_come: Mutex<bool>,
    comes: Condvar,
}

static END: End = End { has_come: Mutex::new(false), comes: Condvar::new() };

/// The threads do nothing more.
pub fn end() {
    *END.has_come.lock().unwrap_or_else(PoisonError::into_inner) = true;
    END.comes.notify_all();
}

/// Waits, unless the end comes meanwhile. Whether it has not.
fn wait(time: Duration) -> bool {
    let has_come = END.has_come.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = END.comes.wait_timeout_while(has_come, time, |has_come| !*has_come);
    !*waited.unwrap_or_else(PoisonError::into_inner).0
}

/// Starts a thread on which no handler of the program's runs.
fn start(run: impl FnOnce() + Send + 'static) {
    let started = sys::uninterrupted(|| Builder::new().name("roctracer-tool".into()).spawn(run));
    if let Err(error) = started {
        messages::warn(format_args!("cannot start a thread: {error}"));
    }
}

/// Traces for `length`, after `delay`, and again `rate` after each begin.
pub fn control(roctracer: &'static Roctracer, delay: Duration, length: Duration, rate: Duration) {
    start(move || {
        let mut goes_on = wait(delay);
        while goes_on {
            roctracer.start();
            goes_on = wait(length);
            roctracer.stop();
            goes_on = goes_on && wait(rate.saturating_sub(length));
        }
    });
}

/// Calls `flush`, which delivers the recorded activities, again and again.
pub fn flush(every: Duration, flush: impl Fn() + Send + 'static) {
    start(move || {
        while wait(every) {
            flush();
        }
    });
}
