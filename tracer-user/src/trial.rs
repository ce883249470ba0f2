//! Tries whether roctap works on this machine: loads the BPF programs, probes a function of its own and records a call.

use std::{arch::naked_asm, path::Path, time::Duration};

use tracer_common::bpf::{ApiRecord, Capture, kind, phase};
use zerocopy::FromBytes as _;

use crate::{
    calibrate::{self, CalibrateError},
    probe::{Follow, Placing, Programs, Reader, Records, Settings, Site, each_record},
};

/// The argument of the call of the probed function.
const ARGUMENT: u64 = 41;

/// Returns its argument plus 1.
#[unsafe(naked)]
extern "C" fn probed(argument: u64) -> u64 {
    naked_asm!("push rbp", "pop rbp", "lea rax, [rdi + 1]", "ret")
}

/// The result of a trial that worked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrialResult {
    /// How probes are placed.
    pub placing: Placing,
    /// The time that loading the programs took.
    pub load: Duration,
}

/// The reason why roctap does not work.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The programs cannot be loaded or attached, or this program's own function is not found.
    #[error(transparent)]
    Failed(#[from] CalibrateError),
    /// The recorded calls are not the one that was made.
    #[error("a probe was placed and its call was not recorded as it was made: {seen}")]
    Wrong {
        /// The records that came instead.
        seen: String,
    },
}

impl From<crate::probe::ProbeError> for TrialError {
    fn from(error: crate::probe::ProbeError) -> Self {
        Self::Failed(error.into())
    }
}

/// Tries to record a call, with these [`Settings`].
///
/// # Errors
///
/// The step that does not work.
pub fn run(placing: Option<Placing>, preallocate: Option<bool>) -> Result<TrialResult, TrialError> {
    let began = std::time::Instant::now();
    let settings = Settings { ring_bytes: 4096, follow: Follow::Nobody, placing, preallocate };
    let mut programs = Programs::load(settings)?;
    let load = began.elapsed();
    let _life = programs.attach_life()?;
    let mut reader = Reader::new(&programs)?;
    let site = Site {
        symbol: "roctap's own".to_owned(),
        file_offset: calibrate::file_offset(probed as *const () as u64)?,
        capture: Capture::default(),
    };
    let exe = Path::new("/proc/self/exe");
    let placed = programs.attach(std::process::id(), exe, &[site])?;
    programs.set_phase(phase::ATTACHED)?;
    // On another thread than the first one: some kernels see only calls of the first thread.
    let result = std::thread::spawn(|| std::hint::black_box(probed)(ARGUMENT)).join();
    let records = reader.take_all();
    drop(placed);
    let as_made = |call: &ApiRecord| {
        call.args[0] == ARGUMENT
            && call.ret == ARGUMENT + 1
            && result.as_ref().is_ok_and(|&result| result == call.ret)
    };
    match calls(&records)[..] {
        [call] if as_made(&call) => Ok(TrialResult { placing: programs.placing(), load }),
        ref calls => {
            let losses = programs.losses()?;
            let mut seen = format!("{calls:?}, losses {losses:?}");
            seen.extend(reader.failure().map(|why| format!("; {why}")));
            Err(TrialError::Wrong { seen })
        }
    }
}

/// The calls among records.
pub fn calls(records: &Records) -> Vec<ApiRecord> {
    let calls = each_record(records).filter(|&(kind, _)| kind == kind::API);
    calls.filter_map(|(_, call)| ApiRecord::read_from_bytes(call).ok()).collect()
}
