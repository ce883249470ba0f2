//! What plugins are fed: each call and each piece of work once, as the text export has it.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use e2e::{Scene, run};
use tracer_common::activity::{Domain, op};
use tracer_records::api;

use crate::{USER, export, file_plugin, lines_of, record, scene, tells};

/// What is said in the text format.
fn text(scene: &Scene) -> String {
    run(scene.roctap(&["export", "-f", "text"]).arg(scene.trace_path())).expect(0).stdout
}

/// Whether roctracer has a number for a function: others are not handed over.
fn is_numbered(op: u32) -> bool {
    /// From here on numbers are roctap's own.
    const OWN: u32 = 1024;
    op < OWN
}

/// The same of the function in a line of the text format.
fn has_number(line: &str) -> bool {
    let function = line.split(['(', ' ']).nth(2).expect("a function");
    api::by_name(function).is_some_and(|function| is_numbered(function.id.into()))
}

/// Lines of the text format without what differs in them: arguments are not written in the same way, results of
/// HIP have a place in ours alone, and `hsa_shut_down` lasts 0 ns for plugins, as it does for AMD's.
fn without_arguments(line: &str) -> String {
    let Some((call, rest)) = line.split_once('(') else { return line.to_owned() };
    let (begin, others) = call.split_once(':').expect("times");
    let (end, function) = others.split_once(' ').expect("a function");
    let end = if function.ends_with(" hsa_shut_down") { begin } else { end };
    let kernel = rest.rsplit_once(" kernel=").map(|(_, kernel)| kernel);
    let id = kernel.or_else(|| rest.rsplit_once(" :").map(|(_, id)| id)).unwrap_or(rest);
    let kernel = if kernel.is_some() { " kernel=" } else { "" };
    format!("{begin}:{end} {function}{kernel} {id}")
}

/// Files of a directory, with their lines.
fn files(directory: &Path) -> BTreeMap<String, Vec<String>> {
    let entries = fs::read_dir(directory).expect("a directory").flatten();
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().expect("a name");
        let text = fs::read_to_string(entry.path()).expect("text");
        (name, text.lines().map(str::to_owned).collect())
    };
    entries.map(read).collect()
}

/// Asserts that our plugin writes the files of the text format, with the same lines in the same order.
fn expect_the_files_of_the_text_format(scene: &Scene, kinds: &[&str]) {
    let (written, fed) = (scene.path("text"), scene.path("plugin"));
    let arguments = ["export", "-f", "text", "-o"];
    run(scene.roctap(&arguments).args([&written, &scene.trace_path()])).expect(0);
    fs::create_dir(&fed).expect("directory");
    std::os::unix::fs::chown(&fed, Some(USER), Some(USER)).expect("chown");
    let mut command = export(scene, &file_plugin(scene));
    let ran = run(command.env("ROCP_OUTPUT_DIR", &fed)).expect(0);
    assert_eq!(ran.stdout, "");
    let (written, mut fed) = (files(&written), files(&fed));
    fed.retain(|name, _| !name.ends_with("_begin_ts_file.txt"));
    assert_eq!(fed.keys().collect::<Vec<_>>(), written.keys().collect::<Vec<_>>());
    for kind in kinds {
        assert!(written.keys().any(|name| name.ends_with(kind)), "no {kind}: {written:?}");
    }
    for (name, lines) in &written {
        let of_calls = name.ends_with("api_trace.txt");
        let shown = |lines: &[String]| -> Vec<String> {
            let numbered = lines.iter().filter(|line| !of_calls || has_number(line));
            let shown = numbered.map(|line| match of_calls {
                true => without_arguments(line),
                false => line.clone(),
            });
            shown.collect()
        };
        assert_eq!(shown(&fed[name]), shown(lines), "{name}");
    }
}

#[test]
fn root_plugins_our_own_writes_what_the_text_export_writes() {
    let scene = scene();
    record(&scene, "hip,hsa,roctx", "ranges", &["3"]);
    expect_the_files_of_the_text_format(
        &scene,
        &["hip_api_trace.txt", "hsa_api_trace.txt", "hcc_ops_trace.txt", "roctx_trace.txt"],
    );
}

#[test]
fn root_plugins_are_told_of_copies() {
    let scene = scene();
    record(&scene, "hip", "copies", &["64"]);
    expect_the_files_of_the_text_format(&scene, &["hip_api_trace.txt", "hcc_ops_trace.txt"]);
}

#[test]
fn root_plugins_are_told_of_the_work_of_hsa_as_by_the_tool() {
    let scene = scene();
    record(&scene, "hsa", "hsa_direct", &[]);
    expect_the_files_of_the_text_format(&scene, &["hsa_api_trace.txt", "async_copy_trace.txt"]);
}

#[test]
fn root_plugins_have_a_process_for_each_traced_one() {
    let scene = scene();
    record(&scene, "hip", "workers", &["3", "10"]);
    expect_the_files_of_the_text_format(&scene, &["hip_api_trace.txt", "hcc_ops_trace.txt"]);
    let processes = files(&scene.path("plugin"));
    assert_eq!(processes.keys().filter(|name| name.ends_with("_hip_api_trace.txt")).count(), 3);
}

#[test]
fn root_plugins_that_are_built_with_hips_header_understand_all_calls() {
    let scene = scene();
    record(&scene, "hip,hip-compiler,hsa,roctx", "ranges", &["3"]);
    let trace = scene.trace();
    let ran = run(&mut export(&scene, &tells(&scene))).expect(0);
    assert_eq!((lines_of(&ran, "begin "), lines_of(&ran, "end").len()), (vec!["4.1"], 1));
    let pid = *trace.tables().processes.keys().next().expect("a process");
    let variable = format!("ROCTAP_TRACED_PROCESS={pid}");
    assert!(lines_of(&ran, "variable ").contains(&&*variable), "{}", ran.stdout);

    // Calls: each once, in their order, with kernels as the linker knows them.
    let calls = lines_of(&ran, "call ");
    let numbered = || trace.calls.iter().filter(|call| is_numbered(call.record.op));
    assert_eq!(calls.len(), numbered().count());
    let left_out = trace.calls.len() - calls.len();
    ran.complains(&[&format!(
        "calls left out, roctracer has no number for their functions: {left_out}"
    )]);
    for (call, line) in numbered().zip(&calls) {
        let record = &call.record;
        let (begin, end) = (record.begin_ns, record.end_ns);
        let head = format!("{} {} ", record.domain.0, record.op);
        assert!(line.starts_with(&head), "{line}: not {record:?}");
        let times = if record.domain == Domain::ROCTX {
            format!(" {begin}:0 {pid}:{} :0 ", record.thread_id)
        } else {
            format!(" {begin}:{end} {pid}:{} :{} ", record.thread_id, record.correlation_id)
        };
        assert!(line.contains(&times), "{line}: not {record:?}");
    }
    let launches: Vec<&&str> = calls.iter().filter(|l| l.contains(" hipLaunchKernel(")).collect();
    assert_eq!(launches.len() as u64, trace.call_counts()["hipLaunchKernel"]);
    for launch in &launches {
        assert!(launch.contains("numBlocks={") && !launch.contains("kernel=\n"), "{launch}");
        let kernel = launch.rsplit_once(" kernel=").expect("a name").1;
        let is_known = |dispatch: &&tracer_records::model::Dispatch| {
            let name = dispatch.record.bytes_or_name as u32;
            trace.tables().strings.get(&name).is_some_and(|name| name == kernel)
        };
        assert!(trace.dispatches.iter().any(|dispatch| is_known(&dispatch)), "{launch}");
    }
    // What `hipMalloc` allocated is what `hipFree` is given.
    let value_of = |function: &str| -> Vec<&str> {
        let beginning = format!(" {function}(ptr=");
        let values = calls.iter().filter_map(|line| line.split_once(&*beginning));
        values.map(|(_, rest)| rest.split([',', ')']).next().expect("a value")).collect()
    };
    let (allocated, freed) = (value_of("hipMalloc"), value_of("hipFree"));
    assert!(!allocated.is_empty() && allocated.iter().all(|at| at.starts_with("0x")), "{calls:?}");
    assert!(
        freed.iter().filter(|at| allocated.contains(at)).count() > 0,
        "{freed:?} {allocated:?}"
    );
    assert!(calls.iter().any(|line| line.starts_with("6 1 ") && line.contains(" 0:outer ")));

    // Work: each once.
    let work = lines_of(&ran, "work ");
    let hip = Domain::HIP_OPS.0;
    let of = |op: u32| work.iter().filter(|line| line.starts_with(&format!("{hip} {op} "))).count();
    assert_eq!(of(op::DISPATCH), trace.dispatches.len());
    assert_eq!(of(op::COPY), trace.copies.len());
    for dispatch in &trace.dispatches {
        let record = &dispatch.record;
        let name = &trace.tables().strings[&(record.bytes_or_name as u32)];
        let line = format!(
            "{hip} 0 {} {}:{} {}:{} :{} {name}",
            record.kind,
            record.begin_ns,
            record.end_ns,
            record.process_or_device,
            record.queue_id,
            record.correlation_id
        );
        assert!(work.contains(&&*line), "no {line}: {work:?}");
    }
    let delivered = calls.len() + left_out + work.len();
    assert_eq!(text(&scene).lines().count(), delivered, "{}", ran.stderr);
}

/// The runtime of this machine, which has the numbers and layouts of the headers.
#[test]
fn root_plugins_that_bring_hip_along_have_its_numbers() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = file_plugin(&scene);
    let lines = |command: &mut Command| -> Vec<String> {
        let ran = run(command).expect(0);
        let lines = ran.stdout.lines().filter(|line| line.contains(':'));
        lines.map(str::to_owned).collect()
    };
    let without = lines(&mut export(&scene, &plugin));
    let with = lines(export(&scene, &plugin).env("LD_PRELOAD", "libamdhip64.so.5"));
    assert!(without.iter().any(|line| line.contains("hipMalloc(ptr=0x")), "{without:?}");
    assert_eq!(with, without);
}

#[test]
fn root_plugins_of_a_damaged_trace_are_told_what_can_be_read() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let calls = scene.trace().calls.len();
    let mut bytes = fs::read(scene.trace_path()).expect("the trace");
    bytes.truncate(bytes.len() - 4);
    fs::write(scene.trace_path(), bytes).expect("cut");
    let ran = run(&mut export(&scene, &tells(&scene))).expect(1);
    ran.complains(&["test.rtrace"]);
    assert!(lines_of(&ran, "call ").len() <= calls && lines_of(&ran, "end").len() <= 1, "{ran:#?}");
}
