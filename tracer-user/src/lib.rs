//! roctap: traces AMD ROCm programs.
#![deny(unsafe_code)]
pub mod trace;
