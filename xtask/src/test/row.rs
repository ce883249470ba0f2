//! A row of the table at the end of a run.

use std::time::Duration;

use super::outcome::Test;

/// A test that failed at least once, with what it printed each time.
pub struct Flaky {
    pub test: Test,
    pub failures: Vec<String>,
}

/// A set of tests, or a step that is none.
#[derive(Default)]
pub struct Row {
    pub label: String,
    pub passed: usize,
    pub failed: Vec<Flaky>,
    pub flaky: Vec<Flaky>,
    pub skipped: usize,
    pub took: Duration,
    /// How long each test took.
    pub durations: Vec<(String, Duration)>,
    /// Why it did not get to its end.
    pub error: Option<String>,
    /// It is a set of tests.
    pub is_set: bool,
}

impl Row {
    /// A set that has not run yet.
    pub fn new(label: &str) -> Self {
        Self { label: label.to_owned(), is_set: true, ..Self::default() }
    }
}

impl Row {
    /// What did not get to its end.
    pub fn broken(label: &str, why: &str) -> Self {
        Self { label: label.to_owned(), error: Some(why.to_owned()), ..Self::default() }
    }
}
