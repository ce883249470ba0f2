//! What the HSA runtime calls, what runs when the library is loaded, and when a process ends.

#![expect(unsafe_code, reason = "exports, and the process's environment")]

use core::ffi::{CStr, c_char, c_void};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{env, process};

use capi_common::messages;
use tracer_hooks::contained;

use crate::{state, tool};

/// Lists the tools that the runtime loads, separated by spaces.
const TOOLS: &str = "HSA_TOOLS_LIB";
/// The process that was told to trace: its children have that from it.
const PROCESS: &str = "ROCTRACER_TOOL_PROCESS";

/// When it is the tool's turn among others: the lower comes first.
#[unsafe(no_mangle)]
static HSA_AMD_TOOL_PRIORITY: u32 = 1050;

/// The runtime has begun. Returns that the tool is to stay, in any case: ROCm 5.2.3 does not survive it
/// otherwise.
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
    // Unit tests have it in them, too.
    if cfg!(test) {
        return;
    }
    contained(|| {
        // Other threads may be reading the environment; the runtime loads the library then, and needs neither.
        if is_alone() {
            name_process();
            name_in_tools();
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
        set(PROCESS, OsStr::new(&process_id));
    }
    if env::var_os(PROCESS).is_some_and(|own| own.as_bytes() == process_id.as_bytes()) {
        // SAFETY: a function of this library, which stays.
        unsafe { libc::atexit(at_exit) };
    }
}

/// Whether the process has one thread.
fn is_alone() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.take(2).count() == 1)
}

/// Runtimes before ROCm 5.3 do not look for tools among libraries that are loaded already.
fn name_in_tools() {
    let Some(own) = own_path() else { return };
    let named = env::var_os(TOOLS).unwrap_or_default();
    let is_same = |name: &[u8]| {
        Path::new(OsStr::from_bytes(name))
            .file_name()
            .is_some_and(|file| Some(file) == own.file_name())
    };
    if named.as_bytes().split(|&byte| byte == b' ').any(is_same) {
        return;
    }
    if own.as_os_str().as_bytes().contains(&b' ') {
        // It could not be told from two names.
        return;
    }
    let mut all = named;
    if !all.is_empty() {
        all.push(" ");
    }
    all.push(&own);
    set(TOOLS, &all);
}

fn set(name: &str, value: &OsStr) {
    if let (Ok(name), Ok(value)) = (CString::new(name), CString::new(value.as_bytes())) {
        // SAFETY: two strings. It runs when the library is loaded, in most cases before there is another thread;
        // the C library locks it.
        unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
    }
}

/// Where this library is.
fn own_path() -> Option<PathBuf> {
    // SAFETY: an address of this library, and a place for what is told of it.
    let name = unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let found = libc::dladdr((&raw const HSA_AMD_TOOL_PRIORITY).cast(), &raw mut info) != 0;
        (found && !info.dli_fname.is_null()).then(|| CStr::from_ptr(info.dli_fname))
    };
    PathBuf::from(OsStr::from_bytes(name?.to_bytes())).canonicalize().ok()
}

/// Says, once of all processes, why there is nothing.
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
