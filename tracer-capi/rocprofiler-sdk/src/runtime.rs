//! How calls and work get in: what the HSA runtime looks for in a library that it loads as a tool, and what it is handed
//! over by.
//!
//! Runtimes with rocprofiler-register hand their tables over ([`registration`]). Others load this library as a tool: since
//! ROCm 5.3 because it is loaded, before because `HSA_TOOLS_LIB` names it, which this library sees to where it is loaded
//! before the program begins.

#![expect(unsafe_code, reason = "exports, and a place in the library")]

use core::ffi::{c_char, c_void};

use capi_common::hip::LIBRARY;
use capi_common::hsa_tools;
use capi_common::loaded::Loaded;
use tracer_hooks::{Timing, contained};

use crate::records::{Initialization, Runtime};
use crate::{intercept_tables, log, process, registration, runtimes, sources, work};

/// By which runtimes tell of themselves, where they have it.
const REGISTER: &[u8] = b"librocprofiler-register.so";

/// When it is the library's turn among other tools: the lower comes first.
#[unsafe(no_mangle)]
static HSA_AMD_TOOL_PRIORITY: u32 = 50;

/// The runtime has begun. Returns that the library is to stay.
///
/// # Safety
///
/// `table` is null or the runtime's own table.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn OnLoad(
    table: *const c_void,
    _runtime_version: u64,
    _failed_tools: u64,
    _failed_tool_names: *const *const c_char,
) -> bool {
    if process::is_forked() {
        return true;
    }
    log::info(format_args!("the HSA runtime has loaded this library as a tool"));
    // A tool may throw, on the program's thread.
    registration::initialize();
    // SAFETY: as the caller promises.
    unsafe { sources::runtime_begins(table, Timing::AtStart) };
    if !table.is_null() {
        // Some runtimes have handed it over as well: tools would take their own functions for the runtime's.
        if !runtimes::has_begun(Runtime::Hsa) {
            // SAFETY: as the caller promises. Its version is not known here.
            unsafe { intercept_tables::tell(intercept_tables::table::HSA, 0, 0, table.cast_mut()) };
            begins(Runtime::Hsa);
        }
        if Loaded::find(LIBRARY).is_some() && Loaded::find(REGISTER).is_none() {
            begins(Runtime::Hip);
        }
    }
    true
}

/// One that does not tell its version.
fn begins(runtime: Runtime) {
    runtimes::begins(Initialization { runtime, version: 0, instance: 0 });
}

/// The runtime ends.
#[unsafe(no_mangle)]
extern "C-unwind" fn OnUnload() {
    work::runtime_ends();
    runtimes::hsa_ends();
}

/// Runs when the library is loaded: before the program, if that is linked to it, or to a tool, or one is preloaded.
extern "C" fn at_load() {
    // Unit tests have it in them, too.
    if cfg!(test) {
        return;
    }
    contained(|| {
        let own = hsa_tools::path_of((&raw const HSA_AMD_TOOL_PRIORITY).addr());
        if let Some(own) = own.filter(|_| hsa_tools::is_alone()) {
            hsa_tools::name(&own);
        }
    });
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
