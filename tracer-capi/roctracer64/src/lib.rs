//! `libroctracer64.so.4`: the C interface of roctracer 4.1, for programs that are linked against AMD's library
//! of that name. What it does is in [`roctracer`]; here are its exported functions.
//!
//! * [`versions`]: the second version of functions.
//! * [`names`], [`callbacks`], [`pools`], [`activities`], [`time`]: the functions, by what they are about.
//! * [`deprecated`]: those of roctracer 4.0, in no header any more.
//! * [`tool`]: what the HSA runtime calls in a library that it loads as a tool.
//! * [`answer`]: status codes, and the text of a thread's last error.
//!
//! They are declared in `tracer-capi/include/roctracer`. An exception that a client's function throws on the
//! client's thread passes through; a panic of ours never does.
//!
//! So far nothing is traced: callbacks and activities can be enabled, and are not called, and not recorded.

#![deny(unsafe_code)]

mod activities;
mod answer;
mod callbacks;
mod deprecated;
mod names;
mod pools;
mod time;
mod tool;
mod versions;

use std::sync::LazyLock;

use roctracer::tracer::Tracer;

/// What the clients of this process have enabled.
static TRACER: LazyLock<Tracer> = LazyLock::new(Tracer::new);
