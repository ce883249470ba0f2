//! Memory that is allocated and given back: records and callbacks of the 1.0 interface.

use std::collections::{BTreeMap, BTreeSet};

use capi_build::clients::succeed;
use capi_build::layouts::Language;

use crate::kinds::{ALLOCATIONS, EXTENSIONS, HIP, KERNELS, RETIREMENTS};
use crate::outcome::{Allocation, Outcome};
use crate::scene::{LOADERS, scene};

const ALLOCATE: u64 = 1;
const FREE: u64 = 3;
/// `ROCPROFILER_CALLBACK_TRACING_HSA_CORE_API`.
const CORE: &str = "1";
/// `ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MEMORY_ALLOCATION`.
const REQUEST: u64 = 15;
/// Bytes of each of the two areas that `basic` allocates.
const AREA: u64 = 400_000;

/// Records and callbacks tell the same; that, sorted.
fn allocations(outcome: &Outcome) -> Vec<Allocation> {
    let [mut recorded, mut called_back] = outcome.allocations.clone();
    recorded.sort();
    called_back.sort();
    assert_eq!(recorded, called_back);
    recorded
}

fn of(allocations: &[Allocation], operation: u64) -> Vec<&Allocation> {
    allocations.iter().filter(|one| one.operation == operation).collect()
}

/// Each call of HSA that allocates or frees is told, with what it was given, under its own id.
#[test]
fn rocm_memory_is_told_with_its_calls() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        let (kinds, callbacks) =
            (format!("{ALLOCATIONS},{RETIREMENTS}"), format!("{ALLOCATIONS},{EXTENSIONS}"));
        let words = [("WATCH_KINDS", &*kinds), ("WATCH_CALLBACKS", &callbacks)];
        let outcome = scene.run(loader, "basic", &[], &words);
        let all = allocations(&outcome);
        for (operation, function, argument) in [
            (ALLOCATE, "hsa_amd_memory_pool_allocate", "size"),
            (FREE, "hsa_amd_memory_pool_free", "ptr"),
        ] {
            let calls: BTreeMap<u64, &str> = outcome
                .called_back
                .values()
                .filter(|call| call.name == function)
                .map(|call| (call.correlation_id, &*call.arguments[argument]))
                .collect();
            let given = of(&all, operation).into_iter().filter_map(|one| {
                let given = match operation {
                    ALLOCATE => one.bytes.to_string(),
                    _ => format!("{:#x}", one.address),
                };
                // HIP may use the core's functions, too.
                calls.contains_key(&one.correlation_id).then_some((one.correlation_id, given))
            });
            let given: BTreeMap<u64, String> = given.collect();
            let calls: BTreeMap<u64, String> =
                calls.into_iter().map(|(id, given)| (id, given.to_owned())).collect();
            assert!(!calls.is_empty());
            assert_eq!(given, calls, "{function}");
        }
        for one in &all {
            assert!(one.begin_ns <= one.end_ns && one.external_id == 77, "{one:?}");
            assert!(outcome.ids[&one.correlation_id].retired_ns.is_some(), "{one:?}");
            let is_allocated = one.operation == ALLOCATE;
            assert_eq!((one.agent != 0, one.bytes != 0), (is_allocated, is_allocated), "{one:?}");
        }
        let addresses: BTreeSet<u64> = of(&all, ALLOCATE).iter().map(|one| one.address).collect();
        assert!(!addresses.contains(&0));
        assert!(of(&all, FREE).iter().all(|one| addresses.contains(&one.address)), "{all:#?}");
    }
}

/// The areas that HIP allocates are the GPU's, under the ids of its calls.
#[test]
fn rocm_memory_is_that_of_its_calls_of_hip() {
    let Some(scene) = scene() else { return };
    let kinds = format!("{ALLOCATIONS},{HIP},{KERNELS}");
    let words = [("WATCH_KINDS", &*kinds), ("WATCH_CALLBACKS", ALLOCATIONS)];
    let outcome = scene.run("HSA_TOOLS_LIB", "basic", &[], &words);
    let all = allocations(&outcome);
    let names: BTreeMap<u64, &str> =
        outcome.calls.iter().map(|call| (call.correlation_id, call.name)).collect();
    let name = |one: &&Allocation| names.get(&one.correlation_id).copied();
    let gpu = outcome.kernels[0].agent;
    let areas: Vec<_> = of(&all, ALLOCATE)
        .into_iter()
        .filter(|one| one.agent == gpu && one.bytes >= AREA && name(one) == Some("hipMalloc"))
        .collect();
    assert_eq!(areas.len(), 2, "{all:#?}");
    for area in areas {
        let frees = of(&all, FREE);
        let free = frees.iter().find(|free| free.address == area.address).expect("given back");
        assert_eq!(name(free), Some("hipFree"));
    }
}

/// Where no call is traced, each has an id of its own, which is retired.
#[test]
fn rocm_memory_alone() {
    let Some(scene) = scene() else { return };
    let kinds = format!("{ALLOCATIONS},{RETIREMENTS}");
    let words = [("WATCH_KINDS", &*kinds), ("WATCH_CALLBACKS", ALLOCATIONS)];
    let outcome = scene.run("LD_PRELOAD", "storm", &["4", "2", "50"], &words);
    let all = allocations(&outcome);
    let ids: BTreeSet<u64> = all.iter().map(|one| one.correlation_id).collect();
    assert_eq!(ids.len(), all.len());
    assert!(ids.iter().all(|id| outcome.ids[id].retired_ns.is_some()));
    assert_eq!(outcome.ids.len(), ids.len());
    let threads: BTreeSet<u64> = all.iter().map(|one| one.thread).collect();
    assert!(threads.len() > crate::scene::threads(4), "{threads:?}");
}

/// Who is asked for an external id is in a callback: what it calls itself is told nobody, and it is not asked for that.
#[test]
fn rocm_memory_has_the_external_id_that_a_tool_answers_with() {
    let Some(scene) = scene() else { return };
    let callbacks = format!("{ALLOCATIONS},{CORE}");
    let kinds = [("WATCH_KINDS", ALLOCATIONS), ("WATCH_CALLBACKS", &callbacks)];
    let words = [&kinds[..], &[("WATCH_ASKED", "calls")]].concat();
    let outcome = scene.run("LD_PRELOAD", "basic", &[], &words);
    let all = allocations(&outcome);
    assert!(!all.is_empty() && all.iter().all(|one| one.external_id == 1000 * REQUEST), "{all:#?}");
}

/// It has no address, whatever was at the place for it.
#[test]
fn rocm_memory_that_is_refused() {
    let Some(scene) = scene() else { return };
    let program = scene.file("refused");
    let mut compiler = scene.clients.compiler(Language::C).expect("a compiler");
    compiler.arg("-o").args([&program, &scene.clients.source("refused.c")]);
    if scene.inside.is_some() {
        compiler.arg("-Wl,--no-as-needed").arg("-L").arg(&scene.gpu).arg("-lemulated_gpu_driver");
    }
    // The runtime needs libraries that are where it is.
    compiler.args(["-Wl,--allow-shlib-undefined", "-lhsa-runtime64"]);
    succeed(&mut compiler).expect("the program");
    let mut command = scene.command("LD_PRELOAD", &program);
    command.env("WATCH_KINDS", ALLOCATIONS).env("WATCH_CALLBACKS", ALLOCATIONS);
    let all = allocations(&scene.run_command(command));
    let [refused] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((refused.operation, refused.address, refused.bytes), (ALLOCATE, 0, 1 << 60));
    assert_ne!(refused.agent, 0);
}

/// A callback that is not asked for an operation is not told of it.
#[test]
fn rocm_memory_that_is_given_back_alone() {
    let Some(scene) = scene() else { return };
    let operation = FREE.to_string();
    let words = [("WATCH_KINDS", ALLOCATIONS), ("WATCH_OPERATION", &*operation)];
    let outcome = scene.run("LD_PRELOAD", "basic", &[], &words);
    let [recorded, called_back] = &outcome.allocations;
    assert!(!recorded.is_empty() && called_back.is_empty());
    assert!(recorded.iter().all(|one| one.operation == FREE), "{recorded:#?}");
}
