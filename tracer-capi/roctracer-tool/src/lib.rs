//! `libroctracer_tool.so`: traces a program as its environment says, and hands what it records to a plugin;
//! in the place of AMD's tool of that name. `HSA_TOOLS_LIB` or `LD_PRELOAD` names it.
//!
//! It is a client of `libroctracer64.so.4` as anybody's, ours or AMD's, and of a plugin, ours or another.
//!
//! * [`exports`]: what the HSA runtime calls, and what runs when the library is loaded and when the process ends.
//! * [`state`]: whether the process is traced, and by what.
//! * [`tool`]: from the begin of the runtime to the end of the process.
//! * [`options`], [`input`]: what the environment says, and the file that it names.
//! * [`roctracer`], [`plugin`]: the two libraries.
//! * [`calls`]: callbacks become records; [`begins`]: when they began; [`kernels`]: what HIP calls launch.
//! * [`marks`]: marks of before the runtime's begin.
//! * [`periods`]: threads that start and stop tracing, and that flush.
//!
//! `docs/roctracer.md` says how it is used. Whatever goes wrong is said in a line, and the program runs on.

#![deny(unsafe_code)]

mod begins;
mod calls;
mod exports;
mod input;
mod kernels;
mod marks;
mod options;
mod periods;
mod plugin;
mod roctracer;
mod state;
mod tool;
