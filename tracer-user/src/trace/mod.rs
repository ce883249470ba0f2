//! The trace: its model, its file format.
pub mod model;
