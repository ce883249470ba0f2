//! This program, which runs itself as its own helper (`__hold`, `__scout`, `__inject`).

use std::{path::PathBuf, sync::OnceLock};

/// Where the `roctap` program is, for those who use this library from another one.
pub static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// The program to run.
pub(crate) fn program() -> PathBuf {
    PROGRAM.get().cloned().unwrap_or_else(|| "/proc/self/exe".into())
}
