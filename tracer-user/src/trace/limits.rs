//! The largest sizes of the parts of a trace: the writer keeps to these limits, and the reader refuses a trace that
//! does not.
//!
//! Traced programs choose the names of themselves, their threads and their kernels, of any length. A text that is
//! longer than its limit is cut, with a [`MARK`] at its end; entries that come when all names together have reached
//! [`WRITTEN_TABLES`] are left out and counted.

use std::borrow::Cow;

use tracer_records::model::{Agent, Metadata, ProbedLibrary, Process, StringId};

/// Bytes of metadata JSON that a header may announce.
pub const MAX_METADATA: u32 = 1 << 20;
/// Bytes that a chunk may hold uncompressed.
pub const MAX_RAW: u32 = 16 << 20;
/// Bytes that a chunk may hold compressed: zstd never makes data longer than this.
pub const MAX_PACKED: u32 = MAX_RAW + (MAX_RAW >> 7) + 1024;
/// Bytes of strings and tables that a whole trace may hold, which a reader keeps: each entry counts with the memory
/// that it takes beside its text.
pub const MAX_TABLES: u64 = 1 << 30;
/// Bytes of names and descriptions after which the writer takes no more of them. The rest of
/// [`MAX_TABLES`] is for the losses and notices of the end.
pub const WRITTEN_TABLES: u64 = MAX_TABLES / 4;
/// Of these, the bytes for names that processes choose, each process no more than its share ([`crate::budget`]). The
/// rest is for names that are the same for all processes: those of operations.
pub const WRITTEN_BY_PROCESSES: u64 = WRITTEN_TABLES / 16 * 15;
/// Bytes of losses after which those of further processes are added up. The rest of [`MAX_TABLES`] is for notices and
/// for entries that are written twice.
pub const WRITTEN_LOSSES: u64 = MAX_TABLES / 4;
/// Bytes of names and descriptions up to which they are written once more at the end of a recording: if the chunk of
/// their first copy is damaged, the second one makes them known.
pub const REPEATED_TABLES: u64 = TABLES_TARGET as u64;
/// Bytes of the descriptions of one process, each time it is described anew. They do not count for its other names: a
/// process that uses these up is described all the same.
pub const WRITTEN_OF_A_PROCESS: u64 = WRITTEN_TABLES / 16;
/// The writer closes a chunk when it holds this many bytes of events.
pub const CHUNK_TARGET: usize = 1 << 20;
/// Bytes of strings or tables that are put into a chunk of their own.
pub const TABLES_TARGET: usize = 4 << 20;

/// Bytes of one string. Template names of kernels reach tens of kilobytes.
pub const MAX_STRING: usize = 1 << 20;
/// The memory that a string takes beside its text.
pub const STRING_BYTES: usize = size_of::<(StringId, String)>();
/// Bytes of a command line.
pub const MAX_COMMAND: usize = 16 << 10;
/// Bytes of any other text: a notice, a path, the name of an agent.
pub const MAX_TEXT: usize = 4 << 10;
/// Libraries of one process. Two of them are probed, but a process can load them anew.
pub const MAX_LIBRARIES: usize = 64;
/// Gaps of a damaged file that are described one by one.
pub const MAX_GAPS: usize = 20;
/// Notices that a trace keeps.
pub const MAX_NOTICES: usize = 200;

/// The end of a text that was cut.
pub const MARK: &str = "…";

/// JSON makes up to six bytes of one byte.
const JSON: usize = 6;

const _: () = {
    // The largest entry of a table, and an entry that is added when nearly a batch is there.
    let process = MAX_COMMAND + MAX_TEXT + MAX_LIBRARIES * 2 * MAX_TEXT;
    assert!(TABLES_TARGET + JSON * process + (64 << 10) < MAX_RAW as usize);
    assert!(TABLES_TARGET + MAX_STRING + CHUNK_TARGET < MAX_RAW as usize);
    assert!(2 * TABLES_TARGET + REPEATED_TABLES as usize + CHUNK_TARGET < MAX_RAW as usize);
    assert!(WRITTEN_TABLES + WRITTEN_LOSSES + 2 * REPEATED_TABLES < MAX_TABLES / 2 + (16 << 20));
    assert!(JSON * (MAX_COMMAND + 4 * MAX_TEXT) < MAX_METADATA as usize);
};

/// `text`, cut to `limit` bytes.
pub fn cut(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(limit.saturating_sub(MARK.len()));
    Cow::Owned(format!("{}{MARK}", text.get(..end).unwrap_or_default()))
}

fn shorten(text: &mut String, limit: usize) {
    if text.len() > limit {
        *text = cut(text, limit).into_owned();
    }
}

/// Has texts that others chose.
pub(super) trait WithinLimits {
    /// The same within the limits.
    fn within_limits(self) -> Self;
}

impl WithinLimits for Process {
    /// If there are too many libraries, the first ones are kept.
    fn within_limits(mut self) -> Self {
        shorten(&mut self.command, MAX_COMMAND);
        shorten(&mut self.gpu_tier, MAX_TEXT);
        self.libraries.truncate(MAX_LIBRARIES);
        for ProbedLibrary { path, version, probed: _, entry_only: _ } in &mut self.libraries {
            shorten(path, MAX_TEXT);
            shorten(version, MAX_TEXT);
        }
        self
    }
}

impl WithinLimits for Agent {
    fn within_limits(mut self) -> Self {
        shorten(&mut self.name, MAX_TEXT);
        self
    }
}

impl WithinLimits for Metadata {
    fn within_limits(mut self) -> Self {
        shorten(&mut self.command, MAX_COMMAND);
        for text in [&mut self.roctap_version, &mut self.host, &mut self.kernel] {
            shorten(text, MAX_TEXT);
        }
        self
    }
}
