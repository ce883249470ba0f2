//! Whether a process's seccomp filters allow the system calls of the new thread.
//!
//! A container usually has filters, and they usually allow all of these calls. But a filter can also kill the process
//! for a call, so each call is checked before: the kernel hands the filters out to a tracer with CAP_SYS_ADMIN, and
//! roctap runs them on the calls that will be made.

/// An instruction of classic BPF, as the kernel's `struct sock_filter`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Instruction {
    pub code: u16,
    pub if_true: u8,
    pub if_false: u8,
    pub k: u32,
}

/// A system call that will be made.
pub struct Call {
    name: &'static str,
    number: u32,
    arguments: [u64; 6],
    /// Error numbers with which the call may fail, because libc goes on without it.
    may_fail: &'static [u32],
}

const ANY: &[u32] = &[1, 13, 22, 38];
const ENOSYS: &[u32] = &[38];

const fn call(name: &'static str, number: u32, arguments: [u64; 6]) -> Call {
    Call { name, number, arguments, may_fail: &[] }
}

const fn optional(name: &'static str, number: u32, may_fail: &'static [u32]) -> Call {
    Call { name, number, arguments: [0; 6], may_fail }
}

/// The system calls of the bootstrap, `pthread_create`, `dlopen` and the shim in a confined process, with the
/// arguments that filters look at. `docs/attach.md` has the list.
const CALLS: [Call; 27] = [
    call("mmap", 9, [0, 0x40000, 5, 0x22, u64::MAX, 0]),
    call("mmap", 9, [0, 0x40000, 3, 0x22, u64::MAX, 0]),
    call("mmap", 9, [0, 0x40000, 5, 2, 5, 0]),
    call("mmap", 9, [0, 0x40000, 3, 1, 5, 0]),
    call("mprotect", 10, [0, 0x40000, 3, 0, 0, 0]),
    call("munmap", 11, [0, 0x40000, 0, 0, 0, 0]),
    call("clone", 56, [0x2d_0f00, 0, 0, 0, 0, 0]),
    call("clone", 56, [0x3d_0f00, 0, 0, 0, 0, 0]),
    optional("clone3", 435, ENOSYS),
    call("memfd_create", 319, [0, 3, 0, 0, 0, 0]),
    call("gettid", 186, [0; 6]),
    call("getpid", 39, [0; 6]),
    call("nanosleep", 35, [0; 6]),
    call("futex", 202, [0, 0x80, 0, 0, 0, 0]),
    call("exit", 60, [0; 6]),
    call("close", 3, [5, 0, 0, 0, 0, 0]),
    call("openat", 257, [-100i64 as u64, 0, 0x8_0000, 0, 0, 0]),
    call("read", 0, [5, 0, 832, 0, 0, 0]),
    call("write", 1, [5, 0, 12, 0, 0, 0]),
    call("pread64", 17, [5, 0, 832, 64, 0, 0]),
    call("fstat", 5, [5, 0, 0, 0, 0, 0]),
    call("newfstatat", 262, [5, 0, 0, 0x1000, 0, 0]),
    call("fcntl", 72, [5, 1034, 0, 0, 0, 0]),
    call("rt_sigprocmask", 14, [2, 0, 0, 8, 0, 0]),
    optional("set_robust_list", 273, ANY),
    optional("rseq", 334, ANY),
    optional("madvise", 28, ANY),
];

/// The system calls of ROCprofiler-SDK's library beside these. Those of a tool are not known.
pub const OF_TOOLS: &[Call] = &[
    call("flock", 73, [5, 1, 0, 0, 0, 0]),
    call("prctl", 157, [15, 0, 0, 0, 0, 0]),
    call("clock_nanosleep", 230, [0; 6]),
    call("getrandom", 318, [0; 6]),
    call("getdents64", 217, [5, 0, 0, 0, 0, 0]),
    call("lseek", 8, [5, 0, 0, 0, 0, 0]),
    call("readlink", 89, [0; 6]),
    call("mremap", 25, [0, 0x40000, 0x80000, 1, 0, 0]),
    optional("statx", 332, ANY),
];

/// The system call that the shim makes beside these if no filter forbids it.
const READ: Call = call("process_vm_readv", 310, [0, 0, 1, 0, 1, 0]);

/// The system call by which a thread goes on that was stopped while it waited for a time.
const RESTART: Call = call("restart_syscall", 219, [0; 6]);

/// Whether the filters allow `restart_syscall`.
pub fn may_restart(filters: &[Vec<Instruction>]) -> bool {
    allowed(filters, &RESTART)
}

/// The first call that a filter does not allow, of those that are always made and of others.
pub fn refused(filters: &[Vec<Instruction>], others: &'static [Call]) -> Option<&'static str> {
    let mut calls = CALLS.iter().chain(others);
    calls.find(|call| !allowed(filters, call)).map(|call| call.name)
}

/// Whether the filters allow `process_vm_readv`.
pub fn may_read(filters: &[Vec<Instruction>]) -> bool {
    allowed(filters, &READ)
}

fn allowed(filters: &[Vec<Instruction>], call: &Call) -> bool {
    let allows = |filter: &Vec<Instruction>| {
        const ERRNO: u32 = 0x0005_0000;
        const LOG: u32 = 0x7ffc_0000;
        const ALLOW: u32 = 0x7fff_0000;
        run(filter, call).is_some_and(|answer| match answer & 0xffff_0000 {
            ALLOW | LOG => true,
            ERRNO => call.may_fail.contains(&(answer & 0xffff)),
            _ => false,
        })
    };
    filters.iter().all(allows)
}

/// A word of the kernel's `struct seccomp_data`.
fn data(call: &Call, offset: u32) -> Option<u32> {
    const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
    match offset {
        0 => Some(call.number),
        4 => Some(AUDIT_ARCH_X86_64),
        // The instruction pointer, which is not known.
        8 | 12 => Some(0),
        16..64 if offset.is_multiple_of(4) => {
            let argument = call.arguments.get((offset as usize - 16) / 8)?;
            Some(if offset.is_multiple_of(8) { *argument as u32 } else { (*argument >> 32) as u32 })
        }
        _ => None,
    }
}

/// Runs a filter; none if the filter does something that the kernel would not have accepted.
fn run(filter: &[Instruction], call: &Call) -> Option<u32> {
    let (mut a, mut x, mut at) = (0u32, 0u32, 0usize);
    let mut memory = [0u32; 16];
    // Jumps go forward only, so this ends.
    loop {
        let Instruction { code, if_true, if_false, k } = *filter.get(at)?;
        at += 1;
        let operand = if code & 0x08 != 0 { x } else { k };
        match (code & 0x07, code) {
            (_, 0x20) => a = data(call, k)?,
            (_, 0x00) => a = k,
            (_, 0x01) => x = k,
            (_, 0x80) => a = 64,
            (_, 0x81) => x = 64,
            (_, 0x60) => a = *memory.get(k as usize)?,
            (_, 0x61) => x = *memory.get(k as usize)?,
            (_, 0x02) => *memory.get_mut(k as usize)? = a,
            (_, 0x03) => *memory.get_mut(k as usize)? = x,
            (_, 0x07) => x = a,
            (_, 0x87) => a = x,
            (_, 0x06) => return Some(k),
            (_, 0x16) => return Some(a),
            (0x04, _) => {
                a = match code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    0x30 => a.checked_div(operand)?,
                    0x40 => a | operand,
                    0x50 => a & operand,
                    0x60 => a.checked_shl(operand).unwrap_or(0),
                    0x70 => a.checked_shr(operand).unwrap_or(0),
                    0x80 => a.wrapping_neg(),
                    0xa0 => a ^ operand,
                    _ => return None,
                }
            }
            (0x05, _) => {
                let taken = match code & 0xf0 {
                    0x00 => {
                        at = at.checked_add(k as usize)?;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    _ => return None,
                };
                at += usize::from(if taken { if_true } else { if_false });
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALLOW: u32 = 0x7fff_0000;

    fn refused(filters: &[Vec<Instruction>]) -> Option<&'static str> {
        super::refused(filters, &[])
    }

    fn i(code: u16, if_true: u8, if_false: u8, k: u32) -> Instruction {
        Instruction { code, if_true, if_false, k }
    }

    /// Answers `answer` for one call, and allows the others.
    fn only(number: u32, answer: u32) -> Vec<Instruction> {
        vec![i(0x20, 0, 0, 0), i(0x15, 0, 1, number), i(0x06, 0, 0, answer), i(0x06, 0, 0, ALLOW)]
    }

    #[test]
    fn a_filter_that_allows_all_refuses_nothing() {
        assert_eq!(refused(&[vec![i(0x06, 0, 0, ALLOW)]]), None);
        assert_eq!(refused(&[]), None);
    }

    #[test]
    fn what_is_refused_is_named() {
        let errno = |number: u32| 0x0005_0000 | number;
        assert_eq!(refused(&[only(319, errno(1))]), Some("memfd_create"));
        assert_eq!(refused(&[only(0xffff, 0), only(56, 0)]), Some("clone"), "any filter");
        assert_eq!(refused(&[only(435, errno(38))]), None, "libc falls back to clone");
        assert_eq!(refused(&[only(435, errno(1))]), Some("clone3"));
        assert_eq!(refused(&[only(334, errno(1))]), None, "libc goes on without rseq");
        assert_eq!(refused(&[only(334, 0x8000_0000)]), Some("rseq"), "but not killed");
        let no_lock = [only(73, errno(1))];
        assert_eq!(refused(&no_lock), None, "the shim takes none");
        assert_eq!(super::refused(&no_lock, OF_TOOLS), Some("flock"));
    }

    #[test]
    fn arguments_are_looked_at() {
        // Refuses memory that is writable and executable: args[2] & 6 == 6. None is asked for.
        let filter = vec![
            i(0x20, 0, 0, 0),
            i(0x15, 0, 4, 9),
            i(0x20, 0, 0, 32),
            i(0x54, 0, 0, 6),
            i(0x15, 0, 1, 6),
            i(0x06, 0, 0, 0),
            i(0x06, 0, 0, ALLOW),
        ];
        assert_eq!(refused(std::slice::from_ref(&filter)), None);
        // Refuses all executable memory.
        let mut filter = filter;
        (filter[3].k, filter[4].k) = (4, 4);
        assert_eq!(refused(&[filter]), Some("mmap"));
    }

    proptest! {
        #[test]
        fn any_filter_ends(
            words in prop::collection::vec((any::<u16>(), any::<u8>(), any::<u8>(), any::<u32>()), 0..64)
        ) {
            let filter = words.into_iter().map(|(c, t, f, k)| i(c & 0xff, t % 8, f % 8, k % 80)).collect();
            let _ = refused(&[filter]);
        }
    }
}
