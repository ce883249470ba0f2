//! Tools that want the tables of runtimes, to put functions of their own into them: above ours, where there are any.

#![expect(unsafe_code, reason = "an export, and functions of tools")]

use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::Arc;
use std::time::Instant;

use rocprofiler::callback::Calls;
use rocprofiler::sdk::stage;
use rocprofiler::status::Status;
use tracer_hooks::lock::Lock;

use crate::tools::{self, Argument};
use crate::{SDK, answer};

/// Tables of `rocprofiler_intercept_table_t`.
pub mod table {
    pub const HSA: u32 = 1;
    pub const HIP_RUNTIME: u32 = 2;
    pub const HIP_COMPILER: u32 = 4;
    /// Those of marks and ranges, of pauses, and of names.
    pub const MARKERS: [u32; 3] = [8, 16, 32];
    pub const RCCL: u32 = 64;
    /// All of them; two more are of later interfaces, and no tool is ever told of these.
    pub const ALL: u32 = if cfg!(feature = "v1") { 511 } else { 127 };
}

/// `rocprofiler_intercept_library_cb_t`: the kind of the table, the version of the library, the number of tables of the
/// kind before, tables, their number, data. It may throw.
type Function = unsafe extern "C-unwind" fn(u32, u64, u64, *mut *mut c_void, u64, *mut c_void);

/// A tool that wants tables.
struct TableSubscriber {
    client: u32,
    tables: u32,
    function: Function,
    data: Argument,
    calls: Calls,
}

static SUBSCRIBERS: Lock<Vec<Arc<TableSubscriber>>> = Lock::new(Vec::new());

/// The time that a thread waits for another one here.
const WAIT_NS: u64 = 1_000_000_000;

/// Has a function called with each of these tables that a runtime hands over: 0 are all.
///
/// # Safety
///
/// `function` takes `data`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_at_intercept_table_registration(
    function: Option<Function>,
    tables: c_int,
    data: *mut c_void,
) -> u32 {
    answer::of(|| {
        if SDK.initialized() == stage::OVER {
            return Err(Status::ConfigurationLocked);
        }
        let function = function.ok_or(Status::InvalidArgument)?;
        let tables = match tables.cast_unsigned() {
            0 => table::ALL,
            some if some & !table::ALL == 0 => some,
            _ => return Err(Status::InvalidArgument),
        };
        let mut wishes = SUBSCRIBERS.lock_for(WAIT_NS).ok_or(Status::Error)?;
        wishes.push(Arc::new(TableSubscriber {
            client: tools::current(),
            tables,
            function,
            data: Argument(data),
            calls: Calls::default(),
        }));
        Ok(())
    })
}

/// A tool is called no more. Waits, until a time, for calls that are under way. Returns whether they have returned.
pub fn silence(client: u32, until: Instant) -> bool {
    let Some(mut wishes) = SUBSCRIBERS.lock_for(WAIT_NS) else { return false };
    let own: Vec<_> = wishes.extract_if(.., |wish| wish.client == client).collect();
    drop(wishes);
    own.iter().for_each(|wish| wish.calls.silence());
    own.iter().filter(|wish| !wish.calls.wait(until)).count() == 0
}

/// A runtime has handed a table over: tools may change it.
///
/// # Safety
///
/// It is a table of this kind, which stays.
pub unsafe fn tell(kind: u32, version: u64, instance: u64, mut table: *mut c_void) {
    // Not under the lock: a tool that is told may ask for more tables.
    let wishes = SUBSCRIBERS.lock_for(WAIT_NS).map(|wishes| wishes.clone());
    for wish in wishes.iter().flatten().filter(|wish| wish.tables & kind != 0) {
        if let Some(_calling) = wish.calls.begin() {
            let (tables, data) = (ptr::from_mut(&mut table), wish.data.get());
            // SAFETY: the tool's function, with its data, and one table.
            unsafe { (wish.function)(kind, version, instance, tables, 1, data) };
        }
    }
}
