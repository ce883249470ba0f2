//! The planner on the ROCm libraries of Debian 12 (ROCm 5.2.3), where they are installed.
//!
//! Expected figures were measured by independent means before the planner existed.

use std::{
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use super::super::{
    Binary, FunctionPlan, KernelVersion, LiveProcess, Note, Planner, ProcessMemory, ReachedBy,
    ReturnProbe, Slot, Stop, stub::Stubs,
};
use crate::discover::{Function, Image, Runtime};

const DIRECTORY: &str = "/usr/lib/x86_64-linux-gnu";
const KERNEL: KernelVersion = KernelVersion::new(6, 18);

/// The directory with the emulated GPU, which `cargo xtask test` names when it has installed everything.
fn emulated_gpu() -> Option<PathBuf> {
    std::env::var_os("ROCTAP_TEST_GPU").map(PathBuf::from)
}

/// The library's real path; none where it is not installed.
fn installed(name: &str) -> Option<PathBuf> {
    let path = Path::new(DIRECTORY).join(name);
    if path.exists() {
        return Some(path.canonicalize().unwrap());
    }
    assert!(!path.is_symlink(), "{} is a broken link", path.display());
    assert!(emulated_gpu().is_none(), "{} is not installed", path.display());
    eprintln!("skipped: {} is not installed", path.display());
    None
}

fn open(path: &Path, runtime: Runtime) -> (Binary, Vec<Function>) {
    let image = Image::open(path).unwrap();
    let functions = image.functions(|name| runtime.owns_symbol(name)).unwrap();
    (Binary::open(path).unwrap(), functions)
}

/// A program that has the library loaded and waits; its stdin is kept open.
struct Waiting(Child);

impl Waiting {
    fn with(library: &Path) -> Self {
        Self::start(Command::new("cat").env("LD_PRELOAD", library))
    }

    /// A program that has initialised the library, on this emulated GPU.
    fn initialised(gpu: &Path) -> Self {
        let source = "import ctypes, sys\n\
            hsa = ctypes.CDLL('libhsa-runtime64.so.1')\n\
            assert hsa.hsa_init() == 0\n\
            sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()";
        let mut command = Command::new("python3");
        Self::start(command.args(["-c", source]).env("LD_LIBRARY_PATH", gpu))
    }

    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // The program echoes a byte: it runs, so its libraries' constructors have run.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self(child)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The counts of names by their plans.
#[derive(Default, PartialEq, Eq, Debug)]
struct Counts {
    cheap_at_entry: usize,
    cheap_after_moving: usize,
    argument_lost: usize,
    not_cheap: usize,
}

fn count(plans: &[FunctionPlan]) -> Counts {
    let mut counts = Counts::default();
    for plan in plans {
        let names = plan.names().count();
        let lost = plan.notes.iter().any(|note| {
            matches!(note, Note::NoCheapSite(Stop::Argument { cheap_behind: true, .. }))
        });
        match &plan.site {
            Some(site) if site.class.is_cheap() && site.function_offset == 0 => {
                counts.cheap_at_entry += names;
            }
            Some(site) if site.class.is_cheap() => counts.cheap_after_moving += names,
            _ if lost => counts.argument_lost += names,
            _ => counts.not_cheap += names,
        }
    }
    counts
}

fn find<'a>(plans: &'a [FunctionPlan], name: &str) -> &'a FunctionPlan {
    plans.iter().find(|plan| plan.names().any(|n| n == name)).unwrap()
}

#[test]
fn rocm_hip_sites() {
    let Some(path) = installed("libamdhip64.so.5") else { return };
    let (binary, functions) = open(&path, Runtime::Hip);
    let plans = Planner::new(KERNEL).plan_library(&binary, &functions, None);
    let expected =
        Counts { cheap_at_entry: 390, cheap_after_moving: 4, argument_lost: 0, not_cheap: 5 };
    assert_eq!(count(&plans), expected);
    // The unwind tables agree with every function.
    for plan in &plans {
        let good = plan.notes.iter().all(|note| matches!(note, Note::NoCheapSite(_)));
        assert!(good, "{plan:?}");
        let site = plan.site.as_ref().unwrap();
        let calls_back = ["hipLaunchHostFunc", "hipStreamAddCallback"].contains(&&*plan.symbol);
        let expected = if calls_back { ReturnProbe::CallsBack } else { ReturnProbe::Allowed };
        assert!(site.function_offset <= 10 && site.return_probe == expected, "{plan:?}");
    }
    let launch = find(&plans, "hipLaunchKernel").site.clone().unwrap();
    assert_eq!((launch.instruction.as_str(), launch.function_offset), ("push %rbp", 0));
}

#[test]
fn rocm_hsa_sites() {
    let Some(path) = installed("libhsa-runtime64.so.1") else { return };
    let Some(gpu) = emulated_gpu() else {
        eprintln!("skipped: `cargo xtask test` builds the emulated GPU for it");
        return;
    };
    let (binary, functions) = open(&path, Runtime::Hsa);
    let waiting = Waiting::initialised(&gpu);
    let process = LiveProcess::open(waiting.0.id()).unwrap();
    let plans = Planner::new(KERNEL).plan_library(&binary, &functions, Some(&process));
    let expected =
        Counts { cheap_at_entry: 209, cheap_after_moving: 7, argument_lost: 2, not_cheap: 6 };
    assert_eq!(count(&plans), expected);
    assert_eq!((plans.len(), functions.len()), (188, 224));
    for plan in &plans {
        assert!(matches!(plan.reached, ReachedBy::Implementation { .. }), "{plan:?}");
        assert!(plan.site.as_ref().unwrap().function_offset <= 10);
    }
    let store = find(&plans, "hsa_signal_store_release");
    assert_eq!(store.symbol, "hsa_signal_store_screlease");
    assert!(store.aliases.iter().any(|n| n == "hsa_signal_silent_store_screlease"));
    let agents = find(&plans, "hsa_iterate_agents");
    assert_eq!(agents.site.as_ref().unwrap().return_probe, ReturnProbe::CallsBack);
}

/// The core and AMD tables are filled when the library is loaded, except for the entries of images, which `hsa_init`
/// fills.
#[test]
fn rocm_hsa_tables_before_initialisation() {
    let Some(path) = installed("libhsa-runtime64.so.1") else { return };
    let (binary, functions) = open(&path, Runtime::Hsa);
    let waiting = Waiting::with(&path);
    let process = LiveProcess::open(waiting.0.id()).unwrap();
    let plans = Planner::new(KERNEL).plan_library(&binary, &functions, Some(&process));
    let (followed, left): (Vec<_>, Vec<_>) =
        plans.iter().partition(|p| matches!(p.reached, ReachedBy::Implementation { .. }));
    let names = |plans: &[&FunctionPlan]| plans.iter().map(|p| p.names().count()).sum::<usize>();
    assert_eq!((names(&followed), names(&left)), (203, 21));
    for plan in left {
        assert!(plan.symbol.starts_with("hsa_ext_") || plan.symbol.contains("image"), "{plan:?}");
        assert!(matches!(plan.reached, ReachedBy::Stub { .. }) && !plan.is_cheap());
    }
    // The file tells as much as a process that has loaded it, and a process that has not tells nothing.
    let own = LiveProcess::open(std::process::id()).unwrap();
    for process in [None, Some(&own as &dyn ProcessMemory)] {
        let from_file = Planner::new(KERNEL).plan_library(&binary, &functions, process);
        assert_eq!(from_file.len(), plans.len());
        for (plan, other) in plans.iter().zip(&from_file) {
            assert_eq!((&plan.symbol, &plan.aliases), (&other.symbol, &other.aliases));
            assert_eq!((&plan.reached, &plan.site), (&other.reached, &other.site));
        }
    }
}

/// 623 functions; with `--release --nocapture` it prints how long that takes, for `docs/probe-sites.md`.
#[test]
fn rocm_every_function_is_in_a_plan() {
    let (Some(hip), Some(hsa)) =
        (installed("libamdhip64.so.5"), installed("libhsa-runtime64.so.1"))
    else {
        return;
    };
    let waiting = Waiting::with(&hsa);
    let process = LiveProcess::open(waiting.0.id()).unwrap();
    let begin = Instant::now();
    for (path, runtime, expected) in [(&hip, Runtime::Hip, 399), (&hsa, Runtime::Hsa, 224)] {
        let image = Image::open(path).unwrap();
        let functions = image.functions(|name| runtime.owns_symbol(name)).unwrap();
        let read = begin.elapsed();
        let binary = Binary::open(path).unwrap();
        let opened = begin.elapsed();
        let plans = Planner::new(KERNEL).plan_library(&binary, &functions, Some(&process));
        eprintln!(
            "{runtime:?}: symbols read by {read:?}, tables by {opened:?}, {} planned by {:?}",
            plans.len(),
            begin.elapsed()
        );
        let mut planned: Vec<&str> = plans.iter().flat_map(FunctionPlan::names).collect();
        planned.sort_unstable();
        let mut exported: Vec<&str> = functions.iter().map(|f| f.name.as_str()).collect();
        exported.sort_unstable();
        assert_eq!((planned.len(), planned), (expected, exported));
    }
}

/// Compares the shim's slots of the runtime's tables with the stubs, which know where their entries are.
#[test]
fn rocm_stubs_use_the_slots_that_the_shim_knows() {
    use tracer_common::hsa_functions::{AMD_EXT, CORE, IMAGE, LEFT_OUT, slot_of};
    use tracer_common::hsa_layout::AmdExtLayout;
    let Some(path) = installed("libhsa-runtime64.so.1") else { return };
    let (binary, functions) = open(&path, Runtime::Hsa);
    let mut pointers = std::collections::BTreeMap::new();
    let mut seen = 0;
    // Nobody distributes a finalizer, and one function is only in a table of the runtime's own.
    let known = |function: &&Function| {
        ![LEFT_OUT, "hsa_amd_image_get_info_max_dim"].contains(&&*function.name)
            && !function.name.starts_with("hsa_ext_program_")
    };
    let stubs = Stubs::new(&binary);
    for function in functions.iter().filter(known) {
        let Some(stub) = stubs.recognise(function.address) else { continue };
        let Slot::Table { pointer, offset } = stub.slot else { continue };
        let name = &function.name;
        let slot = slot_of(name).unwrap_or_else(|| panic!("{name} has no slot"));
        let table = [CORE, AMD_EXT, IMAGE].into_iter().find(|t| t.contains(&slot));
        let table = table.unwrap();
        let expected = match table == AMD_EXT {
            true => AmdExtLayout::Before5_5.offset(slot),
            false => Some(16 + 8 * (slot - table.start) as u64),
        };
        assert_eq!(Some(offset), expected, "{name}");
        // Each pointer belongs to one table.
        assert_eq!(*pointers.entry(pointer).or_insert(table.start), table.start, "{name}");
        seen += 1;
    }
    assert!(seen >= 200, "{seen} stubs");
}
