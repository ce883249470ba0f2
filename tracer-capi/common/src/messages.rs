//! Messages to the user of the program, on its standard error.

use std::fmt::Arguments;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use tracer_hooks::sys;

use crate::quiet::quiet;

/// The file that receives messages as well, if `ROCTRACER_LOG` is set: as of AMD's library.
const LOG: &str = "/tmp/roctracer_log.txt";

/// Says what does not work, in a line that begins as those of AMD's tool do.
pub fn warn(what: Arguments<'_>) {
    say("ROCtracer warning", what);
}

/// Says why nothing is traced.
pub fn error(what: Arguments<'_>) {
    say("ROCtracer error", what);
}

fn say(beginning: &str, what: Arguments<'_>) {
    // One write: lines of others do not come in between. If it fails, nobody listens.
    let line = format!("{beginning}: {what}\n");
    let _ = quiet(|| io::stderr().write_all(line.as_bytes()));
    if std::env::var_os("ROCTRACER_LOG").is_some() {
        let _ = quiet(|| log(&line));
    }
}

fn log(line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    // Everybody may write into that directory: no link of another user's is followed.
    options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let line = format!("<{} pid{} tid{}> {line}", sys::now_ns(), std::process::id(), sys::gettid());
    options.open(LOG)?.write_all(line.as_bytes())
}
