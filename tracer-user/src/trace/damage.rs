//! The parts that are missing of a damaged file.

use std::fmt;

use serde::Serialize;

use super::limits::MAX_GAPS;
use crate::shown::counted;

/// A part of the file that is no whole chunk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Gap {
    /// Where it begins.
    pub offset: u64,
    /// Its length; 0 if chunks are missing between two that stand side by side.
    pub bytes: u64,
    /// The number of missing chunks, by the numbers of those before and after; none at the end of the file.
    pub chunks: Option<u64>,
    /// The fault at its beginning.
    pub found: String,
}

/// All gaps of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Damage {
    /// How many there are.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The number of missing chunks, as far as it is known.
    pub chunks: u64,
    /// The first gaps, at most [`MAX_GAPS`].
    pub gaps: Vec<Gap>,
}

impl Damage {
    pub(super) fn add(&mut self, gap: Gap) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(gap.bytes);
        self.chunks = self.chunks.saturating_add(gap.chunks.unwrap_or(0));
        if self.gaps.len() < MAX_GAPS {
            self.gaps.push(gap);
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, bytes, chunks, gaps } = self;
        write!(f, "{}, {bytes} bytes in all", counted(*count, "gap"))?;
        if *chunks > 0 {
            write!(f, ", at least {chunks} chunks missing")?;
        }
        match gaps.first() {
            Some(Gap { offset, found, .. }) => write!(f, "; the first at byte {offset}: {found}"),
            None => Ok(()),
        }
    }
}
