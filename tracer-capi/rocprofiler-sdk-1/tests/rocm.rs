//! Tests of `rocprofiler-sdk` in real HIP programs, with the library of the 1.0 interface: of records and callbacks, which
//! are others there. What does not depend on the interface is tested there alone.

#[path = "../../rocprofiler-sdk/tests/rocm/arguments.rs"]
mod arguments;
#[path = "../../rocprofiler-sdk/tests/rocm/callbacks.rs"]
mod callbacks;
#[path = "../../rocprofiler-sdk/tests/rocm/calls.rs"]
mod calls;
#[path = "../../rocprofiler-sdk/tests/rocm/code_objects.rs"]
mod code_objects;
#[allow(dead_code, reason = "of tests that are not here")]
#[path = "../../rocprofiler-sdk/tests/rocm/expectations.rs"]
mod expectations;
#[allow(dead_code, reason = "of tests that are not here")]
#[path = "../../rocprofiler-sdk/tests/rocm/kinds.rs"]
mod kinds;
#[path = "../../rocprofiler-sdk/tests/rocm/late.rs"]
mod late;
#[path = "../../rocprofiler-sdk/tests/rocm/memory.rs"]
mod memory;
#[path = "../../rocprofiler-sdk/tests/rocm/outcome.rs"]
mod outcome;
#[path = "../../rocprofiler-sdk/tests/rocm/ranges.rs"]
mod ranges;
#[path = "../../rocprofiler-sdk/tests/rocm/runtimes.rs"]
mod runtimes;
#[allow(dead_code, reason = "of tests that are not here")]
#[path = "../../rocprofiler-sdk/tests/rocm/scene.rs"]
mod scene;
#[path = "../../rocprofiler-sdk/tests/rocm/scratch.rs"]
mod scratch;
#[path = "../../rocprofiler-sdk/tests/rocm/streams.rs"]
mod streams;
#[path = "../../rocprofiler-sdk/tests/rocm/work.rs"]
mod work;
#[path = "../../rocprofiler-sdk/tests/rocm/work_callbacks.rs"]
mod work_callbacks;
