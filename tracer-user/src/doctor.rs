//! `roctap doctor` and `roctap ps`: what this machine and its processes allow.

use std::{path::Path, process::ExitCode};

use crate::discover::{self, Runtime};

/// First kernel with `uprobe_multi` links.
const UPROBE_MULTI_SINCE: (u32, u32) = (6, 6);
/// First kernel that replaces the trap at a 5-byte nop by a call.
const NOP5_SINCE: (u32, u32) = (6, 18);

/// Major and minor version of the running kernel.
fn kernel_version() -> (u32, u32) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|p| p.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Whether the running kernel attaches all probes of a library in one call.
pub fn has_uprobe_multi() -> bool {
    kernel_version() >= UPROBE_MULTI_SINCE
}

enum Finding {
    Good,
    Limited,
    Bad,
}

fn line(finding: &Finding, what: &str, meaning: &str) {
    let mark = match finding {
        Finding::Good => "ok     ",
        Finding::Limited => "limited",
        Finding::Bad => "MISSING",
    };
    println!("{mark}  {what}\n         {meaning}");
}

/// Bits of the capabilities that are asked after (`linux/capability.h`).
const CAPABILITIES: [(&str, u32, &str); 4] = [
    ("CAP_BPF", 39, "load BPF programs"),
    ("CAP_PERFMON", 38, "attach uprobes by uprobe_multi"),
    ("CAP_SYS_ADMIN", 21, "attach uprobes on kernels before 6.6; open mapped files that were replaced"),
    ("CAP_SYS_PTRACE", 19, "look into processes of other users"),
];

fn effective_capabilities() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0)
}

/// Runs `roctap doctor`: exit status 1 when recording is impossible.
pub fn run() -> ExitCode {
    let mut possible = true;
    let (major, minor) = kernel_version();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let kernel = format!("kernel {release}");
    if has_uprobe_multi() {
        line(&Finding::Good, &kernel, "probes of a library are attached and removed in one call");
    } else {
        let meaning = "no uprobe_multi before 6.6: probes are attached one by one, and removing 400 of them takes about 90 s; choose few with --include";
        line(&Finding::Limited, &kernel, meaning);
    }
    if (major, minor) >= NOP5_SINCE {
        line(&Finding::Good, "fast nop probes", "the shim's dispatch probe costs about 200 ns");
    } else {
        line(&Finding::Limited, "no fast nop probes before 6.18", "the shim's dispatch probe costs about 450 ns");
    }
    if Path::new("/sys/kernel/btf/vmlinux").exists() {
        line(&Finding::Good, "BTF", "the BPF programs find the kernel's structures");
    } else {
        possible = false;
        line(&Finding::Bad, "BTF", "the kernel needs CONFIG_DEBUG_INFO_BTF; nothing can be recorded");
    }
    let effective = effective_capabilities();
    for (name, bit, meaning) in CAPABILITIES {
        if effective >> bit & 1 == 1 {
            line(&Finding::Good, name, meaning);
        } else if matches!(name, "CAP_BPF" | "CAP_PERFMON") && effective >> 21 & 1 == 0 {
            possible = false;
            line(&Finding::Bad, name, &format!("needed to {meaning}; run with sudo"));
        } else {
            line(&Finding::Limited, name, &format!("not held: cannot {meaning}"));
        }
    }
    match crate::shim::Shim::find() {
        Ok(shim) => line(
            &Finding::Good,
            &format!("shim {}", shim.path.display()),
            "commands started by roctap record have GPU times",
        ),
        Err(error) => line(&Finding::Limited, "shim", &error.to_string()),
    }
    libraries();
    let running = discover::rocm_processes();
    println!("\n{} running ROCm process(es){}", running.len(), if running.is_empty() { "" } else { ":" });
    print_processes(&running);
    if possible { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn libraries() {
    let found = discover::candidates(std::ffi::OsStr::new(""));
    for runtime in Runtime::ALL {
        let mut of_runtime = found.iter().filter(|l| l.runtime == runtime).peekable();
        if of_runtime.peek().is_none() {
            let what = format!("{}*", runtime.file_prefix());
            let meaning = "not in the linker's cache, LD_LIBRARY_PATH or /opt/rocm*; programs that bring their own copy are found when they run";
            line(&Finding::Limited, &what, meaning);
        }
        for library in of_runtime {
            let what = format!("{} {}", library.path.display(), library.version());
            line(&Finding::Good, &what, &format!("calls of the {} API can be recorded", runtime.name()));
        }
    }
}

fn print_processes(running: &[(discover::ProcessInfo, Vec<discover::Library>)]) {
    for (process, libraries) in running {
        let names: Vec<String> = libraries
            .iter()
            .map(|l| format!("{} {}", l.runtime.name(), l.version()))
            .collect();
        println!("{:>8}  {}  [{}]", process.pid, process.command, names.join(", "));
    }
}

/// Runs `roctap ps`.
pub fn ps() -> ExitCode {
    let running = discover::rocm_processes();
    if running.is_empty() {
        eprintln!("roctap: no running process maps libamdhip64 or libhsa-runtime64 (as far as this user may look)");
    }
    print_processes(&running);
    ExitCode::SUCCESS
}
