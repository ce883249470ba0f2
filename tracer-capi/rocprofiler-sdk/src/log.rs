//! What is told to the user: as much as `ROCPROFILER_LOG_LEVEL` says. It is told on standard error, or to the `roctap` that
//! has put a tool into the process, whose standard error is the program's own.

use std::fmt::Arguments;
use std::io::{self, Write as _};
use std::sync::LazyLock;

use capi_common::quiet::quiet;

use crate::late;

/// How much is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Error,
    Warning,
    Info,
}

/// What the environment says: a word, or a number from 0 (errors) to 2 and more. Warnings, where it says nothing.
static MOST: LazyLock<Level> = LazyLock::new(|| {
    match std::env::var("ROCPROFILER_LOG_LEVEL").unwrap_or_default().to_lowercase().as_str() {
        "fatal" | "error" | "0" => Level::Error,
        "info" | "trace" | "2" | "3" => Level::Info,
        _ => Level::Warning,
    }
});

fn tell(level: Level, what: Arguments<'_>) {
    if level <= *MOST {
        if late::say(&format!("{what}\n")) {
            return;
        }
        // One write, so that lines of several threads stay whole. Nobody can be told if that fails.
        let line = format!("rocprofiler-sdk ({}): {what}\n", std::process::id());
        let _ = quiet(|| io::stderr().write_all(line.as_bytes()));
    }
}

/// Something was asked for that cannot be done.
pub fn error(what: Arguments<'_>) {
    tell(Level::Error, what);
}

/// Something will be missing.
pub fn warn(what: Arguments<'_>) {
    tell(Level::Warning, what);
}

/// What was done.
pub fn info(what: Arguments<'_>) {
    tell(Level::Info, what);
}
