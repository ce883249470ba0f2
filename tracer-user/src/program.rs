//! This program, which runs itself as its own helper (`__hold`, `__inject`, `__remove-probes`).

use std::{path::PathBuf, sync::OnceLock};

/// Where the `roctap` program is, for those who use this library from another one.
pub static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// The program to run.
pub(crate) fn program() -> PathBuf {
    PROGRAM.get().cloned().unwrap_or_else(|| "/proc/self/exe".into())
}

/// roctap runs where the kernel's numbers of processes are not its own.
#[derive(Debug, thiserror::Error)]
#[error(
    "this is a PID namespace of its own (a container's?), where the kernel's probes tell other process numbers than roctap sees: run roctap on the host, where `roctap record -p PID` reaches into containers too, or give the container the host's PID namespace (docker run --pid=host)"
)]
pub struct OwnPidNamespace;

/// Checks that what the probes tell of processes can be understood.
///
/// # Errors
///
/// When it cannot.
pub(crate) fn check_pid_namespace() -> Result<(), OwnPidNamespace> {
    if in_initial_pid_namespace() { Ok(()) } else { Err(OwnPidNamespace) }
}

/// Whether processes have the numbers here that the kernel knows them by.
pub(crate) fn in_initial_pid_namespace() -> bool {
    // The initial PID namespace has this fixed inode number.
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|ns| ns.ends_with("pid:[4026531836]"))
}
