//! The only door to raw memory and to system calls.
//!
//! A GPU reads and writes whatever address its packets name. So does this module: the addresses come
//! from the runtime's queues, and one that nobody mapped ends the process with SIGSEGV, as a memory
//! fault of the real device ends it. Addresses that may go stale while they are read (the loader's
//! link map) go through `read_fallible` instead.
#![expect(unsafe_code, reason = "raw memory named by packets, and system calls")]

use std::ffi::CString;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering};

macro_rules! accessor {
    ($(#[$doc:meta])* $load:ident, $store:ident, $atomic:ty, $int:ty) => {
        $(#[$doc])*
        pub fn $load(addr: u64) -> $int {
            debug_assert_eq!(addr % size_of::<$int>() as u64, 0);
            // SAFETY: the address is a naturally aligned field of a queue, a signal or a buffer that
            // the runtime owns while the packet naming it is in flight (see the module's text).
            unsafe { <$atomic>::from_ptr(addr as *mut $int) }.load(Ordering::Acquire)
        }

        /// The matching store. Releases all writes before it to the program's threads.
        pub fn $store(addr: u64, value: $int) {
            debug_assert_eq!(addr % size_of::<$int>() as u64, 0);
            // SAFETY: as for the load.
            unsafe { <$atomic>::from_ptr(addr as *mut $int) }.store(value, Ordering::Release)
        }
    };
}

accessor!(/** Loads a packet header. Pairs with the producer's release store of it. */
    load_u16, store_u16, AtomicU16, u16);
accessor!(/** Loads a 32-bit word. */ load_u32, store_u32, AtomicU32, u32);
accessor!(/** Loads a 64-bit word. Pairs with the runtime's release stores of indices and doorbells. */
    load_u64, store_u64, AtomicU64, u64);

/// Adds to a signal's value. Pairs with the acquire loads of the threads that wait on it.
pub fn add_i64(addr: u64, delta: i64) {
    // SAFETY: the value field of a signal, 8-byte aligned by its type.
    unsafe { AtomicI64::from_ptr(addr as *mut i64) }.fetch_add(delta, Ordering::AcqRel);
}

/// Reads `N` bytes that nobody writes at the moment (a packet whose header was seen valid).
pub fn read_bytes<const N: usize>(addr: u64) -> [u8; N] {
    // SAFETY: a byte array has no alignment; the range is inside a ring or a kernarg segment.
    unsafe { std::ptr::read_volatile(addr as *const [u8; N]) }
}

/// Moves bytes as a copy engine does.
pub fn copy(src: u64, dst: u64, bytes: u64) {
    // SAFETY: the ranges come from a copy packet; `copy` allows them to overlap.
    unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, bytes as usize) }
}

/// Repeats `pattern` over `count` places from `dst` on.
pub fn fill(dst: u64, pattern: &[u8], count: u64) {
    if let Some(&byte) = pattern.first().filter(|&first| pattern.iter().all(|b| b == first)) {
        let bytes = count as usize * pattern.len();
        // SAFETY: the range comes from a fill packet.
        unsafe { std::ptr::write_bytes(dst as *mut u8, byte, bytes) }
        return;
    }
    for i in 0..count {
        let to = dst + i * pattern.len() as u64;
        // SAFETY: the range comes from a fill packet; the pattern is our own memory.
        unsafe { std::ptr::copy_nonoverlapping(pattern.as_ptr(), to as *mut u8, pattern.len()) }
    }
}

/// Reads memory that may be unmapped or freed at any time; `None` when any of it is not mapped.
pub fn read_fallible(addr: u64, bytes: usize) -> Option<Vec<u8>> {
    let mut out = vec![0_u8; bytes];
    // Two, the second empty: filters of test programs know this call by that from a tool's.
    let local =
        [bytes, 0].map(|length| libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: length });
    let remote = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: bytes };
    // SAFETY: the kernel checks the remote range; the local one is our own vector.
    let read = |number| unsafe { libc::process_vm_readv(number, local.as_ptr(), 2, &remote, 1, 0) };
    // SAFETY: no arguments.
    let mut n = read(unsafe { libc::getpid() });
    if n < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
        // The first thread has ended, which the process's number stands for.
        // SAFETY: no arguments.
        n = read(unsafe { libc::gettid() });
    }
    (n == bytes as isize).then_some(out)
}

/// A C string of at most 4 KiB from memory that may go away.
pub fn read_fallible_str(addr: u64) -> Option<String> {
    let mut out = Vec::new();
    let mut at = addr;
    while addr != 0 && out.len() < 4096 {
        // Never across a page in one read: the next page may not be mapped.
        let chunk = read_fallible(at, 256.min(4096 - (at % 4096) as usize))?;
        if let Some(end) = chunk.iter().position(|&b| b == 0) {
            out.extend_from_slice(&chunk[..end]);
            return String::from_utf8(out).ok();
        }
        at += chunk.len() as u64;
        out.extend(chunk);
    }
    None
}

/// Nanoseconds of a clock of the system.
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is ours; these clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Now, in CLOCK_BOOTTIME ns.
pub fn boot_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// Now, in CLOCK_MONOTONIC_RAW ns: what the driver calls the CPU clock.
pub fn raw_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC_RAW)
}

/// Maps `bytes` of zeroed memory, `align`-aligned (a power of two, a page at least).
pub fn map_anonymous(bytes: u64, align: u64) -> Option<u64> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let slack = if align > 4096 { align } else { 0 };
    let total = usize::try_from(bytes.checked_add(slack)?).ok()?;
    // SAFETY: a new mapping of our own, at an address that the kernel picks.
    let p = unsafe { libc::mmap(std::ptr::null_mut(), total, prot, flags, -1, 0) };
    if p == libc::MAP_FAILED {
        return None;
    }
    let start = (p as u64).next_multiple_of(align.max(4096));
    let (head, tail) = (start - p as u64, slack - (start - p as u64));
    if head > 0 {
        unmap(p as u64, head);
    }
    if tail > 0 {
        unmap(start + bytes, tail);
    }
    Some(start)
}

/// Reserves addresses that nothing can be read from or written to.
pub fn reserve(bytes: u64) -> Option<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping of our own, at an address that the kernel picks.
    let p =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, libc::PROT_NONE, flags, -1, 0) };
    (p != libc::MAP_FAILED).then_some(p as u64)
}

/// Unmaps what the functions above mapped.
pub fn unmap(addr: u64, bytes: u64) {
    // SAFETY: only ranges of our own mappings are passed, once each.
    unsafe { libc::munmap(addr as *mut libc::c_void, bytes as usize) };
}

/// Makes the calling thread preempt spinning ones, when permitted, sleep precisely, and leave the
/// process's signals to the program's threads.
pub fn set_up_hardware_thread(real_time: bool) {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: all calls touch only the calling thread; a refusal (no privilege) is fine. The signal
    // set is filled before it is used.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0_u64, 0_u64, 0_u64);
        if real_time {
            libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &param);
        }
    }
}

/// Sleeps for `ns` nanoseconds (an early return on a signal is fine to every caller).
pub fn sleep_ns(ns: u64) {
    let t = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    // SAFETY: `t` is ours; the remaining time is not asked for.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &t, std::ptr::null_mut()) };
}

/// A program's stand-in for a kernel: kernel arguments, grid size and workgroup size in work-items.
pub type HostKernel = unsafe extern "C" fn(*const libc::c_void, *const u32, *const u32);

/// A host function of the running program by name.
pub fn host_function(name: &str) -> Option<HostKernel> {
    let name = CString::new(name).ok()?;
    // SAFETY: dlsym only looks the name up. A symbol of this prefix is declared, by the README's
    // contract, as a function of type `HostKernel`.
    unsafe {
        let f = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        (!f.is_null()).then(|| std::mem::transmute::<*mut libc::c_void, HostKernel>(f))
    }
}

/// Runs the program's stand-in for a kernel.
pub fn call_host(f: HostKernel, kernarg: u64, grid: [u32; 3], workgroup: [u32; 3]) {
    // SAFETY: the contract of `HostKernel`: it reads its kernarg segment, alive until completion.
    unsafe { f(kernarg as *const libc::c_void, grid.as_ptr(), workgroup.as_ptr()) }
}

/// Number of usable CPUs, at least 1.
pub fn cpu_count() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// Physical memory of the machine in bytes.
pub fn physical_memory_bytes() -> u64 {
    // SAFETY: sysconf reads constants of the system.
    let (pages, size) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    pages.max(1) as u64 * size.max(4096) as u64
}

/// Runs `f` in a forked child; its exit status is what `f` returns.
#[cfg(test)]
pub fn exit_status_of_a_child(f: impl FnOnce() -> i32) -> i32 {
    let mut status = 0;
    // SAFETY: the child allocates, which glibc allows after a fork, and ends without cleaning up.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::_exit(f());
        }
        libc::waitpid(pid, &mut status, 0);
    }
    libc::WEXITSTATUS(status)
}
