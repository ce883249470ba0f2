//! Programs on the emulated GPU with the tool in them, and what it wrote.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use capi_build::clients::{self, succeed};
use capi_build::layouts::Language;
use capi_build::link::Source;
use capi_build::{FILE_PLUGIN, Library, ROCTRACER, ROCTX, TOOL, include_directory};
use emulated_gpu::truth::{self, Operation};
use tempfile::TempDir;

/// How the tool comes into a program.
pub const LOADERS: [&str; 2] = ["HSA_TOOLS_LIB", "LD_PRELOAD"];

/// What `cargo xtask test` has built, and the tool as users have it.
pub struct Scene {
    apps: PathBuf,
    gpu: PathBuf,
    /// A program that runs a command where another release is.
    inside: Option<PathBuf>,
    directory: TempDir,
}

/// What came of a program.
pub struct Outcome {
    pub code: Option<i32>,
    pub said: String,
    /// What the tool and the plugin said on standard error.
    pub warned: Vec<String>,
    /// The lines of the files, by their names behind the process id.
    pub files: BTreeMap<String, Vec<String>>,
    pub truth: Vec<Operation>,
}

/// None where nothing was built: that is said.
pub fn scene() -> Option<Scene> {
    let built = |variable| std::env::var_os(variable).map(PathBuf::from);
    let (Some(apps), Some(gpu)) = (built("ROCTAP_TEST_APPS"), built("ROCTAP_TEST_GPU")) else {
        eprintln!("skipped: `cargo xtask test` builds the programs and the emulated GPU");
        return None;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let source = Source::of_tests().expect("a target directory");
    for library in [&ROCTRACER, &ROCTX, &TOOL, &FILE_PLUGIN] {
        library.install(&source, directory.path()).expect("installed");
    }
    Some(Scene { apps, gpu, inside: built("ROCTAP_TEST_INSIDE"), directory })
}

impl Scene {
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn installed(&self, library: &Library) -> PathBuf {
        library.installed(self.directory.path())
    }

    /// Where a program finds the emulated GPU, and roctracer and roctx, which it is linked with.
    pub fn libraries(&self) -> OsString {
        std::env::join_paths([&self.gpu, &self.path("lib")]).expect("paths")
    }

    pub fn app(&self, name: &str) -> PathBuf {
        self.apps.join(name)
    }

    fn source(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
    }

    /// Compiles a program or, from what is not one, a library.
    pub fn compile(&self, name: &str, language: Language, options: &[&str]) -> PathBuf {
        let program = self.path(name);
        let source = Self::source(&format!("{name}.{}", language.extension()));
        let mut compiler = language.compiler().expect("a compiler");
        compiler.arg("-D__HIP_PLATFORM_AMD__").arg("-o").args([&program, &source]);
        compiler.arg("-I").arg(include_directory().expect("headers").join("roctracer"));
        compiler.arg("-L").arg(self.path("lib")).args(options);
        if self.inside.is_some() && !options.contains(&"-shared") {
            compiler.arg("-L").arg(&self.gpu).arg("-lemulated_gpu_driver");
        }
        let inside = self.inside.as_deref();
        succeed(&mut clients::compiler_there(inside, language, compiler)).expect("it compiles");
        program
    }

    /// A program with the tool in it, whose files go into a directory.
    pub fn command(&self, loader: &str, program: &Path) -> Command {
        let libraries: OsString = self.gpu.clone().into();
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", libraries).env(loader, self.installed(&TOOL));
        command.env("ROCP_OUTPUT_DIR", self.path("out")).env("EMUGPU_LOG", self.path("truth"));
        command.env("MODULES", &self.apps).envs(clients::environment(self.inside.as_deref()));
        command
    }

    /// A command as it runs where the release is.
    pub fn there(&self, command: Command) -> Command {
        clients::there(self.inside.as_deref(), command)
    }

    /// Runs a program, whatever it returns. Its files are read, and removed.
    pub fn run(&self, command: &mut Command) -> Outcome {
        let out = self.path("out");
        std::fs::create_dir_all(&out).expect("a directory");
        let output = match &self.inside {
            Some(inside) => Command::new(inside).args(clients::by_env(command)).output(),
            None => command.output(),
        };
        let Output { status, stdout, stderr } = output.expect("it runs");
        let [said, warned] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
        assert!(status.signal().is_none(), "{command:?}: {status}\n{said}\n{warned}");
        let truth = truth::read(&self.path("truth")).unwrap_or_default();
        let files = files(&out);
        std::fs::remove_dir_all(&out).expect("removed");
        let _ = std::fs::remove_file(self.path("truth"));
        let warned =
            warned.lines().filter(|line| line.starts_with("ROCtracer ")).map(str::to_owned);
        Outcome { code: status.code(), said, warned: warned.collect(), files, truth }
    }
}

/// What is in a directory: files of several processes are taken together.
fn files(directory: &Path) -> BTreeMap<String, Vec<String>> {
    let mut files = BTreeMap::<_, Vec<String>>::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let (process_id, name) = name.split_once('_').expect("a process id");
        process_id.parse::<u32>().expect("a process id");
        let text = std::fs::read_to_string(&path).expect("a file");
        assert!(text.is_empty() || text.ends_with('\n'), "{name} ends in the middle of a line");
        files.entry(name.to_owned()).or_default().extend(text.lines().map(str::to_owned));
    }
    files
}

impl Outcome {
    pub fn lines(&self, file: &str) -> &[String] {
        self.files.get(file).map_or(&[], Vec::as_slice)
    }

    /// The numbers of lines that begin so, as programs tell of themselves: `count hipMalloc 4`.
    pub fn counts(&self, word: &str) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for line in self.said.lines() {
            if let [first, name, count] = line.split_whitespace().collect::<Vec<_>>()[..]
                && first == word
            {
                *counts.entry(name.to_owned()).or_default() +=
                    count.parse::<u64>().expect("a number");
            }
        }
        counts
    }

    /// How often each function was called, by a file of calls.
    pub fn calls(&self, file: &str) -> BTreeMap<String, u64> {
        let mut calls = BTreeMap::new();
        for line in self.lines(file) {
            let call = line.split(' ').nth(2).expect("a call");
            let name = call.split('(').next().expect("a name");
            *calls.entry(name.to_owned()).or_default() += 1;
        }
        calls
    }
}
