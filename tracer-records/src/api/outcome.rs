//! Whether a call failed.

use super::table::{Kind, Operation};

/// Functions whose result is that of an earlier call.
const OF_EARLIER_CALLS: [&str; 4] =
    ["hipExtGetLastError", "hipGetLastError", "hipPeekAtLastError", "hipPeekAtLastError_spt"];

/// Values that are no errors by the headers although they are not the one value of success: work goes on
/// (`hipErrorNotReady`), a callback asked for the end (`INFO_BREAK`), less than was asked for (`CU_MASK_REDUCED`).
const NO_ERRORS: [&str; 5] = [
    "HSA_STATUS_CU_MASK_REDUCED",
    "HSA_STATUS_INFO_BREAK",
    "HSA_STATUS_SUCCESS",
    "hipErrorNotReady",
    "hipSuccess",
];

/// The outcome of a call, as far as its result tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It did what it was to do.
    Success,
    /// It returned this value of `hipError_t` or `hsa_status_t`; [`super::format_return`] has its name.
    Failure(u32),
    /// The function is not known, or its result says nothing of this call.
    Unknown,
}

/// The outcome of a call that returned `ret`.
pub fn outcome(op: &Operation, ret: u64) -> Outcome {
    let Kind::Enumeration(enumeration) = op.ret.kind else { return Outcome::Unknown };
    if !["hipError_t", "hsa_status_t"].contains(&enumeration.name)
        || OF_EARLIER_CALLS.contains(&op.name)
    {
        return Outcome::Unknown;
    }
    match enumeration.value_name((ret as u32).into()) {
        Some(name) if NO_ERRORS.contains(&name) => Outcome::Success,
        _ => Outcome::Failure(ret as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome::*, *};
    use crate::api::by_name;

    #[test]
    fn results_that_are_errors() {
        for (function, ret, expected) in [
            ("hipMalloc", 0, Success),
            ("hipMalloc", 2, Failure(2)),
            // The upper half of the register is garbage.
            ("hipMalloc", 0xdead_beef_0000_0002, Failure(2)),
            ("hipMalloc", 0xdead_beef_0000_0000, Success),
            ("hipMalloc", 54_321, Failure(54_321)),
            ("hipStreamQuery", 600, Success),
            ("hipGetLastError", 1, Unknown),
            ("hipPeekAtLastError", 1, Unknown),
            ("hipGetErrorString", 0x7f00, Unknown),
            ("hsa_init", 0x1000, Failure(0x1000)),
            ("hsa_iterate_agents", 1, Success),
            ("hsa_amd_queue_cu_set_mask", 44, Success),
            ("hsa_amd_memory_fill", 43, Failure(43)),
            ("hsa_signal_wait_scacquire", 1, Unknown),
        ] {
            let operation = by_name(function).expect(function);
            assert_eq!(outcome(operation, ret), expected, "{function} {ret}");
        }
    }
}
