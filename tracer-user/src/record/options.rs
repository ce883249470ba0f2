//! The command line of `roctap record`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueEnum};
use globset::Glob;

use tracer_records::api;

use super::gpu_source::Gpu;
use crate::{discover::Runtime, join::Mode, probe::Placing};

/// An API whose calls can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Api {
    /// Calls of HIP by programs.
    Hip,
    /// Calls that the compiler inserts (`__hip…`): registration of code, and two calls before each <<<>>>, each of
    /// which costs as much as the launch.
    HipCompiler,
    /// Calls of HSA by programs, and by HIP on their behalf.
    Hsa,
    /// Marks and ranges that programs set by libroctx64 or librocprofiler-sdk-roctx.
    Roctx,
}

impl Api {
    /// The API of a runtime's function.
    pub fn of(runtime: Runtime, function: &str) -> Self {
        match runtime {
            Runtime::Hip if api::is_called_by_compiler(function) => Self::HipCompiler,
            Runtime::Hip => Self::Hip,
            Runtime::Hsa => Self::Hsa,
            Runtime::Roctx => Self::Roctx,
        }
    }

    /// Which library has it.
    pub fn runtime(self) -> Runtime {
        match self {
            Self::Hip | Self::HipCompiler => Runtime::Hip,
            Self::Hsa => Runtime::Hsa,
            Self::Roctx => Runtime::Roctx,
        }
    }
}

/// Record API calls and GPU work of a command or of running processes.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  roctap record -- ./my_app --size 4096       a command, API calls and GPU times
  roctap record -p 4711 -d 10 -o out.rtrace   a running process, 10 seconds
  roctap record -a -d 60                      every ROCm process of the machine, one minute
  roctap record --include 'hipMemcpy*' -- ./my_app
  sudo ROCP_OUTPUT_DIR=out roctap record --plugin lib/roctracer/libfile_plugin.so -- ./my_app

What ends a recording: the end of all its processes (with --no-follow, of the command), -d, Ctrl-C, or one of
SIGTERM, SIGQUIT, SIGHUP (which `nohup` turns off). A second one ends roctap at once, with status 128 + its number; the trace is then whole up to its
last chunk. Ctrl-C reaches a command that roctap started too, as the terminal sends it to both; other
signals reach roctap alone. A command that has not ended by then goes on, untraced, and so do processes
that ran before. How the command ended is printed, not passed on.

Exit status: 0 recorded; 1 failed; 2 wrong usage; 3 recorded, but not all that was asked for: one of several -p
could not be traced, no ROCm call was seen, or kernels were launched and none was recorded.")]
pub struct Options {
    /// Attach to a running process (may be given several times)
    #[arg(short, long = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,

    /// Attach to every ROCm process: those that run and those that start while recording
    #[arg(short, long, conflicts_with_all = ["pids", "command"])]
    pub all: bool,

    /// Stop recording after SECS seconds; what is traced keeps running
    #[arg(short, long, value_name = "SECS", value_parser = seconds)]
    pub duration: Option<f64>,

    /// Trace file to write
    #[arg(short, long, value_name = "FILE", default_value = "roctap.rtrace")]
    pub output: PathBuf,

    /// Replace an older trace of that name
    #[arg(long)]
    pub force: bool,

    /// When the trace is written, feed it to this plugin of roctracer's, as `roctap export --plugin` does: with the
    /// rights of the user, never of root
    #[arg(long, value_name = "LIB")]
    pub plugin: Option<PathBuf>,

    /// APIs whose calls are recorded, as in hip,roctx
    #[arg(long, value_name = "API", value_delimiter = ',', value_enum, default_value = "hip")]
    pub api: Vec<Api>,

    /// Record only functions of --api that match one of these globs; one that matches none is named at the end
    #[arg(long, value_name = "GLOB")]
    pub include: Vec<Glob>,

    /// Do not record functions that match one of these globs
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<Glob>,

    /// Probe also functions at which the kernel must single-step, at about 16 µs a call
    #[arg(long)]
    pub allow_slow: bool,

    /// Where GPU times come from
    #[arg(long, value_enum, default_value_t)]
    pub gpu: Gpu,

    /// Do not follow child processes: neither their calls nor their GPU work are recorded
    #[arg(long)]
    pub no_follow: bool,

    /// Bytes of each CPU's ring buffer for API calls: a power of two, 4096 to 268435456 [default: 256 MiB
    /// shared out among the CPUs, 1 to 32 MiB each]
    #[arg(long, value_name = "BYTES", value_parser = ring_bytes)]
    pub ring_bytes: Option<u32>,

    /// Bytes of each thread's ring in the shim's shared memory: a power of two, 4096 to 268435456
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20, value_parser = ring_bytes)]
    pub shim_ring_bytes: u32,

    /// How many processes can have GPU times at once, 1 to 1024; those beyond are seen from outside, with few
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub processes: u32,

    /// How GPU work finds its call
    #[arg(long, value_enum, default_value_t, hide = true)]
    pub join: Mode,

    /// How probes are placed, instead of the best way that the kernel has
    #[arg(long, value_enum, hide = true)]
    pub probes: Option<Placing>,

    /// The command to run and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

impl Options {
    /// Bytes of each CPU's ring: as asked for, else by the number of CPUs.
    pub fn ring_bytes(&self) -> u32 {
        let cpus = libbpf_rs::num_possible_cpus().unwrap_or(1).max(1) as u32;
        let share = ((256 << 20) / cpus).clamp(1 << 20, 32 << 20);
        // The largest power of two that is not above the share.
        self.ring_bytes.unwrap_or(1 << share.ilog2())
    }
}

/// A duration.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds < 1e9 => Ok(seconds),
        _ => Err("a number of seconds above 0".to_owned()),
    }
}

fn ring_bytes(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(bytes) if bytes.is_power_of_two() && (4096..=1 << 28).contains(&bytes) => Ok(bytes),
        _ => Err("a power of two from 4096 to 268435456".to_owned()),
    }
}
