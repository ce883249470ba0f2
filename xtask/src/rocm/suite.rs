//! The end-to-end tests, and those of the libraries with C interfaces, on other releases of ROCm.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use anyhow::{Context as _, bail};

use super::{describe, inside, left_out::LEFT_OUT, programs, root::Root};
use crate::{
    abi,
    artifacts::{TRACED, UNIT_FEATURES, build_release, end_to_end_tests, tests},
    run::{root as workspace, show_quoted},
    test::nextest::{Nextest, TRACED_AT_ONCE, untraced_at_once},
};

/// The major release that `cargo xtask test` runs the most telling tests on, beside this machine's own: of
/// it the one that Debian has now.
pub const QUICK_ON: &str = "6";

/// Test binaries of the package `e2e`. The others have no ROCm in them (`inject`, `logging`), run in
/// virtual machines (`kernels`, `methods`), or read traces, which are the same on all releases (`plugins`).
const BINARIES: [&str; 9] = [
    "attach",
    "calls",
    "circumstances",
    "complete",
    "losses",
    "mistakes",
    "outside",
    "ranges",
    "redirected",
];

/// Which tests run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All but those that are left out by name.
    Whole,
    /// Of these, the most telling ones.
    Quick,
}

/// Of every way of recording, and of what programs do with a GPU, one. Some minutes on two cores.
const QUICK: [&str; 20] = [
    "root_a_program_that_never_touches_the_gpu",
    "root_a_program_without_rocm",
    "root_attach_follows_children_and_programs_that_are_executed",
    "root_attach_hands_calls_of_hip_over_one_by_one",
    "root_attach_sees_every_kernel_with_its_call",
    "root_calls_of_a_pure_hsa_program_are_those_that_it_made",
    "root_calls_that_the_compiler_makes_are_recorded_where_asked_for",
    "root_copies_have_their_bytes_and_directions",
    "root_ctrl_c_ends_cleanly",
    "root_exceptions_pass_through_recorded_functions",
    "root_forked_workers_are_followed_with_their_gpu_work",
    "root_graphs_modules_and_callbacks",
    "root_hsa_calls_are_inside_of_their_hip_calls",
    "root_outside_hip_launches_are_seen_by_name",
    "root_outside_of_a_running_process",
    "root_outside_short_programs_whose_shim_is_helpless",
    "root_programs_run_untraced",
    "root_shim_and_probes_record_the_same_calls_of_hip",
    "root_storm_of_8_threads_4_streams_5000_launches",
    "root_two_hip_libraries_in_one_process",
];

/// Tests of the libraries with C interfaces in HIP programs.
pub const LIBRARIES: &str = "(package(roctracer64) or package(roctracer-tool) or package(rocprofiler-sdk) or package(rocprofiler-sdk-1)) and test(rocm_)";

/// Of these, what differs most between releases: in whichever module of a test binary they are.
pub const LIBRARIES_QUICK: [&str; 11] = [
    "rocm_callbacks_of_every_kernel_and_copy",
    "rocm_callbacks_of_hsa_that_do_as_they_like",
    "rocm_callbacks_that_do_as_they_like",
    "rocm_clients_like_profilers",
    "rocm_ends_of_programs",
    "rocm_every_call_of_programs",
    "rocm_every_call_of_threads",
    "rocm_every_kernel_and_copy_of_programs",
    "rocm_programs_that_use_hip",
    "rocm_scratch_memory_is_told",
    "rocm_a_tool_is_put_into_a_running_program",
];

/// The tests on a release, of which names may have to contain something: builds the programs there, and sees that they
/// run untraced.
///
/// # Errors
///
/// When something cannot be built, or a program fails without roctap.
pub fn sets(
    root: &Root,
    extent: Extent,
    libraries: &Option<abi::Variable>,
    filter: Option<&str>,
) -> anyhow::Result<Vec<Nextest>> {
    println!("\n{}", describe(root)?);
    build_release(&["roctap", "tracer-shim", "emulated-gpu-driver", "roctx"])?;
    let built = programs::build(root)?;
    programs::run_untraced(root, &built)?;
    let mut all = Vec::new();
    for binary in end_to_end_tests(&BINARIES)? {
        all.extend(tests(&binary, "root_")?);
    }
    let left_out = LEFT_OUT.iter().flat_map(|left| left.tests).copied();
    let mut of_these = left_out.filter(|name| !name.contains("::")).chain(QUICK);
    if let Some(unknown) = of_these.find(|name| !all.iter().any(|test| test == name)) {
        bail!("there is no test {unknown}");
    }
    all.retain(|test| extent == Extent::Whole || QUICK.contains(&test.as_str()));
    all.retain(|test| filter.is_none_or(|part| test.contains(part)));
    let (mut names, mut skipped) = (Vec::new(), 0);
    for test in &all {
        match LEFT_OUT.iter().find(|left| left.has(test, &root.release)) {
            Some(left) => {
                println!("not run: {test}: {}", left.why);
                skipped += 1;
            }
            None => names.push(format!("test(={test})")),
        }
    }
    let label = format!("ROCm {}", root.release);
    let binaries = BINARIES.iter().flat_map(|name| ["--test", name]).collect::<Vec<_>>();
    let chosen = format!("package(e2e) and ({})", names.join(" or "));
    let runner = runner(root)?;
    let end_to_end = Nextest::new(&label, &TRACED, &chosen)
        .with(&["--release"])
        .with(&binaries)
        .at_once(TRACED_AT_ONCE)
        .without(skipped)
        .in_environment(built.environment())
        .in_environment([("ROCTAP_TEST_ROCM", root.release.clone().into())])
        .run_by(runner.clone());
    // These compile and run programs there themselves. They were built for the unit tests already.
    let named = |name: &str| format!(r"test(/\b{name}$/)");
    let mut of_libraries = match extent {
        Extent::Whole => {
            let part = filter.map_or_else(String::new, |part| format!(" and test(~{part})"));
            format!("{LIBRARIES}{part}")
        }
        Extent::Quick => format!("{LIBRARIES} and ({})", LIBRARIES_QUICK.map(named).join(" or ")),
    };
    for left in LEFT_OUT {
        for &test in left.tests.iter().filter(|test| left.has(test, &root.release)) {
            if let Some((package, name)) = test.split_once("::") {
                println!("not run: {test}: {}", left.why);
                of_libraries += &format!(" and not (package({package}) and {})", named(name));
            }
        }
    }
    let libraries = Nextest::new(&format!("libraries, {label}"), &[], &of_libraries)
        .with(&UNIT_FEATURES)
        .at_once(untraced_at_once())
        .in_environment(built.environment())
        .in_environment([("ROCTAP_TEST_ROCM", root.release.clone().into())])
        .in_environment([("ROCTAP_TEST_INSIDE", runner)])
        .in_environment(libraries.clone())
        .which_may_be_empty(filter.is_some());
    let is_any = !names.is_empty();
    Ok(is_any.then_some(end_to_end).into_iter().chain([libraries]).collect())
}

/// A program that runs a test binary in the root.
fn runner(root: &Root) -> anyhow::Result<PathBuf> {
    let path = workspace().canonicalize()?.join(format!("target/in-rocm-{}", root.release));
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", show_quoted(&inside(root)?));
    fs::write(&path, script).with_context(|| format!("writing {}", path.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}
