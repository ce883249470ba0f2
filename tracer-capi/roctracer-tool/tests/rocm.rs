//! The tool in real programs, on the emulated GPU: what it writes is what they say that they did, and what the
//! GPU says that it did.
//!
//! Every test is named `rocm_…`. Where `cargo xtask test` has not built the programs they have nothing to run, and
//! say so. On another release of ROCm, whose root is not this machine's, `ROCTAP_TEST_INSIDE` runs them there.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use capi_build::layouts::Language;
use capi_build::{FILE_PLUGIN, ROCTRACER, TOOL};
use regex::{Captures, Regex};

use common::{LOADERS, Outcome, Scene, scene};

const HIP_CALLS: &str = "hip_api_trace.txt";
const HSA_CALLS: &str = "hsa_api_trace.txt";
const WORK: &str = "hcc_ops_trace.txt";
const COPIES: &str = "async_copy_trace.txt";
const MARKS: &str = "roctx_trace.txt";

/// Programs that use HIP, and what they are told.
const PROGRAMS: [(&str, &[&str]); 5] = [
    ("basic", &[]),
    ("copies", &["512"]),
    ("graph", &["20"]),
    ("module", &[]),
    ("storm", &["8", "4", "300"]),
];

/// The regular expressions of rocprof's `tblextr.py`.
struct Reader {
    call: Regex,
    id: Regex,
    kernel: Regex,
    arguments: Regex,
    work: Regex,
    label: Regex,
    copy: Regex,
    mark: Regex,
    agent: Regex,
    time: Regex,
}

static READER: LazyLock<Reader> = LazyLock::new(|| {
    let of = |expression| Regex::new(expression).expect("an expression");
    Reader {
        call: of(r"^(\d+):(\d+) (\d+):(\d+) ([^\(]+)(\(.*)$"),
        id: of(r" :(\d*)$"),
        kernel: of(r"\s+kernel=(.*)$"),
        arguments: of(r"^(\d+:\d+ \d+:\d+ \w+)\(\s*(.*)\)$"),
        work: of(r"^(\d+):(\d+) (\d+):(\d+) (.*)$"),
        label: of(r"^([^:]+):(\d+):(\d+)$"),
        copy: of(r"^(\d+):(\d+) (async-copy):(\d+):(\d+)$"),
        mark: of(r#"^(\d+) (\d+):(\d+) (\d+):(\d+):"(.*)"$"#),
        agent: of("^(0x[0-9a-fA-F]+) agent (cpu|gpu)$"),
        time: of(r"^\d+$"),
    }
});

/// Whether they take the line of a file.
fn is_taken(file: &str, line: &str) -> bool {
    let reader = &*READER;
    match file {
        HIP_CALLS | HSA_CALLS => {
            // Without its id and its kernel a call of HIP ends in its arguments.
            let bare = reader.id.replace(line, "").into_owned();
            let bare = reader.kernel.replace(&bare, "");
            reader.call.is_match(line)
                && reader.id.is_match(line)
                && (file == HSA_CALLS || reader.arguments.is_match(&bare))
        }
        WORK => {
            let found = reader.work.captures(line);
            found.is_some_and(|found| reader.label.is_match(&found[5]))
        }
        COPIES => reader.copy.is_match(line),
        MARKS => reader.mark.is_match(line),
        "hsa_handles.txt" => reader.agent.is_match(line),
        "begin_ts_file.txt" => reader.time.is_match(line),
        _ => false,
    }
}

fn expect_taken(outcome: &Outcome) {
    for (file, lines) in &outcome.files {
        for line in lines {
            assert!(is_taken(file, line), "{file}: {line}");
        }
    }
}

fn counted<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, u64> {
    let mut counts = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    counts
}

/// The kernels of the program that the GPU ran. By others HIP and the runtime copy and fill.
fn true_kernels(outcome: &Outcome) -> BTreeMap<&str, u64> {
    const OF_THE_RUNTIME: [&str; 3] = ["CopyAligned", "CopyMisaligned", "Fill"];
    let dispatches = outcome.truth.iter().filter(|operation| operation.kind == "dispatch");
    let names = dispatches.map(|operation| &*operation.name);
    counted(
        names.filter(|name| !OF_THE_RUNTIME.contains(name) && !name.starts_with("__amd_rocclr_")),
    )
}

/// The same as the tool has written them, by their bare names.
fn written_kernels(outcome: &Outcome) -> BTreeMap<&str, u64> {
    let labels =
        outcome.lines(WORK).iter().map(|line| line.splitn(3, ' ').nth(2).expect("a label"));
    let names = labels.map(|label| label.split(':').next().expect("a name"));
    let is_command = |name: &&str| {
        ["Copy", "FillBuffer", "Marker"].iter().any(|command| name.starts_with(command))
    };
    counted(names.filter(|name| !is_command(name)))
}

/// The bare name of a symbol.
fn bare(counts: &BTreeMap<&str, u64>) -> BTreeMap<String, u64> {
    let mut bare = BTreeMap::new();
    for (symbol, count) in counts {
        let name = tracer_records::demangle::demangle(symbol).unwrap_or_else(|| (*symbol).into());
        let name = tracer_text::names::operation_name(&name);
        *bare.entry(name).or_default() += count;
    }
    bare
}

fn expect_kernels(outcome: &Outcome) -> u64 {
    let truth = bare(&true_kernels(outcome));
    let written = bare(&written_kernels(outcome));
    assert_eq!(written, truth);
    truth.values().sum()
}

/// Nobody warned of anything, and the program did what it does.
fn expect_undisturbed(outcome: &Outcome) {
    assert_eq!(outcome.warned, [""; 0]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.said);
    assert!(outcome.said.contains("result ok"), "{}", outcome.said);
}

#[test]
fn rocm_programs_that_use_hip() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        for (program, arguments) in PROGRAMS {
            let mut command = scene.command(loader, &scene.app(program));
            let outcome = scene.run(command.args(arguments).env("ROCTRACER_DOMAIN", "hip"));
            expect_undisturbed(&outcome);
            expect_taken(&outcome);
            // Its copies and fills are no kernels of its own.
            assert_eq!(expect_kernels(&outcome) > 0, program != "copies");
            let calls = outcome.calls(HIP_CALLS);
            for (function, count) in outcome.counts("count") {
                if function.contains("hip") {
                    assert_eq!(calls.get(&function).copied().unwrap_or(0), count, "{function}");
                }
            }
            let banner = outcome.said.lines().collect::<Vec<_>>();
            assert!(
                banner[0].starts_with("ROCtracer (") && banner[0].ends_with("):"),
                "{banner:?}"
            );
            assert_eq!(banner[1], "    HIP-trace(*)");
            let agents = outcome.lines("hsa_handles.txt");
            for kind in ["cpu", "gpu"] {
                assert!(agents.iter().any(|line| line.ends_with(kind)), "{agents:?}");
            }
            assert_eq!(outcome.lines("begin_ts_file.txt").len(), 1);
            assert!(!outcome.files.contains_key(HSA_CALLS) && !outcome.files.contains_key(COPIES));
        }
    }
}

/// As AMD's scripts load it: the library as well.
#[test]
fn rocm_the_library_is_a_tool_too() {
    let Some(scene) = scene() else { return };
    let mut both = scene.installed(&ROCTRACER).into_os_string();
    both.push(" ");
    both.push(scene.installed(&TOOL));
    let mut command = scene.command("HSA_TOOLS_LIB", &scene.app("basic"));
    let outcome = scene.run(command.env("HSA_TOOLS_LIB", both).env("ROCTRACER_DOMAIN", "sys"));
    expect_undisturbed(&outcome);
    expect_taken(&outcome);
    assert!(expect_kernels(&outcome) > 0);
}

/// Arguments are what the program gave, and what HIP gave back; a launch names its kernel.
#[test]
fn rocm_arguments_of_hip() {
    let Some(scene) = scene() else { return };
    let mut command = scene.command("HSA_TOOLS_LIB", &scene.app("basic"));
    let outcome = scene.run(command.env("ROCTRACER_DOMAIN", "hip"));
    let find = |expression: &str| {
        let expression = Regex::new(expression).expect("one");
        outcome.lines(HIP_CALLS).iter().find_map(|line| expression.captures(line))
    };
    let allocated = find(r" hipMalloc\(ptr=(0x[0-9a-f]+), size=\d+\) :\d+$").expect("hipMalloc");
    let freed = format!(r" hipFree\(ptr={}\) :\d+$", &allocated[1]);
    assert!(find(&freed).is_some(), "{freed}: {:#?}", outcome.lines(HIP_CALLS));
    let launch = r" hipLaunchKernel\(function_address=0x[0-9a-f]+, numBlocks=\{\d+,\d+,\d+\}, \
        dimBlocks=\{\d+,\d+,\d+\}, args=0x[0-9a-f]+, sharedMemBytes=\d+, stream=(0|0x[0-9a-f]+)\) \
        kernel=add_one :\d+$";
    let launch = launch.replace("\\\n", "").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(find(&launch).is_some(), "{launch}: {:#?}", outcome.lines(HIP_CALLS));
    assert!(
        find(r" hipMemcpy\(dst=0x[0-9a-f]+, src=0x[0-9a-f]+, sizeBytes=\d+, kind=[12]\)").is_some()
    );
    for (truncated, begins) in [("1", "long_name :"), ("0", "void long_name<")] {
        let mut command = scene.command("HSA_TOOLS_LIB", &scene.app("long_names"));
        let environment = [("ROCTRACER_DOMAIN", "hip"), ("ROCP_TRUNCATE_NAMES", truncated)];
        let outcome = scene.run(command.envs(environment));
        let launches = outcome.lines(HIP_CALLS).iter().filter(|line| line.contains(" kernel="));
        let names = launches.map(|line| line.split(" kernel=").nth(1).expect("a name"));
        assert_eq!(names.clone().count(), 3 + 5 + 7);
        names.for_each(|name| assert!(name.starts_with(begins), "{name}"));
    }
}

/// The functions that the runtime calls itself while it freezes an executable, from ROCm 6 on: it copies code then.
fn of_freezes(lines: &[String]) -> Vec<String> {
    let calls: Vec<_> = lines.iter().filter_map(|line| READER.call.captures(line)).collect();
    let time = |call: &Captures<'_>, at: usize| call[at].parse::<u64>().expect("a time");
    let is_freeze = |call: &&Captures<'_>| &call[5] == "hsa_executable_freeze";
    let is_inside = |call: &&Captures<'_>| {
        calls.iter().filter(is_freeze).any(|freeze| {
            freeze[4] == call[4]
                && time(freeze, 1) < time(call, 1)
                && time(call, 2) <= time(freeze, 2)
        })
    };
    calls.iter().filter(is_inside).map(|call| call[5].to_owned()).collect()
}

#[test]
fn rocm_programs_that_use_hsa() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        let mut command = scene.command(loader, &scene.app("hsa_direct"));
        let outcome = scene.run(command.env("ROCTRACER_DOMAIN", "hsa"));
        expect_undisturbed(&outcome);
        expect_taken(&outcome);
        let mut calls = outcome.calls(HSA_CALLS);
        for function in of_freezes(outcome.lines(HSA_CALLS)) {
            *calls.get_mut(&function).expect("a call") -= 1;
        }
        let mut compared = 0;
        for (function, count) in outcome.counts("count") {
            // It makes the tables through which calls pass.
            if function.starts_with("hsa_") && function != "hsa_init" {
                assert_eq!(calls.get(&function).copied().unwrap_or(0), count, "{function}");
                compared += 1;
            }
        }
        assert!(compared > 5);
        let copies = outcome.truth.iter().filter(|operation| operation.kind == "copy").count();
        assert_eq!(outcome.lines(COPIES).len(), copies);
        assert!(copies > 0 && !outcome.files.contains_key(WORK));
        assert!(outcome.said.contains("    HSA-trace(*)\n    HSA-activity-trace()\n"));
    }
}

/// Of HIP and HSA at once, the calls of both are written, and HIP's work; of copies there is no second word.
#[test]
fn rocm_everything_at_once() {
    let Some(scene) = scene() else { return };
    let mut command = scene.command("LD_PRELOAD", &scene.app("copies"));
    let outcome = scene.run(command.arg("512").env("ROCTRACER_DOMAIN", "sys:roctx"));
    expect_undisturbed(&outcome);
    expect_taken(&outcome);
    expect_kernels(&outcome);
    assert!(!outcome.lines(HSA_CALLS).is_empty() && !outcome.lines(HIP_CALLS).is_empty());
    assert!(outcome.said.contains("    rocTX-trace()\n"));
}

/// Nothing is lost by small buffers, by flushes all the time, by rates.
#[test]
fn rocm_nothing_is_lost() {
    let Some(scene) = scene() else { return };
    for environment in [
        [("ROCTRACER_BUFFER_SIZE", "640"), ("ROCP_FLUSH_RATE", "4294967295")],
        [("ROCTRACER_BUFFER_SIZE", "4096"), ("ROCP_FLUSH_RATE", "500")],
        [("ROCTRACER_BUFFER_SIZE", "2097152"), ("ROCP_CTRL_RATE", "0:1000000:1000000")],
    ] {
        let mut command = scene.command("LD_PRELOAD", &scene.app("storm"));
        command.args(["8", "4", "500"]).envs(environment).env("ROCTRACER_DOMAIN", "hip");
        let outcome = scene.run(&mut command);
        expect_undisturbed(&outcome);
        if environment[1].0 == "ROCP_FLUSH_RATE" {
            assert!(expect_kernels(&outcome) >= 4000);
            assert!(outcome.said.contains("ROCtracer: trace control flush rate("));
        } else {
            assert!(written_kernels(&outcome).values().sum::<u64>() > 0);
            let line = "ROCtracer: trace control: delay(0us), length(1000000us), rate(1000000us)\n";
            assert!(outcome.said.contains(line), "{}", outcome.said);
        }
    }
    let mut command = scene.command("LD_PRELOAD", &scene.app("storm"));
    command.env("ROCP_CTRL_RATE", "4294967295:1:1").env("ROCTRACER_DOMAIN", "hip");
    let outcome = scene.run(&mut command);
    expect_undisturbed(&outcome);
    assert!(outcome.said.contains("ROCtracer: trace start disabled\n"));
    assert!(outcome.lines(HIP_CALLS).is_empty() && outcome.lines(WORK).is_empty());
}

/// Work has the id of the call that it was done for, if that is one of those.
#[test]
fn rocm_only_the_functions_that_are_named() {
    let Some(scene) = scene() else { return };
    let input = scene.path("input.xml");
    let traced = |names: &str| {
        let text =
            format!("<trace name=\"HIP\"><parameters api=\"{names}\"></parameters></trace>\n");
        std::fs::write(&input, text).expect("written");
        let mut command = scene.command("HSA_TOOLS_LIB", &scene.app("basic"));
        scene.run(command.env("ROCP_INPUT", &input))
    };
    let outcome = traced("hipFree, hipLaunchKernel, hipNothing");
    let warned = "ROCtracer warning: unable to trace hipNothing: HIP_API has no such function";
    assert_eq!(outcome.warned, [warned]);
    let banner = outcome.said.lines().collect::<Vec<_>>();
    assert!(banner[0].ends_with(&format!("): input from \"{}\"", input.display())), "{banner:?}");
    assert_eq!(banner[1], "    HIP-trace(-* hipFree hipLaunchKernel)");
    let (calls, counts) = (outcome.calls(HIP_CALLS), outcome.counts("count"));
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls.iter().all(|(function, count)| counts[function] == *count), "{calls:?}");
    assert!(expect_kernels(&outcome) > 0);
    assert!(outcome.lines(WORK).iter().all(|line| line.contains(" add_one:")));
    let outcome = traced("hipFree");
    assert!(!outcome.lines(HIP_CALLS).is_empty() && outcome.lines(WORK).is_empty());
}

#[test]
fn rocm_marks_and_ranges() {
    let Some(scene) = scene() else { return };
    let program = scene.compile("marks", Language::C, &["-l:libroctx64.so.4", "-lhsa-runtime64"]);
    for loader in LOADERS {
        let mut command = scene.command(loader, &program);
        command.env("LD_LIBRARY_PATH", scene.libraries()).env("ROCTRACER_DOMAIN", "roctx");
        let outcome = scene.run(&mut command);
        assert_eq!((outcome.code, &*outcome.warned), (Some(0), &[][..]), "{}", outcome.said);
        expect_taken(&outcome);
        let marks: Vec<_> =
            outcome.lines(MARKS).iter().map(|line| line.splitn(3, ' ').nth(2)).collect();
        let marks: Vec<_> = marks.into_iter().map(|mark| mark.expect("a mark")).collect();
        let late = ["1:0:\"inside\"", "2:0:\"\"", "4:1:\"\""];
        let early = ["0:0:\"early\"", "3:1:\"whole\""];
        match loader {
            // It was there before the program.
            "LD_PRELOAD" => assert_eq!(marks, [&early[..], &late[..]].concat()),
            _ => assert_eq!(marks, late),
        }
    }
}

#[test]
fn rocm_standard_output_without_a_directory() {
    let Some(scene) = scene() else { return };
    let mut command = scene.command("HSA_TOOLS_LIB", &scene.app("basic"));
    command.env("ROCTRACER_DOMAIN", "hip").env_remove("ROCP_OUTPUT_DIR");
    let outcome = scene.run(&mut command);
    expect_undisturbed(&outcome);
    assert!(outcome.files.is_empty());
    let expressions =
        [r" hipMalloc\(ptr=0x", r"(?m)^\d+:\d+ \d+:\d+ add_one:\d+:\d+$", " agent gpu"];
    for expression in expressions.map(|of| Regex::new(of).expect("one")) {
        assert!(expression.is_match(&outcome.said), "{expression}");
    }
}

/// However a program ends, it ends as it does without the tool, and what it did is written.
#[test]
fn rocm_ends_of_programs() {
    let Some(scene) = scene() else { return };
    let program = scene.compile("ends", Language::Cpp, &["-lamdhip64"]);
    for mode in ["return", "exit", "fork", "threads", "exception", "bad", "_exit", "exec"] {
        for loader in LOADERS {
            let mut command = scene.command(loader, &program);
            let outcome = scene.run(command.arg(mode).env("ROCTRACER_DOMAIN", "hip"));
            assert_eq!(outcome.warned, [""; 0], "{mode}");
            assert_eq!(outcome.code, Some(3), "{mode}: {}", outcome.said);
            expect_taken(&outcome);
            // What a program does not wait for is not written by anybody.
            if !["_exit", "exec"].contains(&mode) {
                let launched = match mode {
                    "fork" => 40,
                    "exception" => 22,
                    _ => 20,
                };
                assert_eq!(expect_kernels(&outcome), launched, "{mode}");
            }
            if mode == "bad" {
                let calls = outcome.lines(HIP_CALLS);
                assert!(
                    calls.iter().any(|line| line.contains("kname=\"no_such_kernel\"")),
                    "{calls:#?}"
                );
                assert!(calls.iter().any(|line| line.contains("hipMalloc(ptr=0, ")), "{calls:#?}");
            }
        }
    }
}

/// Exceptions that pass through calls, children that execute another program, children that work.
#[test]
fn rocm_programs_that_do_other_things() {
    let Some(scene) = scene() else { return };
    for (program, arguments, domain) in [
        ("throwing", &[][..], "sys:hsa"),
        ("workers", &["2", "50"], "sys"),
        ("long_names", &[], "hip"),
    ] {
        let mut command = scene.command("LD_PRELOAD", &scene.app(program));
        let outcome = scene.run(command.args(arguments).env("ROCTRACER_DOMAIN", domain));
        assert_eq!(outcome.code, Some(0), "{program}: {}", outcome.said);
        assert!(outcome.said.contains("result ok"), "{program}: {}", outcome.said);
        expect_taken(&outcome);
        if program == "workers" {
            // Each of them is traced by itself, and its parent, which uses no GPU, is not.
            assert_eq!(outcome.lines("begin_ts_file.txt").len(), 2);
        }
    }
}

/// Not before the program asks for it, and not after.
#[test]
fn rocm_programs_that_start_tracing_themselves() {
    let Some(scene) = scene() else { return };
    let options = ["-lamdhip64", "-l:libroctracer64.so.4", "-lhsa-runtime64"];
    let program = scene.compile("starts", Language::Cpp, &options);
    for loader in LOADERS {
        let mut command = scene.command(loader, &program);
        command.env("LD_LIBRARY_PATH", scene.libraries()).env("ROCTRACER_DOMAIN", "hip");
        let outcome = scene.run(command.env("ROCP_CTRL_RATE", "4294967295:1:1"));
        assert_eq!((outcome.code, &*outcome.warned), (Some(0), &[][..]), "{}", outcome.said);
        expect_taken(&outcome);
        let calls = outcome.calls(HIP_CALLS);
        let once = ["hipMalloc", "hipMemset"].map(|name| (name.to_owned(), 1));
        assert_eq!(calls, BTreeMap::from(once));
    }
}

/// Runs `loop`, with so many launches a second, until the files that the tool has written are as they should be; `text`
/// gives one.
fn run_until(
    scene: &Scene,
    rate: &str,
    environment: &[(&str, &str)],
    is_enough: impl Fn(&dyn Fn(&str) -> String) -> bool,
) {
    const DEADLINE: Duration = Duration::from_secs(120);
    let out = scene.path("out");
    std::fs::create_dir_all(&out).expect("a directory");
    let mut command = scene.command("HSA_TOOLS_LIB", &scene.app("loop"));
    command.args(["0", "1", rate]).env("ROCTRACER_DOMAIN", "hip").envs(environment.iter().copied());
    let mut program = scene.there(command).stdout(Stdio::null()).spawn().expect("it runs");
    let text = |name: &str| {
        let file = out.join(format!("{}_{name}", program.id()));
        std::fs::read_to_string(file).unwrap_or_default()
    };
    let begin = Instant::now();
    while !is_enough(&text) && begin.elapsed() < DEADLINE {
        std::thread::sleep(Duration::from_millis(5));
    }
    let is_in_time = is_enough(&text);
    program.kill().expect("killed");
    program.wait().expect("it has ended");
    assert!(is_in_time, "not within {DEADLINE:?}");
}

/// Calls are recorded for the length of a period, and no others until the next one.
#[test]
fn rocm_periods_in_which_is_recorded() {
    const PAUSE_NS: u64 = 300_000_000;
    let Some(scene) = scene() else { return };
    let periods = [("ROCP_FLUSH_RATE", "10000"), ("ROCP_CTRL_RATE", "100000:100000:500000")];
    run_until(&scene, "1000", &periods, |text| {
        let calls = text(HIP_CALLS);
        let lines = calls.lines().filter(|line| line.contains(" hipLaunchKernel("));
        let begins = lines.map(|line| line.split(':').next()?.parse::<u64>().ok());
        let begins: Vec<u64> = begins.map(|begin| begin.expect("a time")).collect();
        let pauses = begins.windows(2).filter(|times| times[1] - times[0] > PAUSE_NS).count();
        begins.len() > 10 && pauses >= 3
    });
}

/// With a rate, what was recorded is in the files while the program runs.
#[test]
fn rocm_files_while_a_program_runs() {
    let Some(scene) = scene() else { return };
    run_until(&scene, "100", &[("ROCP_FLUSH_RATE", "1000")], |text| {
        !text(WORK).is_empty() && !text(HIP_CALLS).is_empty()
    });
}

/// A runtime that ends and begins again is traced both times, into the same files.
#[test]
fn rocm_a_runtime_that_begins_again() {
    let Some(scene) = scene() else { return };
    let program = scene.compile("again", Language::C, &["-lhsa-runtime64"]);
    let mut command = scene.command("HSA_TOOLS_LIB", &program);
    let outcome = scene.run(command.env("ROCTRACER_DOMAIN", "hsa"));
    assert_eq!((outcome.code, &*outcome.warned), (Some(0), &[][..]), "{}", outcome.said);
    let calls = outcome.calls(HSA_CALLS);
    assert_eq!((calls["hsa_signal_create"], calls["hsa_signal_destroy"]), (2, 2), "{calls:?}");
}

fn expect_one_warning(scene: &Scene, environment: &[(&str, &Path)], program: &str, says: &str) {
    let mut command = scene.command("HSA_TOOLS_LIB", &scene.app(program));
    command.env("ROCTRACER_DOMAIN", "hip").envs(environment.iter().copied());
    let outcome = scene.run(&mut command);
    assert_eq!(outcome.code, Some(0), "{}", outcome.said);
    assert!(outcome.said.contains("result ok"), "{}", outcome.said);
    let [warned] = outcome.warned.as_slice() else { panic!("{:#?}", outcome.warned) };
    assert!(warned.contains(says), "{warned}");
}

/// Whatever is missing or wrong is said in one line, and the program does what it does.
#[test]
fn rocm_mistakes() {
    let Some(scene) = scene() else { return };
    let path = |name: &'static str| Path::new(name);
    let expect = |environment: &[(&str, &Path)], program: &str, says: &str| {
        expect_one_warning(&scene, environment, program, says);
    };
    let plugin = "ROCTRACER_PLUGIN_LIB";
    expect(&[(plugin, path("libnothing.so"))], "basic", "lib/roctracer/libnothing.so: ");
    // The same goes into a file, for whoever wants that.
    let log = "ROCTRACER_LOG";
    let nothing = scene.path("libnothing.so");
    expect(&[(plugin, &nothing), (log, path("1"))], "basic", "libnothing.so: ");
    let logged = std::fs::read_to_string("/tmp/roctracer_log.txt").expect("a file");
    let line = format!("ROCtracer error: cannot load the plugin {}: ", nothing.display());
    assert!(logged.lines().any(|logged| logged.contains(&line)), "{logged}");
    let roctracer = scene.installed(&ROCTRACER);
    let lacks = "it has no function roctracer_plugin_initialize; nothing is traced";
    expect(&[(plugin, &roctracer)], "basic", lacks);
    let shared = ["-shared", "-fPIC"];
    let refuses = scene.compile("refuses", Language::C, &shared);
    let version = "returned -1; if no line above says why, it may serve another version";
    expect(&[(plugin, &refuses)], "basic", version);
    let domain = "ROCTRACER_DOMAIN";
    expect(
        &[(domain, path(""))],
        "basic",
        "nothing is asked for: ROCTRACER_DOMAIN has none of hip, hsa, sys, roctx",
    );
    expect(
        &[(domain, path("hip,pcs"))],
        "basic",
        "ROCTRACER_DOMAIN: pcs (samples of the program counter) is not",
    );
    expect(
        &[("ROCP_INPUT", path("/nowhere.xml"))],
        "basic",
        "cannot read the file /nowhere.xml that ROCP_INPUT",
    );
    expect(
        &[("ROCP_CTRL_RATE", path("1:2"))],
        "basic",
        "ROCP_CTRL_RATE=\"1:2\" is not delay:length:rate in µs",
    );
    expect(&[], "hsa_direct", "the program has no HIP: no calls and no work of HIP to trace");

    // What the plugin could not write is said once while it goes on, and counted at the end.
    let fails = scene.compile("fails", Language::C, &shared);
    let mut command = scene.command("HSA_TOOLS_LIB", &scene.app("basic"));
    let outcome = scene.run(command.env(domain, "hip").env(plugin, fails));
    assert!(
        outcome.warned[0].ends_with("has returned an error: lines are missing in what it writes"),
        "{:?}",
        outcome.warned
    );
    assert!(
        outcome.warned[1].ends_with(" errors") && outcome.warned.len() == 2,
        "{:?}",
        outcome.warned
    );
    assert!(outcome.said.contains("result ok"));

    // A directory that there is not: why, and what comes of it.
    let mut command = scene.command("HSA_TOOLS_LIB", &scene.app("basic"));
    let outcome = scene.run(command.env(domain, "hip").env("ROCP_OUTPUT_DIR", "/nowhere"));
    let [why, so] = outcome.warned.as_slice() else { panic!("{:?}", outcome.warned) };
    assert!(why.starts_with("ROCtracer warning: cannot create /nowhere/"), "{why}");
    assert!(
        so.starts_with("ROCtracer error: the plugin ") && so.ends_with("nothing is traced"),
        "{so}"
    );
    assert!(outcome.said.contains("result ok"));

    // Two tools at once, which share roctracer's library: a copy of ours is another one.
    let tool = scene.installed(&TOOL);
    let other = tool.with_file_name("libother_tool.so");
    std::fs::copy(&tool, &other).expect("copied");
    let both = format!("{} {}", tool.display(), other.display());
    expect(
        &[("HSA_TOOLS_LIB", Path::new(&both))],
        "basic",
        "another tool uses roctracer in this process",
    );

    // A program without HIP and HSA; one that never uses them.
    for (program, says) in [("plain", 1), ("nogpu", 1)] {
        let mut command = scene.command("LD_PRELOAD", &scene.app(program));
        let outcome = scene.run(command.env(domain, "hip"));
        assert_eq!((outcome.code, outcome.warned.len()), (Some(0), says), "{:?}", outcome.warned);
        assert!(outcome.warned[0].ends_with("there was nothing to trace"), "{:?}", outcome.warned);
        assert!(outcome.files.is_empty() && !outcome.said.contains("ROCtracer"));
    }

    // Last: roctracer's library is gone.
    std::fs::remove_file(&roctracer).expect("removed");
    expect(&[], "basic", "libroctracer64.so.4 cannot be used: libroctracer64.so.4: cannot open");
    std::fs::remove_file(scene.installed(&FILE_PLUGIN)).expect("removed");
}
