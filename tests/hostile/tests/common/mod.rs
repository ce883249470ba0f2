//! What several of these tests need.
#![allow(dead_code, reason = "no test needs all of it")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use e2e::{Scene, roctap_bin};
use roctap::trace::{Existing, Writer};
use tracer_common::activity::{ActivityRecord, Domain, op, roctx};
use tracer_records::model::{
    Agent, ApiCall, ClockOffsets, Dispatch, Event, Kernel, Metadata, ProbedLibrary, Process,
    op_flag,
};
use tracer_records::sink::RecordSink as _;

/// What a program may call itself: it clears the screen, sets the title, writes lines that look like
/// roctap's, and turns the direction of writing.
pub const NAME: &str = "evil\u{1b}[2J\u{1b}]0;owned\u{7}\nroctap: forged\r\t\u{9b}31m\u{202e}drow\u{2069}\u{200b}\u{feff}\u{2028}x";

/// Asserts that nothing in a program's output acts on a terminal, and that no name begins a line.
pub fn assert_harmless(output: &str) {
    let harmful = |c: char| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fffd}')
    };
    assert!(!output.contains(harmful), "{output:?}");
    assert!(!output.lines().any(|line| line.starts_with("roctap: forged")), "{output}");
}

/// Compiles a C program or, with `-shared`, a library.
pub fn compile(scene: &Scene, source: &str, options: &[&str], to: &Path) {
    let file = scene.path("source.c");
    fs::write(&file, source).expect("source");
    let status = Command::new("cc").args(options).arg(&file).arg("-o").arg(to).status();
    assert!(status.expect("cc").success());
}

/// A copy of roctap and its shim that every user may execute, in a directory that is root's alone and
/// where set-user-id bits count.
pub fn roctap_for_all() -> (tempfile::TempDir, PathBuf) {
    use std::os::unix::fs::PermissionsExt as _;
    let places = [std::env::temp_dir(), "/var/tmp".into()];
    let counts = |place: &&PathBuf| {
        rustix::fs::statvfs(*place)
            .is_ok_and(|fs| !fs.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID))
    };
    let place = places.iter().find(counts).expect("a place that is not mounted nosuid");
    let directory = tempfile::tempdir_in(place).expect("directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let copy = directory.path().join("roctap");
    fs::copy(roctap_bin(), &copy).expect("copy");
    let shim = "libroctap_shim.so";
    fs::copy(roctap_bin().with_file_name(shim), directory.path().join(shim)).expect("copy");
    (directory, copy)
}

/// `roctap` whose standard output nobody reads, and which takes no more.
pub struct Stuck {
    pub child: std::process::Child,
    _output: std::io::PipeReader,
}

impl Stuck {
    pub fn spawn(command: &mut Command) -> Self {
        use std::io::Write as _;
        const CAPACITY: usize = 64 << 10;
        let (output, mut input) = std::io::pipe().expect("pipe");
        input.write_all(&[b'x'; CAPACITY]).expect("as much as it holds");
        let child = command.stdout(input).stderr(Stdio::null()).spawn().expect("start");
        Self { child, _output: output }
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a trace in which everything that a program names is `name`.
pub fn write_trace(path: &Path, name: &str) {
    let metadata = Metadata {
        roctap_version: name.to_owned(),
        host: name.to_owned(),
        kernel: name.to_owned(),
        command: name.to_owned(),
        clock: ClockOffsets::default(),
    };
    let mut writer = Writer::create(path, &metadata, Existing::Replace).expect("trace");
    let library =
        ProbedLibrary { path: name.to_owned(), version: name.to_owned(), probed: 3, entry_only: 1 };
    writer.process(
        7,
        Process {
            command: name.to_owned(),
            gpu_tier: name.to_owned(),
            libraries: vec![library],
            ..Process::default()
        },
    );
    writer.thread(7, 8, name);
    writer.agent(7, 1, Agent { name: name.to_owned(), gpu: true, index: 0 });
    let id = writer.string(7, name);
    writer.kernel(7, 1, Kernel { name: id, ..Kernel::default() });
    for (domain, operation) in [(Domain::HIP_API, 900), (Domain::HSA_API, 901)] {
        writer.operation(domain.0, operation, name);
        let call = ApiCall { record: record(domain, operation, 10), ..ApiCall::default() };
        writer.push(Event::Api(call)).expect("push");
    }
    // A mark, and a range around what follows.
    for op in [roctx::MARK, roctx::PUSH, roctx::POP] {
        let mut record = record(Domain::ROCTX, op, 10 + u64::from(10 * op));
        record.bytes_or_name = if op == roctx::POP { 0 } else { id.into() };
        writer.push(Event::Api(ApiCall { record, ..ApiCall::default() })).expect("push");
    }
    let mut dispatch = Dispatch {
        process_id: 7,
        demangled: id,
        kernel_id: 1,
        grid: [64, 1, 1],
        workgroup: [64, 1, 1],
        ..Dispatch::default()
    };
    dispatch.record = record(Domain::HIP_OPS, op::DISPATCH, 20);
    dispatch.record.bytes_or_name = id.into();
    writer.push(Event::Dispatch(dispatch)).expect("push");
    dispatch.demangled = 0;
    writer.push(Event::Dispatch(dispatch)).expect("push");
    dispatch.flags = op_flag::INCOMPLETE;
    writer.push(Event::Dispatch(dispatch)).expect("push");
    writer.loss(7, name, 3);
    writer.notice(name);
    writer.finish(ClockOffsets { boottime_ns: 99, ..ClockOffsets::default() }).expect("finish");
}

fn record(domain: Domain, op: u32, begin_ns: u64) -> ActivityRecord {
    ActivityRecord {
        domain,
        op,
        begin_ns,
        end_ns: begin_ns + 5,
        correlation_id: 1,
        process_or_device: 7,
        thread_id: 8,
        ..ActivityRecord::default()
    }
}
