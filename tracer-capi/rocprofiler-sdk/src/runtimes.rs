//! Runtimes that have begun: tools are told which, and of which version (`RUNTIME_INITIALIZATION`, since 1.0).

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use capi_sources::client_thread::InCallback;
use rocprofiler::callback::{CorrelationIds, Event, Phase};
use rocprofiler::kinds::Kind;
use roctracer::thread::own_ids;
use roctracer::timestamp_ns;

use crate::layout::number;
use crate::records::{self, Initialization, Runtime};
use crate::{SDK, process};

const KIND: Kind = Kind::RuntimeInitialization;

/// `rocprofiler_callback_tracing_runtime_initialization_data_t`.
#[repr(C)]
struct Payload {
    size: usize,
    version: u64,
    instance: u64,
}

/// Of which instances tools were told, by runtime: a bit for each.
static BEGUN: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];

fn bit(instance: u64) -> u64 {
    1_u64.checked_shl(instance.min(64) as u32).unwrap_or(0)
}

/// A runtime has begun, and its calls can be recorded. It may have been said before, by another way in which runtimes
/// come. Callbacks are not called inside of others, and may throw.
pub fn begins(initialization: Initialization) {
    let Initialization { runtime, version, instance } = initialization;
    let bit = bit(instance);
    let known = BEGUN[runtime as usize].fetch_or(bit, Ordering::Relaxed);
    if known & bit != 0 || process::is_forked() {
        return;
    }
    let operation = runtime as u32;
    let wanting = SDK.wanting(KIND, Some(operation as usize));
    if wanting.is_empty() {
        return;
    }
    let here = 0_u8;
    let inside = InCallback::enter(ptr::from_ref(&here) as usize);
    let thread = own_ids().thread;
    let record = records::initialization(number(KIND), &initialization, timestamp_ns(), thread);
    for service in SDK.each(KIND, wanting) {
        if let Some(buffer) = service.buffer() {
            buffer.write_at_once(&record);
            continue;
        }
        if inside.is_none() {
            continue;
        }
        let mut payload = Payload { size: size_of::<Payload>(), version, instance };
        let event = Event {
            thread: thread.into(),
            ids: CorrelationIds::default(),
            external_id: 0,
            kind: KIND,
            operation,
            phase: Phase::None,
            payload: ptr::from_mut(&mut payload).cast::<c_void>(),
        };
        service.tell(&event, &mut 0);
    }
}

/// Whether a runtime has begun, and not ended.
pub fn has_begun(runtime: Runtime) -> bool {
    BEGUN[runtime as usize].load(Ordering::Relaxed) != 0
}

/// The HSA runtime has ended: the next one begins.
pub fn hsa_ends() {
    BEGUN[Runtime::Hsa as usize].store(0, Ordering::Relaxed);
}
