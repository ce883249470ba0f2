//! The process that reads memory for [`super::TargetMemory`], and that may get stuck in doing so.
//!
//! It is forked from roctap and executes no other program: it takes a request and an open `/proc/PID/mem` from a
//! socket, reads or writes, answers, and ends when the other end is closed. It has no descriptors but these and its
//! own `schedstat`, and of roctap's rights only the right to trace.
//!
//! Only the time counts for which the process did not wait for a CPU: it measures that itself, and the waiting thread
//! looks at whether it could run ([`super::schedule`]). Of its time on a CPU a part counts ([`ON_CPU`]).
//!
//! It touches the memory twice. A thread that reads through `/proc/PID/mem` waits with the lock of the process's
//! address space held: for as long, the process could map nothing, and no tool could place a probe in a file that it
//! maps (Linux 6.18, `__access_remote_vm`). `process_vm_readv` waits without that lock, and usually killably
//! (`__get_user_pages_locked`); but it goes by number, and fails for memory of devices. So `process_vm_readv` comes
//! first, to bring the pages in, and its result is dropped.
#![expect(unsafe_code, reason = "fork, and a system call that no crate at hand wraps")]

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsRawFd as _, BorrowedFd, OwnedFd},
    ptr,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
        socketpair,
    },
    process::{Pid, Signal, WaitOptions, kill_process, waitpid},
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::schedule::{Schedule, Silence, ThreadState};
use crate::{alarm, clock, privileges};

/// The longest time for an answer, without waiting for a CPU.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// One part in so many of the time on a CPU counts as time of the answer. Pages can be made that take their reader CPU
/// time; and a CPU of a virtual machine may be stopped by its host while a thread is on it.
const ON_CPU: u64 = 4;
/// The process ends by itself if one request takes this long: roctap may have ended.
const ALONE_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes of one request: with its head it fits into the smallest socket buffer that anybody sets.
pub const MOST_BYTES: usize = 16 << 10;

const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const HEAD_BYTES: usize = size_of::<Head>();
const MESSAGE_BYTES: usize = HEAD_BYTES + MOST_BYTES;
/// The name that `ps` shows.
const NAME: &std::ffi::CStr = c"roctap-memory";

/// The head of a request and of an answer: the bytes to be written follow a request, those that were read an answer.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    address: u64,
    pid: u32,
    /// In a request: how many bytes are to be read or written. In an answer: how many were.
    count: u32,
    writes: u32,
    /// In an answer: errno, 0 without an error.
    error: i32,
    /// In an answer: the time that it took, without waiting for a CPU, and with a part of the time on one.
    took_ns: u64,
}

/// The access at an address.
#[derive(Debug)]
pub enum Task<'b> {
    /// Reads as many bytes as are there.
    Read(&'b mut [u8]),
    /// Writes.
    Write(&'b [u8]),
}

/// A request, with [`MOST_BYTES`] at most.
#[derive(Debug)]
pub struct Request<'b> {
    /// The process that the memory belongs to, as far as is known.
    pub pid: u32,
    /// The memory.
    pub memory: BorrowedFd<'b>,
    /// The address in it.
    pub address: u64,
    /// The access to make there.
    pub task: Task<'b>,
}

/// The result of a request.
#[derive(Debug)]
pub struct Answer {
    /// How many bytes were read or written.
    pub done: io::Result<usize>,
    /// The time that it took, without waiting for a CPU, and with a part of the time on one.
    pub took: Duration,
}

/// The reason why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// The process has ended, after roctap had waited for this long.
    Ended(Duration),
    /// The process takes too long.
    Late,
}

impl Lost {
    /// The time for which roctap waited for the process, without the process's waiting for a CPU.
    pub fn waited(self) -> Duration {
        match self {
            Self::Ended(waited) => waited,
            Self::Late => ANSWER_WITHIN,
        }
    }
}

/// The process. It ends when this is dropped.
#[derive(Debug)]
pub struct ReaderProcess {
    socket: OwnedFd,
    pid: Pid,
}

impl ReaderProcess {
    /// Starts the process.
    ///
    /// # Errors
    ///
    /// When the machine has no room for the process.
    pub fn start() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // Blocked before the fork, since this process's signal handlers are not for the new one.
        let signals = Blocked::all();
        // SAFETY: the new process runs `serve` alone, which neither allocates nor takes a lock nor returns: the fork
        // may have caught another thread in the middle of anything else.
        let pid = match unsafe { libc::fork() } {
            0 => serve(its),
            pid => pid,
        };
        let forked = io::Error::last_os_error();
        drop(signals);
        Pid::from_raw(pid.max(0)).map(|pid| Self { socket: ours, pid }).ok_or(forked)
    }

    /// Sends a request, and waits for the answer.
    pub fn ask(&self, request: Request<'_>) -> Result<Answer, Lost> {
        let Request { pid, memory, address, task } = request;
        let (writes, count) = match &task {
            Task::Read(bytes) => (0, bytes.len()),
            Task::Write(bytes) => (1, bytes.len()),
        };
        let head = Head { address, pid, count: count as u32, writes, error: 0, took_ns: 0 };
        let to_write = if let Task::Write(bytes) = &task { bytes } else { &[][..] };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [memory];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let parts = [IoSlice::new(head.as_bytes()), IoSlice::new(to_write)];
        sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL)
            .map_err(|_| Lost::Ended(Duration::ZERO))?;
        let mut silence = self.wait()?;
        let ended = Lost::Ended(silence.blocked());
        let mut answer = [0; MESSAGE_BYTES];
        let received = recv(&self.socket, &mut answer[..], RecvFlags::empty());
        let (length, _) = received.map_err(|_| ended)?;
        let (head, bytes) = Head::read_from_prefix(&answer[..length]).map_err(|_| ended)?;
        // At most the time by roctap's clock, which does not count while all of roctap is held up.
        let took = Duration::from_nanos(head.took_ns).min(silence.so_far(clock::now_ns()));
        let done = (head.count as usize).min(count);
        if let Task::Read(into) = task {
            let done = done.min(bytes.len());
            into[..done].copy_from_slice(&bytes[..done]);
        }
        let error = || io::Error::from_raw_os_error(head.error);
        Ok(Answer { done: if head.error == 0 { Ok(done) } else { Err(error()) }, took })
    }

    /// Waits until the process has answered, or has ended.
    fn wait(&self) -> Result<Silence, Lost> {
        let mut silence = Silence::since(clock::now_ns());
        loop {
            let mut look = [PollFd::new(&self.socket, PollFlags::IN)];
            if let Ok(1..) = poll(&mut look, Some(&LOOK_EVERY)) {
                return Ok(silence);
            }
            let pid = self.pid.as_raw_nonzero().get().cast_unsigned();
            silence.goes_on(clock::now_ns(), ThreadState::at(pid, pid));
            if silence.blocked() > ANSWER_WITHIN {
                return Err(Lost::Late);
            }
        }
    }

    /// Ends the process, as soon as the kernel allows it; the caller asks the returned value now and then whether it
    /// has.
    pub fn give_up(self) -> Ending {
        let _ = kill_process(self.pid, Signal::KILL);
        Ending(self.pid)
    }
}

/// A process that was given up.
#[derive(Debug)]
pub struct Ending(Pid);

impl Ending {
    /// Whether the process is still there.
    pub fn goes_on(&self) -> bool {
        matches!(waitpid(Some(self.0), WaitOptions::NOHANG), Ok(None))
    }
}

/// Blocks all signals of this thread, until this is dropped.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn all() -> Self {
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both are valid for writes, and zeros are a set of signals, if the calls do nothing.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is valid for reads.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// The body of the process. See [`ReaderProcess::start`] for what it must not do.
fn serve(socket: OwnedFd) -> ! {
    let number = socket.as_raw_fd().cast_unsigned();
    // SAFETY: the descriptors are this process's own copies, of which it uses the one that is left open; the
    // name ends with a zero.
    unsafe {
        libc::syscall(libc::SYS_close_range, number + 1, u32::MAX, 0);
        if number > 0 {
            libc::syscall(libc::SYS_close_range, 0, number - 1, 0);
        }
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let own = open(c"/proc/self/schedstat", flags, Mode::empty()).ok();
    privileges::keep_for_memory();
    let mut message = [0; MESSAGE_BYTES];
    while answer(&socket, own.as_ref(), &mut message).is_some() {}
    // SAFETY: it ends this process, and runs nothing.
    unsafe { libc::_exit(0) }
}

/// Answers one request; none if no other will come.
fn answer(
    socket: &OwnedFd,
    own: Option<&OwnedFd>,
    message: &mut [u8; MESSAGE_BYTES],
) -> Option<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut message[..])],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    );
    let length = received.ok()?.bytes;
    let memory = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })?;
    let (mut head, _) = Head::read_from_prefix(message.get(..length)?).ok()?;
    let bytes = message.get_mut(HEAD_BYTES..)?.get_mut(..head.count as usize)?;
    alarm::arm(ALONE_WITHIN);
    let before = own.and_then(Schedule::of);
    let (began_ns, ran_before_ns) = (clock::now_ns(), clock::on_cpu_ns());
    let done = if head.writes == 0 {
        fetch(&head, bytes);
        rustix::io::pread(&memory, &mut *bytes, head.address)
    } else {
        let mut scratch = [0; MOST_BYTES];
        fetch(&head, scratch.get_mut(..bytes.len())?);
        rustix::io::pwrite(&memory, bytes, head.address)
    };
    alarm::disarm();
    let (passed_ns, ran_ns) = (clock::now_ns() - began_ns, clock::on_cpu_ns() - ran_before_ns);
    let queued = own.and_then(Schedule::of).zip(before);
    let queued_ns = queued.map_or(0, |(after, before)| after.queued_since(before));
    head.took_ns = passed_ns.saturating_sub(ran_ns).saturating_sub(queued_ns) + ran_ns / ON_CPU;
    (head.count, head.error) = match done {
        Ok(count) => (count as u32, 0),
        Err(error) => (0, error.raw_os_error()),
    };
    let read = if head.writes == 0 { head.count as usize } else { 0 };
    message.get_mut(..HEAD_BYTES)?.copy_from_slice(head.as_bytes());
    send(socket, message.get(..HEAD_BYTES + read)?, SendFlags::NOSIGNAL).ok().map(drop)
}

/// Makes the kernel bring in the pages that a request is about. A failure means nothing: access by number may be
/// forbidden, or reach another process.
fn fetch(head: &Head, bytes: &mut [u8]) {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let at = ptr::without_provenance_mut(head.address as usize);
    let remote = libc::iovec { iov_base: at, iov_len: bytes.len() };
    // SAFETY: it writes to `bytes` at most, and what is remote is not this process's.
    unsafe {
        libc::process_vm_readv(
            head.pid.cast_signed(),
            &raw const local,
            1,
            &raw const remote,
            1,
            0,
        );
    }
}
