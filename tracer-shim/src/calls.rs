//! Calls into the rings: the [`CallSink`], and how the tables are patched for it.

use tracer_common::calls::Call;
use tracer_common::shim::{control, state};
use tracer_common::slots::SLOT_COUNT;
use tracer_hooks::calls::{CallSink, Detail};
use tracer_hooks::{InstallError, Tables, Timing, Unsupported};

use crate::open_calls;
use crate::recorder::{RECORDER, begin_calls};

/// The one call sink of the process.
pub struct Calls;

impl CallSink for Calls {
    fn begins(&self, call: &mut Call, at: usize) -> Detail {
        let memory = RECORDER.memory();
        let is_recorded = memory.is_some_and(|memory| open_calls::begins(&memory, call, at));
        if is_recorded { Detail::End } else { Detail::Nothing }
    }

    fn ends(&self, call: &Call, at: usize) {
        let Some(memory) = RECORDER.memory() else { return };
        open_calls::ends(&memory, call, at);
    }

    fn hip_is_patched(&self) {
        if let Some(memory) = RECORDER.memory() {
            begin_calls(&memory);
        }
    }
}

/// Learns from the memory which calls are wanted; before anything is installed.
fn want() {
    if let Some(memory) = RECORDER.memory() {
        let words = (0..SLOT_COUNT).map(|slot| memory.control(control::CALLS + slot));
        tracer_hooks::calls::want(words, &Calls);
    }
}

/// Patches the runtimes' tables: operations are recorded from then on if we record, and the calls that
/// the memory wants, by thunks in front of everything else. Of unknown tables the memory is told.
///
/// # Errors
///
/// [`InstallError`]; nothing is recorded.
pub fn install(tables: Result<Tables, Unsupported>, timing: Timing) -> Result<(), InstallError> {
    want();
    let installed = tables.map_err(InstallError::Unsupported).and_then(|tables| {
        tracer_hooks::prepare_process(&RECORDER)?;
        // First: calls of HIP are recorded before the operations that they enqueue.
        tracer_hooks::calls::patch_hip();
        tracer_hooks::install(tables, &RECORDER, timing).map(|()| tables)
    });
    if let Ok(tables) = &installed {
        tracer_hooks::calls::patch(tables);
    }
    if let Some(memory) = RECORDER.memory() {
        match installed {
            Ok(_) if memory.control(control::STATE) == state::ACTIVE => begin_calls(&memory),
            Err(InstallError::Unsupported(_)) => {
                memory.set_control(control::STATE, state::UNSUPPORTED);
            }
            Err(InstallError::Thread) => memory.set_control(control::STATE, state::NO_THREAD),
            _ => {}
        }
    }
    installed.map(|_| ())
}
