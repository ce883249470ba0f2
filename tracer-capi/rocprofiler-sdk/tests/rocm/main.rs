//! A tool in real HIP programs, on the emulated GPU: what it gets is what the GPU did.
//!
//! Every test is named `rocm_…`. Where `cargo xtask test` has not built the programs they have nothing to run, and say so.
//! On another release of ROCm, whose root is not this machine's, `ROCTAP_TEST_INSIDE` runs them there.

mod beside;
mod buffers;
mod callbacks;
mod calls;
mod code_objects;
mod contexts;
mod expectations;
mod externals;
mod kinds;
mod late;
mod markers;
mod outcome;
mod page;
mod processes;
mod retirement;
mod scene;
mod scratch;
mod tables;
mod threads;
mod work;
mod work_callbacks;
