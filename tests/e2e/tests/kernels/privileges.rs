//! The smallest sets of capabilities, each with one of them missing, and what doctor says of them.

use std::{fs, os::unix::process::CommandExt as _, process::Command};

use e2e::{Ran, Running, Scene, app, compare::ASKS_FOR_TIMES, roctap_bin, run};

use crate::{has, tell};

const NOBODY: u32 = 65534;
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// Above 2 only on Debian's and Ubuntu's kernels, whose default it is.
const DEBIANS: i32 = 3;

/// What a way to place probes needs.
struct Needs {
    method: &'static str,
    paranoid: i32,
    /// With exactly these it works.
    enough: &'static [&'static str],
    /// With these it does not, for want of the capability that is named.
    lacking: &'static [(&'static [&'static str], &'static str)],
}

const PARTS: [(&[&str], &str); 2] =
    [(&["dac_override", "perfmon"], "CAP_BPF"), (&["dac_override", "bpf"], "CAP_PERFMON")];

/// `CAP_SYS_ADMIN` stands for `CAP_BPF` and `CAP_PERFMON`, which were parts of it.
const NEEDS: [Needs; 4] = [
    Needs { method: "multi", paranoid: 2, enough: &["bpf", "perfmon"], lacking: &PARTS },
    Needs { method: "multi", paranoid: DEBIANS, enough: &["bpf", "perfmon"], lacking: &PARTS },
    Needs {
        method: "event",
        paranoid: 2,
        enough: &["bpf", "perfmon", "dac_override"],
        lacking: &[PARTS[0], PARTS[1], (&["bpf", "perfmon"], "CAP_DAC_OVERRIDE")],
    },
    Needs {
        method: "event",
        paranoid: DEBIANS,
        enough: &["sys_admin", "dac_override"],
        lacking: &[
            (&["bpf", "perfmon", "dac_override"], "CAP_SYS_ADMIN"),
            (&["bpf", "perfmon", "sys_admin"], "CAP_DAC_OVERRIDE"),
        ],
    },
];

/// The setting, as it was again when dropped.
struct Paranoid(i32);

impl Paranoid {
    fn now() -> Self {
        let text = fs::read_to_string(PARANOID).expect("a setting");
        Self(text.trim().parse().expect("a number"))
    }

    /// Sets it where the kernel knows the value; elsewhere it must be what it is.
    fn set(&self, value: i32) -> bool {
        if self.0 == DEBIANS {
            fs::write(PARANOID, value.to_string()).expect("the setting");
        }
        self.0 == DEBIANS || self.0 == value
    }
}

impl Drop for Paranoid {
    fn drop(&mut self) {
        self.set(self.0);
    }
}

/// The command, by nobody with capabilities, who finds tracefs where it usually is.
fn by_nobody(scene: &Scene, capabilities: &[&str]) -> Command {
    let mut command = scene.command("unshare");
    let script = "cd /sys/kernel/tracing; test -e uprobe_events || mount -t tracefs none . || exit
                  exec setpriv \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh", "--clear-groups"]);
    command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
    let list: String = capabilities.iter().map(|name| format!(",+{name}")).collect();
    command.args([format!("--inh-caps=-all{list}"), format!("--ambient-caps=-all{list}")]);
    command.arg("--no-new-privs").arg(roctap_bin());
    command
}

/// Records a command, and then a process that runs, of the same user; the one that fails, or the last.
fn record(scene: &Scene, target: &Running, needs: &Needs, capabilities: &[&str]) -> Ran {
    let start = || {
        let _ = fs::remove_file(scene.trace_path());
        let mut record = by_nobody(scene, capabilities);
        record.args(["record", "--probes", needs.method, "--api=hsa", "--gpu=off"]);
        record.args(["--include", ASKS_FOR_TIMES, "-o"]).arg(scene.trace_path());
        record
    };
    let ran = run(start().arg("--").arg(app("hsa_direct")).args(["s", "20"]));
    tell(&ran);
    if ran.code != Some(0) {
        return ran;
    }
    let trace = scene.trace();
    trace.expect_complete();
    assert_eq!(trace.calls.len(), 20);
    let mut running = start();
    running.args(["-p", &target.pid().to_string()]);
    let ran = scene.record_until(&mut running, "calls are recorded", |t| t.calls.len() > 2);
    tell(&ran);
    ran
}

fn target(scene: &Scene) -> Running {
    scene.give_to(NOBODY);
    let mut command = scene.command(app("hsa_direct"));
    command.uid(NOBODY).gid(NOBODY);
    Running::ringing_by(scene, &mut command)
}

/// With exactly what is needed it works; with one of it missing it fails before anything is placed, and
/// names what is missing.
#[test]
fn root_kernel_smallest_sets_of_capabilities() {
    let (scene, paranoid) = (Scene::default(), Paranoid::now());
    let target = target(&scene);
    for needs in NEEDS.iter().filter(|needs| has(needs.method)) {
        if !paranoid.set(needs.paranoid) {
            continue; // Another kernel than Debian's, which has no such value.
        }
        record(&scene, &target, needs, needs.enough).expect(0);
        for (capabilities, missing) in needs.lacking {
            let ran = record(&scene, &target, needs, capabilities).expect(1);
            ran.complains(&[missing]);
            assert!(!scene.trace_path().exists(), "{ran:#?}");
        }
    }
    assert!(target.end().expect(0).stdout.contains("result ok"));
}

/// What doctor says holds: it is content exactly where a recording succeeds, with the way to place
/// probes that roctap itself chooses.
#[test]
fn root_kernel_doctor_says_what_works() {
    let (scene, paranoid) = (Scene::default(), Paranoid::now());
    scene.give_to(NOBODY);
    let mut outcomes = [0, 0];
    for value in [2, DEBIANS].into_iter().filter(|&value| paranoid.set(value)) {
        for capabilities in [
            &[][..],
            &["bpf", "perfmon"],
            &["bpf", "perfmon", "dac_override"],
            &["sys_admin"],
            &["sys_admin", "dac_override"],
        ] {
            let doctor = run(by_nobody(&scene, capabilities).arg("doctor"));
            let _ = fs::remove_file(scene.trace_path());
            let mut record = by_nobody(&scene, capabilities);
            record.args(["record", "--gpu=off", "--api=hsa", "--include=hsa_init", "-o"]);
            let record = record.arg(scene.trace_path()).arg("--").arg(app("hsa_direct"));
            let ran = run(record.args(["s", "1"]));
            let what = format!("{capabilities:?} at {value}: {ran:#?}\n{doctor:#?}");
            assert_eq!(ran.code, doctor.code, "{what}");
            assert_eq!(doctor.code == Some(0), !doctor.stdout.contains("MISSING"), "{what}");
            let works = doctor.stdout.starts_with("ok       kernel");
            assert_eq!(doctor.code == Some(0), works, "{what}");
            outcomes[usize::from(doctor.code == Some(0))] += 1;
        }
    }
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
}
