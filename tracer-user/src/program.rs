//! This program, which runs itself as its own helper (`__hold`, `__inject`, `__remove-probes`).

use std::{path::PathBuf, sync::OnceLock};

/// Where the `roctap` program is, for those who use this library from another one.
pub static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// The program to run.
pub(crate) fn program() -> PathBuf {
    PROGRAM.get().cloned().unwrap_or_else(|| "/proc/self/exe".into())
}

/// Whether processes have the numbers here that the kernel knows them by.
pub(crate) fn in_initial_pid_namespace() -> bool {
    // The initial PID namespace has this fixed inode number.
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|ns| ns.ends_with("pid:[4026531836]"))
}
