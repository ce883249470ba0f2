//! Stopping one thread ([`Thread`]) and making it execute system calls ([`Writable`]): all uses of `ptrace` are here.
#![expect(unsafe_code, reason = "calls ptrace and waitpid")]

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    ptr,
    time::{Duration, Instant},
};

use super::seccomp::{self, Instruction};
use crate::{
    discover::{Ended, Subject},
    foreign,
};

/// The general registers.
pub type Registers = libc::user_regs_struct;

/// Why a step did not work.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The kernel refused a request.
    #[error("{what}: {cause}")]
    Refused {
        /// The request.
        what: &'static str,
        /// The error. Part of the message, hence no `source`.
        cause: io::Error,
    },
    /// The thread did not stop in time.
    #[error("the thread did not stop within {} ms", .0.as_millis())]
    Late(Duration),
    /// What it executed for us has raised a signal.
    #[error("signal {0} came of what it was to execute")]
    Faulted(i32),
    /// The thread ended.
    #[error("the thread ended")]
    Gone,
    /// The thread runs another program than the one that was looked at.
    #[error("it has executed another program")]
    Replaced,
}

impl From<Ended> for StepError {
    fn from(_: Ended) -> Self {
        Self::Gone
    }
}

/// Signals that the kernel sends a thread for what it executes, whether it blocks them or not.
const SYNCHRONOUS: [libc::c_int; 6] =
    [libc::SIGSYS, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];

/// A thread of another process that is traced: it is stopped and let go, no more. Dropping this lets it go on if it is
/// stopped. If it is not stopped, waiting for its stop could take for ever: the kernel lets it go when the thread that
/// has seized it ends. So a thread, or a process, must be there for this alone.
pub struct Thread {
    tid: libc::pid_t,
    stopped: bool,
    stopped_since: Option<Instant>,
}

/// A traced thread whose memory can be read and written.
pub struct Writable {
    thread: Thread,
    /// The program that it should run: see [`foreign::program`].
    program: Vec<u8>,
    /// Opened when the thread has stopped: until then it may execute another program, which has other memory.
    memory: Option<File>,
}

/// The longest wait for a thread that is to stop, and could, but gets no CPU.
const PATIENCE: Duration = Duration::from_secs(5);

/// The signal of a stop at a system call.
const SYSCALL_STOP: libc::c_int = libc::SIGTRAP | 0x80;

const GETSIGMASK: libc::c_uint = 0x420a;
const SETSIGMASK: libc::c_uint = 0x420b;
const SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
const GET_SYSCALL_USER_DISPATCH: libc::c_uint = 0x4211;

fn ptrace(
    what: &'static str,
    request: libc::c_uint,
    tid: libc::pid_t,
    address: usize,
    data: *mut libc::c_void,
) -> Result<(), StepError> {
    let address = ptr::without_provenance_mut::<libc::c_void>(address);
    // SAFETY: the callers give `data` that is valid for what the request reads or writes.
    let result = unsafe { libc::ptrace(request, tid, address, data) };
    match result {
        -1 => {
            let cause = io::Error::last_os_error();
            match cause.raw_os_error() {
                Some(libc::ESRCH) => Err(StepError::Gone),
                _ => Err(StepError::Refused { what, cause }),
            }
        }
        _ => Ok(()),
    }
}

fn number(value: usize) -> *mut libc::c_void {
    ptr::without_provenance_mut(value)
}

impl Thread {
    /// Begins to trace thread `tid` of a process, which goes on.
    pub fn seize(process: &Subject, tid: u32) -> Result<Self, StepError> {
        process.by_number(|pid| {
            let thread = Self::seize_by_number(tid)?;
            // A traced thread keeps its number. Another process may have had the number when it was taken.
            let own = Path::new(&format!("/proc/{pid}/task/{tid}")).exists();
            own.then_some(thread).ok_or(StepError::Gone)
        })
    }

    /// The kernel's description of the thread, `/proc/TID/status`.
    fn status(&self) -> io::Result<String> {
        let text = foreign::text(format!("/proc/{}/status", self.tid).as_ref())?;
        Ok(foreign::lossy(&text).into_owned())
    }

    fn seize_by_number(tid: u32) -> Result<Self, StepError> {
        let tid = libc::pid_t::try_from(tid).map_err(|_| StepError::Gone)?;
        let options = number(libc::PTRACE_O_TRACESYSGOOD as usize);
        ptrace("PTRACE_SEIZE", libc::PTRACE_SEIZE, tid, 0, options)?;
        Ok(Self { tid, stopped: false, stopped_since: None })
    }

    /// Stops the thread, wherever it is. After [`StepError::Late`] it is still on its way to a stop: a thread that
    /// waits for a child in `vfork` stops when the child has ended.
    pub fn stop(&mut self, within: Option<Duration>) -> Result<(), StepError> {
        self.request("PTRACE_INTERRUPT", libc::PTRACE_INTERRUPT, 0, number(0))?;
        if self.stopped {
            self.resume("PTRACE_CONT", libc::PTRACE_CONT, 0)?;
        }
        loop {
            let stop = self.wait(within)?;
            if stop >> 8 == libc::PTRACE_EVENT_STOP {
                return Ok(());
            }
            // A signal was on its way: it is delivered first.
            self.resume("PTRACE_CONT", libc::PTRACE_CONT, stop & 0xff)?;
        }
    }

    /// Prepares the thread to go on, when it is let go, as if it had not been stopped.
    ///
    /// # Errors
    ///
    /// When the thread is gone.
    pub fn go_on(&self) -> Result<(), StepError> {
        let mut registers = self.registers()?;
        if repeat_wait(&mut registers, || self.may_restart()) {
            self.set_registers(&registers)
        } else {
            Ok(())
        }
    }

    fn registers(&self) -> Result<Registers, StepError> {
        // SAFETY: all zeros are registers.
        let mut registers: Registers = unsafe { core::mem::zeroed() };
        let data = (&raw mut registers).cast();
        self.request("PTRACE_GETREGS", libc::PTRACE_GETREGS, 0, data)?;
        Ok(registers)
    }

    fn set_registers(&self, registers: &Registers) -> Result<(), StepError> {
        let data = ptr::from_ref(registers).cast_mut().cast();
        self.request("PTRACE_SETREGS", libc::PTRACE_SETREGS, 0, data)
    }

    /// The seccomp filters of the thread; none in strict mode.
    fn seccomp_filters(&self) -> Result<Option<Vec<Vec<Instruction>>>, StepError> {
        let what = "reading its seccomp filters";
        let status = self.status().map_err(|cause| StepError::Refused { what, cause })?;
        // The kernel gives filters only of a thread that has some. A kernel without seccomp has no such line.
        match foreign::field(&status, "Seccomp") {
            None | Some("0") => return Ok(Some(Vec::new())),
            Some("1") => return Ok(None),
            Some(_) => {}
        }
        let mut filters = Vec::new();
        loop {
            let index = ptr::without_provenance_mut::<libc::c_void>(filters.len());
            let none = ptr::null_mut::<libc::c_void>();
            // SAFETY: without a buffer only the length is told.
            let length = unsafe { libc::ptrace(SECCOMP_GET_FILTER, self.tid, index, none) };
            let Ok(length) = usize::try_from(length) else {
                let cause = io::Error::last_os_error();
                return match cause.raw_os_error() {
                    Some(libc::ENOENT) => Ok(Some(filters)),
                    _ => Err(StepError::Refused { what, cause }),
                };
            };
            let mut filter = vec![Instruction::default(); length];
            let data = filter.as_mut_ptr().cast();
            // A filter that another thread adds meanwhile comes before these.
            self.request(what, SECCOMP_GET_FILTER, filters.len(), data)?;
            filters.push(filter);
        }
    }

    /// Whether the thread waits for something that a stop does not interrupt, as for a child in `vfork`.
    fn cannot_stop(&self) -> bool {
        let status = self.status().unwrap_or_default();
        foreign::field(&status, "State").is_none_or(|state| state.starts_with('D'))
    }

    fn may_restart(&self) -> bool {
        let filters = self.seccomp_filters();
        filters.is_ok_and(|filters| filters.is_some_and(|all| seccomp::may_restart(&all)))
    }

    fn request(
        &self,
        what: &'static str,
        request: libc::c_uint,
        address: usize,
        data: *mut libc::c_void,
    ) -> Result<(), StepError> {
        ptrace(what, request, self.tid, address, data)
    }

    /// Waits for the next stop: its signal and, in the upper half, its event.
    fn wait(&mut self, within: Option<Duration>) -> Result<libc::c_int, StepError> {
        let began = Instant::now();
        loop {
            let mut status = 0;
            // SAFETY: `status` is valid for writes.
            match unsafe { libc::waitpid(self.tid, &raw mut status, libc::__WALL | libc::WNOHANG) }
            {
                0 => {
                    let waited = began.elapsed();
                    // A thread that waits for a CPU has left its system call, and is let go only when it stops.
                    let is_late =
                        |within| waited > within && (waited > PATIENCE || self.cannot_stop());
                    if let Some(within) = within.filter(|&within| is_late(within)) {
                        return Err(StepError::Late(within));
                    }
                    // Every microsecond counts at first: the thread may have stopped already.
                    if waited < Duration::from_micros(200) {
                        std::hint::spin_loop();
                    } else if waited < Duration::from_millis(2) {
                        std::thread::yield_now();
                    } else {
                        std::thread::sleep(Duration::from_micros(50));
                    }
                }
                tid if tid == self.tid && libc::WIFSTOPPED(status) => {
                    self.stopped = true;
                    self.stopped_since.get_or_insert_with(Instant::now);
                    return Ok(status >> 8);
                }
                _ => return Err(StepError::Gone),
            }
        }
    }

    fn resume(
        &mut self,
        what: &'static str,
        request: libc::c_uint,
        signal: i32,
    ) -> Result<(), StepError> {
        self.request(what, request, 0, number(signal as usize))?;
        self.stopped = false;
        Ok(())
    }
}

/// Lets a stopped thread repeat a system call that only roctap's stop has interrupted, where that changes nothing,
/// because the call has done nothing yet. The kernel itself resumes other calls: those that wait for a time
/// (`nanosleep`, `poll`, `futex`) by `restart_syscall`, if the filters allow that, or else they are repeated as well. A
/// relative time begins anew then, unless the call itself writes the remaining time to the same place. Returns whether
/// registers have changed.
///
/// It is the kernel that repeats the call, or, if a signal handler runs before, makes it return EINTR.
pub fn repeat_wait(registers: &mut Registers, may_restart: impl FnOnce() -> bool) -> bool {
    // epoll_wait, epoll_pwait, epoll_pwait2, rt_sigtimedwait, semop, semtimedop, io_getevents,
    // io_pgetevents, io_uring_enter
    const WAITING: [u64; 9] = [232, 281, 441, 128, 65, 220, 208, 333, 426];
    // On sockets with timeouts: read, readv, recvfrom, recvmsg, recvmmsg, accept, accept4, connect, write,
    // writev, sendto, sendmsg, sendmmsg. A call that has moved bytes returns how many: a thread that waits in such a
    // call is not stopped (see [`super::candidates`]), but a running thread may be on its way into one.
    const SOCKETS: [u64; 13] = [0, 19, 45, 47, 299, 43, 288, 42, 1, 20, 44, 46, 307];
    const RESTART_SYSCALL: u64 = 219;
    const EINTR: i64 = -4;
    const ERESTARTNOHAND: i64 = -514;
    const ERESTART_RESTARTBLOCK: i64 = -516;
    // The segment of 64-bit code: the system calls of other code have other numbers.
    const CODE_64: u64 = 0x33;
    let call = registers.orig_rax;
    let result = match registers.rax as i64 {
        _ if registers.cs != CODE_64 => return false,
        EINTR if WAITING.contains(&call) || SOCKETS.contains(&call) => ERESTARTNOHAND,
        ERESTART_RESTARTBLOCK if !may_restart() => match call {
            // It is not known which call was restarted before.
            RESTART_SYSCALL => EINTR,
            _ => ERESTARTNOHAND,
        },
        _ => return false,
    };
    registers.rax = result as u64;
    true
}

impl Drop for Thread {
    fn drop(&mut self) {
        // This request works on a stopped thread alone.
        if self.stopped {
            let _ = self.request("", libc::PTRACE_DETACH, 0, number(0));
        }
    }
}

impl Writable {
    /// Begins to trace thread `tid` of a process, which goes on.
    pub fn seize(process: &Subject, tid: u32, program: &[u8]) -> Result<Self, StepError> {
        let program = program.to_owned();
        Ok(Self { thread: Thread::seize(process, tid)?, program, memory: None })
    }

    /// The thread's id.
    pub fn tid(&self) -> u32 {
        self.thread.tid.cast_unsigned()
    }

    fn memory(&self) -> Result<&File, StepError> {
        self.memory.as_ref().ok_or(StepError::Gone)
    }

    /// When the thread was stopped first.
    pub fn stopped_since(&self) -> Option<Instant> {
        self.thread.stopped_since
    }

    /// Stops the thread, wherever it is.
    pub fn stop(&mut self, within: Option<Duration>) -> Result<(), StepError> {
        self.thread.stop(within)?;
        if self.memory.is_none() {
            // A traced thread keeps its number, and as long as it is stopped its program.
            if foreign::program(self.thread.tid.cast_unsigned()).ok() != Some(self.program.clone())
            {
                return Err(StepError::Replaced);
            }
            let path = format!("/proc/{}/mem", self.thread.tid);
            let open = OpenOptions::new().read(true).write(true).open(path);
            let what = "opening its memory";
            self.memory = Some(open.map_err(|cause| StepError::Refused { what, cause })?);
        }
        Ok(())
    }

    /// The thread's registers, while it is stopped.
    pub fn registers(&mut self) -> Result<Registers, StepError> {
        self.thread.registers()
    }

    /// Sets the registers.
    pub fn set_registers(&mut self, registers: &Registers) -> Result<(), StepError> {
        self.thread.set_registers(registers)
    }

    /// The signals that the thread blocks.
    pub fn signal_mask(&mut self) -> Result<u64, StepError> {
        let mut mask = 0u64;
        self.thread.request("PTRACE_GETSIGMASK", GETSIGMASK, 8, (&raw mut mask).cast())?;
        Ok(mask)
    }

    /// Sets the signals that the thread blocks.
    pub fn set_signal_mask(&mut self, mask: u64) -> Result<(), StepError> {
        let mut mask = mask;
        self.thread.request("PTRACE_SETSIGMASK", SETSIGMASK, 8, (&raw mut mask).cast())
    }

    /// Whether its system calls are handed to the program itself (Syscall User Dispatch), but for those of some code: ours
    /// would be as well. A kernel before 6.4 does not tell.
    pub fn dispatches_syscalls(&mut self) -> bool {
        // struct ptrace_sud_config: mode, selector, offset, length.
        let mut configuration = [0u64; 4];
        let data = (&raw mut configuration).cast();
        let asked = self.thread.request("dispatch", GET_SYSCALL_USER_DISPATCH, 32, data);
        asked.is_ok() && configuration[0] != 0
    }

    /// Executes the `syscall` instruction at which the thread is, and stops behind it. If something
    /// else comes of that, the thread has stopped somewhere, to be put back.
    pub fn execute(&mut self) -> Result<(), StepError> {
        // Not by PTRACE_SINGLESTEP: its SIGTRAP, which is blocked, would cost the process its handler.
        for _ in 0..2 {
            self.thread.resume("PTRACE_SYSCALL", libc::PTRACE_SYSCALL, 0)?;
            loop {
                let stop = self.thread.wait(None)?;
                if stop & 0xff == SYSCALL_STOP {
                    break;
                }
                // It blocks all signals: this one is of what it has executed. It does not go on from there.
                if SYNCHRONOUS.contains(&stop) {
                    self.stop(None)?;
                    return Err(StepError::Faulted(stop));
                }
                // A SIGSTOP passes: the process stops then, and the thread itself when it is let go. Other signals are
                // blocked.
                let signal = if stop == libc::SIGSTOP { stop } else { 0 };
                self.thread.resume("PTRACE_SYSCALL", libc::PTRACE_SYSCALL, signal)?;
            }
        }
        // Only in this kind of stop the kernel looks, when the thread goes on, whether the registers
        // are those of a system call that is to be restarted.
        self.stop(None)
    }

    /// Reads the thread's memory.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), StepError> {
        let what = "reading its memory";
        let read = self.memory()?.read_exact_at(bytes, address);
        read.map_err(|cause| StepError::Refused { what, cause })
    }

    /// Writes to the thread's memory, whatever its protection.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), StepError> {
        let what = "writing to its memory";
        let written = self.memory()?.write_all_at(bytes, address);
        written.map_err(|cause| StepError::Refused { what, cause })
    }

    /// The seccomp filters of the thread; none in strict mode, which allows nothing.
    pub fn seccomp_filters(&mut self) -> Result<Option<Vec<Vec<Instruction>>>, StepError> {
        self.thread.seccomp_filters()
    }

    /// Whether the thread's seccomp filters allow the call by which the kernel continues a wait for a time.
    pub fn may_restart(&self) -> bool {
        self.thread.may_restart()
    }

    /// Prepares the thread to go on, when it is let go, as if it had not been stopped.
    pub fn go_on(&mut self) -> Result<(), StepError> {
        self.thread.go_on()
    }

    /// Whether the thread is inside a restartable sequence, at instruction `at`.
    pub fn in_rseq(&mut self, at: u64) -> bool {
        // struct ptrace_rseq_configuration: address, size, signature, flags, padding.
        let mut configuration = [0u64; 3];
        let data = (&raw mut configuration).cast();
        if self.thread.request("rseq", GET_RSEQ_CONFIGURATION, 24, data).is_err() {
            return false;
        }
        let word = |address: u64| {
            let mut word = [0; 8];
            self.read(address, &mut word).ok()?;
            Some(u64::from_le_bytes(word)).filter(|&word| word != 0)
        };
        // struct rseq: cpu_id_start, cpu_id, rseq_cs. struct rseq_cs: version, flags, start, length.
        let section = word(configuration[0].wrapping_add(8));
        let range = section.and_then(|at| Some((word(at + 8)?, word(at + 16)?)));
        configuration[0] != 0 && range.is_some_and(|(start, bytes)| at.wrapping_sub(start) < bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_repeated_where_it_would_not_go_on() {
        // SAFETY: numbers.
        let none: Registers = unsafe { std::mem::zeroed() };
        // The value that a thread that was stopped in a call would return.
        let result_of = |cs, call, result: i64, may_restart| {
            let stopped = Registers { cs, rip: 100, orig_rax: call, rax: result as u64, ..none };
            let mut after = stopped;
            let has_changed = repeat_wait(&mut after, || may_restart);
            assert_eq!((after.rip, after.orig_rax), (100, call));
            assert_eq!(has_changed, after.rax != stopped.rax);
            after.rax as i64
        };
        let (nanosleep, epoll_wait, futex, restart_syscall) = (35, 232, 202, 219);
        assert_eq!(result_of(0x33, epoll_wait, -4, true), -514);
        assert_eq!(result_of(0x33, nanosleep, -4, true), -4);
        assert_eq!(result_of(0x33, nanosleep, -516, false), -514);
        assert_eq!(result_of(0x33, nanosleep, -516, true), -516);
        assert_eq!(result_of(0x33, restart_syscall, -516, false), -4, "not to be killed");
        // The kernel repeats the call itself; the call has returned; the code is of 32 bits.
        assert_eq!(result_of(0x33, futex, -512, false), -512);
        assert_eq!(result_of(0x33, nanosleep, 0, false), 0);
        assert_eq!(result_of(0x23, nanosleep, -516, false), -516);
    }
}
