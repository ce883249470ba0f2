//! The source of GPU times: the one that is asked for ([`Gpu`], the option), and the one that a process has
//! ([`GpuSource`]).
//!
//! Another source plugs in at these places:
//!
//! * here: a value of `Gpu` if it can be asked for, and whether it wants the shim; a `GpuSource` for a process
//!   that has it;
//! * in `record/mod.rs`: whether it fits the other options;
//! * in `session/attach.rs` and `session/follow.rs`: which processes get it, when they are attached to, are
//!   forked, or execute another program; in `record/target.rs`: whether such a process still waits for it;
//! * in `session`: a part that owns it, as `shims` and `outside` own theirs, drained by `session/drain.rs`
//!   and handing what it reads to `join::Joiner`, stopped by `session/finish.rs`; and a file of steps, as
//!   `give_shim` and `see_outside`, which also say what is tried next;
//! * in `join/operation.rs`: whether its operations have everything that a shim sends (`outside` marks those of the
//!   source that has not), and in `tracer_records::model` how a record is marked whose times are estimates;
//! * in `tracer_common::bpf`, `tracer-ebpf` and `record/select.rs`, if it needs probes;
//! * in `record/prospect.rs` and `doctor.rs`: whether a process would get it; in `privileges.rs` and
//!   docs/security.md: the rights that it takes;
//! * its losses: in `session/finish.rs`, which writes them, and `Session::lost`, which counts them meanwhile;
//! * in `session/ended.rs`: why it recorded nothing, and for which processes that is reported;
//! * in `record/outcome.rs`: the name of its share of the kernels; in `docs/attach.md`, which lists the sources.
//!
//! Traces name a process's source `gpu_tier`.

use std::fmt;

use clap::ValueEnum;

/// Which GPU times are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Gpu {
    /// The best that each process allows.
    #[default]
    Auto,
    /// From the shim, put into processes that run already; fail if that is impossible.
    Inject,
    /// From the shim, loaded at start through HSA_TOOLS_LIB (with -- CMD only).
    Tools,
    /// Nothing is put into the process: kernels and their names are seen from outside, most without times; marked
    /// as partial.
    Uprobes,
    /// None are wanted: API calls alone.
    Off,
}

impl Gpu {
    /// Whether processes may get the shim.
    pub fn wants_shim(self) -> bool {
        match self {
            Self::Auto | Self::Inject | Self::Tools => true,
            Self::Uprobes | Self::Off => false,
        }
    }
}

/// The source of a process's GPU times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GpuSource {
    /// From nowhere: they were not asked for.
    Off,
    /// From the shim, which the process finds in its environment when it starts.
    AtStart,
    /// From nowhere yet: the process has not loaded the HSA runtime.
    Waiting,
    /// From nowhere yet: the process is stopped, frozen or traced, and gets the shim when it goes on.
    Held(String),
    /// From the shim, put in while the process ran: it patched the HSA runtime's tables.
    Tables,
    /// From nowhere yet: the process is a forked child, and gets the shim when it calls ROCm.
    Unused,
    /// From nowhere: the process is a forked child of one that used the GPU, and cannot.
    Forked,
    /// From nowhere, but for packets with signals: launches are seen from outside, for this reason.
    Uprobes(String),
}

impl GpuSource {
    /// Whether the process gets the shim as soon as that is possible.
    pub fn is_awaited(&self) -> bool {
        matches!(self, Self::Waiting | Self::Held(_))
    }
}

impl fmt::Display for GpuSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("none asked for"),
            Self::AtStart => f.write_str("tools interface at start (HSA_TOOLS_LIB)"),
            Self::Waiting => f.write_str("none: the HSA runtime was not loaded"),
            Self::Held(why) => write!(f, "none: {why}"),
            Self::Tables => f.write_str("HSA tables patched in the running process"),
            Self::Unused => {
                f.write_str("none: a forked child, which gets a shim when it first calls ROCm")
            }
            Self::Forked => f.write_str(
                "uprobes only, partial: a forked child cannot use its parent's GPU; it gets a shim when it executes another program",
            ),
            Self::Uprobes(why) => write!(f, "uprobes only, partial: {why}"),
        }
    }
}
