//! Whether the process is traced, and the tool that traces it.

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::kernels::Hip;
use crate::options::Options;
use crate::plugin::Plugin;
use crate::roctracer::{Error, Roctracer};

/// The phase of the tool.
pub mod phase {
    /// Nothing yet: the runtime has not begun.
    pub const WAITING: u32 = 0;
    /// The runtime has begun.
    pub const BEGINNING: u32 = 1;
    /// It traces.
    pub const ACTIVE: u32 = 2;
    /// The process ends.
    pub const ENDED: u32 = 3;
    /// Nothing: the reason was said.
    pub const REFUSED: u32 = 4;
    /// Nothing: the process was forked from one that is traced.
    pub const CHILD: u32 = 5;
}

static PHASE: AtomicU32 = AtomicU32::new(phase::WAITING);
static ROCTRACER: OnceLock<Roctracer> = OnceLock::new();
static TOOL: OnceLock<Tool> = OnceLock::new();

/// A tool that traces.
pub struct Tool {
    pub roctracer: &'static Roctracer,
    pub plugin: Plugin,
    pub options: Options,
    /// The process that is traced.
    pub process_id: u32,
    hip: OnceLock<Hip>,
}

impl Tool {
    /// Makes the tool of the process.
    pub fn make(roctracer: &'static Roctracer, plugin: Plugin, options: Options) -> &'static Self {
        TOOL.get_or_init(|| Self {
            roctracer,
            plugin,
            options,
            process_id: process::id(),
            hip: OnceLock::new(),
        })
    }

    /// The HIP runtime that is loaded.
    pub fn hip(&self) -> &Hip {
        self.hip.get_or_init(|| Hip::find(self.roctracer))
    }
}

/// Goes from one phase to another. Returns the phase that it was in, if it was in another.
pub fn advance(from: u32, to: u32) -> Result<(), u32> {
    PHASE.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).map(drop)
}

/// Goes to a phase. Called in a signal handler and in a forked child, too.
pub fn set(to: u32) {
    // Pairs with the loads in `active` and `own`: the tool is there.
    PHASE.store(to, Ordering::Release);
}

/// The tool, while it traces.
pub fn active() -> Option<&'static Tool> {
    (PHASE.load(Ordering::Acquire) == phase::ACTIVE).then(|| TOOL.get()).flatten()
}

/// The tool, also when it ends: not in a forked child.
pub fn own() -> Option<&'static Tool> {
    (PHASE.load(Ordering::Acquire) != phase::CHILD).then(|| TOOL.get()).flatten()
}

/// Whether the tool may begin yet.
pub fn may_begin() -> bool {
    matches!(PHASE.load(Ordering::Acquire), phase::WAITING | phase::BEGINNING)
}

/// roctracer's library, if it was loaded.
pub fn roctracer() -> Option<&'static Roctracer> {
    ROCTRACER.get()
}

/// roctracer's library, which is loaded if it was not.
pub fn load_roctracer() -> Result<&'static Roctracer, Error> {
    match ROCTRACER.get() {
        Some(roctracer) => Ok(roctracer),
        None => Roctracer::load().map(|loaded| ROCTRACER.get_or_init(|| loaded)),
    }
}
