//! Compiles roctap's BPF programs, for the build script of `roctap`; says what that needs, for
//! `cargo xtask setup`, which installs it. Nothing is installed here, and there are no dependencies:
//! every build of `roctap` waits for this crate.

#![deny(unsafe_code)]

mod compile;
mod decide;
mod toolchain;

pub use compile::{Logging, compile};
pub use decide::{Programs, decide, refusal};
pub use toolchain::{
    BPF_LINKER, Missing, Toolchain, data_directory, linker_prefix, runs, rust_source, rustc_field,
    sysroot,
};
