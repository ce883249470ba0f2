//! What the verifier has to follow, and what probes are measured to cost.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use e2e::{Scene, run};
use roctap::probe::{Follow, Programs, Settings};

/// The most instructions that any kernel verified of each program (6.1, 6.12 and 6.18), and a tenth more. By how
/// much that is exceeded is said. Other compilers and kernels make it half as many again: more is a finding.
const USUAL_INSTRUCTIONS: [(&str, u32); 12] = [
    ("api_call", 34_400),
    ("api_enter", 15_300),
    ("api_exit", 13_250),
    ("dispatch_site", 5_850),
    ("doorbell", 16_550),
    ("floor_enter", 2),
    ("floor_exit", 2),
    ("libraries_change", 160),
    ("signal_end", 162),
    ("task_created", 154),
    ("task_ended", 19_800),
    ("task_executed", 713),
];

/// What makes loading slow does not grow unseen.
#[test]
fn root_kernel_verified_instructions_are_bounded() {
    let began = Instant::now();
    let programs = Programs::load(Settings::new(4096, Follow::Nobody)).expect("it loads");
    println!("loaded in {:?}", began.elapsed());
    let verified = programs.verified_instructions().expect("the kernel tells");
    println!("{verified:?}");
    let usual = BTreeMap::from(USUAL_INSTRUCTIONS.map(|(name, count)| (name.to_owned(), count)));
    for (name, count) in verified {
        let usual = *usual.get(&name).unwrap_or_else(|| panic!("{name} has no bound"));
        if count > usual {
            println!("{name}: {count} instructions, {} more than usual", count - usual);
        }
        assert!((1..=usual * 3 / 2).contains(&count), "{name}: {count}, usual {usual}");
    }
}

/// Every class of instruction and the dispatch site are measured. What they may cost is `cargo xtask bench`'s to say.
#[test]
fn root_kernel_calibration() {
    let ran = run(&mut Scene::default().roctap(&["doctor", "--calibrate"])).expect(0);
    println!("{}", ran.stdout);
    let number = |word: &str| word.parse::<f64>().unwrap_or_else(|_| panic!("{ran:#?}"));
    let mut classes = BTreeSet::new();
    let mut dispatch = None;
    for line in ran.stdout.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [class, entry, both] => {
                assert!(number(entry) > 0.0 && number(both) > 0.0, "{ran:#?}");
                classes.insert(class.to_owned());
            }
            _ => {
                let (_, rest) = line.split_once("adds ").expect("the dispatch site");
                dispatch = rest.split(' ').next().map(number);
            }
        }
    }
    assert_eq!(classes.len(), 3, "{ran:#?}");
    assert!(dispatch.expect("the dispatch site") > 0.0, "{ran:#?}");
}
