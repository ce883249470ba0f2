//! The lines of roctracer 4.1's file plugin, for all who write them: `roctap export -f text`, and
//! `libfile_plugin.so`.
//!
//! * [`file`](mod@file): the files of a process.
//! * [`lines`]: a line of each.
//! * [`names`]: names of kernels as these lines have them.
//! * [`harmless`]: text that a program chose, in one line.
//!
//! It opens no file, and knows neither traces nor the C interface. Source of the formats:
//! `plugin/file/file.cpp` of ROCm/roctracer; of what a reader accepts: rocprof's `tblextr.py`, whose
//! regular expressions the tests apply.
//!
//! All times are ns of CLOCK_BOOTTIME.

#![deny(unsafe_code)]

pub mod file;
pub mod harmless;
pub mod lines;
pub mod names;

pub use file::File;
pub use harmless::clean;
