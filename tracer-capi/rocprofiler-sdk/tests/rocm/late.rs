//! A tool that `roctap tool` puts into a running program, which was started with nothing set.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use capi_build::ROCPROFILER_SDK_ROCTX;
use capi_build::clients::{self, Clients};
use emulated_gpu::truth;

use crate::expectations::is_near;
use crate::kinds::{
    CODE_OBJECTS, HIP, KERNELS, KERNELS_TOLD, ROCTX, SCRATCH, SCRATCH_TOLD, number,
};
use crate::outcome::Outcome;
use crate::scene::{OTHER, PACKAGE, Scene, scene, tool_of, wait_until};
use crate::scratch::{DISPATCHES, expect_scratch};

/// A running program, and `roctap` to put a tool into it.
pub struct Late {
    pub scene: Scene,
    pub roctap: PathBuf,
    program: Child,
    said: BufReader<ChildStdout>,
    pub pid: u32,
}

impl Late {
    /// `loop`, with the tool in it, or with nothing set; none where there is nothing to run.
    pub fn start(words: &[(&str, &str)], is_preloaded: bool) -> Option<Self> {
        let scene = scene()?;
        let program = scene.apps.join("loop");
        let mut command = match is_preloaded {
            true => scene.command("LD_PRELOAD", &program),
            false => Self::without(&scene, "loop"),
        };
        command.args(["0", "2", "300"]).envs(words.iter().copied());
        Self::run(scene, command)
    }

    /// A program that was started with nothing set.
    pub fn without(scene: &Scene, program: &str) -> Command {
        let mut command = Command::new(scene.apps.join(program));
        command.env("LD_LIBRARY_PATH", &scene.gpu);
        command.env("WATCH_OUT", scene.file("output")).env("EMUGPU_LOG", scene.file("truth"));
        command
    }

    pub fn run(scene: Scene, command: Command) -> Option<Self> {
        let Some(roctap) = std::env::var_os("ROCTAP_BIN") else {
            eprintln!("skipped: `cargo xtask test` builds roctap");
            return None;
        };
        let mut program = scene.there(command).spawn().expect("it begins");
        let mut said = BufReader::new(program.stdout.take().expect("its output"));
        let mut ready = String::new();
        said.read_line(&mut ready).expect("text");
        let pid = ready.trim().strip_prefix("ready ").and_then(|pid| pid.parse().ok());
        let pid = pid.unwrap_or_else(|| panic!("{ready}"));
        Some(Self { scene, roctap: roctap.into(), program, said, pid })
    }

    fn command(&self, tool: &Path, library: &Path) -> Command {
        let mut command = Command::new(&self.roctap);
        command.args(["tool", "-p", &self.pid.to_string(), "--library"]).arg(tool);
        command.env("ROCTAP_SDK", library);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Puts the tool in; it is at work.
    pub fn put_in(&self) -> Child {
        let library = self.scene.clients.library();
        let mut roctap = self.command(&self.scene.tool, &library).spawn().expect("roctap");
        let mut said = BufReader::new(roctap.stderr.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("text");
        assert!(line.contains("is at work"), "{line}");
        roctap.stderr = Some(said.into_inner());
        roctap
    }

    /// Why a tool is not put in.
    pub fn refused(&self, tool: &Path) -> String {
        self.refused_with(tool, &self.scene.clients.library())
    }

    /// The same, with this library.
    fn refused_with(&self, tool: &Path, library: &Path) -> String {
        let output = self.command(tool, library).output().expect("roctap");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        said
    }

    fn written(&self) -> String {
        let texts = self.scene.outputs().into_iter().map(std::fs::read_to_string);
        texts.map(|text| text.expect("what was told")).collect()
    }

    /// The tool records, as it has not before.
    pub fn records(&self) {
        wait_until("kernels are recorded", || self.written().matches("\nkernel ").count() > 100);
    }

    /// How many threads and descriptors the program has, but for the tool's own file.
    fn has(&self) -> (usize, usize) {
        let count = |what| {
            let all = std::fs::read_dir(format!("/proc/{}/{what}", self.pid));
            let is_output = |link: &Path| link.to_string_lossy().contains("/output.");
            all.expect("it runs")
                .map(|entry| std::fs::read_link(entry.expect("an entry").path()))
                .filter(|link| !link.as_ref().is_ok_and(|link| is_output(link)))
                .count()
        };
        (count("task"), count("fd"))
    }

    /// The tool has been finalized; what it has written, which it writes anew the next time.
    pub fn finalized(&self) -> String {
        wait_until("the tool is finalized", || self.written().ends_with("\nend\n"));
        let written = self.written();
        self.scene.outputs().iter().for_each(|file| std::fs::remove_file(file).expect("removed"));
        assert!(!written.contains("wrong: "), "{written}");
        written
    }

    /// Ends the program, which must succeed, having said nothing.
    pub fn end(&mut self) -> Vec<truth::Operation> {
        crate::scene::send(self.pid);
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("text");
        assert!(self.program.wait().expect("it ends").success(), "{rest}");
        let mut errors = String::new();
        let stderr = self.program.stderr.as_mut().expect("piped");
        stderr.read_to_string(&mut errors).expect("text");
        assert!(clients::is_quiet(&errors), "what the library says is for roctap: {errors}");
        truth::read(&self.scene.file("truth")).expect("what the GPU did")
    }
}

/// A test that fails leaves no program behind, which would have a CPU for itself until it is killed.
impl Drop for Late {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Ends roctap by a signal.
pub fn end(mut roctap: Child, signal: &str) -> (ExitStatus, String) {
    let sent = Command::new("kill").args([signal, &roctap.id().to_string()]).status();
    assert!(sent.expect("kill").success());
    let mut said = String::new();
    roctap.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    (roctap.wait().expect("it ends"), said)
}

/// Every kernel of each thread is told of, from the first one on.
pub fn expect_kernels(outcome: &Outcome, did: &[truth::Operation]) {
    let names: BTreeSet<&str> = outcome.symbols.values().map(|s| s.name.as_str()).collect();
    let name_of = |kernel: u64| outcome.symbols[&kernel].name.as_str();
    let mut compared = 0;
    for name in names.into_iter().filter(|name| name.starts_with("loop_t")) {
        let own = outcome.kernels.iter().filter(|kernel| name_of(kernel.kernel) == name);
        let mut recorded: Vec<_> = own.map(|kernel| (kernel.begin_ns, kernel.end_ns)).collect();
        recorded.sort_unstable();
        let (Some(&(begin_ns, _)), Some(&(_, end_ns))) = (recorded.first(), recorded.last()) else {
            continue;
        };
        let is_meant = |operation: &&truth::Operation| {
            operation.name == name
                && (begin_ns - 1000..=end_ns + 1000).contains(&operation.start_ns)
        };
        let mut ran: Vec<_> = did.iter().filter(is_meant).collect();
        ran.sort_by_key(|operation| operation.start_ns);
        assert_eq!(recorded.len(), ran.len(), "{name}");
        assert!(
            recorded.iter().zip(ran).all(|(&recorded, operation)| is_near(recorded, operation)),
            "{name}"
        );
        compared += recorded.len();
    }
    assert_eq!(compared, outcome.kernels.len());
    assert!(compared > 100);
}

/// It is put in again and again, and taken out by Ctrl-C and by roctap's death: each time it is configured, told of what is
/// loaded, gets every kernel, and is finalized. Nothing more stays than after the first time.
#[test]
fn rocm_a_tool_is_put_into_a_running_program() {
    let words =
        [("WATCH_KINDS", KERNELS), ("WATCH_CALLBACKS", CODE_OBJECTS), ("WATCH_INTERNAL", "1")];
    let Some(mut late) = Late::start(&words, false) else { return };
    let (mut outcomes, mut stays) = (Vec::new(), None);
    for signal in ["-INT", "-KILL", "-INT"] {
        let roctap = late.put_in();
        late.records();
        let busy = late.refused(&late.scene.tool);
        assert!(busy.contains("another roctap has put a tool into it"), "{busy}");
        let (status, said) = end(roctap, signal);
        if signal == "-INT" {
            assert!(
                status.success() && said.contains("the tool was finalized"),
                "{status}: {said}"
            );
        }
        let mut outcome = Outcome::default();
        late.finalized().lines().for_each(|line| outcome.take(line));
        assert!(outcome.symbols.values().all(|symbol| symbol.is_unloaded), "{outcome:#?}");
        outcomes.push(outcome);
        match stays {
            None => {
                // Threads of roctap's end by themselves.
                std::thread::sleep(Duration::from_millis(500));
                stays = Some(late.has());
            }
            Some(stays) => wait_until("nothing more stays", || late.has() <= stays),
        }
    }
    let did = late.end();
    outcomes.iter().for_each(|outcome| expect_kernels(outcome, &did));
}

/// As AMD's samples do. It is put in again as any other.
#[test]
fn rocm_a_tool_that_configures_itself_is_put_in() {
    let words = [("WATCH_KINDS", KERNELS), ("WATCH_ITSELF", "1")];
    let Some(mut late) = Late::start(&words, false) else { return };
    for _ in 0..2 {
        let roctap = late.put_in();
        late.records();
        let (status, said) = end(roctap, "-INT");
        assert!(status.success() && said.contains("the tool was finalized"), "{said}");
        late.finalized();
    }
    late.end();
}

/// The library of roctx finds the one that was put in, which has no file of its name.
#[test]
fn rocm_marks_are_told_to_a_tool_that_was_put_in() {
    let Some(scene) = scene() else { return };
    let mut command = Late::without(&scene, "ranges");
    command.arg("0").env("LD_PRELOAD", scene.file(ROCPROFILER_SDK_ROCTX.soname));
    command.env("WATCH_KINDS", ROCTX).env("WATCH_CALLBACKS", ROCTX);
    let Some(mut late) = Late::run(scene, command) else { return };
    for _ in 0..2 {
        let roctap = late.put_in();
        wait_until("marks are recorded", || late.written().matches("\ncall ").count() > 100);
        assert!(end(roctap, "-INT").0.success());
        let written = late.finalized();
        assert!(written.contains(" message inner 1\n"), "{written}");
    }
    late.end();
}

/// Callbacks are under way all the time; the tool's end takes long, and the program exits meanwhile.
#[test]
fn rocm_a_program_ends_while_a_tool_is_finalized() {
    let words = [("WATCH_CALLBACKS", HIP), ("WATCH_SLOW_US", "2000"), ("WATCH_END_US", "1000000")];
    let Some(mut late) = Late::start(&words, false) else { return };
    let roctap = late.put_in();
    wait_until("calls are told", || late.written().contains("\nexit "));
    let sent = Command::new("kill").args(["-INT", &roctap.id().to_string()]).status();
    assert!(sent.expect("kill").success());
    wait_until("it is being finalized", || late.written().contains("\nfinalizes\n"));
    late.end();
    late.finalized();
    let said = roctap.wait_with_output().expect("it ends");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

/// Kernels that are not done when the tool ends are counted.
#[test]
fn rocm_kernels_that_outlast_a_tool_are_counted() {
    let slow = ("EMUGPU_KERNEL_NS", "loop_t*=4000000000");
    let words = [("WATCH_KINDS", KERNELS), ("WATCH_CALLBACKS", HIP), slow];
    let Some(mut late) = Late::start(&words, false) else { return };
    let roctap = late.put_in();
    let launched = format!("\nexit 5 {} ", number("hipLaunchKernel"));
    wait_until("a kernel is enqueued", || late.written().contains(&launched));
    let (status, said) = end(roctap, "-INT");
    assert!(status.success(), "{said}");
    let lost = said.lines().find(|line| line.contains("not finished when recording ended"));
    let lost = lost.unwrap_or_else(|| panic!("{said}"));
    assert!(lost.contains(" lost 1: ") || lost.contains(" lost 2: "), "one of each thread: {said}");
    late.finalized();
    late.end();
}

/// A queue is made when the tool is there, in a runtime that was there before.
#[test]
fn rocm_scratch_memory_is_told_to_a_tool_that_was_put_in() {
    let Some(scene) = scene() else { return };
    let mut command = Late::without(&scene, "hsa_direct");
    command.args(["zm", &DISPATCHES.to_string()]);
    command.env("WATCH_KINDS", format!("{SCRATCH},{KERNELS}")).env("WATCH_CALLBACKS", SCRATCH_TOLD);
    let Some(mut late) = Late::run(scene, command) else { return };
    let roctap = late.put_in();
    late.end();
    assert!(roctap.wait_with_output().expect("it ends").status.success());
    expect_scratch(&late.scene.outcome());
}

/// Calls of HIP, and callbacks of work; the program ends while the tool is in it.
#[test]
fn rocm_a_program_ends_with_a_tool_that_was_put_in() {
    let kinds = format!("{KERNELS},{HIP}");
    let words = [("WATCH_KINDS", &*kinds), ("WATCH_CALLBACKS", KERNELS_TOLD)];
    let Some(mut late) = Late::start(&words, false) else { return };
    let mut roctap = late.put_in();
    late.records();
    let files = late.scene.outputs();
    late.end();
    let mut said = String::new();
    roctap.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    let status = roctap.wait().expect("it ends");
    assert!(status.success() && said.contains("the tool was finalized"), "{said}");
    let text = std::fs::read_to_string(&files[0]).expect("what was told");
    assert!(text.ends_with("\nend\n") && text.contains("\ncall "), "{text}");
}

/// What is no tool is said, and stays without consequences.
#[test]
fn rocm_what_cannot_be_put_in_is_refused() {
    let Some(mut late) = Late::start(&[("WATCH_KINDS", KERNELS)], false) else { return };
    let missing = late.refused(Path::new("/nowhere/libtool.so"));
    assert!(missing.contains("/nowhere/libtool.so cannot be loaded"), "{missing}");
    let other = late.refused(&late.scene.apps.join("libhsa_late.so"));
    assert!(other.contains("has no function rocprofiler_configure"), "{other}");
    let roctap = late.put_in();
    late.records();
    assert!(end(roctap, "-INT").0.success());
    // A tool for the other interface: its library is asked for, and cannot come in beside the first one.
    let clients = Clients::new(OTHER, PACKAGE).expect("the other library");
    let tool = tool_of(&clients, "watches.c", "libwatches.so", &[]);
    let wrong = late.refused(&tool);
    assert!(wrong.contains(&format!("needs {}, and", OTHER.soname)), "{wrong}");
    let beside = late.refused_with(&tool, &clients.library());
    assert!(beside.contains(&format!("tools for {} cannot", OTHER.soname)), "{beside}");
    late.end();
    // It has a tool already.
    let Some(mut late) = Late::start(&[("WATCH_KINDS", KERNELS)], true) else { return };
    late.records();
    let busy = late.refused(&late.scene.file("libsecond.so"));
    assert!(busy.contains("has tools already"), "{busy}");
    late.end();
}
