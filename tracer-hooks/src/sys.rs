//! The operating system, as far as it is needed: clock, futex, thread, pages.
//!
//! Everything goes through libc and nothing through `std::thread` or `std::sync`: a standard thread
//! brings thread-locals with destructors, which must not exist in a library that lives in somebody
//! else's process until the very end of it.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

/// Now, ns of CLOCK_BOOTTIME, the HSA system clock. The vDSO serves it without a system call.
#[inline]
pub fn now_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid for writes; the clock exists since Linux 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Ns of a clock that stands still while the machine is suspended, when nobody can do anything.
pub fn awake_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid for writes; the clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

/// Sleeps for about `ns`; returns early on a signal.
pub fn sleep_ns(ns: u64) {
    let t = timespec(ns);
    // SAFETY: `t` is valid for reads; no remainder is asked for.
    unsafe { libc::nanosleep(&raw const t, ptr::null_mut()) };
}

/// Waits until `word` is woken, differs from `expected`, or `timeout_ns` have passed.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    let t = timespec(timeout_ns);
    // SAFETY: the word and the timeout are valid for the whole call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            &raw const t,
        )
    };
}

/// Wakes one waiter of `word`.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: waking touches no memory of ours.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
}

/// Thread id of the caller.
pub fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Process id of the caller, as it sees it.
pub fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::getpid() as u32 }
}

/// Lets others run, if there are any that wait for this CPU.
pub fn yield_now() {
    // SAFETY: no arguments.
    unsafe { libc::sched_yield() };
}

/// How many CPUs the process may run on; 1 when unknown.
pub fn cpus() -> usize {
    // SAFETY: all zeros is a valid cpu_set_t, which the call fills.
    let count = unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        match libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) {
            0 => libc::CPU_COUNT(&set),
            _ => 1,
        }
    };
    usize::try_from(count).unwrap_or(1).max(1)
}

/// The words at `address` of this process, or `None` if there is no memory: it cannot fault.
pub fn read_words<const N: usize>(address: usize) -> Option<[u32; N]> {
    let mut words = [0u32; N];
    let bytes = size_of_val(&words);
    let to = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: bytes };
    let from = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes };
    // SAFETY: `words` is valid for writes; whatever is at `address` is checked by the kernel.
    let read =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) };
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
    bytes <= 4096
        && address != 0
        && address.is_multiple_of(align_of::<usize>())
        && last.is_some_and(|last| readable(address) && readable(last))
}

/// Where the library that holds `address` begins; `None` if no library does.
pub fn library_of(address: usize) -> Option<usize> {
    // SAFETY: `info` is valid for writes; the address is compared, not read.
    let info = unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        (libc::dladdr(address as *const c_void, &raw mut info) != 0).then_some(info)?
    };
    Some(info.dli_fbase as usize)
}

/// Has the library that holds `address` stay for as long as the process; false if no library does.
///
/// None of its functions is called, and the order in which its and others' destructors run at the
/// end of the process stays as it is. One that would have run when the library was unloaded runs then.
pub fn pin(address: usize) -> bool {
    // SAFETY: `info` and `map` are valid for writes. What is found is a link map, whose name lives as
    // long as it, which is until `dlclose`: whoever calls us makes sure that the library is in use.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let mut map = ptr::null_mut();
        let found =
            libc::dladdr1(address as *const c_void, &raw mut info, &raw mut map, RTLD_DL_LINKMAP);
        if found == 0 || map.is_null() {
            return false;
        }
        // Of another namespace, if the library was loaded by `dlmopen`.
        let mut namespace: libc::Lmid_t = 0;
        if libc::dlinfo(map, libc::RTLD_DI_LMID, (&raw mut namespace).cast()) != 0 {
            return false;
        }
        let name = (*map.cast::<LinkMap>()).name;
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        let handle = libc::dlmopen(namespace, name, flags);
        if handle.is_null() {
            // What it has left for `dlerror` is not the program's.
            libc::dlerror();
        }
        handle == map
    }
}

/// Of `dlfcn.h`.
const RTLD_DL_LINKMAP: core::ffi::c_int = 2;

/// The beginning of `struct link_map`.
#[repr(C)]
struct LinkMap {
    _address: usize,
    name: *const core::ffi::c_char,
}

/// Blocks every signal in the calling thread.
pub fn block_signals() {
    // SAFETY: the set is filled before it is used; the old mask is not asked for.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

/// A type for which memory full of zeros is a valid value and that has no destructor.
///
/// # Safety
///
/// Only for such types.
pub unsafe trait Zeroed {}

/// `count` zeroed values that live for ever; their pages cost nothing until they are touched.
pub fn zeroed_slice<T: Zeroed>(count: usize) -> Option<&'static [T]> {
    let bytes = count.checked_mul(size_of::<T>())?;
    // SAFETY: an anonymous private mapping of fresh pages, aligned to a page.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the pages hold `count` zeroed `T`, valid by `Zeroed`, and are never unmapped.
    Some(unsafe { core::slice::from_raw_parts(at.cast::<T>(), count) })
}

/// Starts a thread named `name` with every signal blocked; false when that failed.
///
/// It is detached; what it runs must live as long as the process.
pub fn spawn(
    name: &'static core::ffi::CStr,
    run: extern "C" fn(*mut c_void) -> *mut c_void,
) -> bool {
    // SAFETY: every pointer is valid for its call; the attributes are destroyed after use; the
    // signal mask of the calling thread is restored.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        if libc::pthread_attr_init(&raw mut attributes) != 0 {
            return false;
        }
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&raw mut attributes, 512 << 10);
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut old: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        let mut thread: libc::pthread_t = 0;
        let failed =
            libc::pthread_create(&raw mut thread, &raw const attributes, run, ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
        if failed == 0 {
            libc::pthread_setname_np(thread, name.as_ptr());
        }
        failed == 0
    }
}

/// Makes the calling thread's timed sleeps end when they should: the default slack of 50 µs would
/// be added to every one of them.
pub fn precise_timers() {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64, 0u64, 0u64, 0u64) };
}

/// Calls `child` in every child that is made by `fork`.
pub fn at_fork(child: unsafe extern "C" fn()) {
    // SAFETY: the handler is a function of a library that is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// Calls `exit` when the process exits, before everything that was registered earlier.
pub fn at_exit(exit: extern "C" fn()) {
    // SAFETY: as in `at_fork`.
    unsafe { libc::atexit(exit) };
}

/// Spins for a moment.
#[inline]
pub fn relax(times: u32) {
    for _ in 0..times {
        core::hint::spin_loop();
    }
}

/// A one-way switch.
#[derive(Default)]
pub struct Once(AtomicU32);

impl Once {
    /// A switch that is off.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Switches on; true for the one caller that did.
    pub fn set(&self) -> bool {
        self.0.swap(1, Ordering::AcqRel) == 0
    }
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
    fn libraries_are_known_by_what_is_in_them() {
        static OURS: u8 = 0;
        let ours = &raw const OURS as usize;
        let of_libc = libc::getpid as *const () as usize;
        let heap = Box::new(0u8);
        assert_eq!(library_of(ours), library_of(pin as *const () as usize));
        assert_ne!(library_of(ours), library_of(of_libc));
        assert_eq!(library_of(&raw const *heap as usize), None);
        assert!(pin(of_libc) && !pin(&raw const *heap as usize));
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
