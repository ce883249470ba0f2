//! The source of GPU times: the one that is asked for ([`Gpu`], the option), and the one that a process has
//! ([`GpuSource`]).
//!
//! For another source add a value to [`GpuSource`], and to [`Gpu`] if it can be asked for. The compiler then asks for
//! what the functions of this file decide: who gets the source, what becomes of it in a child and in another program,
//! and how it is told of. Beside that it takes:
//!
//! * a part of `session` that owns it, as `shims` and `outside` own theirs: it hands what it reads to `join::Joiner`
//!   (`session/drain.rs`), ends in a step of `session/finish.rs`, and counts what it loses (`losses.rs`);
//! * a file of steps there, as `give_shim` and `see_outside`, which also say what is tried next;
//! * in `join/operation.rs`: whether its operations have everything that a shim sends (`outside` marks those of the
//!   source that has not), and in `tracer_records::model` how a record is marked whose times are estimates;
//! * where it needs probes: `tracer_common::bpf`, `tracer-ebpf`, `record/select.rs`; where it needs rights:
//!   `privileges.rs` and docs/security.md;
//! * in `join/counts.rs` what is counted of it, in `record/outcome.rs` the name of its share of the kernels; for `roctap
//!   doctor`: `doctor.rs`; and a line of docs/attach.md.
//!
//! An operation is known by its process and a number. The shim gives its own; what is seen from outside has the highest
//! bit set (`outside`); a source that knows of times alone has to find the number of what they are of.
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

/// Whether a process has a shared memory for its shim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It has none.
    None,
    /// The program that it ran before had one.
    Earlier,
    /// Its shim writes to one.
    Recording,
    /// Its shim has one, and records nothing, for this reason.
    Helpless(&'static str),
}

/// Why a shim that was loaded has no memory.
pub const TOO_MANY: &str =
    "as many processes as can have GPU times at once had them already; --processes allows more";

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
    /// The source of a command that is about to start; `has_shim` if roctap has one for it.
    pub fn of_command(gpu: Gpu, has_shim: bool) -> Self {
        match gpu {
            Gpu::Off => Self::Off,
            Gpu::Auto | Gpu::Inject | Gpu::Tools if has_shim => Self::AtStart,
            Gpu::Auto | Gpu::Inject | Gpu::Tools | Gpu::Uprobes => {
                Self::Uprobes("nothing was to be put into the process (--gpu uprobes)".to_owned())
            }
        }
    }

    /// The source of a process that runs already.
    pub fn of_running(gpu: Gpu, has_shim: bool) -> Self {
        match Self::of_command(gpu, has_shim) {
            Self::AtStart => Self::Waiting,
            source => source,
        }
    }

    /// The source of a forked child of a process with this source.
    pub fn of_child(&self) -> Self {
        match self {
            Self::Tables | Self::Unused | Self::Forked => Self::Unused,
            Self::Off | Self::AtStart | Self::Waiting | Self::Held(_) | Self::Uprobes(_) => {
                self.clone()
            }
        }
    }

    /// The source of another program that the process executes, if it is not the same.
    pub fn of_next_program(&self, gpu: Gpu) -> Option<Self> {
        match self {
            Self::Tables | Self::Unused | Self::Forked | Self::Uprobes(_) => {
                gpu.wants_shim().then_some(Self::Waiting)
            }
            Self::Off | Self::AtStart | Self::Waiting | Self::Held(_) => None,
        }
    }

    /// Whether the process gets the shim as soon as that is possible.
    pub fn is_awaited(&self) -> bool {
        matches!(self, Self::Waiting | Self::Held(_))
    }

    /// Whether the source begins with a library that the process has not loaded yet; `has_doorbells` if its doorbells
    /// have their probes, or cannot have any.
    pub fn waits_for_library(&self, has_doorbells: bool) -> bool {
        match self {
            Self::Waiting | Self::Held(_) => true,
            Self::Uprobes(_) => !has_doorbells,
            Self::Off | Self::AtStart | Self::Tables | Self::Unused | Self::Forked => false,
        }
    }

    /// Whether probes at its doorbells see its GPU work, or may have to.
    pub fn may_be_outside(&self) -> bool {
        match self {
            Self::Uprobes(_) | Self::AtStart => true,
            Self::Off
            | Self::Waiting
            | Self::Held(_)
            | Self::Tables
            | Self::Unused
            | Self::Forked => false,
        }
    }

    /// Whether a shim tells of the process's GPU work, or is about to.
    pub fn is_shim(&self) -> bool {
        match self {
            Self::AtStart | Self::Waiting | Self::Held(_) | Self::Tables | Self::Unused => true,
            Self::Off | Self::Forked | Self::Uprobes(_) => false,
        }
    }

    /// What the trace says of a process that has ended; `were_full` if no memory was free at some time.
    pub fn tier(&self, claim: Claim, were_full: bool) -> String {
        match (self, claim) {
            (Self::Off, _) => String::new(),
            (Self::AtStart, Claim::None) if were_full => format!("none: {TOO_MANY}"),
            (Self::AtStart, Claim::None) => "none: the shim was not loaded".to_owned(),
            (Self::AtStart, Claim::Helpless(why)) => format!("none: {why}"),
            (source, _) => source.to_string(),
        }
    }

    /// Why no kernel of a process was recorded that launched some.
    pub fn why_silent(&self, claim: Claim, were_full: bool) -> String {
        match (self, claim) {
            (Self::Uprobes(why), _) => why.clone(),
            (_, Claim::Helpless(why)) => why.to_owned(),
            (_, Claim::Recording) => "the shim recorded none of them".to_owned(),
            (Self::AtStart, _) if were_full => TOO_MANY.to_owned(),
            (Self::AtStart, _) => {
                "the shim was not loaded: the HSA runtime ignored HSA_TOOLS_LIB, or the process could not open roctap's shared memory"
                    .to_owned()
            }
            (source, _) => source.to_string(),
        }
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
