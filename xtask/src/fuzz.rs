//! `cargo xtask fuzz`: runs each target of `fuzz/` for a while.
//!
//! Stable Rust suffices: the coverage that libFuzzer follows is a pass of LLVM's that any rustc runs.

use std::{fs, path::Path};

use anyhow::Context as _;
use clap::Args;

use crate::run::{cargo, root, run};

const TARGETS: [&str; 4] = ["plan", "trace", "ring", "code_object"];
/// What `cargo fuzz` passes, but for sanitizers, which need a nightly compiler: the code that is
/// fuzzed has no unsafe code.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];
/// Has a branch, a call, a stub and unwind tables.
const LIBRARY: &str = "int g(int); int f(int a) { return a > 3 ? f(a - 1) + g(a) : 0; }";

/// Options of `cargo xtask fuzz`.
#[derive(Args)]
pub struct Options {
    /// How long each target runs, seconds
    #[arg(default_value_t = 60)]
    seconds: u32,
}

/// Fuzzes. What is found is left in `target/fuzz/<target>`; the inputs that lead anywhere are kept
/// there for the next time.
pub fn run_fuzz(options: &Options) -> anyhow::Result<()> {
    for target in TARGETS {
        let corpus = root().join("target/fuzz").join(target);
        fs::create_dir_all(&corpus).with_context(|| format!("creating {}", corpus.display()))?;
        seed(target, &corpus)?;
        // A target triple keeps the flags away from build scripts.
        run(cargo()
            .env("RUSTFLAGS", FLAGS.join(" "))
            // What is fuzzed does not run the BPF programs.
            .env("ROCTAP_BPF_OBJECT", "")
            .args(["run", "--release", "--manifest-path", "fuzz/Cargo.toml"])
            .args(["--target-dir", "target/fuzz-build", "--target", "x86_64-unknown-linux-gnu"])
            .args(["--bin", target, "--"])
            .arg(&corpus)
            .arg(format!("-artifact_prefix={}/found-", corpus.display()))
            .args([&format!("-max_total_time={}", options.seconds), "-max_len=65536"])
            .arg("-print_final_stats=1"))?;
    }
    Ok(())
}

/// Inputs to begin with, where chance would take long to find one.
fn seed(target: &str, corpus: &Path) -> anyhow::Result<()> {
    let file = corpus.join("seed");
    match target {
        "plan" | "code_object" => {
            let source = corpus.with_extension("c");
            fs::write(&source, LIBRARY)?;
            run(std::process::Command::new("cc")
                .args(["-O1", "-shared", "-nostdlib", "-fPIC", "-o"])
                .args([&file, &source]))
        }
        "trace" => Ok(fs::write(&file, b"ROCTAP\r\n")?),
        _ => {
            // One call, eight words with its frame's head.
            let frame: [u64; 9] = [8, 8 | 8 << 32, 1 << 52, 1 << 32, 0, 10, 20, 0, 7];
            let bytes: Vec<u8> = frame.iter().flat_map(|word| word.to_le_bytes()).collect();
            Ok(fs::write(&file, bytes)?)
        }
    }
}
