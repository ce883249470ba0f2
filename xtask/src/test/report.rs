//! The table at the end of a run: what passed, what failed and what it printed, and where the time went.

use std::{fmt::Write as _, process::ExitCode, time::Instant};

use super::{
    again::{self, KNOWN_FLAKY, KnownFlaky},
    outcome::Set,
    row::Row,
};
use crate::run::in_words;

/// A run with more flaky tests than these is red.
const MOST_FLAKY: usize = 2;
/// How many of the slowest tests are named.
const SLOWEST: usize = 10;
/// Of what a failed test printed, at most so many lines are shown again, the last ones.
const LINES: usize = 80;

/// A run.
pub struct Report {
    began: Instant,
    rows: Vec<Row>,
}

impl Report {
    /// It begins.
    pub fn new() -> Self {
        Self { began: Instant::now(), rows: Vec::new() }
    }

    /// Does something that is no test. Where it fails the run is red, and goes on; what needs it is left out.
    pub fn step<T>(&mut self, label: &str, step: impl FnOnce() -> anyhow::Result<T>) -> Option<T> {
        let began = Instant::now();
        let done = step();
        let error = done.as_ref().err().map(|error| format!("{error:#}"));
        if let Some(error) = &error {
            println!("\n{label}: {error}");
        }
        self.rows.push(Row {
            label: label.to_owned(),
            took: began.elapsed(),
            error,
            ..Row::default()
        });
        done.ok()
    }

    /// Runs a set to its end.
    pub fn set(&mut self, set: &dyn Set) {
        println!("\nTests of {}:", set.label());
        self.add(again::run(set));
    }

    /// Takes a set that ran.
    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Takes what did not get to its end.
    pub fn broken(&mut self, label: &str, why: &str) {
        self.rows.push(Row::broken(label, why));
    }

    /// Tests could not run, since what they need cannot be downloaded. In continuous integration (`CI=true`),
    /// which should be able to have it, that is an error.
    pub fn not_had(&mut self, label: &str, error: &anyhow::Error) {
        if std::env::var_os("CI").is_some_and(|ci| ci == "true") {
            return self.broken(label, &format!("it cannot be had: {error:#}"));
        }
        println!("\nNot run: the tests on {label}, which cannot be had: {error:#}");
        self.rows.push(Row { label: format!("{label}: NOT RUN"), ..Row::default() });
    }

    /// Prints what came of it, and says whether that is a success.
    pub fn close(self) -> ExitCode {
        print!("{}", self.details());
        let red = self.why_red();
        match red.as_deref() {
            None => println!("green in {}", in_words(self.began.elapsed())),
            Some(why) => println!("red after {}: {why}", in_words(self.began.elapsed())),
        }
        let sum = |of: fn(&Row) -> usize| self.rows.iter().map(of).sum::<usize>();
        let [passed, failed, skipped] =
            [sum(|r| r.passed), sum(|r| r.failed.len()), sum(|r| r.skipped)];
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        if red.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    /// Why the run is red, if it is.
    fn why_red(&self) -> Option<String> {
        let mut why: Vec<String> = Vec::new();
        let failed: usize = self.rows.iter().map(|row| row.failed.len()).sum();
        if failed > 0 {
            why.push(counted(failed, "test failed", "tests failed"));
        }
        let broken = self.rows.iter().filter(|row| row.error.is_some());
        why.extend(broken.map(|row| format!("{} did not work", row.label)));
        let flaky: usize = self.rows.iter().map(|row| row.flaky.len()).sum();
        if flaky > MOST_FLAKY {
            why.push(format!("{flaky} tests are flaky, and at most {MOST_FLAKY} may be"));
        }
        let ran = |row: &Row| row.passed + row.failed.len() + row.flaky.len();
        if self.rows.iter().map(ran).sum::<usize>() == 0 {
            why.push("no test ran".to_owned());
        }
        (!why.is_empty()).then(|| why.join("; "))
    }

    /// Failures with what they printed, the table, the slowest tests, and the names once more.
    fn details(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            for flaky in row.failed.iter().chain(&row.flaky) {
                for (nth, failure) in flaky.failures.iter().enumerate() {
                    let _ =
                        writeln!(text, "\n---- {} ({}), try {}", flaky.test, row.label, nth + 1);
                    let _ = writeln!(text, "{}", last_lines(failure));
                }
            }
        }
        let width = self.rows.iter().map(|row| row.label.len()).max().unwrap_or(0);
        let _ = writeln!(text, "\n{:width$}  passed  failed  flaky  skipped  time", "set, or step");
        for row in &self.rows {
            let took = in_words(row.took);
            let counts = match row.is_set {
                true => format!(
                    "{:>6}  {:>6}  {:>5}  {:>7}",
                    row.passed,
                    row.failed.len(),
                    row.flaky.len(),
                    row.skipped
                ),
                false => " ".repeat(30),
            };
            let broken = if row.error.is_some() { "  DID NOT WORK" } else { "" };
            let _ = writeln!(text, "{:width$}  {counts}  {took}{broken}", row.label);
        }
        let mut slowest: Vec<_> = self.rows.iter().flat_map(|row| &row.durations).collect();
        slowest.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        let slowest =
            slowest.iter().take(SLOWEST).map(|(name, took)| format!("{name} {} s", took.as_secs()));
        let _ = writeln!(text, "\nslowest: {}\n", slowest.collect::<Vec<_>>().join(", "));
        for (row, error) in self.rows.iter().filter_map(|row| Some((row, row.error.as_ref()?))) {
            let _ = writeln!(text, "FAILED {}: {}", row.label, last_lines(error));
        }
        for row in &self.rows {
            for failed in &row.failed {
                let _ = writeln!(text, "FAILED {} ({})", failed.test, row.label);
            }
            for flaky in &row.flaky {
                let tries = flaky.failures.len();
                let known = KNOWN_FLAKY.iter().find(|known| known.test == flaky.test.name);
                let known = match known {
                    Some(KnownFlaky { since, cause, .. }) => {
                        format!("known since {since}: {cause}")
                    }
                    None => "NEW: mend it, or name it in xtask/src/test/again.rs".to_owned(),
                };
                let _ = writeln!(
                    text,
                    "FLAKY {} (failed {tries} of {}; {}): {known}",
                    flaky.test,
                    tries + 1,
                    row.label
                );
            }
        }
        text
    }
}

fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The end of a long text.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let left_out = lines.len().saturating_sub(LINES);
    let shown = lines[left_out..].join("\n");
    if left_out == 0 {
        shown
    } else {
        format!("({left_out} lines before these are above)\n{shown}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::test::{outcome::Test, row::Flaky};

    fn flaky(name: &str, failures: usize) -> Flaky {
        let test = Test { binary: "e2e::calls".to_owned(), name: name.to_owned() };
        Flaky { test, failures: vec!["it panicked".to_owned(); failures] }
    }

    fn report(change: impl FnOnce(&mut Row)) -> Report {
        let mut row = Row { passed: 3, ..Row::new("end to end") };
        row.durations =
            vec![("a".into(), Duration::from_secs(1)), ("b".into(), Duration::from_secs(2))];
        change(&mut row);
        let mut report = Report::new();
        report.add(row);
        report
    }

    #[test]
    fn a_run_is_green_or_says_why_not() {
        assert_eq!(report(|_| {}).why_red(), None);
        assert_eq!(report(|row| row.flaky.extend([flaky("a", 1), flaky("b", 2)])).why_red(), None);
        let red = |change: fn(&mut Row)| report(change).why_red().expect("red");
        let three = |row: &mut Row| row.flaky.extend(["a", "b", "c"].map(|name| flaky(name, 1)));
        assert_eq!(red(three), "3 tests are flaky, and at most 2 may be");
        assert_eq!(red(|row| row.failed.push(flaky("a", 3))), "1 test failed");
        assert_eq!(red(|row| row.error = Some("x".into())), "end to end did not work");
        let mut steps = Report::new();
        steps.step("building", || Ok(()));
        assert_eq!(steps.why_red().as_deref(), Some("no test ran"));
    }

    #[test]
    fn all_that_failed_is_named_and_shown() {
        let details = report(|row| {
            row.failed.push(flaky("root_a", 3));
            row.flaky.push(flaky("root_b", 1));
        });
        let details = details.details();
        assert!(details.contains("---- e2e::calls root_a (end to end), try 3\nit panicked\n"));
        assert!(details.contains("\nFAILED e2e::calls root_a (end to end)\n"), "{details}");
        let line = "\nFLAKY e2e::calls root_b (failed 1 of 2; end to end): NEW: mend it";
        assert!(details.contains(line), "{details}");
        assert!(details.contains("slowest: b 2 s, a 1 s"), "{details}");
    }

    #[test]
    fn a_step_that_fails_makes_the_run_red_and_lets_it_go_on() {
        let mut report = report(|_| {});
        assert_eq!(report.step::<()>("clippy", || anyhow::bail!("a lint")), None);
        assert_eq!(report.why_red().as_deref(), Some("clippy did not work"));
        assert!(report.details().contains("FAILED clippy: a lint"));
    }

    #[test]
    fn of_long_texts_the_end_is_shown() {
        let text = (0..200).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        let shown = last_lines(&text);
        assert!(shown.starts_with("(120 lines before these are above)\n120\n"), "{shown}");
        assert!(shown.ends_with("\n199"));
    }
}
