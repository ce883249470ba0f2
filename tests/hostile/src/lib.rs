//! Targets that mean harm. Each test starts a program as a user without rights, points `roctap`, as
//! root, at it, and asserts that root did nothing for it and that everything else is recorded.
//!
//! The tests are named `hostile_…` and run by `cargo xtask test`, like those of `e2e`.

pub mod fuse;

use std::{
    fs::File,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    path::Path,
    process::Command,
};

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

/// Has `command` run with `file` as its descriptor 3.
#[expect(unsafe_code, reason = "a step between fork and exec")]
pub fn give_as_3(command: &mut Command, file: File) {
    let give = move || {
        // SAFETY: descriptor 3 is this child's, which is about to execute a program, and belongs to no
        // object of it.
        let mut third = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(3) });
        match file.as_raw_fd() {
            3 => Ok(rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())?),
            _ => Ok(rustix::io::dup2(&file, &mut third)?),
        }
    };
    // SAFETY: it makes one system call.
    unsafe { command.pre_exec(give) };
}
