//! Programs in C and C++ that use a library, linked as it is for users: for the tests of its package.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use crate::{Library, include_directory, layouts::Language, link::Source};

/// A library, and where programs for it are made.
#[derive(Debug)]
pub struct Clients {
    library: &'static Library,
    /// Others that programs are linked against.
    beside: Vec<&'static Library>,
    sources: PathBuf,
    directory: TempDir,
}

impl Clients {
    /// Has the library, for a test of the package whose directory (`CARGO_MANIFEST_DIR`) this is.
    ///
    /// # Errors
    ///
    /// If it cannot be built.
    pub fn new(library: &'static Library, package: &str) -> anyhow::Result<Self> {
        let sources = Path::new(package).join("tests/clients");
        let directory = tempfile::tempdir()?;
        library.make(&Source::of_tests()?, directory.path())?;
        Ok(Self { library, beside: Vec::new(), sources, directory })
    }

    /// Has another library, which programs are linked against as well.
    ///
    /// # Errors
    ///
    /// If it cannot be built.
    pub fn beside(mut self, library: &'static Library) -> anyhow::Result<Self> {
        library.make(&Source::of_tests()?, self.directory())?;
        self.beside.push(library);
        Ok(self)
    }

    /// The library's file.
    pub fn library(&self) -> PathBuf {
        self.directory().join(self.library.soname)
    }

    /// Where it is, and what is made for it.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A source of a program.
    pub fn source(&self, name: &str) -> PathBuf {
        self.sources.join(name)
    }

    /// A compiler for programs that use the library.
    ///
    /// # Errors
    ///
    /// As of [`Language::compiler`].
    pub fn compiler(&self, language: Language) -> anyhow::Result<Command> {
        let mut compiler = language.compiler()?;
        compiler.args(self.library.defines);
        Ok(compiler)
    }

    /// Compares the library's exports with the committed list.
    ///
    /// # Errors
    ///
    /// If they differ.
    pub fn check(&self) -> anyhow::Result<()> {
        self.library.check(&self.library())
    }

    /// Compiles the program `name`, linked against the library, with these options beside the usual ones.
    ///
    /// # Errors
    ///
    /// If the compiler has anything to say.
    fn linked(&self, language: Language, name: &str, options: &[&str]) -> anyhow::Result<PathBuf> {
        let program = self.directory().join(format!("{name}-{}", language.extension()));
        let source = self.source(&format!("{name}.{}", language.extension()));
        let mut compiler = self.compiler(language)?;
        compiler.args(options);
        // As those do who name the directory of the headers alone.
        compiler.arg("-I").arg(include_directory()?.join("roctracer"));
        compiler.arg("-o").args([&program, &source]);
        compiler.arg("-L").arg(self.directory());
        for library in [self.library].into_iter().chain(self.beside.iter().copied()) {
            let development = library.development.as_ref();
            let link = development.map_or(library.soname, |development| development.link);
            compiler.arg(format!("-l:{link}"));
        }
        succeed(&mut compiler)?;
        Ok(program)
    }

    /// A program that runs with the library.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.directory());
        command
    }

    /// Compiles and runs the program `name`, which must succeed and say nothing.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub fn run(&self, language: Language, name: &str) -> anyhow::Result<()> {
        self.run_with(language, name, &[])
    }

    /// The same with these options for the compiler.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub fn run_with(&self, language: Language, name: &str, options: &[&str]) -> anyhow::Result<()> {
        succeed(&mut self.command(&self.linked(language, name, options)?))
    }

    /// The same with the compiler's sanitizers of addresses, of leaks and of undefined behaviour in the program.
    /// The library is not instrumented; what it allocates and copies is seen.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub fn run_sanitized(&self, language: Language, name: &str) -> anyhow::Result<()> {
        let options = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g"];
        self.run_with(language, name, &options)
    }

    /// As [`Clients::run`], with a program that is linked against a library of that name which is made from the source
    /// `old`, and then runs with this one.
    ///
    /// # Errors
    ///
    /// If it does not succeed.
    pub fn run_linked_against(&self, old: &str, name: &str) -> anyhow::Result<()> {
        let directory = self.directory().join("old");
        std::fs::create_dir_all(&directory)?;
        let library = directory.join(self.library.soname);
        let soname = format!("-Wl,-soname,{}", self.library.soname);
        let mut compiler = Language::C.compiler()?;
        compiler.args(["-shared", "-fPIC", &soname, "-o"]);
        succeed(compiler.args([&library, &self.source(old)]))?;
        let program = directory.join("client");
        let mut compiler = Language::C.compiler()?;
        succeed(compiler.arg("-o").args([&program, &self.source(name), &library]))?;
        succeed(&mut self.command(&program))
    }

    /// The same with a program that loads the library, whose path it is given.
    ///
    /// # Errors
    ///
    /// If it does not succeed.
    pub fn run_loading(&self, name: &str) -> anyhow::Result<()> {
        let program = self.directory().join(name);
        let mut compiler = Language::C.compiler()?;
        let source = self.source(&format!("{name}.c"));
        succeed(compiler.arg("-o").arg(&program).arg(source).arg("-ldl"))?;
        succeed(self.command(&program).arg(self.library()))
    }
}

/// A command line that runs a command with its variables, and without those that it has removed.
#[must_use]
pub fn by_env(command: &Command) -> Vec<OsString> {
    let mut line = vec![OsString::from("env")];
    // Options come before variables.
    for (name, _) in command.get_envs().filter(|(_, value)| value.is_none()) {
        line.extend([OsString::from("-u"), name.to_owned()]);
    }
    for (name, value) in command.get_envs() {
        let Some(value) = value else { continue };
        let mut variable = name.to_owned();
        variable.push("=");
        variable.push(value);
        line.push(variable);
    }
    line.push(command.get_program().to_owned());
    line.extend(command.get_args().map(ToOwned::to_owned));
    line
}

/// The variables of programs of tests on the emulated GPU, here or where another release of ROCm is.
pub fn environment(inside: Option<&Path>) -> impl Iterator<Item = (&'static str, &'static str)> {
    // Packets of which no doorbell tells are held back for this long, ms: none that is taken could be recorded.
    const BEYOND_DOORBELL: (&str, &str) = ("EMUGPU_BEYOND_DOORBELL_MS", "5000");
    // `storm` destroys no streams: HIP 5.2.3 may crash where it does and calls are registered
    // (docs/decisions/0033).
    const KEEP_STREAMS: (&str, &str) = ("KEEP_STREAMS", "1");
    [BEYOND_DOORBELL].into_iter().chain(inside.is_none().then_some(KEEP_STREAMS))
}

/// Whether a program of a test has said nothing on standard error, but for what the runtime of ROCm 7 says at the end
/// of programs with several threads, untraced too.
#[must_use]
pub fn is_quiet(said: &str) -> bool {
    said.lines().all(|line| {
        line == "Warning: Resource leak detected by SharedSignalPool, 2 Signals leaked."
    })
}

/// A command as it runs where another release of ROCm is, if there is a program that runs one there. Its variables are
/// not those of what runs it there.
#[must_use]
pub fn there(inside: Option<&Path>, command: Command) -> Command {
    let Some(inside) = inside else { return command };
    let mut there = Command::new(inside);
    there.args(by_env(&command));
    there
}

/// A compiler's command as it runs there, with the compiler that is there.
#[must_use]
pub fn compiler_there(inside: Option<&Path>, language: Language, compiler: Command) -> Command {
    let Some(inside) = inside else { return compiler };
    // The one version that the root has.
    let exec = match language {
        Language::C => "exec /usr/bin/clang-[0-9][0-9] \"$@\"",
        Language::Cpp => "exec /usr/bin/clang++-[0-9][0-9] \"$@\"",
    };
    let mut there = Command::new(inside);
    there.args(["sh", "-c", exec, "clang"]).args(compiler.get_args());
    there
}

/// Runs a command that must succeed and say nothing.
///
/// # Errors
///
/// If it does not, with what it said.
pub fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    ensure!(output.status.success() && said.is_empty(), "{command:?}: {}\n{said}", output.status);
    Ok(())
}
