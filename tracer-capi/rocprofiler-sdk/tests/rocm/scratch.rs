//! Scratch memory of queues: records and callbacks.

use crate::kinds::{KERNELS, SCRATCH, SCRATCH_TOLD};
use crate::outcome::{Outcome, Scratch};
use crate::scene::{LOADERS, scene};

const ALLOCATE: u64 = 1;
const FREE: u64 = 2;
/// `ROCPROFILER_SCRATCH_ALLOC_FLAG_USE_ONCE`.
const ONCE: u64 = 1;

/// `hsa_direct`'s part: so many dispatches in a queue, the first without scratch memory, each of the others with 256 bytes
/// more for each work-item; and one more without.
pub const DISPATCHES: u64 = 7;
/// From this one on the runtime gives memory for one dispatch alone, since for as many waves as there can be it would be
/// more than 128 MiB.
const FIRST_ONCE: u64 = 5;

/// Runtimes tell of it since ROCm 6.1: all but this machine's own. That of ROCm 5.7 in Debian is of 6.1.
fn is_reported() -> bool {
    std::env::var_os("ROCTAP_TEST_ROCM").is_some()
}

/// Every allocation is told once, by records and by callbacks, with the packet that it is for, and each that was for one
/// dispatch is freed. Later runtimes tell also that they give what a queue has back, for more.
pub fn expect_scratch(outcome: &Outcome) {
    assert_eq!(outcome.kernels.len() as u64, DISPATCHES + 1);
    let [recorded, called_back] = &outcome.scratch;
    if !is_reported() {
        assert!(recorded.is_empty() && called_back.is_empty(), "{:#?}", outcome.scratch);
        return;
    }
    let of = |all: &[Scratch], operation| -> Vec<Scratch> {
        all.iter().filter(|one| one.operation == operation).cloned().collect()
    };
    let allocated = of(called_back, ALLOCATE);
    let packets: Vec<u64> = allocated.iter().map(|one| one.packet).collect();
    assert_eq!(packets, (1..DISPATCHES).collect::<Vec<_>>());
    for one in &allocated {
        let is_once = one.packet >= FIRST_ONCE;
        assert_eq!(one.flags, if is_once { ONCE } else { 0 }, "{one:?}");
        // Of 64 lanes at least.
        assert!(one.bytes >= 64 * 256 * one.packet, "{one:?}");
    }
    let main: Vec<u64> =
        allocated.iter().filter(|one| one.flags == 0).map(|one| one.bytes).collect();
    assert!(main.is_sorted_by(|one, next| one < next), "{main:?}");
    let freed = of(called_back, FREE);
    let of_one = freed.iter().filter(|one| one.flags == ONCE).count();
    assert_eq!(of_one as u64, DISPATCHES - FIRST_ONCE, "{freed:#?}");
    assert!(freed.iter().all(|one| one.flags <= ONCE && one.bytes == 0), "{freed:#?}");
    for (kernel, one) in
        outcome.kernels.iter().flat_map(|k| called_back.iter().map(move |one| (k, one)))
    {
        assert_eq!((one.agent, one.queue), (kernel.agent, kernel.queue));
        // By the runtime's own thread.
        assert!(one.thread != kernel.thread && one.correlation_id == 0, "{one:?}");
    }
    // Records do not say for which packet, and only those of 1.0 how much.
    let known = |one: &Scratch| {
        let bytes = if cfg!(feature = "v1") { one.bytes } else { 0 };
        Scratch { packet: 0, bytes, ..one.clone() }
    };
    assert_eq!(*recorded, called_back.iter().map(known).collect::<Vec<_>>());
}

#[test]
fn rocm_scratch_memory_is_told() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        let kinds = format!("{SCRATCH},{KERNELS}");
        let words = [("WATCH_KINDS", &*kinds), ("WATCH_CALLBACKS", SCRATCH_TOLD)];
        let outcome = scene.run(loader, "hsa_direct", &["m", &DISPATCHES.to_string()], &words);
        expect_scratch(&outcome);
    }
}
