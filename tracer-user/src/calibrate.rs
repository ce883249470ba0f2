//! `roctap doctor --calibrate`: the cost of a probe on this machine, by the class of its instruction.
//!
//! Functions of this program, one for each class and one that is like the shim's dispatch site, are probed with BPF
//! programs that do nothing, and called. Nothing is stored, and no other process is touched.

use std::{arch::naked_asm, path::Path};

use procfs::process::MMapPath;
use tracer_common::bpf::Capture;

use crate::{
    clock,
    plan::{Class, KernelVersion, dispatch_site},
    probe::{Follow, ProbeError, Programs, Settings, Site},
};

/// CPU time of each of the fourteen measurements.
const BUDGET_NS: u64 = 80_000_000;
/// Calls between two looks at the clock.
const BATCH: u32 = 64;

/// Why the costs could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The programs cannot be loaded or attached.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// This program cannot be found in its own memory map.
    #[error("the probed functions are not in this program's own memory map")]
    NotMapped,
    /// The memory map cannot be read.
    #[error("reading this program's own memory map failed: {0}")]
    Maps(#[from] procfs::ProcError),
}

/// Begins with a 5-byte nop.
#[unsafe(naked)]
extern "C" fn nop5() {
    naked_asm!(".byte 0x0f, 0x1f, 0x44, 0x00, 0x00", "ret")
}

/// Begins with an instruction that the kernel emulates.
#[unsafe(naked)]
extern "C" fn emulated() {
    naked_asm!("push rbp", "pop rbp", "ret")
}

/// Begins with an instruction that the kernel single-steps.
#[unsafe(naked)]
extern "C" fn single_step() {
    naked_asm!("mov rax, rdi", "ret")
}

/// Has the same code as the shim's dispatch site.
#[unsafe(naked)]
extern "C" fn dispatch() {
    tracer_common::dispatch_code!()
}

/// The costs of probes of a class on this machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// The class of the probed instruction.
    pub class: Class,
    /// ns that an entry probe adds to a call.
    pub entry_ns: f64,
    /// ns that an entry and a return probe add to a call.
    pub entry_and_return_ns: f64,
}

/// The costs of probes on this machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Costs {
    /// By class.
    pub classes: Vec<Cost>,
    /// ns that the probe of the shim's dispatch site adds to each enqueued operation.
    pub dispatch_ns: f64,
}

/// Measures all classes and the dispatch site, in about a second of CPU time.
///
/// # Errors
///
/// When the probes cannot be placed.
pub fn measure() -> Result<Costs, CalibrateError> {
    let programs = Programs::load(Settings::new(4096, Follow::Nobody))?;
    let functions: [(Class, extern "C" fn()); 3] =
        [(Class::Nop5, nop5), (Class::Emulated, emulated), (Class::SingleStep, single_step)];
    let costs = functions.into_iter().map(|(class, function)| cost(&programs, class, function));
    let classes = costs.collect::<Result<_, _>>()?;
    let place = file_offset(dispatch as *const () as u64)?;
    let kernel = KernelVersion::running().unwrap_or(KernelVersion::EMULATES_PUSH);
    let (nop, _) = dispatch_site(place % 4096, kernel);
    let dispatch_ns = added_ns(&programs, dispatch, place + nop, Returns::NotProbed)?;
    Ok(Costs { classes, dispatch_ns })
}

fn cost(
    programs: &Programs,
    class: Class,
    function: extern "C" fn(),
) -> Result<Cost, CalibrateError> {
    let place = file_offset(function as *const () as u64)?;
    let entry_ns = added_ns(programs, function, place, Returns::NotProbed)?;
    let entry_and_return_ns = added_ns(programs, function, place, Returns::Probed)?;
    Ok(Cost { class, entry_ns, entry_and_return_ns })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Returns {
    Probed,
    NotProbed,
}

/// The ns that a probe at `file_offset` adds to a call of `function`.
fn added_ns(
    programs: &Programs,
    function: extern "C" fn(),
    file_offset: u64,
    returns: Returns,
) -> Result<f64, CalibrateError> {
    let entry_only = u8::from(returns == Returns::NotProbed);
    let capture = Capture { entry_only, ..Capture::default() };
    let site = Site { symbol: "roctap's own".to_owned(), file_offset, capture };
    let plain = call_ns(function);
    let _probes =
        programs.attach_floor(std::process::id(), Path::new("/proc/self/exe"), &[site])?;
    Ok(call_ns(function) - plain)
}

/// The least ns of a call among batches that fill the budget: disturbances only add time. It is this thread's CPU time:
/// on a machine with other work a batch waits for a CPU longer than it runs.
fn call_ns(function: extern "C" fn()) -> f64 {
    let began = clock::on_cpu_ns();
    let (mut least, mut batch) = (u64::MAX, began);
    while batch - began < BUDGET_NS {
        for _ in 0..BATCH {
            std::hint::black_box(function)();
        }
        let end = clock::on_cpu_ns();
        least = least.min(end - batch);
        batch = end;
    }
    least as f64 / f64::from(BATCH)
}

/// The offset in its file of an address of this program.
///
/// # Errors
///
/// When no file is mapped there.
pub fn file_offset(address: u64) -> Result<u64, CalibrateError> {
    procfs::process::Process::myself()?
        .maps()?
        .into_iter()
        .find(|map| map.address.0 <= address && address < map.address.1)
        .filter(|map| matches!(map.pathname, MMapPath::Path(_)))
        .map(|map| address - map.address.0 + map.offset)
        .ok_or(CalibrateError::NotMapped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::classify;

    #[test]
    fn the_functions_begin_with_instructions_of_their_classes() {
        let exe = std::fs::read("/proc/self/exe").unwrap();
        for (class, length, function) in [
            (Class::Nop5, 5, nop5 as extern "C" fn()),
            (Class::Emulated, 1, emulated),
            (Class::SingleStep, 3, single_step),
        ] {
            let at = file_offset(function as *const () as u64).unwrap() as usize;
            let kernel = KernelVersion::new(6, 18);
            let code = &exe[at..at + length];
            assert_eq!(classify(code, at as u64 & 0xFFF, kernel), Ok(class), "{code:x?}");
            function();
        }
    }
}
