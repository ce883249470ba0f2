//! What roctap may do while it reads what others wrote, and what the command may do that it starts.

mod common;

use std::{collections::BTreeMap, fs, process::Command};

use common::{Stuck, write_trace};
use e2e::{Ran, Running, Scene, app, interrupt, roctap_bin, run, wait_until};
use hostile::{NOBODY, as_nobody};

const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;
const SYS_PTRACE: u64 = 1 << 19;
const SYS_ADMIN: u64 = 1 << 21;
const SYS_NICE: u64 = 1 << 23;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;
const CHECKPOINT_RESTORE: u64 = 1 << 40;

/// The lines of `/proc/…/status`.
type Status = BTreeMap<String, String>;

fn status(of: &str) -> Status {
    let text = fs::read_to_string(format!("/proc/{of}/status")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

fn set(status: &Status, name: &str) -> u64 {
    u64::from_str_radix(status.get(name).map_or("", String::as_str), 16).unwrap_or(u64::MAX)
}

/// Capabilities of a thread: effective, permitted, bounding; the inheritable and ambient ones; whether
/// executing a program can give more.
fn rights(of: &str) -> ([u64; 5], String) {
    let status = status(of);
    let sets = ["CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"].map(|name| set(&status, name));
    (sets, status.get("NoNewPrivs").cloned().unwrap_or_default())
}

/// What this process, and so roctap at its start, has of some capabilities.
fn held(capabilities: u64) -> u64 {
    capabilities & set(&status("self"), "CapPrm")
}

/// What a recording uses, by the way in which this kernel has it place probes.
fn lasting() -> u64 {
    let doctor = run(Command::new(roctap_bin())
        .arg("doctor")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped()));
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let paranoid: i32 = paranoid.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(2);
    let multi = doctor.stdout.contains("uprobe_multi");
    let placing = if multi || paranoid <= 2 { 0 } else { SYS_ADMIN };
    BPF | PERFMON | SYS_PTRACE | CHECKPOINT_RESTORE | placing
}

/// Waits until the first thread of a recording has exactly these rights, and those that drain rings have
/// none.
fn assert_rights(pid: u32, [used, permitted, bounding]: [u64; 3]) {
    let expected = ([used, permitted, bounding, 0, 0], "1".to_owned());
    wait_until(
        &format!("its rights are {expected:x?}, last {:x?}", rights(&pid.to_string())),
        || rights(&pid.to_string()) == expected,
    );
    let drains = |tid: &String| {
        status(&format!("{pid}/task/{tid}")).get("Name").is_some_and(|name| name == "roctap-drain")
    };
    wait_until("a thread has given up everything", || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten();
        let mut tids = tasks.map(|task| task.file_name().to_string_lossy().into_owned());
        tids.find(drains).is_some_and(|tid| {
            rights(&format!("{pid}/task/{tid}")) == ([0, 0, bounding, 0, 0], "1".to_owned())
        })
    });
}

/// The process that reads memory for a recording may trace, and no more, and has two descriptors.
fn assert_reader_process(pid: u32) {
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it lives");
    let named =
        |child: &&str| status(child).get("Name").is_some_and(|name| name == "roctap-memory");
    let reader = children.split_whitespace().find(named).expect("it has read memory");
    let tracing = held(SYS_PTRACE);
    wait_until("it has given up the others", || {
        let ([used, permitted, _, inheritable, ambient], _) = rights(reader);
        [used, permitted, inheritable, ambient] == [tracing, tracing, 0, 0]
    });
    let open = fs::read_dir(format!("/proc/{reader}/fd")).expect("it lives").flatten();
    let open = open.map(|entry| fs::read_link(entry.path()).expect("it lives"));
    let mut open: Vec<String> = open.map(|path| path.to_string_lossy().into_owned()).collect();
    open.sort();
    let own = format!("/proc/{reader}/schedstat");
    assert!(open.len() == 2 && open[0] == own && open[1].starts_with("socket:"), "{open:?}");
}

fn target(scene: &Scene) -> Running {
    scene.give_to(NOBODY);
    let mut command = scene.command(app("hsa_direct"));
    let target = Running::spawn(as_nobody(command.args(["s", "1000000000"])));
    wait_until("it dispatches", || {
        fs::metadata(scene.path("truth")).is_ok_and(|meta| meta.len() > 2000)
    });
    target
}

#[test]
fn hostile_targets_are_recorded_with_few_rights() {
    let scene = Scene::default();
    let target = target(&scene);
    let pid = target.pid().to_string();
    let lasting = lasting();
    let injecting = SYS_PTRACE | CHECKPOINT_RESTORE | DAC_OVERRIDE | SYS_ADMIN | SYS_NICE;
    for (gpu, used, helpers) in [
        ("--gpu=off", lasting | DAC_READ_SEARCH, 0),
        ("--gpu=uprobes", lasting | DAC_READ_SEARCH, 0),
        ("--gpu=inject", lasting | DAC_OVERRIDE, injecting),
    ] {
        let _ = fs::remove_file(scene.trace_path());
        let mut record = scene.record(&["--api=hsa", gpu, "-p", &pid]);
        let recording = record.spawn().expect("start");
        let sets = [used, used | helpers, helpers].map(held);
        assert_rights(recording.id(), sets);
        wait_until("it records", || {
            scene.trace_so_far().is_some_and(|trace| !trace.calls.is_empty())
        });
        assert_rights(recording.id(), sets);
        assert_reader_process(recording.id());
        interrupt(recording).expect(0);
        let trace = scene.trace();
        assert!(trace.reading.status.complete, "{:?}", trace.reading.damage);
        assert_eq!(gpu != "--gpu=off", !trace.dispatches.is_empty());
    }
    assert!(target.end().expect(0).stdout.contains("result ok"));
}

/// What a process tells of itself that it has from its parent.
const TELL: &str = "grep -E '^(Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups|Umask|SigBlk|SigIgn)' /proc/self/status
    ulimit -Sn; ulimit -Hn; nice; cat /proc/self/oom_score_adj; ls /proc/self/fd | wc -l; env | grep -c .";

/// What [`TELL`] printed, but for the two signals that are glibc's own: whoever is started by its `posix_spawn`
/// ignores them.
fn messages(ran: &Ran) -> Vec<String> {
    const GLIBCS_OWN: u64 = 0b11 << 31;
    let line = |line: &str| match line.strip_prefix("SigIgn:\t") {
        Some(ignored) => {
            let ignored = u64::from_str_radix(ignored, 16).expect("a mask");
            format!("SigIgn:\t{:x}", ignored & !GLIBCS_OWN)
        }
        None => line.to_owned(),
    };
    ran.stdout.lines().map(line).collect()
}

/// The command as it would be without roctap: no right less, none more.
#[test]
fn hostile_roctap_leaves_a_command_its_rights() {
    let scene = Scene::default();
    scene.give_to(NOBODY);
    let capabilities = ["bpf", "perfmon", "dac_override", "net_raw", "sys_ptrace"];
    let list: String = capabilities.iter().map(|name| format!(",+{name}")).collect();
    let users = [
        vec![],
        vec![
            "setpriv".to_owned(),
            "--clear-groups".to_owned(),
            format!("--reuid={NOBODY}"),
            format!("--regid={NOBODY}"),
            format!("--inh-caps=-all{list}"),
            format!("--ambient-caps=-all{list}"),
        ],
    ];
    let (_directory, roctap) = common::roctap_for_all();
    for user in &users {
        let started = |words: &[&str]| {
            let mut all: Vec<&str> = user.iter().map(String::as_str).collect();
            all.extend(words);
            let mut command = scene.command(all[0]);
            command.args(&all[1..]);
            command
        };
        let without = run(&mut started(&["sh", "-c", TELL])).expect(0);
        let (roctap, trace) = (roctap.to_string_lossy(), scene.trace_path());
        let trace = trace.to_string_lossy();
        let record = [&*roctap, "record", "--gpu=off", "--force", "-o", &*trace, "--"];
        let with = run(&mut started(&[&record[..], &["sh", "-c", TELL]].concat()));
        // No call of ROCm was seen.
        assert_eq!(with.code, Some(3), "{with:#?}");
        assert_eq!(messages(&with), messages(&without));
        assert!(with.stdout.contains("NoNewPrivs:\t0"), "{with:#?}");
        fs::remove_file(scene.trace_path()).expect("a trace");
    }
}

/// Their output is a pipe that takes nothing: so they are looked at when they have read all that they
/// print.
#[test]
fn hostile_input_is_read_with_the_rights_that_it_takes() {
    let scene = Scene::default();
    let target = target(&scene);
    write_trace(&scene.trace_path(), "name");
    let trace = scene.trace_path();
    let library = fs::canonicalize("/usr/lib/x86_64-linux-gnu/libhsa-runtime64.so.1");
    let library = library.expect("the HSA runtime");
    let [trace, library] = [&trace, &library].map(|path| path.to_string_lossy());
    let looking = SYS_PTRACE | CHECKPOINT_RESTORE | DAC_READ_SEARCH;
    for (arguments, used) in [
        (&["report", &*trace][..], 0),
        (&["report", "--format=json", &*trace], 0),
        (&["export", "-f", "text", &*trace], 0),
        (&["ps"], looking),
        (&["doctor"], looking),
        (&["probes", &*library], looking),
    ] {
        let stuck = Stuck::spawn(&mut scene.roctap(arguments));
        let pid = stuck.child.id().to_string();
        wait_until(&format!("{arguments:?} writes, with {:x?}", rights(&pid)), || {
            // The number of write(2), and its first argument.
            let call = fs::read_to_string(format!("/proc/{pid}/syscall"));
            call.is_ok_and(|call| call.starts_with("1 0x1 "))
        });
        let used = held(used);
        assert_eq!(rights(&pid), ([used, used, 0, 0, 0], "1".to_owned()), "{arguments:?}");
    }
    target.end().expect(0);
}
