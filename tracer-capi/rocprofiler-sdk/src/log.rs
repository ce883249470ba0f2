//! Messages to the user: as many as `ROCPROFILER_LOG_LEVEL` says. They go to standard error, or to the `roctap` that
//! has put a tool into the process, whose standard error is the program's own.

use std::fmt::Arguments;
use std::io::{self, Write as _};
use std::sync::LazyLock;

use capi_common::quiet::quiet;

use crate::late;

/// The level of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Error,
    Warning,
    Info,
}

/// The level that the environment names, by a word or a number: 0 for errors, 1 for warnings, from 2 on for all.
/// Warnings, where it names none.
static MOST: LazyLock<Level> = LazyLock::new(|| {
    let named = std::env::var("ROCPROFILER_LOG_LEVEL").unwrap_or_default().to_lowercase();
    match (named.as_str(), named.parse::<u32>()) {
        ("fatal" | "error", _) | (_, Ok(0)) => Level::Error,
        ("info" | "trace", _) | (_, Ok(2..)) => Level::Info,
        _ => Level::Warning,
    }
});

fn tell(level: Level, what: Arguments<'_>) {
    if level <= *MOST {
        if late::say(&format!("{what}\n")) {
            return;
        }
        // One write, so that lines of several threads stay whole. If that fails, nobody can be told.
        let line = format!("rocprofiler-sdk ({}): {what}\n", std::process::id());
        let _ = quiet(|| io::stderr().write_all(line.as_bytes()));
    }
}

/// Reports a request that cannot be fulfilled.
pub fn error(what: Arguments<'_>) {
    tell(Level::Error, what);
}

/// Reports something that will be missing.
pub fn warn(what: Arguments<'_>) {
    tell(Level::Warning, what);
}

/// Reports something that was done.
pub fn info(what: Arguments<'_>) {
    tell(Level::Info, what);
}
