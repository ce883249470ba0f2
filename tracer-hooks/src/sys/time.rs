//! Clocks, and waiting: for a time, or for a word to change.

#![expect(unsafe_code, reason = "system calls")]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::process::{inode, line};

/// By how much this process's CLOCK_BOOTTIME is ahead of [`now_ns`].
static AHEAD_NS: AtomicU64 = AtomicU64::new(0);

/// Now, ns of CLOCK_BOOTTIME, the HSA system clock. The vDSO serves it without a system call.
#[inline]
pub fn now_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid for writes; the clock exists since Linux 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut t) };
    let ns = t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64;
    ns.wrapping_sub(ahead_ns())
}

/// By how much this process's CLOCK_BOOTTIME is ahead of [`now_ns`], ns: not 0 in a time namespace of its own, once
/// [`take_machines_time`] was called.
#[inline]
pub fn ahead_ns() -> u64 {
    AHEAD_NS.load(Ordering::Relaxed)
}

/// [`now_ns`] is the machine's from now on, where that can be told: in the process's time namespace or outside.
pub fn take_machines_time() {
    if let Some(ahead_ns) = namespace_ns() {
        AHEAD_NS.store(ahead_ns, Ordering::Relaxed);
    }
}

/// By how much CLOCK_BOOTTIME is ahead in the time namespace of this process. The kernel tells the offset of its
/// children's namespace, which is the same unless the process has made them another.
fn namespace_ns() -> Option<u64> {
    if inode(c"/proc/self/ns/time")? != inode(c"/proc/self/ns/time_for_children")? {
        return None;
    }
    let understand = |value: &str| {
        let mut numbers = value.split_ascii_whitespace().map(str::parse::<i64>);
        let (seconds, ns) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(seconds.checked_mul(1_000_000_000)?.checked_add(ns)?.cast_unsigned())
    };
    line(c"/proc/self/timens_offsets", b"boottime", understand)
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

/// Sleeps for about `ns`; returns early on a signal. Not by libc's function, at which a thread can be cancelled, and by a
/// system call that every program of several threads makes: a seccomp filter may kill for others.
pub fn sleep_ns(ns: u64) {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    futex_wait(&NEVER, 0, ns);
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

/// Wakes `count` waiters of `word`.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    // SAFETY: waking touches no memory of ours.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            count,
        )
    };
}

/// Spins for a moment.
#[inline]
pub fn relax(times: u32) {
    for _ in 0..times {
        core::hint::spin_loop();
    }
}
