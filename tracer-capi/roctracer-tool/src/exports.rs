//! The functions that the HSA runtime calls, and those that run when the library is loaded, and when a process ends.

#![expect(unsafe_code, reason = "exports, and the process's environment")]

use core::ffi::{c_char, c_void};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{env, process};

use capi_common::{hsa_tools, messages};
use tracer_hooks::contained;

use crate::{state, tool};

/// The process that was told to trace: its children have this variable from it.
const PROCESS: &str = "ROCTRACER_TOOL_PROCESS";

/// The tool's place among others: the lower comes first.
#[unsafe(no_mangle)]
static HSA_AMD_TOOL_PRIORITY: u32 = 1050;

/// The runtime has begun. Returns true in any case, so that the tool stays: ROCm 5.2.3 does not survive anything else.
#[unsafe(no_mangle)]
extern "C-unwind" fn OnLoad(
    _table: *const c_void,
    _runtime_version: u64,
    _failed_tools: u64,
    _failed_tool_names: *const *const c_char,
) -> bool {
    contained(|| {
        let path = own_path().unwrap_or_default();
        tool::runtime_begins(path.parent().unwrap_or(Path::new("")));
    });
    true
}

/// The runtime ends.
#[unsafe(no_mangle)]
extern "C-unwind" fn OnUnload() {
    contained(tool::runtime_ends);
}

/// Runs when the library is loaded: before the program, if it is preloaded.
extern "C" fn at_load() {
    // Unit tests have this function in them, too.
    if cfg!(test) {
        return;
    }
    contained(|| {
        // Other threads may be reading the environment; then the runtime has loaded the library, and needs neither
        // variable.
        if hsa_tools::is_alone() {
            name_process();
            if let Some(own) = own_path() {
                hsa_tools::name(&own);
            }
        }
        tool::process_begins();
    });
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

/// The first process says at its end that there was nothing to trace.
fn name_process() {
    let process_id = process::id().to_string();
    if env::var_os(PROCESS).is_none() {
        hsa_tools::set_variable(PROCESS, OsStr::new(&process_id));
    }
    if env::var_os(PROCESS).is_some_and(|own| own.as_bytes() == process_id.as_bytes()) {
        // SAFETY: a function of this library, which stays.
        unsafe { libc::atexit(at_exit) };
    }
}

/// The path of this library.
fn own_path() -> Option<PathBuf> {
    hsa_tools::path_of((&raw const HSA_AMD_TOOL_PRIORITY).addr())
}

/// Says, once of all processes, why there are no records.
extern "C" fn at_exit() {
    contained(|| {
        let is_own = env::var_os(PROCESS)
            .is_some_and(|own| own.as_bytes() == process::id().to_string().as_bytes());
        if is_own && state::may_begin() {
            messages::warn(format_args!(
                "process {} has not used the HSA runtime, and so no HIP: there was nothing to trace",
                process::id()
            ));
        }
    });
}
