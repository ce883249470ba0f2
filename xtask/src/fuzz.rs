//! `cargo xtask fuzz`: runs each target of `tests/fuzz` for a while.
//!
//! Stable Rust suffices: the coverage that libFuzzer follows is a pass of LLVM's that any rustc runs.

use std::{fs, path::Path, process::Command};

use anyhow::Context as _;
use clap::Args;

use crate::run::{cargo, root, run};

const TARGETS: [&str; 10] = [
    "plan",
    "trace",
    "ring",
    "elf",
    "code_object",
    "code_object_list",
    "link_map",
    "seccomp",
    "process_texts",
    "demangle",
];
/// Memory that a target may ask for: one that asks for more, if only once, is ended and has found something.
const MAX_KIB: u32 = 4 << 20;
/// How long one input may take.
const MAX_SECONDS: u32 = 20;
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
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
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
    // A target triple keeps the flags away from build scripts.
    run(cargo()
        .env("RUSTFLAGS", FLAGS.join(" "))
        // What is fuzzed does not run the BPF programs.
        .env("ROCTAP_BPF_OBJECT", "")
        .args(["build", "--release", "--manifest-path", "tests/fuzz/Cargo.toml"])
        .args(["--target-dir", "target/fuzz-build", "--target", TRIPLE]))?;
    for target in TARGETS {
        let corpus = root().join("target/fuzz").join(target);
        fs::create_dir_all(&corpus).with_context(|| format!("creating {}", corpus.display()))?;
        seed(target, &corpus)?;
        run(Command::new("sh")
            .args(["-c", &format!("ulimit -v {MAX_KIB}; exec \"$@\""), "sh"])
            .arg(root().join("target/fuzz-build").join(TRIPLE).join("release").join(target))
            .arg(&corpus)
            .arg(format!("-artifact_prefix={}/found-", corpus.display()))
            .args([&format!("-max_total_time={}", options.seconds), "-max_len=65536"])
            .arg(format!("-timeout={MAX_SECONDS}"))
            .arg("-print_final_stats=1"))?;
    }
    Ok(())
}

/// Inputs to begin with, where chance would take long to find one.
fn seed(target: &str, corpus: &Path) -> anyhow::Result<()> {
    let seed = match target {
        "plan" | "elf" | "code_object" => library(corpus)?,
        "trace" => b"ROCTAP\r\n".to_vec(),
        "code_object_list" => code_object_list(&library(corpus)?),
        "link_map" => link_map(),
        "seccomp" => FILTER.iter().flat_map(|word| word.to_le_bytes()).collect(),
        "process_texts" => ["maps", "status", "syscall"]
            .iter()
            .map(|name| fs::read(format!("/proc/self/{name}")))
            .collect::<Result<Vec<_>, _>>()?
            .concat(),
        "demangle" => DOUBLING.to_vec(),
        _ => {
            // One call, eight words with its frame's head.
            bytes(&[8, 8 | 8 << 32, 1 << 52, 1 << 32, 0, 10, 20, 0, 7])
        }
    };
    fs::write(corpus.join("seed"), seed).context("writing a seed")
}

/// A function of pairs, each of two of the one before: 3 KB when demangled, where 4 KiB are allowed.
const DOUBLING: &[u8] =
    b"_Z1f1PIiiES_IS0_S0_ES_IS1_S1_ES_IS2_S2_ES_IS3_S3_ES_IS4_S4_ES_IS5_S5_ES5_S4_";

/// A seccomp filter that allows everything but one system call, as the words of its instructions.
const FILTER: [u64; 4] =
    [0x20, 0x0000_013f_0100_0015, 0x0005_0001_0000_0006, 0x7fff_0000_0000_0006];

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn library(corpus: &Path) -> anyhow::Result<Vec<u8>> {
    let (source, built) = (corpus.with_extension("c"), corpus.with_extension("so"));
    fs::write(&source, LIBRARY)?;
    run(Command::new("cc")
        .args(["-O1", "-shared", "-nostdlib", "-fPIC", "-o"])
        .args([&built, &source]))?;
    fs::read(&built).with_context(|| format!("reading {}", built.display()))
}

/// Memory with a list of two code objects, at address 0, and one of them behind it.
fn code_object_list(object: &[u8]) -> Vec<u8> {
    // struct r_debug: r_version, r_map. struct link_map: l_addr, l_name, l_ld, l_next.
    let mut memory = bytes(&[1, 32, 0, 0, 0x1000, 128, 0, 64, 0x2000, 192, 0, 0]);
    memory.resize(128, 0);
    memory.extend(format!("memory://1#offset=4096&size={}", object.len()).bytes());
    memory.resize(192, 0);
    memory.extend(b"file:///a%20b#offset=0x10&size=64");
    memory.resize(4096, 0);
    memory.extend(object);
    memory
}

/// Memory that begins with a program's headers and has the dynamic linker's list of two libraries.
fn link_map() -> Vec<u8> {
    let mut memory = bytes(&[0x0001_0102_464c_457f, 0, 0, 0, 64, 0, 0, 3]);
    // p_type, p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align: PT_PHDR, PT_DYNAMIC, PT_TLS.
    memory.extend(bytes(&[6, 0, 64, 0, 0, 0, 0]));
    memory.extend(bytes(&[2, 0, 640, 0, 0, 0, 0]));
    memory.extend(bytes(&[7, 0, 1024, 0, 16, 32, 8]));
    memory.resize(640, 0);
    // DT_NEEDED, DT_DEBUG; r_debug; two entries with a description of the thread-local storage each: image,
    // its size, the storage's size, alignment, first byte, offset, module.
    memory.extend(bytes(&[1, 0, 21, 672, 1, 704, 0, 0]));
    let described = [1024, 16, 32, 8, 0, 64, 1];
    memory.extend(bytes(&[0, 0, 0, 800]));
    memory.extend(bytes(&described));
    memory.resize(800, 0);
    memory.extend(bytes(&[0, 0, 0, 0]));
    memory.extend(bytes(&described));
    memory.resize(4096, 0);
    memory
}
