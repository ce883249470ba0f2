//! An emulated GPU under the real ROCm runtime.
//!
//! The library takes the place of `libhsakmt.so.1`, the lowest user-space layer of ROCm. Everything
//! above it (`libhsa-runtime64.so.1`, `libamdhip64.so.5`, the program) stays as it was built; select
//! the library with `LD_LIBRARY_PATH`. Copies and fills move real bytes. Kernels run no GPU code:
//! they are timed no-ops, or a host function that the program exports.
//!
//! What it is for: tests of the tracer on machines without a GPU. Every operation that "the
//! hardware" ran is written to a ground-truth log (`log`), with exactly the times that the
//! completion signals carry. What it is not: a simulator of GPU code or of GPU performance.
//!
//! How a packet travels: the runtime writes it to a ring and rings a doorbell, which is plain
//! memory. One thread (`engine`) polls the doorbells and steps the queues (`queue`) in emulated
//! time; whatever has finished is logged first and only then made visible to the program (`effects`).
//!
//! All times are CLOCK_BOOTTIME nanoseconds unless they are called ticks. The settings are
//! environment variables, listed in the README and parsed in `config`.

pub mod child;
pub mod clock;
pub mod config;
mod effects;
mod engine;
mod events;
mod ffi;
mod kernels;
pub mod log;
mod memory;
mod names;
mod platform;
mod queue;
mod sys;
mod topology;
pub mod truth;
mod work;
