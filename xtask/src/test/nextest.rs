//! Sets of tests that cargo-nextest builds and runs.

use std::{fs, path::PathBuf, process::Command, thread, time::Duration};

use anyhow::{Context as _, bail};
use capi_build::link::LIBRARIES_VARIABLE;

use super::outcome::{Outcome, Set, Test};
use crate::run::{cargo, root, run, show};

/// The profile in `.config/nextest.toml`.
const PROFILE: &str = "xtask";

/// Of its exit statuses those that tell how the tests went: all passed, or some failed.
const TOLD: [i32; 2] = [0, 100];

/// The variable that has cargo and nextest start test binaries by another program.
const RUNNER: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";

/// The variable that proptest takes its seed from.
const SEED: &str = "PROPTEST_RNG_SEED";

/// How many tests run at once that trace: each mostly waits for its programs. Those that see every process, or keep a CPU
/// for themselves, run alone: `.config/nextest.toml` has them.
pub const TRACED_AT_ONCE: usize = 2;

/// How many tests run at once that trace nothing from outside. One more than there are CPUs: some of them wait for seconds
/// until something is given up.
pub fn untraced_at_once() -> usize {
    thread::available_parallelism().map_or(2, usize::from) + 1
}

/// Tests of some packages.
pub struct Nextest {
    label: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, PathBuf)>,
    /// Which of the packages' tests, as nextest's filters say it.
    filter: String,
    target: PathBuf,
    threads: Option<usize>,
    skipped: usize,
    may_be_empty: bool,
}

impl Nextest {
    /// The tests of these packages that `filter` chooses.
    pub fn new(label: &str, packages: &[&str], filter: &str) -> Self {
        let packages = packages.iter().flat_map(|package| ["--package", package]);
        Self {
            label: label.to_owned(),
            arguments: packages.map(str::to_owned).collect(),
            environment: Vec::new(),
            filter: filter.to_owned(),
            target: root().join("target"),
            threads: None,
            skipped: 0,
            may_be_empty: false,
        }
    }

    /// With these arguments, which say what is built and how.
    #[must_use]
    pub fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().copied().map(str::to_owned));
        self
    }

    /// With these variables.
    #[must_use]
    pub fn in_environment(
        mut self,
        variables: impl IntoIterator<Item = (&'static str, PathBuf)>,
    ) -> Self {
        self.environment.extend(variables);
        self
    }

    /// Built elsewhere than in `target`.
    #[must_use]
    pub fn built_in(mut self, target: PathBuf) -> Self {
        self.target = target;
        self
    }

    /// So many tests at once, whatever the machine has.
    #[must_use]
    pub fn at_once(mut self, tests: usize) -> Self {
        self.threads = Some(tests);
        self
    }

    /// Started by a program, which gets the test binary and its arguments.
    #[must_use]
    pub fn run_by(self, program: PathBuf) -> Self {
        self.in_environment([(RUNNER, program)])
    }

    /// Without so many tests, which were named.
    #[must_use]
    pub fn without(mut self, skipped: usize) -> Self {
        self.skipped = skipped;
        self
    }

    /// None of its tests may have been asked for.
    #[must_use]
    pub fn which_may_be_empty(mut self, may_be_empty: bool) -> Self {
        self.may_be_empty = may_be_empty;
        self
    }

    /// With a filter beside its own.
    #[must_use]
    pub fn only_those_of(mut self, filter: &str) -> Self {
        self.filter = format!("({}) and ({filter})", self.filter);
        self
    }

    /// Builds the tests.
    ///
    /// # Errors
    ///
    /// When they cannot be built.
    pub fn build(&self) -> anyhow::Result<()> {
        run(self.command(None).arg("--no-run"))
    }

    fn command(&self, only: Option<&[Test]>) -> Command {
        let mut command = cargo();
        // A set that is empty is an error, and not nextest's to find.
        command.args(["nextest", "run", "--profile", PROFILE, "--no-tests", "pass"]);
        command.args(&self.arguments).arg("--target-dir").arg(&self.target);
        // What is tried again runs alone.
        if let Some(threads) = if only.is_some() { Some(1) } else { self.threads } {
            command.args(["--test-threads", &threads.to_string()]);
        }
        let chosen = only.map(|tests| tests.iter().map(exactly).collect::<Vec<_>>().join(" or "));
        command.args(["-E", chosen.as_deref().unwrap_or(&self.filter)]);
        // Of whoever calls this: the libraries that are there may be old.
        command.env_remove(LIBRARIES_VARIABLE);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        // The same cases each time; `cargo test` tries others.
        if std::env::var_os(SEED).is_none() {
            command.env(SEED, "1");
        }
        command
    }
}

/// A filter that chooses one test.
fn exactly(test: &Test) -> String {
    format!("(binary_id(={}) and test(={}))", test.binary, test.name)
}

impl Set for Nextest {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn run(&self, only: Option<&[Test]>) -> anyhow::Result<Vec<Outcome>> {
        // There whatever the target directory is.
        let report = root().join("target/nextest").join(PROFILE).join("junit.xml");
        let _ = fs::remove_file(&report);
        let mut command = self.command(only);
        let shown = show(&command);
        println!("\n$ {shown}");
        let status = command.status().with_context(|| format!("cannot run: {shown}"))?;
        if !status.code().is_some_and(|code| TOLD.contains(&code)) {
            bail!("failed with {status}: {shown}");
        }
        let text =
            fs::read_to_string(&report).with_context(|| format!("reading {}", report.display()))?;
        read(&text).with_context(|| format!("reading {}", report.display()))
    }

    fn skipped(&self) -> usize {
        self.skipped
    }

    fn may_be_empty(&self) -> bool {
        self.may_be_empty
    }
}

/// The tests of a JUnit file of nextest's.
fn read(junit: &str) -> anyhow::Result<Vec<Outcome>> {
    let document = roxmltree::Document::parse(junit)?;
    let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
    let outcome = |case: roxmltree::Node<'_, '_>| {
        let attribute = |name| case.attribute(name).with_context(|| format!("a test's {name}"));
        let test = Test {
            binary: attribute("classname")?.to_owned(),
            name: attribute("name")?.to_owned(),
        };
        let seconds: f64 = attribute("time")?.parse().context("a test's time")?;
        let failed =
            case.children().find(|node| node.has_tag_name("failure") || node.has_tag_name("error"));
        let failure = failed.map(|failed| {
            let why = failed.attribute("type").unwrap_or("it failed").to_owned();
            let printed = ["system-out", "system-err"]
                .into_iter()
                .filter_map(|name| case.children().find(|node| node.has_tag_name(name))?.text());
            std::iter::once(why.as_str()).chain(printed).collect::<Vec<_>>().join("\n")
        });
        Ok(Outcome { test, took: Duration::from_secs_f64(seconds), failure })
    };
    cases.map(outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_from_junit() {
        let junit = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="xtask" tests="2" failures="1" errors="0" time="0.2">
    <testsuite name="e2e::attach" tests="2" disabled="0" errors="0" failures="1">
        <testcase name="root_a" classname="e2e::attach" timestamp="2026-11-25T22:00:00+00:00" time="0.250">
        </testcase>
        <testcase name="root_b" classname="e2e::attach" timestamp="2026-11-25T22:00:00+00:00" time="1.5">
            <failure message="thread 'root_b' panicked at x.rs:1" type="test failure with exit code 101">text</failure>
            <system-out>said &lt;this&gt;</system-out>
            <system-err>and that</system-err>
        </testcase>
    </testsuite>
</testsuites>"#;
        let outcomes = read(junit).unwrap();
        let test = |name: &str| Test { binary: "e2e::attach".into(), name: name.into() };
        let passed =
            Outcome { test: test("root_a"), took: Duration::from_millis(250), failure: None };
        let failure = "test failure with exit code 101\nsaid <this>\nand that".to_owned();
        let failed = Outcome {
            test: test("root_b"),
            took: Duration::from_millis(1500),
            failure: Some(failure),
        };
        assert_eq!(outcomes, [passed, failed]);
        assert_eq!(exactly(&test("root_a")), "(binary_id(=e2e::attach) and test(=root_a))");
    }
}
