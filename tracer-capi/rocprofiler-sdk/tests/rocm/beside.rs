//! A tool is put into a running program that others confine, or record as well.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::kinds::{CODE_OBJECTS, HIP, KERNELS};
use crate::late::{Late, end, expect_kernels};
use crate::outcome::Outcome;
use crate::scene::{scene, tool_of, wait_until};

/// `flock`, which no program makes here.
const FLOCK: &str = "73";

/// Seccomp filters kill for whatever is not listed in docs/attach.md. Who does not allow what is listed is left alone.
#[test]
fn rocm_a_tool_is_put_into_a_confined_program() {
    for without in [None, Some(FLOCK)] {
        let Some(scene) = scene() else { return };
        let confines = tool_of(&scene.clients, "confines.c", "libconfines.so", &[]);
        let mut command = Late::without(&scene, "loop");
        command.args(["0", "2", "300"]).env("LD_PRELOAD", &confines);
        command.env("WATCH_KINDS", format!("{KERNELS},{HIP}"));
        command.envs(without.map(|call| ("CONFINES_WITHOUT", call)));
        let Some(mut late) = Late::run(scene, command) else { return };
        signal("-USR1", late.pid);
        let status = Path::new("/proc").join(late.pid.to_string()).join("status");
        wait_until("it is confined", || {
            fs::read_to_string(&status).is_ok_and(|status| status.contains("Seccomp:\t2"))
        });
        if without.is_some() {
            let said = late.refused(&late.scene.tool);
            assert!(said.contains("flock"), "{said}");
            late.end();
            continue;
        }
        let roctap = late.put_in();
        late.records();
        let (status, said) = end(roctap, "-INT");
        assert!(status.success() && said.contains("the tool was finalized"), "{said}");
        let mut outcome = Outcome::default();
        late.finalized().lines().for_each(|line| outcome.take(line));
        assert!(!outcome.calls.is_empty());
        late.end();
    }
}

/// What a recording that begins while packets are on their way counts of them (docs/attach.md).
const ON_THEIR_WAY: [&str; 3] = [
    "GPU operations: enqueued before recording began on their queue",
    "GPU operations: consumed before they could be instrumented",
    "GPU operations: no completion seen",
];

/// Whichever of them comes first, both record, and the tool gets every kernel.
#[test]
fn rocm_a_tool_beside_a_recording() {
    for tool_is_first in [true, false] {
        let words = [("WATCH_KINDS", KERNELS), ("WATCH_CALLBACKS", CODE_OBJECTS)];
        let Some(mut late) = Late::start(&words, false) else { return };
        let trace = late.scene.file("trace");
        let record = || {
            let mut command = Command::new(&late.roctap);
            command.args(["record", "-p", &late.pid.to_string(), "-o"]).arg(&trace);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            let recording = command.spawn().expect("roctap");
            wait_until("it records", || kernels_in(&late.roctap, &trace) > 100);
            recording
        };
        let (tool, recording) = match tool_is_first {
            true => {
                let tool = late.put_in();
                late.records();
                (tool, record())
            }
            false => {
                let recording = record();
                (late.put_in(), recording)
            }
        };
        let before = kernels_in(&late.roctap, &trace);
        late.records();
        wait_until("both record", || kernels_in(&late.roctap, &trace) > before + 100);
        let mut both = [(tool, "the tool was finalized"), (recording, " kernels, ")];
        if !tool_is_first {
            both.reverse();
        }
        for (one, last) in both {
            let (status, said) = end(one, "-INT");
            assert!(status.success() && said.contains(last), "{status}: {said}");
            let lost = said
                .lines()
                .filter_map(|line| line.strip_prefix("roctap: lost ")?.split_once(": "));
            assert!(lost.into_iter().all(|(_, cause)| ON_THEIR_WAY.contains(&cause)), "{said}");
        }
        let mut outcome = Outcome::default();
        late.finalized().lines().for_each(|line| outcome.take(line));
        expect_kernels(&outcome, &late.end());
    }
}

/// How many kernels there are in a trace, which may be written still.
fn kernels_in(roctap: &Path, trace: &Path) -> u64 {
    let output = Command::new(roctap).args(["report", "--format", "json"]).arg(trace).output();
    let summary: Value =
        serde_json::from_slice(&output.expect("roctap").stdout).unwrap_or_default();
    let kernels = summary["kernels"].as_array().into_iter().flatten();
    kernels.map(|kernel| kernel["count"].as_u64().expect("a count")).sum()
}

fn signal(which: &str, process: u32) {
    let sent = Command::new("kill").args([which, &process.to_string()]).status();
    assert!(sent.expect("kill").success());
}
