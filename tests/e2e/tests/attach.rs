//! Attaching to processes that run: everything between "attached" and "detached" is in the trace, and
//! the process does not notice.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    io::Write as _,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use e2e::{
    LARGE_RINGS, Ran, Recorded, Running, Scene, Signal, app,
    cgroup::Limited,
    compare::{expect_doorbells_joined, expect_joined, expect_no_holes},
    frozen::{self, Frozen},
    interrupt, run, send_signal,
    stopped::StoppedThread,
    times, wait_for, wait_until,
};
use tracer_common::{calls::FIRST_ID, shim::THREAD_NAME};
use tracer_records::model::ApiCall;

/// Ends a `loop`, which checks what it computed.
fn finish(target: Running) -> Ran {
    let ran = target.end().expect(0);
    assert!(ran.stdout.contains("result ok"), "{ran:#?}");
    ran
}

/// The same, and it wrote nothing to its standard error that it does not write without us.
fn finish_quietly(target: Running) {
    finish(target).expect_quiet();
}

/// Records a process until so many of its kernels are in the trace.
fn record(scene: &Scene, pid: u32, options: &[&str], kernels: usize) -> Recorded {
    let mut record = scene.record(&["-p", &pid.to_string()]);
    record.args(LARGE_RINGS).args(options);
    scene.record_kernels(&mut record, &[pid], kernels).expect(0);
    scene.trace()
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

/// The bytes that a process has mapped.
fn mapped(pid: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).expect("alive");
    let pages = statm.split(' ').next().expect("its size").parse::<u64>().expect("a number");
    pages * 4096
}

/// Of what a process's limits leave an eighth is taken at most, or nothing: it is told which and how much.
#[test]
fn root_limits_of_the_process_are_kept() {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    const MIB: u64 = 1 << 20;
    let scene = Scene::default();
    let target = Running::start(scene.command(app("loop")).args(["0", "1", "1000"]));
    let pid = target.pid();
    let number = Pid::from_raw(pid.cast_signed());
    // Those of the test are the target's.
    let limit = |resource, current: u64| {
        let limit = Rlimit { current: Some(current), ..getrlimit(resource) };
        prlimit(number, resource, limit).expect("a limit");
    };
    let unlimit = |resource| prlimit(number, resource, getrlimit(resource)).expect("a limit");
    let open = || fs::read_dir(format!("/proc/{pid}/fd")).expect("alive").count() as u64;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
    let data = status.lines().find_map(|line| line.strip_prefix("VmData:")).expect("counted");
    let data = data.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10;
    let option = format!("-p{pid}");
    for (resource, most, message) in [
        (Resource::As, mapped(pid) + 300 * MIB, "RLIMIT_AS leaves 2"),
        (Resource::Data, data + 100 * MIB, "RLIMIT_DATA leaves"),
        (Resource::Nofile, open() + 5, "RLIMIT_NOFILE leaves 5, "),
    ] {
        limit(resource, most);
        let mut record = scene.record(&[&option, "--gpu", "inject"]);
        run(record.arg("--force")).expect(1).complains(&[message, "an eighth of that at most"]);
        unlimit(resource);
    }
    let (before, room) = (mapped(pid), 2600 * MIB);
    limit(Resource::As, before + room);
    let mut record = scene.record(&[&option, "--gpu", "inject"]);
    let ran = scene.record_until(record.arg("--force"), "kernels are recorded", |trace| {
        let taken = mapped(pid).saturating_sub(before);
        assert!(taken <= room / 8, "{} MiB", taken / MIB);
        trace.kernels_of(pid) > 50
    });
    ran.expect(0);
    expect_no_holes(&scene.trace(), &scene.true_dispatches());
    finish_quietly(target);
}

/// The same of those of its cgroup, which are for all that are in it.
#[test]
fn root_limits_of_the_cgroup_are_kept() {
    const MIB: u64 = 1 << 20;
    let scene = Scene::default();
    let target = Running::start(scene.command(app("loop")).args(["0", "1", "1000"]));
    let option = format!("-p{}", target.pid());
    let refused = |message: &str| {
        let mut record = scene.record(&[&option, "--gpu", "inject"]);
        run(record.arg("--force")).expect(1).complains(&[message, "an eighth of that at most"]);
    };
    let threads = Limited::new(target.pid(), "pids");
    let most = threads.read("pids.current").parse::<u64>().expect("a number") + 5;
    threads.set("pids.max", most);
    refused("its cgroup's limit pids.max leaves ");
    drop(threads);
    let memory = Limited::new(target.pid(), "memory");
    let limit = if memory.is_of_all { "memory.max" } else { "memory.limit_in_bytes" };
    memory.set(limit, 100 * MIB);
    refused(&format!("its cgroup's limit {limit} leaves "));
    memory.set(limit, 600 * MIB);
    let trace = record(&scene, target.pid(), &["--gpu", "inject"], 50);
    expect_no_holes(&trace, &scene.true_dispatches());
    finish_quietly(target);
    drop(memory);
}

/// The kernel does not let a thread with a deadline make another one: another thread is stopped for that.
#[test]
fn root_a_thread_with_a_deadline() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("loop")).args(["0", "1", "1000"]));
    let pid = target.pid().to_string();
    let mut chrt = Command::new("chrt");
    chrt.args(["--deadline", "--sched-runtime=20000000", "--sched-deadline=50000000"]);
    run(chrt.args(["--sched-period=50000000", "--pid", "0", &pid])).expect(0);
    let trace = record(&scene, target.pid(), &["--gpu", "inject"], 50);
    expect_no_holes(&trace, &scene.true_dispatches());
    finish_quietly(target);
}

/// The thread-local variables of its libraries are larger than our threads' stacks.
#[test]
fn root_large_thread_local_variables() {
    let library = app("liblarge_tls.so");
    let scene = Scene::default();
    let mut preload = OsString::from("LD_PRELOAD=");
    preload.push(&library);
    let mut recording = scene.record(&LARGE_RINGS);
    run(recording.args(["--", "env"]).arg(preload).arg(app("storm")).args(["2", "2", "200"]))
        .expect(0);
    scene.trace().expect_complete();
    expect_no_holes(&scene.trace(), &scene.true_dispatches());
    let scene = Scene::default();
    let mut command = scene.command(app("loop"));
    let target = Running::start(command.env("LD_PRELOAD", &library).args(["0", "1", "1000"]));
    let trace = record(&scene, target.pid(), &["--gpu", "inject"], 50);
    expect_no_holes(&trace, &scene.true_dispatches());
    finish_quietly(target);
}

/// What a process of 50,000 mappings maps, of which there are more all the time, is not read again and again.
#[test]
fn root_huge_processes() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("loop")).args(["0", "1", "1000", "50000"]));
    let pid = target.pid();
    let maps = fs::read(format!("/proc/{pid}/maps")).expect("alive").len() as u64;
    assert!(maps > 2_000_000, "{maps} bytes");
    let recording = scene.record(&["-p", &pid.to_string()]).spawn().expect("roctap");
    scene.wait_for_a_kernel_of(pid);
    let read = || {
        let text = fs::read_to_string(format!("/proc/{}/io", recording.id())).expect("alive");
        let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("bytes");
        line.parse::<u64>().expect("a number")
    };
    let (before, began) = (read(), Instant::now());
    scene.wait_for_trace("it goes on for a while", |trace| trace.kernels_of(pid) > 3000);
    let (times, passed) = ((read() - before) as f64 / maps as f64, began.elapsed());
    println!("the maps were read {times:.1} times in {passed:?}");
    // Every 100 ms is every time that is looked. A look is no quicker than 5 ms.
    assert!(times < 2.0 + passed.as_secs_f64() * 4.0, "{times:.1} times in {passed:?}");
    interrupt(recording).expect(0);
    expect_no_holes(&scene.trace(), &scene.true_dispatches());
    finish_quietly(target);
}

/// What holds a process is told at once, and it gets the shim as soon as it goes on.
#[test]
fn root_held_processes_are_waited_for() {
    /// Goes on when this is dropped.
    struct Stopped(u32);
    impl Drop for Stopped {
        fn drop(&mut self) {
            send_signal(self.0, Signal::CONT);
        }
    }
    let stop = |pid| {
        send_signal(pid, Signal::STOP);
        let status = format!("/proc/{pid}/stat");
        wait_until("it is stopped", || {
            fs::read_to_string(&status).expect("alive").contains(") T ")
        });
        Stopped(pid)
    };
    let kinds = (0..frozen::kinds()).map(Some);
    for kind in kinds.chain([None]) {
        let scene = Scene::default();
        let target = Running::start(scene.command(app("loop")).args(["0", "1", "1000"]));
        let word = if kind.is_some() { "is frozen" } else { "is stopped" };
        let held: Box<dyn Any> = match kind {
            Some(kind) => Box::new(Frozen::new(target.pid(), kind)),
            None => Box::new(stop(target.pid())),
        };
        // For as long as it was to be recorded, and no longer.
        let pid = format!("-p{}", target.pid());
        let ran = run(&mut scene.record(&[&pid, "-d", "0.2"])).expect(3);
        ran.complains(&["no GPU times until it goes on", word]);
        fs::remove_file(scene.trace_path()).expect("a trace");

        let recording = Running::spawn(&mut scene.record(&[&pid, "--gpu", "inject"]));
        scene.wait_for_trace("it says so", |trace| {
            trace.tables().notices.iter().any(|notice| notice.contains(word))
        });
        drop(held);
        scene.wait_for_a_kernel_of(target.pid());
        send_signal(recording.pid(), Signal::INT);
        recording.ended().expect(0).complains(&["GPU times: HSA tables patched"]);
        target.end().expect(0);
    }
}

#[test]
fn root_attach_sees_every_kernel_with_its_call() {
    for (threads, rate) in [("1", "0"), ("2", "2000"), ("4", "0"), ("4", "500")] {
        let scene = Scene::default();
        let target = Running::start(scene.command(app("loop")).args(["0", threads, rate]));
        let pid = target.pid();
        let trace = record(&scene, pid, &[], 2000);
        finish_quietly(target);
        expect_no_holes(&trace, &scene.true_dispatches());
        expect_joined(&trace, pid);
        let tier = &trace.tables().processes[&pid].gpu_tier;
        assert_eq!(tier, "HSA tables patched in the running process");
    }
}

/// The shim's thread stops and does not see that the recording ends: what others write behind the end is left
/// out.
#[test]
fn root_attach_ends_while_the_shims_thread_is_stopped() {
    let scene = Scene::default();
    let target = Running::ringing(&scene);
    let pid = target.pid();
    let recording =
        Running::spawn(scene.record(&["--api", "hsa", "-p", &pid.to_string()]).args(LARGE_RINGS));
    scene.wait_for_a_kernel_of(pid);
    let stopped = StoppedThread::named(pid, &THREAD_NAME.to_string_lossy());
    let before = scene.true_dispatches().len();
    scene.wait_for_dispatches(before + 100);
    send_signal(recording.pid(), Signal::INT);
    recording.ended().expect(0);
    drop(stopped);
    finish(target);
    let trace = scene.trace();
    expect_no_holes(&trace, &scene.true_dispatches());
    expect_doorbells_joined(&trace, pid);
    let ended_ns = trace.tables().processes[&pid].detached_ns;
    let later = trace.dispatches.iter().filter(|d| d.enqueue_ns > ended_ns).count();
    assert_eq!(later, 0, "of {} kernels", trace.dispatches.len());
}

/// How many of a process's mapped files are memories that it shares with roctap.
fn shared_memories(files: &[String]) -> usize {
    files.iter().filter(|file| file.contains("memfd:roctap-shim")).count()
}

#[test]
fn root_attach_again_and_again() {
    let scene = Scene::default();
    // Without the ground truth: a stress test of minutes would fill a disk with it.
    let mut command = scene.command(app("loop"));
    let target = Running::start(command.args(["0", "8"]).env_remove("EMUGPU_LOG"));
    let pid = target.pid();
    let before = census(pid);
    record(&scene, pid, &[], 2000);
    let left = (before.0, before.1.len() + 1, 0);
    wait_for("one thread stays, no descriptor, and no shared memory", &left, || {
        let now = census(pid);
        (now.0, now.1.len(), shared_memories(&now.2))
    });
    let dormant = census(pid);
    let added: Vec<&String> = dormant.1.iter().filter(|name| name.starts_with("roctap")).collect();
    assert_eq!(added.len(), 1, "it is ours: {:?}", dormant.1);
    for _ in 0..times(10) {
        let trace = record(&scene, pid, &[], 2000);
        expect_joined(&trace, pid);
        wait_for("no more stays than after the first time", &dormant, || census(pid));
    }
    finish(target);
}

#[test]
fn root_attach_to_fresh_processes() {
    let scene = Scene::default();
    for _ in 0..times(5) {
        let target = Running::start(scene.command(app("loop")).args(["0", "2"]));
        record(&scene, target.pid(), &[], 1);
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
    // What the last one asked for comes to its end: until then another one is told that it is recorded.
    let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
    wait_until("nobody attaches to it", || {
        let is_attaching = census(target.pid()).1.iter().any(|name| name.trim() == "roctap-attach");
        !is_attaching && status().contains("TracerPid:\t0\n")
    });
    let trace = record(&scene, target.pid(), &[], 1000);
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
    let mut record = scene.record(&[&options[0], "-p4000000", &options[1]]);
    let ran = scene.record_kernels(&mut record, &pids, 1).expect(3);
    ran.complains(&["process 4000000", "no such process"]);
    let trace = scene.trace();
    for pid in pids {
        assert!(trace.kernels_of(pid) > 0, "process {pid}");
    }
    finish(first);
    finish(second);
}

/// A process that fills a ring of the default size before all the others have their shims. Where a machine
/// keeps the reader waiting, what did not fit is counted.
#[test]
fn root_attach_to_many_reads_the_first_meanwhile() {
    let (scene, others) = (Scene::default(), [(); 6].map(|()| Scene::default()));
    let idle = others
        .each_ref()
        .map(|other| Running::start(other.command(app("loop")).args(["0", "1", "10"])));
    let busy = Running::ringing(&scene);
    let mut record = scene.record(&["--api", "hsa"]);
    let pids: Vec<u32> = [&busy].into_iter().chain(&idle).map(Running::pid).collect();
    record.args(pids.iter().map(|pid| format!("-p{pid}")));
    scene.record_kernels(&mut record, &pids, 1).expect(0);
    let trace = scene.trace().only(busy.pid());
    expect_no_holes(&trace, &scene.true_dispatches());
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
        scene.wait_for_trace("it is recorded", |trace| {
            let of_it = |call: &&ApiCall| call.record.process_or_device == pid;
            let hsa = |call: &ApiCall| trace.function(call).starts_with("hsa_");
            trace.kernels_of(pid) > 0 && trace.calls.iter().filter(of_it).any(hsa)
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
    let target = Running::spawn(scene.command(app("hsa_direct")).args(["p", "1000000000"]));
    scene.wait_for_dispatches(1000);
    let trace = record(&scene, target.pid(), &["--api", "hsa"], 1000);
    finish(target);
    expect_no_holes(&trace, &scene.true_dispatches());
}

/// What the shim calls of HIP and of the HSA runtime, to find its way about, is not the program's.
#[test]
fn root_attach_leaves_out_what_the_shim_calls() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("loop")).args(["0", "2", "1000"]));
    for round in ["first", "again"] {
        // What records HSA calls goes on when the shim is there.
        let later_calls = |trace: &Recorded| {
            let first = trace.dispatches.iter().map(|d| d.enqueue_ns).min();
            let by_shim = trace.calls.iter().filter(|c| c.record.correlation_id >= FIRST_ID);
            by_shim.filter(|c| first.is_some_and(|first| c.record.begin_ns > first)).count()
        };
        let pid = target.pid().to_string();
        let mut record = scene.record(&["-p", &pid, "--api", "hip,hsa"]);
        let enough = |trace: &Recorded| trace.dispatches.len() > 100 && later_calls(trace) > 100;
        scene.record_until(&mut record, "calls are recorded", enough).expect(0);
        let trace = scene.trace();
        let functions = trace.call_counts();
        let not_called_now = |name: &&String| {
            ["hsa_init", "hsa_shut_down", "hsa_iterate_agents", "hsa_agent_get_info"]
                .contains(&name.as_str())
                || name.starts_with("hsa_executable_")
        };
        let hip: Vec<_> = functions.keys().filter(|name| name.starts_with("hip")).collect();
        assert_eq!(hip, ["hipLaunchKernel", "hipStreamSynchronize"], "{round}");
        assert_eq!(functions.keys().find(not_called_now), None, "{round}: {functions:?}");
    }
    finish(target);
}

#[test]
fn root_attach_by_uprobes_alone_is_marked_partial() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("loop")).args(["0", "1", "1000"]));
    let pid = target.pid();
    let before = census(pid);
    let mut record = scene.record(&["-p", &pid.to_string(), "--gpu", "uprobes"]);
    let ran = scene.record_until(&mut record, "calls are recorded", |t| t.calls.len() > 100);
    ran.expect(0);
    assert_eq!(census(pid), before);
    let trace = scene.trace();
    assert!(trace.tables().processes[&pid].gpu_tier.contains("partial"));
    finish(target);
}

#[test]
fn root_attach_follows_children_and_programs_that_are_executed() {
    let scene = Scene::default();
    let mut shell = scene.command("sh");
    // The first program has nothing of ROCm; its child and what it becomes have. They begin when a line of
    // ours lets them.
    let script = "echo ready; read -r _; \"$0\" 0 1 1000 & exec \"$0\" 0 1 1000";
    shell.args(["-c", script]).arg(app("loop")).stdin(Stdio::piped());
    let mut target = Running::start(&mut shell);
    let recording = scene.record(&["-p", &target.pid().to_string()]).spawn().expect("roctap");
    wait_until("the first program is traced", || scene.trace_so_far().is_some());
    target.child.stdin.take().expect("piped").write_all(b"go\n").expect("it listens");
    let pids =
        |trace: &Recorded| trace.dispatches.iter().map(|d| d.process_id).collect::<BTreeSet<u32>>();
    scene.wait_for_trace("both are recorded", |trace| pids(trace).len() == 2);
    let ran = interrupt(recording).expect(0);
    let seen = pids(&scene.trace());
    assert!(seen.contains(&target.pid()), "{seen:?}: {ran:#?}");
    for child in seen.into_iter().filter(|&pid| pid != target.pid()) {
        send_signal(child, Signal::TERM);
    }
    finish(target);
}

/// Launches of each worker.
const LAUNCHES: u64 = 50;

/// Forked children use the GPU that their parent does not. What is not in the trace of them is told.
#[test]
fn root_attach_to_a_parent_of_forked_workers() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("workers")).args(["0", &LAUNCHES.to_string()]));
    let recording = scene.record(&["-p", &target.pid().to_string()]).spawn().expect("roctap");
    let whole =
        |trace: &Recorded| workers(trace).values().filter(|w| w.kernels == LAUNCHES).count();
    scene.wait_for_trace("workers are recorded", |trace| whole(trace) > 3);
    let ran = interrupt(recording);
    finish(target);
    // On a busy machine one may have ended before its shim was in it, which is told.
    assert!(matches!(ran.code, Some(0 | 3)), "{ran:#?}");
    let trace = scene.trace();
    let mut workers = workers(&trace);
    // The last one was cut off.
    workers.retain({
        let last = workers.values().map(|worker| worker.begin_ns).max();
        move |_, worker| Some(worker.begin_ns) != last
    });
    let notices = &trace.tables().notices;
    let counted: u64 = notices.iter().filter_map(|notice| counted_launches(notice)).sum();
    let missing = workers.values().map(|worker| worker.calls.saturating_sub(worker.kernels));
    assert!(missing.sum::<u64>() <= counted, "{workers:?}: {notices:?}");
    let late = workers.values().any(|worker| worker.calls < LAUNCHES);
    let is_noticed = notices.iter().any(|notice| notice.contains("before they had their probes"));
    assert!(is_noticed || !late, "{workers:?}: {notices:?}");
    let tiers = trace.tables().processes.values().map(|process| &process.gpu_tier);
    // One that ended just then is whole as well.
    let had_shim = |tier: &&String| {
        tier.starts_with("HSA tables") || tier.contains("ended before its shim answered")
    };
    let patched = tiers.clone().filter(had_shim).count();
    assert!(patched > whole(&trace), "{:?}", tiers.collect::<Vec<_>>());
}

/// What is in the trace of a worker.
#[derive(Debug, Default)]
struct Worker {
    begin_ns: u64,
    calls: u64,
    kernels: u64,
}

fn workers(trace: &Recorded) -> BTreeMap<u32, Worker> {
    let mut workers: BTreeMap<u32, Worker> = BTreeMap::new();
    for call in trace.calls.iter().filter(|call| trace.function(call) == "hipLaunchKernel") {
        let worker = workers.entry(call.record.process_or_device).or_default();
        worker.begin_ns = worker.begin_ns.max(call.record.begin_ns);
        worker.calls += 1;
    }
    for dispatch in trace.dispatches.iter().filter(|d| d.record.correlation_id != 0) {
        if trace.kernel(dispatch) == "worker_kernel" {
            workers.entry(dispatch.process_id).or_default().kernels += 1;
        }
    }
    workers
}

/// Of how many launches a notice says that their kernels are not in the trace.
fn counted_launches(notice: &str) -> Option<u64> {
    let words: Vec<&str> = notice.split(' ').collect();
    let pair = words.windows(2).find(|pair| ["kernels", "launches"].contains(&pair[1]))?;
    pair[0].parse().ok()
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
    for options in [["--api", "hip"], ["--api", "hip,hsa"]] {
        let trace = record(&scene, inside, &options, 500);
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
    wait_until("privileges have been given up", || scene.trace_so_far().is_some());
    let mut command = scene.command(app("loop"));
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let target = Running::start(command.env_remove("EMUGPU_LOG").args(["0", "1", "1000"]));
    let pid = target.pid();
    scene.wait_for_a_kernel_of(pid);
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
        let threads = census(pid).1.len();
        record(&scene, pid, &[], 1);
        wait_for("one thread stays, and no shared memory", &(threads + 1, 0), || {
            let now = census(pid);
            (now.1.len(), shared_memories(&now.2))
        });
        let before = (left(), census(pid));
        assert!(before.0 > 0, "the first one stays");
        for _ in 0..times(5) {
            record(&scene, pid, &[], 1);
        }
        wait_for("no more stays", &before, || (left(), census(pid)));
        finish_quietly(target);
    }
}
