//! Libraries that the HSA runtime loads as tools, because its environment names them.

#![expect(unsafe_code, reason = "the dynamic linker's functions, and the process's environment")]

use core::ffi::{CStr, c_void};
use std::env;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Lists the tools that the runtime loads, separated by spaces.
const TOOLS: &str = "HSA_TOOLS_LIB";

/// Whether the process has one thread: else others may be reading the environment.
pub fn is_alone() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.take(2).count() == 1)
}

/// Names a library in the environment, unless one is named that is called so. Runtimes before ROCm 5.3 do not look for
/// tools among libraries that are loaded already.
pub fn name(own: &Path) {
    let named = env::var_os(TOOLS).unwrap_or_default();
    let is_same = |name: &[u8]| {
        let file = Path::new(OsStr::from_bytes(name)).file_name();
        file.is_some_and(|file| Some(file) == own.file_name())
    };
    // One with a space could not be told from two names.
    let is_one = !own.as_os_str().as_bytes().contains(&b' ');
    if is_one && !named.as_bytes().split(|&byte| byte == b' ').any(is_same) {
        let mut all = named;
        if !all.is_empty() {
            all.push(" ");
        }
        all.push(own);
        set_variable(TOOLS, &all);
    }
}

/// Sets a variable of the environment. It runs when a library is loaded, in most cases before there is another thread;
/// the C library locks it.
pub fn set_variable(name: &str, value: &OsStr) {
    if let (Ok(name), Ok(value)) = (CString::new(name), CString::new(value.as_bytes())) {
        // SAFETY: two strings.
        unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
    }
}

/// The file of the library that has something at an address.
pub fn path_of(address: usize) -> Option<PathBuf> {
    // SAFETY: any address, which is looked up and not read, and a place for what is told of it.
    let name = unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let found = libc::dladdr(address as *const c_void, &raw mut info) != 0;
        (found && !info.dli_fname.is_null()).then(|| CStr::from_ptr(info.dli_fname))
    };
    PathBuf::from(OsStr::from_bytes(name?.to_bytes())).canonicalize().ok()
}
