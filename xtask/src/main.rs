//! roctap's chores. `cargo xtask help` lists them.

#![deny(unsafe_code)]

mod abi;
mod apt;
mod artifacts;
mod bench;
mod demo;
mod dist;
mod documents;
mod fuzz;
mod gen_api;
mod imports;
mod kernels;
mod rocm;
mod run;
mod setup;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "roctap's chores")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what building and testing needs: apt packages, rust-src, bpf-linker
    Setup,
    /// Build roctap and the shim, installing what the BPF programs need
    BuildEbpf,
    /// Trace a real HIP program on the emulated GPU and show the result
    Demo,
    /// Run all tests; the tagged ones need root
    Test(test::Options),
    /// Run the tests that trace again and again, beside busy loops; needs root
    Stress(test::stress::Options),
    /// Check that no files of a crate import each other
    Check,
    /// Compare the libraries with C interfaces, and their headers, with the committed lists
    Abi {
        #[command(subcommand)]
        action: abi::Action,
    },
    /// Measure what tracing costs; needs root
    Bench(bench::Options),
    /// Unpack another release of ROCm from Debian's packages, beside the system; needs root
    Rocm(rocm::Options),
    /// Feed the parsers of untrusted input with whatever libFuzzer comes up with
    Fuzz(fuzz::Options),
    /// Pack roctap, the shim, the libraries with C interfaces, their headers and the licences into target/dist
    Dist,
    /// Generate the table of API functions from the installed headers and those of later releases
    GenApi,
}

fn main() -> anyhow::Result<ExitCode> {
    let done = match Cli::parse().task {
        Task::Setup => setup::run_setup(),
        Task::BuildEbpf => artifacts::build_release(&[]),
        Task::Demo => demo::run_demo(),
        Task::Test(options) => return test::run_tests(&options),
        Task::Stress(options) => test::stress::run_stress(&options),
        Task::Check => imports::run_check(),
        Task::Abi { action } => abi::run_abi(&action),
        Task::Bench(options) => bench::run_bench(&options),
        Task::Rocm(options) => rocm::run_rocm(&options),
        Task::Fuzz(options) => fuzz::run_fuzz(&options),
        Task::Dist => dist::run_dist(),
        Task::GenApi => gen_api::run(),
    };
    done.map(|()| ExitCode::SUCCESS)
}
