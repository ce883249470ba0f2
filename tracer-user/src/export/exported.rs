//! What an export did.

use super::left_out::LeftOut;
use crate::trace::Reading;

/// What an export did.
#[derive(Debug)]
pub struct Exported {
    /// How whole the trace was.
    pub reading: Reading,
    /// What the format had no place for.
    pub left_out: LeftOut,
}
