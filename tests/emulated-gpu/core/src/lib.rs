//! An emulated GPU for the real ROCm runtimes: what its two fronts share.
//!
//! A front takes the place of a layer below the unmodified runtimes: `emulated-gpu` that of the library
//! `libhsakmt.so.1` (ROCm 5.2), `emulated-gpu-driver` that of the kernel's driver (releases whose thunk is
//! a library of its own version or inside the runtime). Both turn what is asked of them into calls of
//! this crate. Copies and fills move real bytes. Kernels run no GPU code: they are timed no-ops, or a
//! host function that the program exports.
//!
//! What it is for: tests of the tracer on machines without a GPU. Every operation that "the hardware" ran
//! is written to a ground-truth log (`log`), with exactly the times that the completion signals carry.
//! What it is not: a simulator of GPU code or of GPU performance.
//!
//! How a packet travels: the runtime writes it to a ring and rings a doorbell, which is plain memory. One
//! thread (`engine`) polls the doorbells and steps the queues (`queue`) in emulated time; whatever has
//! finished is logged first and only then made visible to the program (`effects`).
//!
//! All times are CLOCK_BOOTTIME nanoseconds unless they are called ticks. The settings are environment
//! variables, listed in the README and parsed in `config`.

pub mod clock;
pub mod config;
mod effects;
pub mod engine;
pub mod events;
pub mod kernels;
pub mod log;
pub mod memory;
mod names;
pub mod platform;
pub mod properties;
mod queue;
mod renewed;
pub mod sys;
pub mod topology;
pub mod truth;
mod work;
