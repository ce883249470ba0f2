//! Memory: reads that cannot fault, allocations that can fail, and pages.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::{c_int, c_void};
use core::ptr;

use super::process::{is_confined, line};
use super::thread::gettid;

/// Of a page, on x86-64.
pub const PAGE_BYTES: usize = 4096;

/// The words at `address` of this process, or `None` if there is no memory: it cannot fault. Not where the
/// thread [is confined](is_confined).
pub fn read_words<const N: usize>(address: usize) -> Option<[u32; N]> {
    let mut words = [0u32; N];
    let bytes = size_of_val(&words);
    let to = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: bytes };
    let from = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes };
    // By the thread: the process's first one, which its number stands for, may have ended.
    let own = gettid().cast_signed();
    // SAFETY: `words` is valid for writes; whatever is at `address` is checked by the kernel.
    let read = unsafe { libc::process_vm_readv(own, &raw const to, 1, &raw const from, 1, 0) };
    (usize::try_from(read) == Ok(bytes)).then_some(words)
}

/// Whether the words from `address` to `bytes` further, at most a page, can be read.
///
/// The kernel is asked: it reads a signal mask before it finds that there is nothing to do with it. No
/// privilege and no descriptor is needed, and no sandbox forbids the call.
pub fn is_readable(address: usize, bytes: usize) -> bool {
    const NOTHING: i32 = -1;
    let readable = |address: usize| {
        // SAFETY: whatever is at `address` is checked by the kernel; no mask is changed.
        let refused = unsafe {
            libc::syscall(libc::SYS_rt_sigprocmask, NOTHING, address, 0usize, 8usize);
            *libc::__errno_location()
        };
        refused == libc::EINVAL
    };
    let last = address.checked_add(bytes.saturating_sub(8));
    bytes <= PAGE_BYTES
        && address != 0
        && address.is_multiple_of(align_of::<usize>())
        && last.is_some_and(|last| readable(address) && readable(last))
}

/// The code at `address`, if as much of it, at most a page less a word, can be read.
pub fn read_code<const N: usize>(address: usize) -> Option<[u8; N]> {
    let begin = address & !(align_of::<usize>() - 1);
    is_readable(begin, N + align_of::<usize>()).then(|| {
        // SAFETY: it can be read. Somebody may put a breakpoint there meanwhile: bytes of code are atomic.
        unsafe { ptr::read_volatile(address as *const [u8; N]) }
    })
}

/// A box; none without memory for it, where `Box::new` would end the process.
pub fn boxed<T>(value: T) -> Option<Box<T>> {
    const { assert!(size_of::<T>() != 0) };
    // SAFETY: the layout has a size, the place is valid for a `T`, and is allocated as boxes are.
    unsafe {
        let place = std::alloc::alloc(core::alloc::Layout::new::<T>()).cast::<T>();
        if place.is_null() {
            return None;
        }
        place.write(value);
        Some(Box::from_raw(place))
    }
}

/// Adds to a list; false, and nothing, without memory for it, where `Vec::push` would end the process.
pub fn push<T>(list: &mut Vec<T>, value: T) -> bool {
    let room = list.try_reserve(1).is_ok();
    if room {
        list.push(value);
    }
    room
}

/// A type for which memory full of zeros is a valid value and that has no destructor.
///
/// # Safety
///
/// Only for such types.
pub unsafe trait Zeroed {}

/// `count` zeroed values that live for ever; see [`map_pages`].
pub fn zeroed_slice<T: Zeroed>(count: usize) -> Option<&'static [T]> {
    let bytes = count.checked_mul(size_of::<T>())?;
    let at = map_pages(bytes, None, bytes)?;
    // SAFETY: the pages hold `count` zeroed `T`, valid by `Zeroed`, and are never unmapped.
    Some(unsafe { core::slice::from_raw_parts(at.cast::<T>(), count) })
}

/// Maps `bytes`, of the beginning of a file, shared with others, or zeros of our own. The first `usable` of them may be
/// used; [`open_pages`] allows the use of others. None where the kernel refuses.
///
/// A page of a file costs nothing until it is touched, also where the process has all that is mapped locked into
/// memory (`mlockall(MCL_FUTURE)`): that would bring in every page at once, and charge the process for them. Pages of
/// our own, of which there are few, are mapped by threads of the program, and are not unlocked: a seccomp filter may kill
/// for that. And none is in a core dump, which is the process's. They stay in forked children: one that was made without
/// libc's `fork` does not know that it is one, and would crash in a hook.
pub fn map_pages(bytes: usize, file: Option<c_int>, usable: usize) -> Option<*mut c_void> {
    let (flags, file) = match file {
        Some(file) => (libc::MAP_SHARED, file),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
    };
    // SAFETY: a fresh mapping of pages that nobody may touch yet, so that none is brought in. A later call that fails
    // changes their cost, or that they can be used, which is asked for.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, file, 0);
        if at == libc::MAP_FAILED {
            return None;
        }
        if flags == libc::MAP_SHARED && !is_confined() {
            libc::munlock(at, bytes);
        }
        libc::madvise(at, bytes, libc::MADV_DONTDUMP);
        if !open_pages(at, usable) {
            libc::munmap(at, bytes);
            return None;
        }
        Some(at)
    }
}

/// Has `bytes` from `at` on be read and written, of what [`map_pages`] has mapped; false where the kernel refuses.
///
/// # Safety
///
/// They are of one mapping, which is there.
pub unsafe fn open_pages(at: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { libc::mprotect(at, bytes, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}

/// Bytes of a file that cannot become shorter; none of any other file: a mapped file that becomes shorter kills the
/// process that has it mapped (SIGBUS).
pub fn sealed_bytes(file: c_int) -> Option<usize> {
    // SAFETY: `stat` is valid for writes.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        let seals = libc::fcntl(file, libc::F_GET_SEALS);
        let is_sealed = seals > 0 && seals & libc::F_SEAL_SHRINK != 0;
        let is_known = is_sealed && libc::fstat(file, &raw mut stat) == 0;
        is_known.then(|| usize::try_from(stat.st_size).ok()).flatten()
    }
}

/// Whether `bytes` more are at most an eighth of the bytes that the process may map (`RLIMIT_AS`), and leave as much as
/// they take.
pub fn leaves_room(bytes: usize) -> bool {
    // Not by a system call that a filter may not allow, and kill for.
    let soft = |limits: &str| limits.split_ascii_whitespace().next()?.parse::<u64>().ok();
    // Not a number: unlimited.
    let Some(limit) = line(c"/proc/self/limits", b"Max address space", soft) else { return true };
    let mapped =
        || line(c"/proc/self/statm", b"", |sizes| sizes.split(' ').next()?.parse::<u64>().ok());
    let left = |pages: u64| limit.saturating_sub(pages.saturating_mul(PAGE_BYTES as u64));
    let bytes = bytes as u64;
    bytes <= limit / 8 && mapped().is_some_and(|pages| bytes <= left(pages) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_what_is_not_there_is_no_crash() {
        let words = [1u32, 2, 3, 4];
        assert_eq!(read_words(words.as_ptr() as usize), Some(words));
        assert_eq!(read_words::<4>(0), None);
        assert_eq!(read_words::<4>(usize::MAX - 64), None);
    }

    #[test]
    fn memory_is_known_from_none() {
        let here = vec![0usize; 1000];
        let address = here.as_ptr() as usize;
        assert!(is_readable(address, 4096));
        // SAFETY: a fresh mapping that nobody may read.
        let closed = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0) as usize
        };
        for (address, bytes) in [
            (0, 8),
            (address + 1, 8),
            (4096, 8),
            (usize::MAX - 7, 16),
            (closed, 8),
            (address, 8192),
        ] {
            assert!(!is_readable(address, bytes), "{address:#x}");
        }
    }
}
