//! Attaching to processes that run: everything between "attached" and "detached" is in the trace, and
//! the process does not notice.

use std::{collections::BTreeMap, time::Duration};

use e2e::{
    Ran, Recorded, Running, Scene, Signal, app,
    compare::{expect_joined, expect_no_holes},
    interrupt, run, send_signal, times, wait_until,
};
use tracer_records::model::ApiCall;

/// Ends a `loop`, which checks what it computed.
fn finish(target: Running) -> Ran {
    let ran = target.end().expect(0);
    assert!(ran.stdout.contains("result ok"), "{ran:#?}");
    ran
}

/// The same, and it wrote nothing to its standard error that it does not write without us: the runtime of
/// ROCm 7 leaves two signals behind, and says so.
fn finish_quietly(target: Running) {
    let of_the_runtime = match e2e::release().as_deref() {
        Some("7.2") => "Warning: Resource leak detected by SharedSignalPool, 2 Signals leaked.\n",
        _ => "",
    };
    assert_eq!(finish(target).stderr, of_the_runtime);
}

fn record(scene: &Scene, pid: u32, options: &[&str]) -> Recorded {
    let pid = pid.to_string();
    let ran = run(scene.record(&["-p", &pid, "--force"]).args(options)).expect(0);
    let trace = scene.trace();
    assert!(!trace.dispatches.is_empty(), "{ran:#?}");
    trace
}

/// Descriptors, threads, and mappings that are neither anonymous memory nor the target's own business.
fn census(pid: u32) -> (usize, Vec<String>, Vec<String>) {
    let text = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).expect("alive");
    let list = |name: &str| std::fs::read_dir(format!("/proc/{pid}/{name}")).expect("alive");
    let mut threads: Vec<String> = list("task")
        .flatten()
        .map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default())
        .collect();
    threads.sort();
    let files = text("maps")
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|name| name.contains(".so") || name.contains("memfd") || name.contains("roctap"))
        .map(str::to_owned)
        .collect();
    (list("fd").count(), threads, files)
}

#[test]
fn root_attach_sees_every_kernel_with_its_call() {
    for (threads, rate) in [("1", "0"), ("2", "2000"), ("4", "0"), ("4", "500")] {
        let scene = Scene::default();
        let target = Running::start(scene.command(app("loop")).args(["0", threads, rate]));
        let pid = target.pid();
        let trace = record(&scene, pid, &["-d", "0.5"]);
        finish_quietly(target);
        expect_no_holes(&trace, &scene.true_dispatches());
        expect_joined(&trace, pid);
        let tier = &trace.tables().processes[&pid].gpu_tier;
        assert_eq!(tier, "HSA tables patched in the running process");
    }
}

#[test]
fn root_attach_again_and_again() {
    let scene = Scene::default();
    // Without the ground truth: a stress test of minutes would fill a disk with it.
    let mut command = scene.command(app("loop"));
    let target = Running::start(command.args(["0", "8"]).env_remove("EMUGPU_LOG"));
    let pid = target.pid();
    let before = census(pid);
    record(&scene, pid, &["-d", "0.2"]);
    let dormant = census(pid);
    assert_eq!(dormant.0, before.0, "descriptors");
    let added: Vec<&String> = dormant.1.iter().filter(|name| name.starts_with("roctap")).collect();
    assert_eq!(added.len(), 1, "one thread stays: {:?}", dormant.1);
    for _ in 0..times(10) {
        let trace = record(&scene, pid, &["-d", "0.1"]);
        expect_joined(&trace, pid);
        assert_eq!(census(pid), dormant, "nothing more stays than after the first time");
    }
    finish(target);
}

#[test]
fn root_attach_to_fresh_processes() {
    let scene = Scene::default();
    for _ in 0..times(5) {
        let target = Running::start(scene.command(app("loop")).args(["0", "2"]));
        record(&scene, target.pid(), &["-d", "0.05"]);
        finish_quietly(target);
    }
}

#[test]
fn root_attach_survives_a_killed_roctap() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("loop")).args(["0", "4"]));
    let pid = target.pid().to_string();
    for round in 0..times(8) {
        let mut roctap = scene.record(&["-p", &pid, "--force"]).spawn().expect("roctap");
        // Anywhere from its start to well into the recording.
        std::thread::sleep(Duration::from_millis((round as u64 * 37) % 300));
        roctap.kill().expect("killed");
        roctap.wait().expect("status");
    }
    let trace = record(&scene, target.pid(), &["-d", "0.3"]);
    expect_joined(&trace, target.pid());
    finish(target);
}

#[test]
fn root_attach_to_several_processes_and_one_that_does_not_exist() {
    let scene = Scene::default();
    let other = Scene::default();
    let first = Running::start(scene.command(app("loop")).args(["0", "2", "1000"]));
    let second = Running::start(other.command(app("loop")).args(["0", "1", "1000"]));
    let pids = [first.pid(), second.pid()];
    let options = pids.map(|pid| format!("-p{pid}"));
    let ran =
        run(&mut scene.record(&[&options[0], "-p4000000", &options[1], "-d", "0.5"])).expect(3);
    ran.complains(&["process 4000000", "no such process"]);
    let trace = scene.trace();
    for pid in pids {
        assert!(trace.dispatches.iter().any(|d| d.process_id == pid), "process {pid}");
    }
    finish(first);
    finish(second);
}

/// A process that fills a ring of the default size before all the others have their shims.
#[test]
fn root_attach_to_many_reads_the_first_meanwhile() {
    let (scene, others) = (Scene::default(), [(); 6].map(|()| Scene::default()));
    let idle = others
        .each_ref()
        .map(|other| Running::start(other.command(app("loop")).args(["0", "1", "10"])));
    let busy = Running::spawn(scene.command(app("hsa_direct")).args(["s", "1000000000"]));
    wait_until("it dispatches", || {
        std::fs::metadata(scene.path("truth")).is_ok_and(|meta| meta.len() > 20_000)
    });
    let mut record = scene.record(&["--api", "hsa", "-d", "0.1", "--force"]);
    record.arg("-p").arg(busy.pid().to_string());
    for other in &idle {
        record.arg("-p").arg(other.pid().to_string());
    }
    // A machine can keep the reader waiting too: once, not each time.
    let complete = (0..3).any(|_| {
        run(&mut record).expect(0);
        let trace = scene.trace();
        assert!(trace.dispatches.iter().any(|d| d.process_id == busy.pid()));
        trace.losses().is_empty()
    });
    assert!(complete, "{:?}", scene.trace().losses());
    assert!(busy.end().expect(0).stdout.contains("result ok"));
    for other in idle {
        finish(other);
    }
}

/// One that runs already, two that start when those before have ended, and two at once, all of which map
/// the same libraries.
#[test]
fn root_attach_to_all_that_run_and_that_start() {
    let scene = Scene::default();
    let scenes = [(); 5].map(|()| Scene::default());
    let start = |own: &Scene| Running::start(own.command(app("loop")).args(["0", "1", "1000"]));
    let recorded = |target: &Running| {
        let pid = target.pid();
        wait_until("it is recorded", || {
            let trace = scene.trace_so_far();
            trace.is_some_and(|trace| {
                let trace = trace.only(pid);
                let hsa = |call: &ApiCall| trace.function(call).starts_with("hsa_");
                !trace.dispatches.is_empty() && trace.calls.iter().any(hsa)
            })
        });
        pid
    };
    let [first, second, third, others @ ..] = &scenes;
    let target = start(first);
    let recording = scene.record(&["-a", "--api", "hip,hsa"]).spawn().expect("roctap");
    let mut pids = vec![recorded(&target)];
    finish_quietly(target);
    for own in [second, third] {
        let target = start(own);
        pids.push(recorded(&target));
        finish_quietly(target);
    }
    let targets = others.each_ref().map(start);
    pids.extend(targets.each_ref().map(recorded));
    targets.into_iter().for_each(finish_quietly);
    let ran = interrupt(recording).expect(0);
    assert!(!ran.stderr.contains("not traced"), "{ran:#?}");
    for (own, pid) in scenes.iter().zip(pids) {
        let trace = scene.trace().only(pid);
        expect_no_holes(&trace, &own.true_dispatches());
        expect_joined(&trace, pid);
    }
}

#[test]
fn root_attach_to_a_pure_hsa_program() {
    let scene = Scene::default();
    let mut command = scene.command(app("hsa_direct"));
    let child = command.args(["p", "400000"]).spawn().expect("start");
    wait_until("it dispatches", || {
        std::fs::metadata(scene.path("truth")).is_ok_and(|meta| meta.len() > 200_000)
    });
    let pid = child.id().to_string();
    let ran = run(&mut scene.record(&["-p", &pid, "--api", "hsa", "-d", "0.3"])).expect(0);
    Ran::from(child.wait_with_output().expect("output")).expect(0);
    let trace = scene.trace();
    assert!(trace.dispatches.len() > 100, "{ran:#?}");
    expect_no_holes(&trace, &scene.true_dispatches());
}

/// What the shim calls of HIP and of the HSA runtime, to find its way about, is not the program's.
#[test]
fn root_attach_leaves_out_what_the_shim_calls() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("loop")).args(["0", "2", "1000"]));
    for round in ["first", "again"] {
        let options = ["--api", "hip,hsa", "-d", "0.3"];
        let trace = record(&scene, target.pid(), &options);
        let functions = trace.call_counts();
        let not_called_now = |name: &&String| {
            ["hsa_init", "hsa_shut_down", "hsa_iterate_agents", "hsa_agent_get_info"]
                .contains(&name.as_str())
                || name.starts_with("hsa_executable_")
        };
        let hip: Vec<_> = functions.keys().filter(|name| name.starts_with("hip")).collect();
        assert_eq!(hip, ["hipLaunchKernel", "hipStreamSynchronize"], "{round}");
        assert_eq!(functions.keys().find(not_called_now), None, "{round}: {functions:?}");
        // What records HSA calls goes on when the shim is there.
        let last = trace.dispatches.iter().map(|d| d.enqueue_ns).max().expect("dispatches");
        let late = |c: &&ApiCall| c.record.begin_ns + 100_000_000 > last;
        let hsa = |c: &&ApiCall| trace.function(c).starts_with("hsa_");
        assert!(trace.calls.iter().filter(late).any(|c| hsa(&c)), "{round}: {functions:?}");
    }
    finish(target);
}

#[test]
fn root_attach_by_uprobes_alone_is_marked_partial() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("loop")).args(["0", "1", "1000"]));
    let pid = target.pid();
    let before = census(pid);
    run(&mut scene.record(&["-p", &pid.to_string(), "--gpu", "uprobes", "-d", "0.3"])).expect(0);
    assert_eq!(census(pid), before);
    let trace = scene.trace();
    assert!(trace.calls.len() > 100);
    assert!(trace.tables().processes[&pid].gpu_tier.contains("partial"));
    finish(target);
}

#[test]
fn root_attach_follows_children_and_programs_that_are_executed() {
    let scene = Scene::default();
    let mut shell = scene.command("sh");
    // The first program has nothing of ROCm; its child and what it becomes have.
    let script = "echo ready; sleep 1; \"$0\" 0 1 1000 & exec \"$0\" 0 1 1000";
    let target = Running::start(shell.args(["-c", script]).arg(app("loop")));
    let recording = scene.record(&["-p", &target.pid().to_string()]).spawn().expect("roctap");
    let pids = || {
        let dispatches = scene.trace_so_far().map(|trace| trace.dispatches).unwrap_or_default();
        let mut pids: Vec<u32> = dispatches.iter().map(|d| d.process_id).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    };
    wait_until("both are recorded", || pids().len() == 2);
    let seen = pids();
    assert!(seen.contains(&target.pid()), "{seen:?}");
    interrupt(recording).expect(0);
    for child in seen.into_iter().filter(|&pid| pid != target.pid()) {
        send_signal(child, Signal::TERM);
    }
    finish(target);
}

/// Forked children use the GPU that their parent does not.
#[test]
fn root_attach_to_a_parent_of_forked_workers() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("workers")).args(["0", "50"]));
    let mut roctap = scene.record(&["-p", &target.pid().to_string()]);
    let recording = roctap.spawn().expect("roctap");
    let workers = || {
        let mut launches: BTreeMap<u32, usize> = BTreeMap::new();
        if let Some(trace) = scene.trace_so_far() {
            for dispatch in trace.dispatches.iter().filter(|d| d.record.correlation_id != 0) {
                let worked = trace.kernel(dispatch) == "worker_kernel";
                *launches.entry(dispatch.process_id).or_default() += usize::from(worked);
            }
        }
        launches
    };
    let whole = |workers: &BTreeMap<u32, usize>| workers.values().filter(|&&n| n == 50).count();
    wait_until("workers are recorded", || whole(&workers()) > 3);
    let ran = interrupt(recording);
    finish(target);
    // On a busy machine one may have ended before its shim was in it, which is told.
    assert!(matches!(ran.code, Some(0 | 3)), "{ran:#?}");
    let workers = workers();
    let whole = whole(&workers);
    // The first one may have begun to launch by then, and the last one was cut off.
    assert!(whole + 2 >= workers.len(), "{workers:?}");
    let tiers: Vec<String> =
        scene.trace().tables().processes.values().map(|p| p.gpu_tier.clone()).collect();
    assert!(
        tiers.iter().filter(|tier| tier.starts_with("HSA tables")).count() > whole,
        "{tiers:?}"
    );
}

/// Containers: libraries from an overlay, whose files have one device in `maps` and another for `stat`,
/// under process ids of their own.
#[test]
fn root_attach_to_a_container() {
    let scene = Scene::default();
    let mut command = scene.command("unshare");
    command.args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-ec"]).arg(
        "mount -t tmpfs none /mnt
         mkdir /mnt/upper /mnt/work
         libraries=/usr/lib/x86_64-linux-gnu
         mount -t overlay -o lowerdir=$libraries,upperdir=/mnt/upper,workdir=/mnt/work none $libraries
         exec \"$0\" 0 2 1000",
    );
    let target = Running::start(command.arg(app("loop")));
    let children = format!("/proc/{0}/task/{0}/children", target.pid());
    let children = std::fs::read_to_string(children).expect("children");
    let inside: u32 = children.trim().parse().expect("one child");
    for options in [["--api", "hip", "-d", "0.5"], ["--api", "hip,hsa", "-d", "0.5"]] {
        let trace = record(&scene, inside, &options);
        assert!(trace.calls.len() > 100, "{}", trace.calls.len());
        assert!(trace.tables().processes[&inside].gpu_tier.contains("tables patched"));
        expect_no_holes(&trace, &scene.true_dispatches());
    }
    send_signal(inside, Signal::TERM);
    let ran = target.ended().expect(0);
    assert!(ran.stdout.contains("result ok"), "{ran:#?}");
}

/// A process that starts while recording goes on, by when privileges have been given up, under another
/// user.
#[test]
fn root_attach_to_another_users_process() {
    let scene = Scene::default();
    let recording = scene.record(&["-a"]).spawn().expect("roctap");
    wait_until("it records", || scene.trace_path().exists());
    std::thread::sleep(Duration::from_millis(500));
    let mut command = scene.command(app("loop"));
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let target = Running::start(command.env_remove("EMUGPU_LOG").args(["0", "1", "1000"]));
    let pid = target.pid();
    let recorded = || {
        let trace = scene.trace_so_far();
        trace.is_some_and(|trace| trace.dispatches.iter().any(|d| d.process_id == pid))
    };
    wait_until("it is recorded", recorded);
    interrupt(recording).expect(0);
    let trace = scene.trace();
    assert!(trace.tables().processes[&pid].gpu_tier.contains("tables patched"));
    assert!(trace.dispatches.iter().any(|d| d.process_id == pid && d.record.begin_ns > 0));
    finish_quietly(target);
}

/// Allocators with thread-local state keep what the first attach left, and nothing is added to it.
#[test]
fn root_attach_again_and_again_under_other_allocators() {
    for library in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let scene = Scene::default();
        let mut command = scene.command(app("loop"));
        let target = Running::start(command.env("LD_PRELOAD", library).args(["0", "2", "1000"]));
        let pid = target.pid();
        let left = || {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("alive");
            assert!(maps.contains(library), "install it: cargo xtask setup");
            // Code of our own: no allocator maps any.
            let is_block = |line: &&str| {
                let range = line.split(' ').next().and_then(|range| range.split_once('-'));
                let number = |hex| u64::from_str_radix(hex, 16).expect("an address");
                let (start, end) = range.expect("a range");
                line.contains(" r-xp 00000000 00:00 0") && number(end) - number(start) == 4096
            };
            maps.lines().filter(is_block).count()
        };
        record(&scene, pid, &["-d", "0.2"]);
        let (before, census_before) = (left(), census(pid));
        assert!(before > 0, "the first one stays");
        for _ in 0..times(5) {
            record(&scene, pid, &["-d", "0.1"]);
        }
        assert_eq!((left(), census(pid)), (before, census_before));
        finish_quietly(target);
    }
}
