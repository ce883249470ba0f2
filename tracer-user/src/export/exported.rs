//! The result of an export.

use super::left_out::LeftOut;
use crate::trace::Reading;

/// The result of an export.
#[derive(Debug)]
pub struct Exported {
    /// The result of reading the trace.
    pub reading: Reading,
    /// The events for which the format had no place.
    pub left_out: LeftOut,
}
