//! Clients in real HIP programs, on the emulated GPU: what they are told is what the programs say that they called.
//!
//! Every test is named `rocm_…`. Where `cargo xtask test` has not built the programs they have nothing to run, and
//! say so.

use std::{collections::BTreeMap, path::PathBuf, process::Command};

use capi_build::{
    ROCTRACER,
    clients::{Clients, succeed},
    layouts::Language,
};

/// What `cargo xtask test` has built, and a client to be loaded into it.
struct Scene {
    apps: PathBuf,
    gpu: PathBuf,
    clients: Clients,
    watcher: PathBuf,
}

/// How often a function was told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Told {
    entered: u64,
    exited: u64,
    recorded: u64,
}

/// What a program said of itself, and the client of it.
#[derive(Debug, Default)]
struct Outcome {
    counts: BTreeMap<String, u64>,
    launches: BTreeMap<String, u64>,
    told: BTreeMap<String, Told>,
    told_launches: BTreeMap<String, u64>,
    /// Calls that callbacks made.
    own: u64,
    /// Calls of callbacks and records while they were exchanged.
    while_changing: (u64, u64),
}

fn scene() -> Option<Scene> {
    let built = |variable| std::env::var_os(variable).map(PathBuf::from);
    let (Some(apps), Some(gpu)) = (built("ROCTAP_TEST_APPS"), built("ROCTAP_TEST_GPU")) else {
        eprintln!("skipped: `cargo xtask test` builds the programs and the emulated GPU");
        return None;
    };
    let clients = Clients::new(&ROCTRACER, env!("CARGO_MANIFEST_DIR")).expect("the library");
    let watcher = clients.directory().join("watcher.so");
    let mut compiler = Language::Cpp.compiler().expect("a compiler");
    compiler.args(["-D__HIP_PLATFORM_AMD__", "-shared", "-fPIC", "-o"]).arg(&watcher);
    compiler.arg("-I").arg(capi_build::include_directory().expect("headers").join("roctracer"));
    compiler.arg(clients.source("watcher.cpp")).arg("-L").arg(clients.directory());
    succeed(compiler.args(["-lroctracer64", "-lamdhip64"])).expect("the client");
    Some(Scene { apps, gpu, clients, watcher })
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

impl Scene {
    /// Where programs find the emulated GPU and the library.
    fn libraries(&self) -> String {
        format!("{}:{}", self.gpu.display(), self.clients.directory().display())
    }

    /// Compiles and runs a program of HIP's in C++, which must succeed and say nothing.
    fn run_client(&self, name: &str) {
        let program = self.clients.directory().join(name);
        let mut compiler = Language::Cpp.compiler().expect("a compiler");
        compiler.args(["-D__HIP_PLATFORM_AMD__", "-o"]).arg(&program);
        let headers = capi_build::include_directory().expect("headers");
        compiler.arg("-I").arg(headers.join("roctracer"));
        compiler.arg(self.clients.source(&format!("{name}.cpp")));
        compiler.arg("-L").arg(self.clients.directory()).args(["-lroctracer64", "-lamdhip64"]);
        succeed(&mut compiler).expect("the client");
        let mut command = Command::new(program);
        succeed(command.env("LD_LIBRARY_PATH", self.libraries())).expect("it runs");
    }

    fn run(&self, mode: &str, program: &str, arguments: &[&str]) -> Outcome {
        let out = self.clients.directory().join("told");
        let mut command = Command::new(self.apps.join(program));
        command.args(arguments).env("LD_LIBRARY_PATH", self.libraries());
        command.env("LD_PRELOAD", &self.watcher);
        command.env("WATCH", mode).env("WATCH_OUT", &out);
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {}\n{said}{errors}", output.status);
        let told = std::fs::read_to_string(&out).expect("what the client was told");
        std::fs::remove_file(&out).expect("removed");
        assert!(told.ends_with("end\n") && !told.contains("wrong: "), "{program}: {told}");
        let mut outcome = Outcome::default();
        for line in said.lines() {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["count", function, count] => {
                    *outcome.counts.entry(function.to_owned()).or_default() += number(count);
                }
                ["launches", kernel, count] => {
                    *outcome.launches.entry(kernel.to_owned()).or_default() += number(count);
                }
                _ => {}
            }
        }
        for line in told.lines() {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["launches", kernel, count] => {
                    outcome.told_launches.insert(kernel.to_owned(), number(count));
                }
                ["changing", calls, records] => {
                    outcome.while_changing = (number(calls), number(records));
                }
                ["own", calls] => outcome.own = number(calls),
                [function, entered, exited, recorded] => {
                    let [entered, exited, recorded] = [entered, exited, recorded].map(number);
                    let told = Told { entered, exited, recorded };
                    outcome.told.insert(function.to_owned(), told);
                }
                _ => {}
            }
        }
        outcome
    }
}

impl Outcome {
    /// Each call of HIP was told of once by callbacks, recorded once, or both.
    fn expect_every_call(&self, callbacks: bool, activities: bool) {
        let mut compared = 0;
        for (function, &count) in self.counts.iter().filter(|(name, _)| name.contains("hip")) {
            let called = if callbacks { count } else { 0 };
            let recorded = if activities { count } else { 0 };
            let expected = Told { entered: called, exited: called, recorded };
            let told = self.told.get(function).copied().unwrap_or_default();
            assert_eq!(told, expected, "{function}: {self:#?}");
            compared += 1;
        }
        assert!(compared > 2, "{self:#?}");
    }
}

/// Not of `callbacks`: with a tracer, any tracer, HIP 5.2.3 never runs functions of `hipStreamAddCallback`
/// (docs/decisions/0033).
#[test]
fn rocm_every_call_of_programs() {
    let Some(scene) = scene() else { return };
    for (program, arguments) in [
        ("basic", &[][..]),
        ("copies", &["512"]),
        ("graph", &["20"]),
        ("module", &[]),
        ("storm", &["8", "4", "300"]),
    ] {
        scene.run("callbacks", program, arguments).expect_every_call(true, false);
        scene.run("activities", program, arguments).expect_every_call(false, true);
        let both = scene.run("both", program, arguments);
        both.expect_every_call(true, true);
        if program == "storm" {
            assert_eq!(both.told_launches, both.launches);
        }
    }
}

/// Calls that a callback makes are recorded, and call no callback.
#[test]
fn rocm_callbacks_that_call_hip() {
    let Some(scene) = scene() else { return };
    let outcome = scene.run("nested", "storm", &["4", "2", "200"]);
    assert!(outcome.own > 800, "{outcome:?}");
    let told = outcome.told["hipGetDevice"];
    let called = outcome.counts.get("hipGetDevice").copied().unwrap_or(0);
    let expected = Told { entered: called, exited: called, recorded: called + outcome.own };
    assert_eq!(told, expected);
}

/// Callbacks, arguments and pools are exchanged while 8 threads call HIP.
#[test]
fn rocm_callbacks_and_pools_that_change() {
    let Some(scene) = scene() else { return };
    let outcome = scene.run("changing", "storm", &["8", "4", "2000"]);
    let (calls, records) = outcome.while_changing;
    assert!(calls > 1000 && records > 1000, "{outcome:?}");
}

/// Callbacks that disable and replace themselves, throw, end their thread, close the pool; 64 threads; a forked
/// child.
#[test]
fn rocm_callbacks_that_do_as_they_like() {
    let Some(scene) = scene() else { return };
    scene.run_client("callbacks");
}

/// A program ends without closing its pools.
#[test]
fn rocm_records_at_the_end_of_a_program() {
    let Some(scene) = scene() else { return };
    scene.run_client("exits");
}

#[test]
fn rocm_headers_in_c99() {
    let Some(scene) = scene() else { return };
    let program = scene.clients.directory().join("headers");
    let mut compiler = Language::C.compiler().expect("a compiler");
    compiler.args(["-D__HIP_PLATFORM_AMD__", "-o"]).arg(&program);
    succeed(compiler.arg(scene.clients.source("headers.c"))).expect("it compiles");
    succeed(&mut Command::new(program)).expect("it runs");
}
