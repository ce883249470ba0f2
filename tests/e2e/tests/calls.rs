//! Calls: by the shim through the runtimes' tables, and by probes where there are none, or no shim.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead as _, Write as _},
    process::Stdio,
};

use e2e::{
    LARGE_RINGS, Ran, Recorded, Running, Scene, Signal, app, calls_of_the_runtime,
    compare::expect_joined, is_rocm_6_or_later, only_child, release, run, send_signal, wait_until,
    within_deadline,
};
use roctap::{
    discover::{self, Image, Runtime},
    plan::{Binary, Planner},
};
use tracer_common::{activity::Domain, bpf::flag, calls::FIRST_ID};
use tracer_records::model::ApiCall;

/// Asserts that the trace has as many calls of each function as the program counted. Until the shim is
/// loaded, inside of `hsa_init`, probes also see what the library calls of itself. Later releases have
/// no cheap place for a probe at `hsa_init`.
fn expect_exact_counts(trace: &Recorded, ran: &Ran) {
    let mut traced = trace.call_counts();
    let init = trace.calls.iter().find(|call| trace.function(call) == "hsa_init");
    assert_eq!(init.is_some(), release().is_none());
    let by_shim = trace.calls.iter().filter(|call| call.record.correlation_id >= FIRST_ID);
    let shim_ns = by_shim.map(|call| call.record.begin_ns).min().expect("the shim records");
    let until_ns = init.map_or(shim_ns, |init| init.record.end_ns);
    for call in trace.calls.iter().filter(|call| call.record.domain == Domain::HSA_API) {
        if call.record.correlation_id < FIRST_ID && trace.function(call) != "hsa_init" {
            assert!(call.record.begin_ns < until_ns, "probed and not by the shim: {call:?}");
            *traced.entry(trace.function(call)).or_default() -= 1;
        }
    }
    let is_counted = |name: &str| name.starts_with("hsa") && (name != "hsa_init" || init.is_some());
    for (function, count) in ran.counts().into_iter().filter(|(name, _)| is_counted(name)) {
        let count = count + calls_of_the_runtime(&function);
        assert_eq!(traced.get(&function).copied().unwrap_or(0), count, "{function}");
    }
}

/// Calls by correlation id, which is unique.
fn by_id(trace: &Recorded) -> HashMap<u64, &ApiCall> {
    let calls: HashMap<u64, &ApiCall> =
        trace.calls.iter().map(|call| (call.record.correlation_id, call)).collect();
    assert_eq!(calls.len(), trace.calls.len(), "correlation ids are unique");
    assert!(calls.keys().all(|&id| id != 0 && id < 1 << 53));
    calls
}

#[test]
fn root_calls_of_a_pure_hsa_program_are_those_that_it_made() {
    let scene = Scene::default();
    let ran = scene.record_app(&["--api", "hsa"], "hsa_direct", &[]).expect(0);
    let trace = scene.trace();
    trace.expect_complete();
    expect_exact_counts(&trace, &ran);
    assert!(ran.counts()["hsa_signal_create"] > 200, "a function that no cheap probe reaches");
    trace.expect_dispatches(&scene.true_dispatches(), 1000);
    let calls = by_id(&trace);
    for dispatch in &trace.dispatches {
        let call = calls.get(&dispatch.record.correlation_id).expect("a call");
        assert_eq!(trace.function(call), "hsa_signal_store_screlease");
        assert_eq!(call.record.thread_id, dispatch.record.thread_id);
        // Where threads share a queue, one finds another's packets before that rings for them.
        let within = call.record.begin_ns..=call.record.end_ns;
        let alone = call.record.thread_id == call.record.process_or_device;
        assert!(!alone || within.contains(&dispatch.enqueue_ns), "{dispatch:?} {call:?}");
    }
    for copy in &trace.copies {
        let call = calls.get(&copy.record.correlation_id).expect("a call");
        assert_eq!(trace.function(call), "hsa_amd_memory_async_copy");
    }
    // Functions that call back have a duration, and what their callbacks called is inside.
    let iterate = |call: &&ApiCall| trace.function(call) == "hsa_iterate_agents";
    let outer = trace.calls.iter().find(iterate).expect("recorded");
    assert!(outer.flags & flag::ENTRY_ONLY == 0 && outer.record.end_ns > outer.record.begin_ns);
    let inner = |call: &&ApiCall| call.parent_id == outer.record.correlation_id;
    assert_eq!(trace.calls.iter().filter(inner).count(), 2, "one for each agent");
}

#[test]
fn root_a_process_without_the_shim_has_its_calls_recorded_by_probes() {
    let scene = Scene::default();
    // Not put in late.
    let mut record = scene.record(&["--api", "hsa", "--allow-slow", "--gpu", "tools"]);
    let direct = app("hsa_direct");
    let ran = run(record.args(["--", "env", "-u", "HSA_TOOLS_LIB"]).arg(direct)).expect(0);
    let trace = scene.trace();
    trace.expect_complete();
    assert!(trace.dispatches.is_empty(), "no shim");
    // Not fewer calls than the program made. More, because probes at implementations also see what
    // the library calls of itself.
    let traced = trace.call_counts();
    for (function, count) in ran.counts() {
        assert!(traced.get(&function).copied().unwrap_or(0) >= count, "{function}");
    }
    let iterate = |call: &&ApiCall| trace.function(call) == "hsa_iterate_agents";
    assert!(trace.calls.iter().find(iterate).is_some_and(|c| c.flags & flag::ENTRY_ONLY != 0));
}

#[test]
fn root_what_the_shim_cannot_record_without_itself_is_told() {
    let scene = Scene::default();
    let mut record = scene.record(&["--api", "hsa", "--gpu", "tools"]);
    let direct = app("hsa_direct");
    let ran = run(record.args(["--", "env", "-u", "HSA_TOOLS_LIB"]).arg(direct).arg("s"));
    if is_rocm_6_or_later() {
        ran.expect(3).complains(&["no call of a ROCm library was seen", "--allow-slow"]);
        return;
    }
    ran.expect(0).complains(&["no shim recorded calls of", "--allow-slow"]);
    assert!(!scene.trace().call_counts().contains_key("hsa_signal_create"));
}

/// Names of a runtime's functions that a probe cannot tell apart, by the one that it records them under.
fn aliases(pid: u32, runtime: Runtime) -> BTreeMap<String, String> {
    let libraries = discover::libraries(pid).expect("maps");
    let library = libraries.into_iter().find(|l| l.runtime == runtime).expect("mapped");
    let owned = |name: &str| runtime.owns_symbol(name);
    let image = Image::open(&library.open_path).expect("image");
    let functions = image.functions(owned).expect("symbols");
    // Where the entries point in a process that nobody has redirected.
    let binary = Binary::open(&library.open_path).expect("binary");
    let plans = Planner::for_running_kernel().plan_library(&binary, &functions, None);
    let names = |plan: roctap::plan::FunctionPlan| {
        let to = plan.symbol.clone();
        plan.names().map(|name| (name.to_owned(), to.clone())).collect::<Vec<_>>()
    };
    plans.into_iter().flat_map(names).collect()
}

/// The same calls, recorded by the shim and by probes at the implementations at the same time: each
/// call of the shim's has one of the probes' inside of it, with the same arguments and result.
#[test]
fn root_shim_and_probes_record_the_same_calls() {
    record_both_ways(Runtime::Hsa, &["hsa"], &["hsa_signal_load_relaxed"]);
}

/// The same of HIP.
#[test]
fn root_shim_and_probes_record_the_same_calls_of_hip() {
    if is_rocm_6_or_later() {
        record_both_ways(Runtime::Hip, &["device", "hip"], &["hipGetDevice", "hipGetErrorName"]);
    }
}

/// Has calls of a runtime recorded by both; each of the `requests` makes many of one of the `functions`.
fn record_both_ways(runtime: Runtime, requests: &[&str], functions: &[&str]) {
    let scene = Scene::default();
    let mut record = scene.record(&["--api", "hip,hsa"]);
    record.arg("--").arg(app("bench_target")).stdin(Stdio::piped());
    let mut roctap = Running::start(&mut record);
    let pid = roctap.ready.trim_end().strip_prefix("ready ").and_then(|pid| pid.parse().ok());
    let pid: u32 = pid.expect("a number");
    let mut input = roctap.child.stdin.take().expect("piped");
    let mut answers = (&mut roctap.output).lines();
    let mut ask = |request: &str| {
        writeln!(input, "{request}").expect("alive");
        answers.next().expect("an answer").expect("a line")
    };
    ask("launch 16");
    let aliases = aliases(pid, runtime);
    let probed = scene.path("probed.rtrace");
    let options = ["record", "--api", runtime.name(), "--gpu", "off", "--allow-slow", "-p"];
    let mut second = scene.roctap(&options);
    let second = second.arg(pid.to_string()).arg("-o").arg(&probed).spawn().expect("roctap");
    // What is written is written after all probes are in place.
    let mut since_ns = 0;
    wait_until("the probes record", || {
        for request in requests {
            ask(&format!("{request} 10"));
        }
        let calls = Recorded::read_so_far(&probed).map(|trace| trace.calls).unwrap_or_default();
        since_ns = calls.iter().map(|call| call.record.begin_ns).max().unwrap_or(0);
        since_ns > 0
    });
    ask("launch 64");
    ask("bare 64");
    for request in requests {
        ask(&format!("{request} 100"));
    }
    // Kernels that the end of the program meets are incomplete.
    ask("wait 1 1 0");
    drop(input);
    let ended: Ran = second.wait_with_output().expect("output").into();
    ended.expect(0);
    roctap.ended().expect(0);
    let (by_shim, by_probes) = (scene.trace(), Recorded::read(&probed));
    by_shim.expect_complete();
    let compared = compare(runtime.domain(), &by_shim, &by_probes, since_ns, &aliases);
    assert!(functions.iter().all(|&function| compared[function] >= 100), "{compared:?}");
    // Those of launches, too.
    assert!(compared.len() > functions.len(), "{compared:?}");
    assert!(compared.values().sum::<usize>() >= 300, "{compared:?}");
}

/// How many calls of each function were compared.
fn compare(
    domain: Domain,
    by_shim: &Recorded,
    by_probes: &Recorded,
    since_ns: u64,
    aliases: &BTreeMap<String, String>,
) -> BTreeMap<String, usize> {
    // What the shim's own hooks do in the place of the program's call, or with other arguments.
    let hooked = |name: &str| {
        let begins = ["hsa_signal_store", "hsa_signal_silent_store", "hsa_signal_wait"];
        begins.iter().any(|begin| name.starts_with(begin))
            || ["hsa_amd_memory_async_copy", "hsa_shut_down"].contains(&name)
    };
    let mut probed: BTreeMap<(u32, String), Vec<&ApiCall>> = BTreeMap::new();
    for call in &by_probes.calls {
        let key = (call.record.thread_id, by_probes.function(call));
        probed.entry(key).or_default().push(call);
    }
    probed.values_mut().for_each(|calls| calls.sort_by_key(|call| call.record.begin_ns));
    let mut compared: BTreeMap<String, usize> = BTreeMap::new();
    for call in &by_shim.calls {
        let name = by_shim.function(call);
        let wanted = call.record.domain == domain;
        if !wanted || call.record.begin_ns < since_ns || hooked(&name) {
            continue;
        }
        let key = (call.record.thread_id, aliases[&name].clone());
        let inside = |other: &&&ApiCall| {
            call.record.begin_ns <= other.record.begin_ns
                && (other.record.end_ns <= call.record.end_ns)
        };
        let found = probed.get(&key).and_then(|calls| {
            let from = calls.partition_point(|c| c.record.begin_ns < call.record.begin_ns);
            calls[from..].first().filter(inside)
        });
        let found = found.unwrap_or_else(|| panic!("{name}: no probe saw {call:?}"));
        let operation = tracer_records::api::by_name(&name).expect("known");
        let shown = |call: &ApiCall| {
            let arguments =
                tracer_records::api::format_args(operation, &call.args, &call.extra, call.flags);
            (arguments, tracer_records::api::format_return(operation, call.ret))
        };
        assert_eq!(shown(call), shown(found), "{name}");
        *compared.entry(name).or_default() += 1;
    }
    compared
}

/// The arguments of each thread's calls of one function are 0, 1, 2, …: none is missing and none there twice, while
/// the shim takes the calls over from probes, and at the end of the recording.
#[test]
fn root_attach_hands_calls_of_hip_over_one_by_one() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("counted")).arg("4"));
    let pid = target.pid();
    let numbers = |trace: &Recorded, by_shim: bool| {
        let mut numbers: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let is_of = |call: &&ApiCall| (call.record.correlation_id >= FIRST_ID) == by_shim;
        let is_counted = |call: &&ApiCall| trace.function(call) == "hipGetErrorName";
        for call in trace.calls.iter().filter(is_of).filter(is_counted) {
            numbers.entry(call.record.thread_id).or_default().push(call.args[0]);
        }
        numbers
    };
    let mut record = scene.record(&["-p", &pid.to_string()]);
    let record = record.args(LARGE_RINGS);
    let ran = scene.record_until(record, "calls and kernels are recorded", |trace| {
        let of_all = numbers(trace, is_rocm_6_or_later());
        trace.kernels_of(pid) > 100
            && of_all.len() == 4
            && of_all.values().all(|numbers| numbers.len() > 1000)
    });
    ran.expect(0);
    target.end().expect(0);
    let trace = scene.trace();
    trace.expect_complete();
    let (by_probes, by_shim) = (numbers(&trace, false), numbers(&trace, true));
    assert_eq!(by_shim.is_empty(), !is_rocm_6_or_later());
    for (thread, mut all) in by_probes {
        all.extend(by_shim.get(&thread).into_iter().flatten());
        all.sort_unstable();
        let first = all[0];
        assert!(all.iter().zip(first..).all(|(&number, expected)| number == expected), "{all:?}");
    }
    expect_joined(&trace, pid);
}

/// Two HIP libraries have tables of their own: calls of both are recorded, each once, whichever of them the shim
/// records. Those of the one that the program loads itself begin when it has its probes, which is told where that was
/// late.
#[test]
fn root_two_hip_libraries_in_one_process() {
    const CALLS: u64 = 10_000;
    const OTHERS: u64 = 100_000;
    let candidates = discover::candidates(app("two_hips").as_os_str());
    let own = candidates.into_iter().find(|l| l.runtime == Runtime::Hip).expect("HIP");
    for when in ["first", "second"] {
        let scene = Scene::default();
        let copy = scene.path("libamdhip64-0a1b2c3d.so.6");
        std::fs::copy(&own.open_path, &copy).expect("a copy");
        let arguments = [copy.to_str().expect("text"), &CALLS.to_string(), when];
        let ran = scene.record_app(&LARGE_RINGS, "two_hips", &arguments).expect(0);
        assert!(ran.stdout.contains("result ok"), "{ran:#?}");
        let trace = scene.trace();
        trace.expect_complete();
        let is_whole = |call: &&ApiCall| call.record.begin_ns != 0;
        let calls = trace.calls.iter().filter(is_whole);
        let calls = calls.filter(|call| trace.function(call) == "hipGetErrorName");
        let mut numbers: Vec<u64> = calls.clone().map(|call| call.args[0]).collect();
        numbers.sort_unstable();
        let of_other = numbers.split_off(numbers.partition_point(|&number| number < OTHERS));
        assert!(numbers.into_iter().eq(0..CALLS), "{when}: {ran:#?}");
        let was_late = ran.stderr.contains("libamdhip64-0a1b2c3d.so.6 was found up to");
        let end = OTHERS + CALLS;
        let from = if was_late { of_other.first().copied().unwrap_or(end) } else { OTHERS };
        assert!(of_other.into_iter().eq(from..end), "{when}: {ran:#?}");
        let by_shim = calls.filter(|call| call.record.correlation_id >= FIRST_ID);
        let of_own = by_shim.clone().filter(|call| call.args[0] < OTHERS).count() as u64;
        let is_taken = is_rocm_6_or_later() && when == "second";
        assert_eq!(of_own, if is_taken { CALLS } else { 0 }, "{when}");
        assert_eq!(by_shim.count() as u64, of_own, "{when}: the other's");
        if is_rocm_6_or_later() {
            ran.complains(&["no shim recorded calls of", "--allow-slow"]);
        }
    }
}

#[test]
fn root_hsa_calls_are_inside_of_their_hip_calls() {
    let scene = Scene::default();
    let options = [&["--api", "hip,hsa"][..], &LARGE_RINGS].concat();
    let ran = scene.record_app(&options, "storm", &["4", "4", "2000"]).expect(0);
    let trace = scene.trace();
    trace.expect_complete();
    trace.expect_counts(&ran);
    trace.expect_dispatches(&scene.true_dispatches(), 1000);
    let all = by_id(&trace);
    for dispatch in trace.dispatches.iter().filter(|d| trace.kernel(d).starts_with("storm")) {
        let call = all.get(&dispatch.record.correlation_id).expect("a call");
        assert_eq!(trace.function(call), "hipLaunchKernel");
    }
    // Whether a HIP call is around an HSA call can also be told by time.
    let mut hip: BTreeMap<u32, Vec<&ApiCall>> = BTreeMap::new();
    for call in trace.calls.iter().filter(|c| c.record.domain == Domain::HIP_API) {
        hip.entry(call.record.thread_id).or_default().push(call);
    }
    hip.values_mut().for_each(|calls| calls.sort_by_key(|call| call.record.begin_ns));
    let mut inside = 0;
    for call in trace.calls.iter().filter(|c| c.record.domain == Domain::HSA_API) {
        let contains = |outer: &&&ApiCall| {
            outer.record.begin_ns <= call.record.begin_ns
                && call.record.end_ns <= outer.record.end_ns
        };
        let calls = hip.get(&call.record.thread_id).map_or(&[][..], Vec::as_slice);
        let before = calls.partition_point(|c| c.record.begin_ns <= call.record.begin_ns);
        // HIP calls nest a few deep at most.
        let expected = calls[before.saturating_sub(8)..before].iter().rev().find(contains);
        let expected = expected.map_or(0, |outer| outer.record.correlation_id);
        let mut parent = call.parent_id;
        let is_hsa = |call: &&&ApiCall| call.record.domain == Domain::HSA_API;
        while let Some(outer) = all.get(&parent).filter(is_hsa) {
            parent = outer.parent_id;
        }
        assert_eq!(parent, expected, "{} {call:?}", trace.function(call));
        inside += u64::from(expected != 0);
    }
    assert!(inside >= ran.launches().values().sum(), "a doorbell for each launch: {inside}");
}

#[test]
fn root_calls_that_the_compiler_makes_are_recorded_where_asked_for() {
    for (api, with_hip, with_compiler) in
        [("hip", true, false), ("hip-compiler", false, true), ("hip,hip-compiler", true, true)]
    {
        let scene = Scene::default();
        let ran = scene.record_app(&["--api", api], "storm", &["2", "2", "500"]).expect(0);
        let trace = scene.trace();
        trace.expect_complete();
        trace.expect_dispatches(&scene.true_dispatches(), 1000);
        let mut made = ran.by_compiler();
        assert_eq!(made["__hipPushCallConfiguration"], ran.launches().values().sum::<u64>());
        if !with_compiler {
            made.clear();
        }
        let mut traced = trace.call_counts();
        assert_eq!(traced.keys().any(|function| function.starts_with("hip")), with_hip, "{api}");
        // Programs do not count the registration of their code, and the end of it.
        traced.retain(|function, _| function.ends_with("CallConfiguration"));
        assert_eq!(traced, made, "{api}");
        let registers = |call| trace.function(call) == "__hipRegisterFatBinary";
        // It has no cheap place from HIP 6 on.
        let is_probed = !is_rocm_6_or_later();
        assert_eq!(trace.calls.iter().any(registers), with_compiler && is_probed, "{api}");
    }
}

#[test]
fn root_full_rings_lose_calls_that_they_count() {
    let scene = Scene::default();
    let options = ["--api", "hsa", "--shim-ring-bytes", "4096"];
    let ran = scene.record_app(&options, "hsa_direct", &["s", "3000"]).expect(0);
    let trace = scene.trace();
    let lost = trace.losses();
    let dropped =
        lost.get("calls through tables: the calling thread's ring full").copied().unwrap_or(0);
    assert!(dropped > 0, "{lost:?}");
    let made: u64 = ran.counts().values().sum();
    let functions = ran.counts();
    let traced = trace.call_counts();
    let seen: u64 = functions.keys().filter_map(|name| traced.get(name)).sum();
    // Some of what is lost is of functions that the program does not count: a handful of calls.
    assert!(made - seen <= dropped && dropped <= made - seen + 16, "{made} {seen} {dropped}");
}

#[test]
fn root_exceptions_pass_through_recorded_functions() {
    let scene = Scene::default();
    let ran = scene.record_app(&["--api", "hip,hsa"], "throwing", &[]).expect(0);
    let trace = scene.trace();
    trace.expect_complete();
    expect_exact_counts(&trace, &ran);
    let thrown = ran.stdout.lines().filter(|line| line.starts_with("caught ")).count();
    let left = trace.calls.iter().filter(|call| call.flags & flag::ENTRY_ONLY != 0);
    assert_eq!(left.clone().count(), thrown, "calls without a return");
    assert!(thrown >= 12);
    for call in left {
        assert_eq!((call.record.end_ns, call.ret), (0, 0));
    }
}

#[test]
fn root_exceptions_pass_through_probed_functions() {
    let scene = Scene::default();
    let ran = scene.record_app(&["--api", "hip,hsa", "--gpu", "off"], "throwing", &[]);
    assert!(ran.stdout.contains("result ok"), "{ran:#?}");
    if is_rocm_6_or_later() {
        ran.expect(3).complains(&["no call of a ROCm library was seen"]);
        return;
    }
    ran.expect(0);
    scene.trace().expect_complete();
}

/// The place of the second thread's open calls is the first one's, too, and becomes free in the middle of one.
#[test]
fn root_a_call_in_which_another_thread_ends_is_recorded() {
    let scene = Scene::default();
    scene.record_app(&["--api", "hip,hsa", "--gpu", "off"], "neighbours", &[]).expect(0);
    let trace = scene.trace();
    trace.expect_complete();
    let frees = trace.calls.iter().filter(|call| trace.function(call) == "hipFree");
    let frees: Vec<_> = frees.map(|call| call.record).collect();
    assert!(frees.len() == 1 && frees[0].end_ns > frees[0].begin_ns, "{frees:?}");
}

#[test]
fn root_calls_that_are_open_at_the_end_are_marked() {
    let open = |trace: &Recorded| {
        let waits = |c: &&ApiCall| trace.function(c) == "hsa_signal_wait_scacquire";
        let calls: Vec<ApiCall> = trace.calls.iter().filter(waits).copied().collect();
        let others = calls_of_the_runtime("hsa_signal_wait_scacquire") as usize;
        assert_eq!(calls.len(), 1 + others, "{calls:?}");
        let last = calls.last().expect("one");
        assert_ne!(last.flags & flag::OPEN_AT_END, 0, "{calls:?}");
        assert_eq!(last.args[3] / 1_000_000, 600_000, "its timeout");
        assert!(last.record.begin_ns > 0 && last.record.end_ns == 0);
    };
    // Recording ends while the call goes on, or the process is killed in the middle of it.
    for killed in [false, true] {
        let scene = Scene::default();
        let mut recording =
            Running::spawn(&mut scene.recording(&["--api", "hsa"], "hsa_direct", &["w", "600000"]));
        let mut said = String::new();
        let pid = recording.pid();
        within_deadline(pid, || recording.output.read_line(&mut said)).expect("output");
        assert_eq!(said, "waiting\n");
        let target = only_child(pid);
        let stat = format!("/proc/{target}/stat");
        wait_until("it sleeps in the call", || {
            std::fs::read_to_string(&stat).expect("it lives").contains(") S ")
        });
        scene.wait_for_trace("the calls before it are written", |trace| {
            trace.call_counts().contains_key("hsa_amd_profiling_set_profiler_enabled")
        });
        let (ends, by) = if killed { (target, Signal::KILL) } else { (pid, Signal::INT) };
        send_signal(ends, by);
        // The program has our standard output, which ends with it.
        let status = within_deadline(pid, || recording.child.wait()).expect("status");
        assert_eq!(status.code(), Some(0));
        open(&scene.trace());
        if !killed {
            send_signal(target, Signal::KILL);
        }
    }
}

#[test]
fn root_included_functions_alone_are_recorded() {
    let scene = Scene::default();
    let options = ["--api", "hsa", "--include", "hsa_signal_*", "--exclude", "*_destroy"];
    let ran = scene.record_app(&options, "hsa_direct", &["s", "50"]).expect(0);
    let trace = scene.trace();
    trace.expect_complete();
    let wanted = |name: &String| name.starts_with("hsa_signal_") && !name.ends_with("_destroy");
    let mut expected = ran.counts();
    expected.retain(|name, _| wanted(name));
    expected.iter_mut().for_each(|(name, count)| *count += calls_of_the_runtime(name));
    assert_eq!(trace.call_counts(), expected);
}
