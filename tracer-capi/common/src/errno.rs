//! `errno` of the thread, which what we do in a call of the program's does not change.

#![expect(unsafe_code, reason = "the C library's variable")]

/// Runs something. `errno` is as it was afterwards.
pub fn kept<R>(run: impl FnOnce() -> R) -> R {
    // SAFETY: the thread's own variable, which it has to its very end.
    let before = unsafe { *libc::__errno_location() };
    let result = run();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = before };
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_as_it_was() {
        let errno = || std::io::Error::last_os_error().raw_os_error();
        let set = |value| {
            // SAFETY: the thread's own variable.
            unsafe { *libc::__errno_location() = value };
        };
        set(7);
        assert_eq!(kept(|| (set(9), errno()).1), Some(9));
        assert_eq!(errno(), Some(7));
    }
}
