//! The reasons why nothing was put into a process.

use std::{path::PathBuf, time::Duration};

use crate::{
    discover::{DiscoverError, Ended},
    plan::PlanError,
};

/// The reason why nothing is put into a process. The process's API calls can be recorded all the same.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Another process traces it.
    #[error("process {tracer} ({name}) traces it already (a debugger?)")]
    Traced {
        /// The process id of the tracer.
        tracer: u32,
        /// The tracer's name.
        name: String,
    },
    /// It is a 32-bit program.
    #[error("it is a 32-bit program; ROCm and the shim are 64-bit")]
    Bits32,
    /// It is stopped.
    #[error("it is stopped (state {0}); kill -CONT continues it")]
    Stopped(char),
    /// Its cgroup is frozen.
    #[error("its cgroup {} is frozen, as a paused container's is", .0.display())]
    Frozen(PathBuf),
    /// Its first thread has ended, and the kernel hands out no descriptors through its other threads.
    #[error("its first thread has ended; to reach the shim by another one takes Linux 6.9")]
    Outlived,
    /// It was made by `vfork` or the like: anything put into it would be put into the other process too.
    #[error("it shares its memory with process {0}, until it executes another program")]
    SharesMemory(i32),
    /// It is confined.
    #[error(
        "it is confined by seccomp, which does not allow {call}; start it with roctap record instead, or record from outside (--gpu uprobes)"
    )]
    Seccomp {
        /// The system call.
        call: String,
    },
    /// It has no `/proc`.
    #[error("its root directory has no /proc, by which it would open the shim")]
    NoProc,
    /// Its C library is musl.
    #[error("its C library is musl; ROCm and the shim need glibc")]
    Musl,
    /// It has no C library of its own.
    #[error("no libc.so.6 is mapped: a static program, or none that can be recognised")]
    NoLibc,
    /// Its C library is something else.
    #[error("{}: not a glibc that can be recognised", .0.display())]
    UnknownLibc(PathBuf),
    /// Its glibc is of a release that is not known.
    #[error("{}: glibc 2.{minor}; 2.28 to 2.44 are known", path.display())]
    Glibc {
        /// The file.
        path: PathBuf,
        /// The minor release: 2.minor.
        minor: u32,
    },
    /// A function is missing.
    #[error("{}: exports no {name}", path.display())]
    NoFunction {
        /// The file.
        path: PathBuf,
        /// The function.
        name: &'static str,
    },
    /// glibc's structures are not where they are expected.
    #[error("the structures of its dynamic linker are not as glibc's ({0})")]
    UnknownLinker(&'static str),
    /// A sanitizer keeps state of each thread.
    #[error(
        "it is built with {0}, which does not survive threads that it has not seen start; start it with roctap record instead, or record from outside (--gpu uprobes)"
    )]
    Sanitizer(&'static str),
    /// All threads that could be stopped are moving data.
    #[error(
        "its threads are in system calls that move data (write, send and the like), which would return early if one were stopped"
    )]
    MovesData,
    /// No thread can be used.
    #[error("none of its threads can be stopped for it: {0}")]
    NoThread(String),
}

impl Refusal {
    /// Whether the reason may pass soon.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Traced { .. } | Self::Stopped(_) | Self::Frozen(_) | Self::MovesData)
    }
}

/// A refusal, or a failure to find out whether there is one.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It is refused.
    #[error(transparent)]
    Refusal(#[from] Refusal),
    /// The process cannot be looked up.
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    /// The process has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
    /// Its memory cannot be read.
    #[error(transparent)]
    Memory(#[from] PlanError),
    /// A file of `/proc` cannot be read.
    #[error("reading its files in /proc failed")]
    Proc(#[from] procfs::ProcError),
}

/// Why a process did not get the shim. It goes on as before.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// The helper gives the reason.
    #[error("{0}")]
    Refused(String),
    /// The helper gives the reason, which may pass.
    #[error("{0}")]
    Held(String),
    /// The helper cannot be started.
    #[error("starting roctap's helper failed: {cause}")]
    Helper {
        /// The error. Part of the message, hence no `source`.
        cause: std::io::Error,
    },
    /// The helper has not answered in time.
    #[error(
        "a thread of process {pid} that was to start another one is stuck in the kernel; roctap's helper puts it back as soon as it comes out"
    )]
    Stuck {
        /// The process.
        pid: u32,
    },
    /// Too many helpers have not answered in time and not ended.
    #[error(
        "{count} helpers of roctap are stuck in the kernel with threads of processes; none is started beyond these"
    )]
    TooMany {
        /// How many.
        count: usize,
    },
    /// The process's memory or descriptors cannot be reached.
    #[error("{what}: {cause}")]
    Reach {
        /// The attempted step.
        what: &'static str,
        /// The error. Part of the message, hence no `source`.
        cause: std::io::Error,
    },
    /// The new thread failed.
    #[error("the thread that was started in it failed: {cause}")]
    Thread {
        /// The error. Part of the message, hence no `source`.
        cause: std::io::Error,
    },
    /// The library could not be loaded.
    #[error("it could not load {name}: {why}")]
    NotLoaded {
        /// The library's name.
        name: String,
        /// The message of the dynamic linker.
        why: String,
    },
    /// A step took too long.
    #[error("{what} did not happen within {} s", within.as_secs())]
    Late {
        /// The step.
        what: &'static str,
        /// The time that roctap waited.
        within: Duration,
    },
    /// The process has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
    /// The caller could not prepare for the shim.
    #[error("{0:#}")]
    Prepare(anyhow::Error),
}

impl InjectError {
    /// Whether the process took too long.
    pub fn is_by_time(&self) -> bool {
        matches!(self, Self::Stuck { .. } | Self::Late { .. })
    }
}
