//! Targets that mean harm. Each test starts a program as a user without rights, points `roctap`, as
//! root, at it, and asserts that root did nothing for it and that everything else is recorded.
//!
//! The tests are named `hostile_…` and run by `cargo xtask test`, like those of `e2e`.

use std::{os::unix::process::CommandExt as _, path::Path, process::Command};

/// The user without rights: Debian's `nobody`.
pub const NOBODY: u32 = 65534;

/// Has `command` run as [`NOBODY`].
pub fn as_nobody(command: &mut Command) -> &mut Command {
    command.uid(NOBODY).gid(NOBODY)
}

/// Compiles a program or library of `targets/` to `output`.
pub fn compile(source: &str, arguments: &[&str], output: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("targets").join(source);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Werror", "-pthread"]).args(arguments);
    cc.arg(&source).arg("-o").arg(output);
    assert!(cc.status().expect("cc").success(), "{}", source.display());
}
