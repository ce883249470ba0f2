//! Whether a process can be given the shim, and why not. Nothing here touches the process.

use std::{collections::BTreeMap, path::Path, time::Duration};

use procfs::{
    FromBufRead as _,
    process::{Process as Proc, Status},
};

use super::{
    error::{Refusal, Refused},
    frozen,
    libc::Libc,
    threads::Threads,
};
use crate::{
    clock::Patience,
    discover::{self, Subject},
    foreign,
    plan::LiveProcess,
};

/// The hidden subcommand that the helper runs: see `helper`.
pub const HELPER: &str = "__inject";

/// The longest time for which a process may be traced by a helper, which holds it for milliseconds: a helper of another
/// roctap, or of one that was killed.
const GUARDED_WITHIN: Duration = Duration::from_secs(5);

/// The facts about a process that can be given the shim.
pub struct Feasible {
    pub process: LiveProcess,
    /// The program that it runs: see [`foreign::program`].
    pub program: Vec<u8>,
    pub libc: Libc,
    pub threads: Threads,
}

impl Feasible {
    /// Looks at a process.
    pub fn look(process: &Subject) -> Result<Self, Refused> {
        if !process.has_descriptors() {
            return Err(Refusal::Outlived.into());
        }
        process.by_number(Self::look_by_number)
    }

    fn look_by_number(pid: u32) -> Result<Self, Refused> {
        discover::process_info(pid)?;
        let proc = Proc::new(i32::try_from(pid).unwrap_or(i32::MAX))?;
        let mut patience = Patience::of(GUARDED_WITHIN);
        let status = loop {
            let status = status(pid)?;
            match held(pid, &status) {
                None => break status,
                Some((refusal, brief)) if !brief || patience.has_ended() => {
                    return Err(refusal.into());
                }
                Some(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        if share_memory(status.pid, status.ppid) {
            return Err(Refusal::SharesMemory(status.ppid).into());
        }
        if is_32_bit(pid) {
            return Err(Refusal::Bits32.into());
        }
        if !Path::new(&format!("/proc/{pid}/root/proc/self")).is_symlink() {
            return Err(Refusal::NoProc.into());
        }
        // In this order: if another program is executed in between, nothing is read of it.
        let program = foreign::program(pid).map_err(procfs::ProcError::from)?;
        let process = LiveProcess::open(pid)?;
        let libc = Libc::find(pid, &process)?;
        let auxv: BTreeMap<u64, u64> = proc.auxv()?.into_iter().collect();
        let threads = Threads::read(pid, &process, &auxv)?;
        Ok(Self { process, program, libc, threads })
    }
}

/// The reason why nothing can be put into a process now: it is stopped, frozen or traced, and may go on. None for a
/// state that passes by itself.
pub fn held_now(process: &Subject) -> Option<Refusal> {
    let looked = process.by_number(|pid| Ok::<_, Refused>(held(pid, &status(pid)?)));
    let (refusal, brief) = looked.ok().flatten()?;
    (!brief).then_some(refusal)
}

fn status(pid: u32) -> Result<Status, procfs::ProcError> {
    let text = foreign::text(format!("/proc/{pid}/status").as_ref())?;
    Status::from_buf_read(foreign::lossy(&text).as_bytes())
}

/// The reason why a process cannot be touched now, and whether it is brief: caused by a helper, or by a tracer that has
/// ended since.
fn held(pid: u32, status: &Status) -> Option<(Refusal, bool)> {
    let state = status.state.chars().next().unwrap_or('?');
    let Ok(tracer @ 1..) = u32::try_from(status.tracerpid) else {
        if matches!(state, 'T' | 't') {
            return Some((Refusal::Stopped(state), state == 't'));
        }
        return frozen::cgroup(pid).map(|group| (Refusal::Frozen(group), false));
    };
    let arguments = discover::arguments(tracer).unwrap_or_default();
    let brief = arguments.is_empty() || arguments.get(1).is_some_and(|word| word == HELPER);
    Some((Refusal::Traced { tracer, name: discover::thread_name(tracer, tracer) }, brief))
}

/// Whether two processes share one memory; false if the kernel does not tell.
#[expect(unsafe_code, reason = "a system call that no crate at hand wraps")]
fn share_memory(first: i32, second: i32) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: it takes numbers.
    unsafe { libc::syscall(libc::SYS_kcmp, first, second, KCMP_VM, 0, 0) == 0 }
}

/// Whether the header of a process's executable is that of a 32-bit program.
fn is_32_bit(pid: u32) -> bool {
    let program = foreign::File::open(format!("/proc/{pid}/exe").as_ref());
    let header = program.and_then(|program| program.beginning(5));
    header.is_ok_and(|header| header == *b"\x7fELF\x01")
}

#[cfg(test)]
mod tests {
    use std::{ffi::CString, fs, os::unix::ffi::OsStrExt as _, ptr, thread, time::Duration};

    use super::*;

    /// Starts `true` with a file as its standard input, as `posix_spawn` does: the child shares the caller's memory
    /// until it has opened the file.
    #[expect(unsafe_code, reason = "posix_spawn")]
    fn spawn(input: &Path) -> i32 {
        let input = CString::new(input.as_os_str().as_bytes()).unwrap();
        let mut child = 0;
        // SAFETY: the actions are initialised before they are used, and all strings end with a zero.
        unsafe {
            let mut actions = std::mem::zeroed();
            libc::posix_spawn_file_actions_init(&raw mut actions);
            let read = libc::O_RDONLY;
            libc::posix_spawn_file_actions_addopen(&raw mut actions, 0, input.as_ptr(), read, 0);
            let arguments = [c"true".as_ptr().cast_mut(), ptr::null_mut()];
            let program = c"/bin/true".as_ptr();
            let (actions, arguments) = (&raw const actions, arguments.as_ptr());
            let none = ptr::null();
            libc::posix_spawn(&raw mut child, program, actions, none, arguments, &ptr::null_mut());
        }
        child
    }

    #[test]
    fn a_child_in_its_parents_memory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        thread::scope(|scope| {
            let (send, tid) = std::sync::mpsc::channel();
            let spawned = scope.spawn({
                let pipe = &pipe;
                move || {
                    send.send(rustix::thread::gettid()).unwrap();
                    spawn(pipe)
                }
            });
            let tid = tid.recv().unwrap().as_raw_pid();
            let children = format!("/proc/self/task/{tid}/children");
            let child: u32 = loop {
                if let Ok(child) = fs::read_to_string(&children).unwrap().trim().parse() {
                    break child;
                }
                assert!(!spawned.is_finished(), "it was not started");
                thread::sleep(Duration::from_millis(1));
            };
            let refused = Feasible::look(&Subject::open(child).unwrap()).err();
            fs::write(&pipe, "").unwrap();
            let child = spawned.join().unwrap();
            let child = rustix::process::Pid::from_raw(child);
            rustix::process::waitpid(child, rustix::process::WaitOptions::empty()).unwrap();
            let refused = refused.expect("it is refused").to_string();
            assert!(refused.contains("shares its memory with process"), "{refused}");
        });
    }
}
