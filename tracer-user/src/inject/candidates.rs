//! The choice of the thread that is stopped.

use std::fs;

use procfs::{FromRead as _, process::Stat};

use super::bootstrap::SIGNALS;
use crate::{discover::innermost_id, foreign};

/// The most threads that are looked at.
const MAX_THREADS: usize = 4096;

/// A thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its id in roctap's PID namespace.
    pub tid: u32,
    /// Its id as its process sees it.
    pub inside: u32,
}

/// How much a stop disturbs a thread, by what the thread does; the least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Disturbance {
    /// It waits in a system call that the kernel resumes.
    Resumed,
    /// It runs.
    Delayed,
    /// It waits in a system call that fails with EINTR, or that roctap repeats.
    Repeated,
    /// It waits in a system call that may have moved a part of its data, and would return the size of that part.
    Shortened,
}

/// poll, select, nanosleep, wait4, futex, restart_syscall, clock_nanosleep, pselect6, ppoll: after a stop, all of them
/// are resumed as if nothing had happened.
const RESUMED: [u64; 9] = [7, 23, 35, 61, 202, 219, 230, 270, 271];
/// `read`, which is resumed too, except on a socket with a timeout.
const READ: u64 = 0;
/// write, pwrite64, writev, pwritev, pwritev2, sendto, sendmsg, sendmmsg, recvmmsg, sendfile, splice, tee, vmsplice,
/// copy_file_range, fallocate, getrandom, io_getevents, io_pgetevents.
const SHORTENED: [u64; 18] =
    [1, 18, 20, 296, 328, 44, 46, 307, 299, 40, 275, 276, 278, 326, 285, 318, 208, 333];
/// Calls that are shortened if an argument has certain bits; which argument, and which bits: recvfrom and recvmsg with
/// MSG_WAITALL, io_uring_enter that submits something.
const SHORTENED_WITH: [(u64, usize, u64); 3] = [(45, 3, 0x100), (47, 2, 0x100), (426, 1, !0)];

/// The threads of process `pid` that can be stopped, the best first: those without seccomp filters before others.
pub fn of(pid: u32) -> impl Iterator<Item = Candidate> {
    let mut found: Vec<_> = ranked(pid).filter(|(rank, _)| !is_shortened(*rank)).collect();
    found.sort_by_key(|(rank, _)| *rank);
    let candidates = found.into_iter().map(|(_, candidate)| candidate);
    candidates.filter(move |candidate| may_clone(pid, candidate.tid))
}

/// Whether all threads of process `pid` that could be stopped move data in system calls, which would return short.
pub fn all_move_data(pid: u32) -> bool {
    let mut found = ranked(pid).map(|(rank, _)| is_shortened(rank)).peekable();
    found.peek().is_some() && found.all(|shortened| shortened)
}

/// Whether a thread moves data in a system call, which would return short.
pub fn moves_data(pid: u32, tid: u32) -> bool {
    let call = of_thread(pid, tid, "syscall");
    call.is_some_and(|call| of_call(&call, |_| true) == Disturbance::Shortened)
}

/// Whether a thread has seccomp filters, and how much a stop disturbs it.
type Rank = (bool, Disturbance);

fn is_shortened((_, disturbance): Rank) -> bool {
    disturbance == Disturbance::Shortened
}

/// The threads of process `pid` that could be stopped.
fn ranked(pid: u32) -> impl Iterator<Item = (Rank, Candidate)> {
    threads(pid).into_iter().take(MAX_THREADS).filter_map(move |tid| {
        let status = of_thread(pid, tid, "status")?;
        let (inside, state) = of_status(&status)?;
        let usable = matches!(state, 'R' | 'S') && !is_ours(&status);
        let call = of_thread(pid, tid, "syscall")?;
        let disturbance = of_call(&call, |descriptor| is_socket(pid, descriptor));
        let rank = (is_confined(&status), disturbance);
        Some((rank, Candidate { tid, inside })).filter(|_| usable)
    })
}

/// The id in roctap's PID namespace of a thread of process `pid`, by its id as its process sees it.
pub fn named_inside(pid: u32, inside: u64) -> Option<u32> {
    // The thread is new: it is one of the last.
    threads(pid).into_iter().rev().find(|tid| {
        let named = of_thread(pid, *tid, "status").and_then(|status| of_status(&status));
        named.is_some_and(|(name, _)| u64::from(name) == inside)
    })
}

/// Whether the `/proc` that process `pid` has mounted shows the numbers of roctap's PID namespace.
pub fn shows_our_numbers(pid: u32) -> bool {
    let shown = fs::read_link(format!("/proc/{pid}/root/proc/self"));
    let here = fs::read_link("/proc/self");
    shown.is_ok_and(|shown| here.is_ok_and(|here| shown == here))
}

/// The text of a file in `/proc` about a thread.
fn of_thread(pid: u32, tid: u32, name: &str) -> Option<String> {
    let text = foreign::text(format!("/proc/{pid}/task/{tid}/{name}").as_ref()).ok()?;
    Some(foreign::lossy(&text).into_owned())
}

/// The threads of process `pid`, in the order in which they were made.
fn threads(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// The innermost of the thread's ids, and its state.
fn of_status(status: &str) -> Option<(u32, char)> {
    Some((innermost_id(status)?, foreign::field(status, "State")?.chars().next()?))
}

/// Whether a thread is the new thread of another roctap, by the signals that it blocks: only such a thread blocks
/// exactly these, or all when it begins. It must not be disturbed.
fn is_ours(status: &str) -> bool {
    let blocked = foreign::field(status, "SigBlk");
    // The kernel never blocks SIGKILL and SIGSTOP.
    let kept = |signals: u64| signals & !(1 << 8 | 1 << 18);
    let blocked = blocked.and_then(|mask| u64::from_str_radix(mask, 16).ok());
    blocked.is_some_and(|mask| mask == kept(SIGNALS) || mask == kept(!0))
}

/// Whether the kernel lets a thread make others: one with a deadline (SCHED_DEADLINE, sched(7)) cannot.
fn may_clone(pid: u32, tid: u32) -> bool {
    const DEADLINE: u32 = 6;
    let policy = of_thread(pid, tid, "stat").and_then(|stat| {
        let stat = Stat::from_read(stat.as_bytes());
        stat.ok()?.policy
    });
    policy != Some(DEADLINE)
}

/// Whether the thread has seccomp filters.
fn is_confined(status: &str) -> bool {
    foreign::field(status, "Seccomp").is_some_and(|mode| mode != "0")
}

/// Reads an arbitrary `text` as the kernel's about a thread.
pub fn fuzz(text: &str) {
    let _ = (of_status(text), is_ours(text), is_confined(text), of_call(text, |_| true));
}

/// The disturbance of a thread, by the kernel's line about its system call: its number and arguments.
fn of_call(line: &str, is_socket: impl Fn(u32) -> bool) -> Disturbance {
    let mut words = line.split_whitespace();
    let Some(Ok(number)) = words.next().map(str::parse) else { return Disturbance::Delayed };
    let number: u64 = number;
    let arguments: Vec<Option<u64>> =
        words.map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).take(6).collect();
    let argument = |n: usize| arguments.get(n).copied().flatten();
    // The kernel looks at these bits of a descriptor alone.
    let descriptor = argument(0).map(|first| first as u32);
    let has = |&(call, n, bits): &(u64, usize, u64)| {
        call == number && argument(n).is_none_or(|word| word & bits != 0)
    };
    match number {
        READ if !descriptor.is_none_or(is_socket) => Disturbance::Resumed,
        number if RESUMED.contains(&number) => Disturbance::Resumed,
        number if SHORTENED.contains(&number) || SHORTENED_WITH.iter().any(has) => {
            Disturbance::Shortened
        }
        _ => Disturbance::Repeated,
    }
}

fn is_socket(pid: u32, descriptor: u32) -> bool {
    let file = fs::read_link(format!("/proc/{pid}/fd/{descriptor}"));
    file.map_or(true, |file| file.as_os_str().as_encoded_bytes().starts_with(b"socket:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_notices_least_comes_first() {
        let of = |line| of_call(line, |descriptor| descriptor == 7);
        let mut order = [of("232 0x5 0x6 0x7"), of("running\n"), of("202 0x1 0x2")];
        order.sort();
        assert_eq!(order, [Disturbance::Resumed, Disturbance::Delayed, Disturbance::Repeated]);
        assert_eq!(of("0 0x5 0x6"), Disturbance::Resumed);
        assert_eq!(of("0 0x7 0x6"), Disturbance::Repeated);
        assert_eq!(of("0 7"), Disturbance::Repeated, "who knows");
        assert_eq!(of("1 0x7 0x6 0x100000"), Disturbance::Shortened);
        assert_eq!(of("45 0x7 0x6 0x8 0x0 0x0 0x0 0x7ff0 0x7ff1"), Disturbance::Repeated);
        assert_eq!(of("45 0x7 0x6 0x8 0x100 0x0 0x0 0x7ff0 0x7ff1"), Disturbance::Shortened);
        assert_eq!(of("426 0x7 0x0 0x1 0x1 0x0 0x0"), Disturbance::Repeated);
        assert_eq!(of("426 0x7 0x3 0x1 0x1 0x0 0x0"), Disturbance::Shortened);
    }

    #[test]
    fn the_innermost_id_is_the_processs_own() {
        let status = "Name:\tx\nState:\tS (sleeping)\nPid:\t70\nNSpid:\t70\t12\t3\n";
        assert_eq!(of_status(status), Some((3, 'S')));
        assert_eq!(of_status("State:\tR (running)\nPid:\t70\n"), Some((70, 'R')));
        assert_eq!(of_status(""), None);
    }

    #[test]
    fn our_own_threads_are_found() {
        let own = std::process::id();
        assert!(of(own).any(|candidate| candidate.tid == own));
    }
}
