//! This program, which runs itself as its own helper (`__hold`, `__inject`, `__plugin`).

use std::{path::PathBuf, sync::OnceLock};

/// The path of the `roctap` program, for programs that use this library.
pub static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// The program to run.
pub(crate) fn program() -> PathBuf {
    PROGRAM.get().cloned().unwrap_or_else(|| "/proc/self/exe".into())
}

/// roctap runs in a namespace in which the kernel's probes report other numbers than those that it sees.
#[derive(Debug, thiserror::Error)]
pub enum OwnNamespace {
    /// A PID namespace.
    #[error(
        "this is a PID namespace of its own (a container's?), where the kernel's probes tell other process numbers than roctap sees: run roctap on the host, where `roctap record -p PID` reaches into containers too, or give the container the host's PID namespace (docker run --pid=host)"
    )]
    Pid,
    /// A time namespace.
    #[error(
        "this is a time namespace of its own, where the kernel's probes tell other times than roctap sees: run roctap outside, where it records what runs inside too"
    )]
    Time,
}

/// Checks that the numbers of processes and the times that probes report can be understood.
///
/// # Errors
///
/// When they cannot.
pub(crate) fn check_namespaces() -> Result<(), OwnNamespace> {
    if !in_initial_pid_namespace() {
        return Err(OwnNamespace::Pid);
    }
    // The initial namespace has this fixed inode number. Before Linux 5.6 there is no other.
    let time = std::fs::read_link("/proc/self/ns/time");
    match time.is_ok_and(|ns| !ns.ends_with("time:[4026531834]")) {
        true => Err(OwnNamespace::Time),
        false => Ok(()),
    }
}

/// Whether processes have the same numbers here as in the kernel's probes.
pub(crate) fn in_initial_pid_namespace() -> bool {
    // The initial PID namespace has this fixed inode number.
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|ns| ns.ends_with("pid:[4026531836]"))
}
