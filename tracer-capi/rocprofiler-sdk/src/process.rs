//! The process that has initialized tools.

use std::sync::OnceLock;

use roctracer::thread::Process;

static PROCESS: OnceLock<Process> = OnceLock::new();

/// Tools are initialized in this one.
pub fn begins() {
    let _ = PROCESS.set(Process::this());
}

/// Whether this is a child that was forked from it, which has none of the threads, and may find locks taken for ever.
pub fn is_forked() -> bool {
    PROCESS.get().is_some_and(|process| !process.is_this())
}
