//! Targets that mean harm. Each test starts a program as a user without rights, points `roctap`, as
//! root, at it, and asserts that root did nothing for it and that everything else is recorded.
//!
//! The tests are named `hostile_…` and run by `cargo xtask test`, like those of `e2e`.

use std::{os::unix::process::CommandExt as _, process::Command};

/// The user without rights: Debian's `nobody`.
pub const NOBODY: u32 = 65534;

/// Has `command` run as [`NOBODY`].
pub fn as_nobody(command: &mut Command) -> &mut Command {
    command.uid(NOBODY).gid(NOBODY)
}
