//! Programs with the tool in them.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use capi_build::clients::{self, Clients, succeed};
use capi_build::layouts::Language;
use capi_build::{Library, ROCPROFILER_SDK, ROCPROFILER_SDK_1, ROCPROFILER_SDK_ROCTX};
use emulated_gpu::truth;

use crate::outcome::Outcome;

/// The library whose interface this package has, and that of the other one.
const LIBRARY: &Library = if cfg!(feature = "v1") { &ROCPROFILER_SDK_1 } else { &ROCPROFILER_SDK };
pub const OTHER: &Library =
    if cfg!(feature = "v1") { &ROCPROFILER_SDK } else { &ROCPROFILER_SDK_1 };
pub const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rocprofiler-sdk");

/// How the library comes into a program: the HSA runtime loads it, or it comes with a tool that is preloaded.
pub const LOADERS: [&str; 2] = ["HSA_TOOLS_LIB", "LD_PRELOAD"];
/// Programs with all kinds of work, and their arguments.
pub const PROGRAMS: [(&str, &[&str]); 5] = [
    ("basic", &[]),
    ("copies", &["512"]),
    ("graph", &["20"]),
    ("module", &[]),
    ("storm", &["8", "4", "300"]),
];

/// As many threads as a test's `storm` has: HIP of 7.2 crashes programs that launch and copy on several, also untraced.
pub fn threads(many: usize) -> usize {
    let has_one = std::env::var("ROCTAP_TEST_ROCM").is_ok_and(|release| release.starts_with("7."));
    if has_one { 1 } else { many }
}

/// The arguments of `storm`, with as many launches by fewer [`threads`]; those of other programs as they are.
pub fn arguments(program: &str, of_test: &[&str]) -> Vec<String> {
    let [many, streams, launches] = *of_test else { return own(of_test) };
    let number = |text: &str| text.parse::<usize>().expect("a number");
    let (many, launches) = (number(many), number(launches));
    match threads(many) {
        few if program == "storm" && few != many => {
            vec![few.to_string(), streams.to_owned(), (launches * many / few).to_string()]
        }
        _ => own(of_test),
    }
}

fn own(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&argument| argument.to_owned()).collect()
}

/// What `cargo xtask test` has built, and the tool.
pub struct Scene {
    pub apps: PathBuf,
    pub gpu: PathBuf,
    /// A program that runs a command where another release is.
    pub inside: Option<PathBuf>,
    pub clients: Clients,
    pub tool: PathBuf,
}

/// Compiles a tool against the library of these clients.
pub fn tool_of(clients: &Clients, source: &str, name: &str, options: &[&str]) -> PathBuf {
    let tool = clients.directory().join(name);
    let mut compiler = clients.compiler(Language::C).expect("a compiler");
    compiler.args(["-shared", "-fPIC", "-o"]).args([&tool, &clients.source(source)]);
    succeed(compiler.args(options).arg(clients.library())).expect("the tool");
    tool
}

pub fn scene() -> Option<Scene> {
    let built = |variable| std::env::var_os(variable).map(PathBuf::from);
    let (Some(apps), Some(gpu)) = (built("ROCTAP_TEST_APPS"), built("ROCTAP_TEST_GPU")) else {
        eprintln!("skipped: `cargo xtask test` builds the programs and the emulated GPU");
        return None;
    };
    let clients = Clients::new(LIBRARY, PACKAGE)
        .and_then(|clients| clients.beside(&ROCPROFILER_SDK_ROCTX))
        .expect("the libraries");
    let tool = tool_of(&clients, "watches.c", "libwatches.so", &[]);
    tool_of(&clients, "watches.c", "libstuck.so", &["-DSTUCK"]);
    tool_of(&clients, "watches.c", "libsecond.so", &["-DBESIDE=\"-second\""]);
    Some(Scene { apps, gpu, inside: built("ROCTAP_TEST_INSIDE"), clients, tool })
}

impl Scene {
    pub fn file(&self, name: &str) -> PathBuf {
        self.clients.directory().join(name)
    }

    /// A program with the tool in it.
    pub fn command(&self, loader: &str, program: &Path) -> Command {
        let mut command = Command::new(program);
        let libraries = format!("{}:{}", self.gpu.display(), self.clients.directory().display());
        command.env("LD_LIBRARY_PATH", libraries);
        match loader {
            "LD_PRELOAD" => command.env(loader, &self.tool),
            _ => command.env(loader, self.clients.library()).env("ROCP_TOOL_LIBRARIES", &self.tool),
        };
        command.env("WATCH_OUT", self.file("output")).env("EMUGPU_LOG", self.file("truth"));
        command.envs(clients::environment(self.inside.as_deref()));
        command
    }

    /// `ranges`, with the tool and with the library of roctx in it.
    pub fn ranges(&self, loader: &str, rounds: &str) -> Command {
        let mut command = self.command(loader, &self.apps.join("ranges"));
        let tool = (loader == "LD_PRELOAD").then(|| format!("{}:", self.tool.display()));
        let roctx = self.file(ROCPROFILER_SDK_ROCTX.soname);
        let preloaded = format!("{}{}", tool.unwrap_or_default(), roctx.display());
        command.arg(rounds).env("LD_PRELOAD", preloaded);
        command
    }

    /// A command as it runs where the release is, whose output is read.
    pub fn there(&self, command: Command) -> Command {
        let mut there = clients::there(self.inside.as_deref(), command);
        there.stdout(Stdio::piped()).stderr(Stdio::piped());
        there
    }

    /// Compiles a program of HIP's in C++, which may be its own tool.
    pub fn compile_client(&self, name: &str) -> PathBuf {
        let program = self.file(name);
        let mut compiler = self.clients.compiler(Language::Cpp).expect("a compiler");
        compiler.args(["-D__HIP_PLATFORM_AMD__", "-o"]).arg(&program);
        compiler.arg(self.clients.source(&format!("{name}.cpp")));
        if self.inside.is_some() {
            compiler.arg("-L").arg(&self.gpu).arg("-lemulated_gpu_driver");
        }
        compiler.arg("-L").arg(self.clients.directory()).arg("-lamdhip64");
        compiler.arg(format!("-l:{}", LIBRARY.soname));
        compiler.arg("-lhsa-runtime64").arg("-Wl,--as-needed");
        compiler.arg(format!("-l:{}", ROCPROFILER_SDK_ROCTX.soname));
        let inside = self.inside.as_deref();
        succeed(&mut clients::compiler_there(inside, Language::Cpp, compiler)).expect("the client");
        program
    }

    /// Compiles such a program, and runs it, which must succeed and say nothing.
    pub fn run_client(&self, name: &str) {
        let mut command = Command::new(self.compile_client(name));
        let libraries = format!("{}:{}", self.gpu.display(), self.clients.directory().display());
        command.env("LD_LIBRARY_PATH", libraries);
        command.envs(clients::environment(self.inside.as_deref()));
        let output = self.there(command).output().expect("it runs");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let is_quiet = clients::is_quiet(&said);
        assert!(output.status.success() && is_quiet, "{name}: {}\n{said}", output.status);
    }

    /// Runs a program, which must succeed.
    pub fn run(
        &self,
        loader: &str,
        program: &str,
        arguments: &[&str],
        words: &[(&str, &str)],
    ) -> Outcome {
        let mut command = self.command(loader, &self.apps.join(program));
        command.args(self::arguments(program, arguments)).envs(words.iter().copied());
        self.run_command(command)
    }

    pub fn run_command(&self, command: Command) -> Outcome {
        let mut command = self.there(command);
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {}\n{said}{errors}", output.status);
        assert!(clients::is_quiet(&errors), "{command:?}: {errors}");
        let count = |line: &str| {
            let (function, count) = line.strip_prefix("count ")?.split_once(' ')?;
            Some((function.to_owned(), count.parse().expect("a number")))
        };
        let counts = said.lines().filter_map(count).collect();
        Outcome { counts, ..self.outcome() }
    }

    /// Where the tools of each process have written.
    pub fn outputs(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.clients.directory()).expect("a directory");
        let paths = files.map(|file| file.expect("a file").path());
        paths.filter(|path| path.file_stem() == Some("output".as_ref())).collect()
    }

    /// What they have written until now.
    pub fn written(&self) -> String {
        let texts = self.outputs().into_iter().map(std::fs::read_to_string);
        texts.map(|text| text.expect("what was told")).collect()
    }

    /// Starts a program which goes on until it is ended, and waits until it is ready. The tool's context is active in
    /// periods.
    pub fn in_periods(&self, mut command: Command) -> Periods<'_> {
        command.env("WATCH_GO", self.file("go"));
        let mut running = self.there(command).spawn().expect("it begins");
        let mut said = BufReader::new(running.stdout.take().expect("its output"));
        said.read_line(&mut String::new()).expect("text");
        Periods { scene: self, running, _said: said, count: 0 }
    }

    /// What the tool has written, in one process or in several, and the GPU has done.
    pub fn outcome(&self) -> Outcome {
        let mut written = String::new();
        for path in self.outputs() {
            let text = std::fs::read_to_string(&path).expect("what was told");
            assert!(text.ends_with("end\n") && !text.contains("wrong: "), "{text}");
            std::fs::remove_file(path).expect("removed");
            written += &text;
        }
        let did = self.file("truth");
        let truth = did.exists().then(|| truth::read(&did).expect("what the GPU did"));
        let _ = std::fs::remove_file(did);
        let mut outcome = Outcome { truth: truth.unwrap_or_default(), ..Outcome::default() };
        written.lines().for_each(|line| outcome.take(line));
        outcome
    }
}

/// A program in which the tool's context is active in periods.
pub struct Periods<'a> {
    scene: &'a Scene,
    running: Child,
    _said: BufReader<ChildStdout>,
    count: usize,
}

impl Periods<'_> {
    /// The next one, in which more than so many kernels are recorded.
    pub fn next(&mut self, kernels: usize) {
        let (scene, go) = (self.scene, self.scene.file("go"));
        let recorded = || scene.written().matches("\nkernel ").count();
        let before = recorded();
        self.count += 1;
        std::fs::write(&go, "").expect("written");
        wait_until("kernels are recorded", || recorded() > before + kernels);
        std::fs::remove_file(&go).expect("removed");
        let stops = || scene.written().matches("stopped").count();
        wait_until("the context is stopped", || stops() == self.count);
    }

    /// Ends the program, which must succeed.
    pub fn end(mut self) {
        send(self.running.id());
        assert!(self.running.wait().expect("it ends").success());
    }
}

pub fn wait_until(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < until, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Ends a process.
pub fn send(process: u32) {
    assert!(Command::new("kill").arg(process.to_string()).status().expect("kill").success());
}
