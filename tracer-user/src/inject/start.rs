//! The critical section: one thread is stopped, executes `mmap` and `clone`, and is put back.
//!
//! The thread executes no code of libc, so it does not matter what it was doing: it may hold the lock of `malloc` or be
//! in the middle of `dlopen`. Nothing that it can see is changed: registers, signal mask, stack. A system call in which
//! it waited is resumed by the kernel, or by roctap if the kernel would let the call fail with EINTR.

use std::time::Duration;

use super::{
    bootstrap::{self, at},
    frozen, seccomp,
    threads::{Block, Model, Threads},
    tracee::{Registers, StepError, Writable, repeat_wait},
};

/// The longest time in which the thread may stop.
const STOP_WITHIN: Duration = Duration::from_millis(200);
/// Bytes of the new thread's stack. On it runs `pthread_create`, which may call an allocator.
const STACK_BYTES: u64 = 128 << 10;

/// How often a system call that is to be repeated is made, at most.
const MOST_REPEATS: usize = 100;

const SYS_MMAP: u64 = 9;
const SYS_MUNMAP: u64 = 11;
const SYS_CLONE: u64 = 56;
/// VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, CHILD_CLEARTID.
const CLONE_FLAGS: u64 = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x8_0000 | 0x20_0000;
/// While the thread is held it blocks all signals: a signal that came between two system calls would be lost.
const HELD_SIGNALS: u64 = !0;

/// The description of the new thread.
pub struct ThreadStart<'a> {
    /// A `syscall` instruction in the process.
    pub syscall: u64,
    pub threads: &'a Threads,
    /// Makes a model of the stopped thread's descriptor.
    pub model: &'a dyn Fn(u64) -> Option<Model>,
    /// Whether the new thread calls libc.
    pub calls_libc: bool,
    /// System calls of the library that is put in, beside those that are always made.
    pub calls: &'static [seccomp::Call],
    /// Words of the shared page: offset and value.
    pub words: Vec<(usize, u64)>,
    /// Strings of the shared page.
    pub strings: Vec<(usize, &'a [u8])>,
}

/// The new thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Started {
    /// The mapping that it runs in.
    pub block: u64,
    /// Its size.
    pub block_bytes: u64,
    /// The thread, as the process calls it.
    pub tid: u64,
    /// Whether the mapping has to stay.
    pub stays: bool,
    /// Whether the process may call `process_vm_readv`.
    pub may_read: bool,
}

/// Why there is no new thread. The stopped one is as it was.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A step failed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A system call was refused.
    #[error("{call} in the process failed: {cause}")]
    Call { call: &'static str, cause: std::io::Error },
    /// The thread is at a place where it must not be interrupted.
    #[error("the thread is in a restartable sequence")]
    Rseq,
    /// It hands its system calls to the program.
    #[error("the program handles its system calls itself (Syscall User Dispatch)")]
    Dispatched,
    /// The thread has begun to move data since it was chosen.
    #[error("the thread is in a system call that moves data")]
    MovesData,
    /// The process is confined.
    #[error("it is confined by seccomp, which does not allow {0}")]
    Seccomp(&'static str),
    /// The stopped thread's descriptor is not glibc's.
    #[error("its thread descriptor is not as glibc's")]
    Descriptor,
    /// The `syscall` instruction that was found in its memory is not there any more.
    #[error(
        "it executed another program, or unloaded its C library, while it was looked at; try again"
    )]
    Replaced,
}

/// The state of the stopped thread that is put back.
struct Saved {
    registers: Registers,
    mask: u64,
}

/// Makes `tracee`'s process start the thread.
pub fn start(tracee: &mut Writable, plan: &ThreadStart<'_>) -> Result<Started, StartError> {
    let (saved, filters) = hold(tracee, plan.syscall, plan.calls)?;
    tracee.set_signal_mask(HELD_SIGNALS)?;
    let started = make(tracee, plan, &saved.registers);
    put_back(tracee, &saved)?;
    Ok(Started { may_read: seccomp::may_read(&filters), ..started? })
}

/// Makes `tracee`'s process unmap a block that nobody uses any more.
pub fn unmap(
    tracee: &mut Writable,
    syscall: u64,
    block: u64,
    bytes: u64,
) -> Result<(), StartError> {
    let (saved, _) = hold(tracee, syscall, &[])?;
    tracee.set_signal_mask(HELD_SIGNALS)?;
    let result = call(tracee, &saved.registers, syscall, "munmap", SYS_MUNMAP, [block, bytes]);
    put_back(tracee, &saved)?;
    result.map(drop)
}

/// Stops the thread. Returns its state, to be put back later, and its seccomp filters, which allow all the calls. If
/// they do not, or the thread is at a place where it must not be held, it goes on as if it had not been stopped.
fn hold(
    tracee: &mut Writable,
    syscall: u64,
    calls: &'static [seccomp::Call],
) -> Result<(Saved, Vec<Vec<seccomp::Instruction>>), StartError> {
    tracee.stop(Some(STOP_WITHIN))?;
    let held = look(tracee, syscall, calls);
    if held.is_err() {
        // The first error is the one to report.
        let _ = tracee.go_on();
    }
    held
}

fn look(
    tracee: &mut Writable,
    syscall: u64,
    calls: &'static [seccomp::Call],
) -> Result<(Saved, Vec<Vec<seccomp::Instruction>>), StartError> {
    check_syscall(tracee, syscall)?;
    let registers = tracee.registers()?;
    if tracee.in_rseq(registers.rip) {
        return Err(StartError::Rseq);
    }
    if tracee.dispatches_syscalls() {
        return Err(StartError::Dispatched);
    }
    let filters = tracee.seccomp_filters()?;
    let filters = filters.ok_or(StartError::Seccomp("anything (strict mode)"))?;
    if let Some(call) = seccomp::refused(&filters, calls) {
        return Err(StartError::Seccomp(call));
    }
    Ok((Saved { registers, mask: tracee.signal_mask()? }, filters))
}

/// Checks that the stopped thread has a `syscall` instruction where the process had one when it was looked at.
fn check_syscall(tracee: &Writable, at: u64) -> Result<(), StartError> {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let mut found = [0; 2];
    match tracee.read(at, &mut found) {
        Ok(()) if found == SYSCALL => Ok(()),
        _ => Err(StartError::Replaced),
    }
}

fn put_back(tracee: &mut Writable, saved: &Saved) -> Result<(), StepError> {
    let mask = tracee.set_signal_mask(saved.mask);
    let mut registers = saved.registers;
    repeat_wait(&mut registers, || tracee.may_restart());
    tracee.set_registers(&registers)?;
    mask
}

fn make(
    tracee: &mut Writable,
    plan: &ThreadStart<'_>,
    saved: &Registers,
) -> Result<Started, StartError> {
    let model = (plan.model)(saved.fs_base).ok_or(StartError::Descriptor)?;
    let tls_at = 2 * bootstrap::PAGE + STACK_BYTES;
    let block_bytes = tls_at + plan.threads.block_bytes().next_multiple_of(bootstrap::PAGE);
    // Not writable, since memory that is executable should not be. Roctap writes through /proc, and the thread makes
    // all but its code writable, and no longer executable.
    const READ_EXECUTE: u64 = 1 | 4;
    const PRIVATE_ANONYMOUS: u64 = 0x22;
    let arguments = [0, block_bytes, READ_EXECUTE, PRIVATE_ANONYMOUS, u64::MAX, 0];
    let block = call(tracee, saved, plan.syscall, "mmap", SYS_MMAP, arguments)?;
    let tls = plan.threads.block(block + tls_at, &model);
    let started = fill(tracee, plan, block, block_bytes, &tls)
        .and_then(|()| clone(tracee, saved, block, block_bytes, &tls, tls_at));
    if started.is_err() {
        // Best effort: the first error is the one to report.
        let _ = call(tracee, saved, plan.syscall, "munmap", SYS_MUNMAP, [block, block_bytes]);
    }
    // The process's allocator learns of the new thread only if that calls libc.
    let stays = plan.threads.foreign_allocator && plan.calls_libc;
    started.map(|tid| Started { block, block_bytes, tid, stays, may_read: false })
}

fn fill(
    tracee: &mut Writable,
    plan: &ThreadStart<'_>,
    block: u64,
    block_bytes: u64,
    tls: &Block,
) -> Result<(), StartError> {
    let page = block + bootstrap::PAGE;
    let mut bytes = vec![0u8; bootstrap::PAGE as usize];
    let mut put = |offset: usize, data: &[u8]| {
        if let Some(room) = bytes.get_mut(offset..offset + data.len()) {
            room.copy_from_slice(data);
        }
    };
    plan.words.iter().for_each(|(offset, word)| put(*offset, &word.to_le_bytes()));
    plan.strings.iter().for_each(|(offset, string)| put(*offset, string));
    put(at::TID_SLOT, &tls.tid_slot.to_le_bytes());
    put(at::ALIVE, &1u32.to_le_bytes());
    put(at::MEMORY_FD, &u64::MAX.to_le_bytes());
    put(at::LIBRARY_FD, &u64::MAX.to_le_bytes());
    put(at::NAP + 8, &bootstrap::NAP_NS.to_le_bytes());
    tracee.write(block, bootstrap::code())?;
    tracee.write(page, &bytes)?;
    let tls_at = block + block_bytes - tls_room(tls);
    // The rest is zero already, and takes no memory.
    let pages = tls
        .bytes
        .chunks(bootstrap::PAGE as usize)
        .zip((tls_at..).step_by(bootstrap::PAGE as usize));
    for (page, at) in pages.filter(|(page, _)| page.iter().any(|&byte| byte != 0)) {
        tracee.write(at, page)?;
    }
    Ok(())
}

fn tls_room(tls: &Block) -> u64 {
    (tls.bytes.len() as u64).next_multiple_of(bootstrap::PAGE)
}

fn clone(
    tracee: &mut Writable,
    saved: &Registers,
    block: u64,
    block_bytes: u64,
    tls: &Block,
    stack_end: u64,
) -> Result<u64, StartError> {
    let alive = block + bootstrap::PAGE + at::ALIVE as u64;
    let mut registers = *saved;
    registers.rbx = block;
    registers.r12 = block_bytes - bootstrap::PAGE;
    // flags, stack, parent's tid, child's tid, thread pointer
    registers.rsi = block + stack_end;
    registers.rdx = 0;
    registers.r10 = alive;
    registers.r8 = tls.pointer;
    // The code begins with the system call.
    run(tracee, registers, block, "clone", SYS_CLONE, CLONE_FLAGS)
}

/// Makes the thread execute a system call at `syscall`.
fn call<const N: usize>(
    tracee: &mut Writable,
    saved: &Registers,
    syscall: u64,
    name: &'static str,
    number: u64,
    arguments: [u64; N],
) -> Result<u64, StartError> {
    let mut registers = *saved;
    let [_, rsi, rdx, r10, r8, r9] =
        core::array::from_fn(|i| arguments.get(i).copied().unwrap_or(0));
    (registers.rsi, registers.rdx, registers.r10) = (rsi, rdx, r10);
    (registers.r8, registers.r9) = (r8, r9);
    run(tracee, registers, syscall, name, number, arguments.first().copied().unwrap_or(0))
}

fn run(
    tracee: &mut Writable,
    mut registers: Registers,
    syscall: u64,
    name: &'static str,
    number: u64,
    first: u64,
) -> Result<u64, StartError> {
    registers.rip = syscall;
    registers.rax = number;
    registers.rdi = first;
    // The system call in which the thread waited before must not be restarted now.
    registers.orig_rax = u64::MAX;
    // The kernel wants `clone` to be repeated if the process is to stop, or its cgroup to freeze.
    const REPEAT: i64 = -513;
    let mut result = REPEAT as u64;
    for _ in 0..MOST_REPEATS {
        tracee.set_registers(&registers)?;
        // Without a deadline: `mmap` may wait for another thread that changes the process's mappings, and a thread
        // inside of a system call cannot be put back.
        tracee.execute()?;
        result = tracee.registers()?.rax;
        // In a frozen cgroup, the repeated call would wait until the cgroup thaws.
        if result as i64 != REPEAT || frozen::cgroup(tracee.tid()).is_some() {
            break;
        }
    }
    match result as i64 {
        REPEAT => Err(StartError::Step(StepError::Late(STOP_WITHIN))),
        -4095..0 => {
            let cause = std::io::Error::from_raw_os_error(-(result as i64) as i32);
            Err(StartError::Call { call: name, cause })
        }
        _ => Ok(result),
    }
}
