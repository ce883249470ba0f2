//! What the BPF programs log: in builds for that, and in no other.

use std::{fs, path::PathBuf};

use e2e::{Ran, Scene, run};

/// What `cargo xtask test` builds with the feature `bpf-log` and names by a variable.
fn built(variable: &str) -> PathBuf {
    std::env::var_os(variable).expect("`cargo xtask test` sets it").into()
}

#[test]
fn root_what_programs_log_is_shown_and_no_release_has_it() {
    let scene = Scene::default();
    let record = |roctap: PathBuf, verbose: &[&str]| -> Ran {
        let mut command = scene.command(roctap);
        // A release does not look at it.
        command.env("ROCTAP_BPF_OBJECT", built("ROCTAP_LOGGING_OBJECT"));
        command.args(verbose).args(["record", "--gpu", "off", "--force", "-o"]);
        command.arg(scene.trace_path()).args(["--", "sh", "-c", "(true); (true)"]);
        // No call of ROCm is seen.
        run(&mut command).expect(3)
    };
    let forks = |ran: &Ran| {
        let line = |line: &&str| line.contains("BPF DEBUG: process ") && line.contains(" forks ");
        ran.stderr.lines().filter(line).count()
    };
    let ran = record(built("ROCTAP_LOGGING_BIN"), &["-vv"]);
    assert!(forks(&ran) >= 2, "{ran:#?}");
    let ran = record(built("ROCTAP_LOGGING_BIN"), &[]);
    assert_eq!(forks(&ran), 0, "{ran:#?}");
    let ran = record(e2e::roctap_bin(), &["-vv"]);
    assert_eq!(forks(&ran), 0, "{ran:#?}");
    let has_the_map = |file| {
        let bytes = fs::read(file).expect("a file that was built");
        bytes.windows(8).any(|bytes| bytes == b"AYA_LOGS")
    };
    assert!(has_the_map(built("ROCTAP_LOGGING_OBJECT")));
    assert!(!has_the_map(e2e::roctap_bin()));
}
