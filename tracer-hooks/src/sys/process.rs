//! The process: its description by the kernel in `/proc`, and functions that are called when it forks or exits.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::CStr;

/// Process id of the caller, as it sees it.
pub fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::getpid() as u32 }
}

/// Process id of the caller, as the `/proc` that it has mounted shows it: in a PID namespace of its own another
/// one, where that is the host's. `None` without a `/proc`.
pub fn pid_in_proc() -> Option<u32> {
    line(STATUS, b"Tgid:", |value| value.parse().ok())
}

/// Whether a seccomp filter is in force for the calling thread, or may be. A filter can kill for any call that the
/// program itself does not make, so such calls are left out then; the files that are read here every program reads.
pub fn is_confined() -> bool {
    line(STATUS, b"Seccomp:", |value| Some(value != "0")).unwrap_or(true)
}

/// The kernel's file on the calling thread.
const STATUS: &CStr = c"/proc/thread-self/status";

/// The value, as `understand` reads it, of the line that begins with `name` in a file of the kernel's.
pub(super) fn line<T>(
    path: &CStr,
    name: &[u8],
    understand: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    let mut text = [0u8; 4096];
    // SAFETY: the path is NUL-terminated, `text` is valid for writes, and the descriptor is ours.
    let length = unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        length
    };
    let text = text.get(..usize::try_from(length).ok()?)?;
    let value = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    understand(core::str::from_utf8(value.trim_ascii()).ok()?)
}

pub(super) fn inode(path: &CStr) -> Option<u64> {
    // SAFETY: the path is NUL-terminated, and `stat` is valid for writes; zeros are a value of it.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        (libc::stat(path.as_ptr(), &raw mut stat) == 0).then_some(stat.st_ino)
    }
}

/// Calls `child` in every child that is made by `fork`.
pub fn at_fork(child: unsafe extern "C" fn()) {
    // SAFETY: the handler is a function of a library that is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// Calls `exit` when the process exits, before everything that was registered earlier. An exception of `exit` ends the
/// process.
pub fn at_exit(exit: extern "C-unwind" fn()) {
    unsafe extern "C" {
        fn atexit(exit: extern "C-unwind" fn()) -> libc::c_int;
    }
    // SAFETY: as in `at_fork`.
    unsafe { atexit(exit) };
}
