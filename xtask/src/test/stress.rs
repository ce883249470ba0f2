//! `cargo xtask stress`: the tests that trace, again and again beside busy loops, and which of them fail.

use std::{
    collections::BTreeMap,
    hint,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use anyhow::bail;
use clap::Args;

use super::{
    build, must_be_root,
    outcome::{Outcome, Set as _},
    report::Report,
    tools, traced,
};
use crate::{abi, run::in_words};

/// Options of `cargo xtask stress`.
#[derive(Args)]
pub struct Options {
    /// Only tests whose names contain this
    filter: Option<String>,

    /// How often each test runs
    #[arg(long, default_value_t = 10)]
    passes: usize,

    /// How many busy loops run beside them
    #[arg(long, default_value_t = 2)]
    load: usize,
}

/// Runs the tests. None is run a second time because it failed.
///
/// # Errors
///
/// When they cannot be built, or a test failed in any pass.
pub fn run_stress(options: &Options) -> anyhow::Result<()> {
    must_be_root()?;
    tools()?;
    let built = build()?;
    let libraries = Some(abi::check()?);
    let mut sets = traced(&mut Report::new(), &built.artifacts, &libraries);
    if let Some(filter) = &options.filter {
        sets = sets.into_iter().map(|set| set.only_those_of(&format!("test({filter})"))).collect();
    }
    // Before the load begins.
    sets.iter().try_for_each(|set| set.build())?;
    let load = Load::new(options.load);
    let began = Instant::now();
    let mut failures: BTreeMap<String, usize> = BTreeMap::new();
    let mut ran = 0;
    for pass in 1..=options.passes {
        println!("\nPass {pass} of {}, beside {} busy loops", options.passes, options.load);
        for set in &sets {
            for Outcome { test, failure, .. } in set.run(None)? {
                ran += 1;
                if failure.is_some() {
                    *failures.entry(test.to_string()).or_default() += 1;
                }
            }
        }
    }
    drop(load);
    println!();
    for (test, count) in &failures {
        println!("FAILED {test} in {count} of {} passes", options.passes);
    }
    println!("{ran} runs of tests in {}", in_words(began.elapsed()));
    if ran == 0 {
        bail!("no test has {} in its name", options.filter.as_deref().unwrap_or_default());
    }
    if !failures.is_empty() {
        bail!("{} tests failed beside {} busy loops", failures.len(), options.load);
    }
    Ok(())
}

/// Threads that do nothing, all the time.
struct Load {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn new(count: usize) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let busy = |_| {
            let ended = ended.clone();
            thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            })
        };
        let threads = (0..count).map(busy).collect();
        Self { ended, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
