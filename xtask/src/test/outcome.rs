//! What came of tests, wherever they ran.

use std::time::Duration;

/// One test that ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its binary and its name.
    pub test: Test,
    /// From its start to its end.
    pub took: Duration,
    /// Why it failed and what it printed, if it failed.
    pub failure: Option<String>,
}

/// A test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    /// The binary that has it, as nextest names it: `e2e::attach`.
    pub binary: String,
    pub name: String,
}

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.binary, self.name)
    }
}

/// Tests that run in one place.
pub trait Set: Sync {
    /// What the table calls it.
    fn label(&self) -> String;

    /// Runs all its tests, or only these, to the end, also when some fail.
    ///
    /// # Errors
    ///
    /// When they could not be built or started, or none ran.
    fn run(&self, only: Option<&[Test]>) -> anyhow::Result<Vec<Outcome>>;

    /// How many tests are not run here, for reasons that were printed.
    fn skipped(&self) -> usize {
        0
    }

    /// Whether it may be that none of its tests was asked for.
    fn may_be_empty(&self) -> bool {
        false
    }
}
