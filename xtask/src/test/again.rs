//! Which tests are run again when they fail, and what that makes of them.
//!
//! A test that fails is run again alone, at most twice. If it passes then, it is flaky: it stays visible,
//! with what it printed. Tests whose subject is harm are never run again: what harms one process in five
//! would pass 99 % of the time in three tries.

use std::time::Instant;

use super::{
    outcome::{Outcome, Set, Test},
    row::{Flaky, Row},
};
use crate::kernels::KERNEL;

/// How often a test that failed is run again.
const AGAIN: usize = 2;
/// If more tests of a set fail, that is no chance, and none is run again.
const TOO_MANY: usize = 10;

/// Test binaries, and modules of them, whose tests are never run again: hostile programs, what stays in a
/// process, who is killed, which rights are given up.
const HARM: [(&str, &str); 9] = [
    ("e2e::inject", ""),
    ("e2e::kernels", "killed::"),
    ("e2e::kernels", "privileges::"),
    ("e2e::plugins", "rights::"),
    ("tracer-shim::life_cycle", ""),
    ("tracer-shim::no_harm", ""),
    ("tracer-shim::other_tools", ""),
    ("tracer-shim::relaying", ""),
    ("tracer-shim::schedules", ""),
];
/// The package of hostile programs.
const HOSTILE: &str = "hostile::";

/// Single tests for which the same holds.
const HARM_BY_NAME: [&str; 15] = [
    "rocm_a_tool_is_put_into_a_confined_program",
    "rocm_after_a_killed_recorder",
    "rocm_attached_again_and_again",
    "rocm_two_hundred_times",
    "root_a_failed_start_leaves_nothing",
    "root_attach_again_and_again",
    "root_attach_again_and_again_under_other_allocators",
    "root_attach_by_uprobes_alone_is_marked_partial",
    "root_attach_survives_a_killed_roctap",
    "root_exceptions_pass_through_probed_functions",
    "root_exceptions_pass_through_recorded_functions",
    "root_killing_roctap_leaves_the_target_and_a_readable_trace",
    "root_no_privileges",
    "root_programs_run_untraced",
    "root_uprobes_alone_leave_nothing_in_the_target",
];

/// A test that is known to be flaky.
pub struct KnownFlaky {
    /// Its name.
    pub test: &'static str,
    /// When it was first seen, and why it fails, as far as that is known.
    pub since: &'static str,
    pub cause: &'static str,
}

/// Who finds another one mends it with the next change, or adds it here.
pub const KNOWN_FLAKY: &[KnownFlaky] = &[];

/// Whether a test may be run again.
pub fn may_run_again(test: &Test) -> bool {
    let harm =
        |&(binary, module): &(&str, &str)| test.binary == binary && test.name.starts_with(module);
    !test.binary.starts_with(HOSTILE)
        && test.binary != KERNEL
        && !HARM.iter().any(harm)
        && !HARM_BY_NAME.iter().any(|&name| test.name.rsplit("::").next() == Some(name))
}

/// Runs a set to its end, and those that failed again.
pub fn run(set: &dyn Set) -> Row {
    let began = Instant::now();
    let mut row = Row::new(&set.label());
    row.skipped = set.skipped();
    match set.run(None) {
        Ok(outcomes) if outcomes.is_empty() && !set.may_be_empty() => {
            row.error = Some("no test ran".to_owned());
        }
        Ok(outcomes) => judge(set, outcomes, &mut row),
        Err(error) => row.error = Some(format!("{error:#}")),
    }
    row.took = began.elapsed();
    row
}

fn judge(set: &dyn Set, outcomes: Vec<Outcome>, row: &mut Row) {
    row.durations = outcomes.iter().map(|o| (o.test.to_string(), o.took)).collect();
    let (failed, passed): (Vec<_>, Vec<_>) =
        outcomes.into_iter().partition(|outcome| outcome.failure.is_some());
    row.passed = passed.len();
    let some = failed.len() <= TOO_MANY;
    for outcome in failed {
        let mut failures = vec![outcome.failure.unwrap_or_default()];
        let mut passes = false;
        while some && !passes && failures.len() <= AGAIN && may_run_again(&outcome.test) {
            println!("\nAgain, alone: {}", outcome.test);
            match again(set, &outcome.test) {
                None => passes = true,
                Some(failure) => failures.push(failure),
            }
        }
        let flaky = Flaky { test: outcome.test, failures };
        if passes {
            row.passed += 1;
            row.flaky.push(flaky);
        } else {
            row.failed.push(flaky);
        }
    }
}

/// Runs a test alone: why it failed, if it did.
fn again(set: &dyn Set, test: &Test) -> Option<String> {
    match set.run(Some(std::slice::from_ref(test))) {
        Ok(outcomes) => match outcomes.into_iter().find(|outcome| outcome.test == *test) {
            Some(outcome) => outcome.failure,
            None => Some("it did not run again".to_owned()),
        },
        Err(error) => Some(format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path, sync::Mutex, time::Duration};

    use super::*;
    use crate::rocm::{LEFT_OUT, LIBRARIES_QUICK};
    use crate::run::root;

    fn test(binary: &str, name: &str) -> Test {
        Test { binary: binary.to_owned(), name: name.to_owned() }
    }

    /// Each test fails so often, then passes.
    struct Failing(Mutex<Vec<(Test, usize)>>);

    impl Failing {
        fn new(tests: Vec<(Test, usize)>) -> Self {
            Self(Mutex::new(tests))
        }
    }

    impl Set for Failing {
        fn label(&self) -> String {
            "failing".to_owned()
        }

        fn run(&self, only: Option<&[Test]>) -> anyhow::Result<Vec<Outcome>> {
            let mut tests = self.0.lock().expect("not poisoned");
            let chosen = tests.iter_mut().filter(|(test, _)| only.is_none_or(|o| o.contains(test)));
            let outcome = |(test, left): &mut (Test, usize)| {
                let failure = (*left > 0).then(|| format!("{left} left"));
                *left = left.saturating_sub(1);
                Outcome { test: test.clone(), took: Duration::from_secs(1), failure }
            };
            Ok(chosen.map(outcome).collect())
        }
    }

    #[test]
    fn who_passes_alone_is_flaky_and_who_does_not_has_failed() {
        let tests = (0..5).map(|n| (test("e2e::calls", &format!("root_{n}")), n)).collect();
        let row = run(&Failing::new(tests));
        assert_eq!(row.passed, 3);
        let flaky: Vec<_> =
            row.flaky.iter().map(|f| (f.test.name.as_str(), f.failures.len())).collect();
        assert_eq!(flaky, [("root_1", 1), ("root_2", 2)]);
        let failed: Vec<_> = row.failed.iter().map(|f| f.test.name.as_str()).collect();
        assert_eq!(failed, ["root_3", "root_4"]);
        assert_eq!(row.failed[0].failures, ["3 left", "2 left", "1 left"]);
    }

    #[test]
    fn harm_is_never_tried_twice() {
        let tests = [
            test("hostile::files", "hostile_x"),
            test("e2e::inject", "root_inject_x"),
            test("e2e::kernels", "killed::root_kernel_x"),
            test("e2e::attach", "root_attach_again_and_again"),
        ];
        let row = run(&Failing::new(tests.map(|test| (test, 1)).into()));
        assert_eq!((row.failed.len(), row.flaky.len()), (4, 0));
        assert!(may_run_again(&test("e2e::kernels", "load::root_kernel_x")));
        let confined = "beside::rocm_a_tool_is_put_into_a_confined_program";
        assert!(!may_run_again(&test("rocprofiler-sdk::rocm", confined)));
    }

    #[test]
    fn where_all_fails_nothing_is_tried_again() {
        let tests = (0..=TOO_MANY).map(|n| (test("e2e::calls", &format!("root_{n}")), 1)).collect();
        let row = run(&Failing::new(tests));
        assert_eq!((row.failed.len(), row.flaky.len()), (TOO_MANY + 1, 0));
    }

    #[test]
    fn a_set_without_tests_is_an_error() {
        assert_eq!(run(&Failing::new(Vec::new())).error.as_deref(), Some("no test ran"));
    }

    /// Functions in the sources below a directory.
    fn functions(directory: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                functions(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source");
                let name = |line: &str| {
                    let (name, _) = line.trim().strip_prefix("fn ")?.split_once('(')?;
                    Some(name.to_owned())
                };
                found.extend(text.lines().filter_map(name));
            }
        }
    }

    #[test]
    fn tests_that_are_named_here_exist() {
        let mut found = BTreeSet::new();
        for directory in [
            "tests/e2e/tests",
            "tests/hostile/tests",
            "tracer-shim/tests",
            "tracer-capi/roctracer64/tests",
            "tracer-capi/roctracer-tool/tests",
            "tracer-capi/rocprofiler-sdk/tests",
        ] {
            functions(&root().join(directory), &mut found);
        }
        let named = HARM_BY_NAME.into_iter().chain(KNOWN_FLAKY.iter().map(|known| known.test));
        let left_out = LEFT_OUT.iter().flat_map(|left| left.tests);
        let left_out = left_out.map(|test| test.rsplit("::").next().unwrap_or(test));
        for name in named.chain(LIBRARIES_QUICK).chain(left_out) {
            assert!(found.contains(name), "there is no test {name}");
        }
        for (binary, _) in HARM {
            let (package, name) = binary.split_once("::").expect("a package and a binary");
            let package = if package == "e2e" { "tests/e2e" } else { package };
            let place = root().join(package).join("tests").join(name);
            assert!(place.with_extension("rs").exists() || place.is_dir(), "{}", place.display());
        }
    }
}
