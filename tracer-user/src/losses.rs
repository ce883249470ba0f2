//! Records that were lost while recording.
//!
//! Each part of a recording that can lose records counts them by cause, and implements [`Losses`]. The session asks all
//! of them (`record/session/mod.rs`): for the line on the terminal, and at the end for the trace. A new cause is one
//! more line where its records are counted; the causes of shims and of BPF programs are in `tracer_common::loss`.

/// Records that were lost by one cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The process whose records they are; 0 if that is not known.
    pub pid: u32,
    /// The cause, for people.
    pub cause: &'static str,
    /// How many; 0 says that nothing was lost in this way.
    pub count: u64,
}

impl Loss {
    /// A loss of which the process is not known.
    pub const fn of_unknown((cause, count): (&'static str, u64)) -> Self {
        Self { pid: 0, cause, count }
    }
}

/// Counts the records that it loses.
pub trait Losses {
    /// All causes, and how many records were lost by them so far.
    ///
    /// # Errors
    ///
    /// When the counters cannot be read.
    fn losses(&self) -> anyhow::Result<Vec<Loss>>;
}
