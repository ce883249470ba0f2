//! `libfile_plugin.so`: writes what roctracer's tool hands it into text files, in the place of AMD's plugin
//! of that name. It serves every tool that knows `roctracer_plugin.h`.
//!
//! * [`exports`]: the four functions.
//! * [`plugin`]: a call or an activity becomes a line of a file ([`tracer_text`]).
//! * [`kernels`]: names of kernels, demangled once.
//! * [`output`]: the files, made when the first line comes.
//! * [`runtime`]: the agents that the loaded HSA runtime reports.
//!
//! `docs/roctracer.md` says what is written. A panic ends here, and is an error for the tool.

#![deny(unsafe_code)]

mod exports;
mod kernels;
mod output;
mod plugin;
mod runtime;
