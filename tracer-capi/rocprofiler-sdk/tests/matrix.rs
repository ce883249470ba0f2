//! `MATRIX.md` is written from the list of exports, what is said here of them, and the sources of clients.
//! `ROCTAP_BLESS=1` rewrites it.

use std::fs;

use capi_build::matrix::{Section, Words};

const COUNTERS: &str = "not implemented: hardware counters are not read";
const SAMPLES: &str = "not implemented: nothing is sampled";

/// The functions, by the header that declares them, and what there is to say of each.
const SECTIONS: [Section; 17] = [
    (
        "`rocprofiler.h`",
        &[
            ("rocprofiler_get_version", "0.5.0"),
            ("rocprofiler_get_timestamp", "ns of CLOCK_BOOTTIME"),
            ("rocprofiler_get_thread_id", ""),
            ("rocprofiler_get_status_name", ""),
            ("rocprofiler_get_status_string", "sentences of our own"),
        ],
    ),
    (
        "`registration.h`",
        &[
            ("rocprofiler_is_initialized", ""),
            ("rocprofiler_is_finalized", ""),
            ("rocprofiler_force_configure", ""),
        ],
    ),
    (
        "`context.h`",
        &[
            ("rocprofiler_create_context", ""),
            ("rocprofiler_start_context", ""),
            ("rocprofiler_stop_context", ""),
            ("rocprofiler_context_is_active", ""),
            ("rocprofiler_context_is_valid", ""),
        ],
    ),
    (
        "`buffer.h`",
        &[
            ("rocprofiler_create_buffer", "allocates two buffers of the size under either policy"),
            ("rocprofiler_destroy_buffer", "delivers what is in it, which AMD's drops"),
            (
                "rocprofiler_flush_buffer",
                "in a callback of a buffer or of work that is done it waits neither for work, nor for the callback's own thread, nor \
                 for one that waits in such a callback itself",
            ),
        ],
    ),
    (
        "`buffer_tracing.h`",
        &[
            (
                "rocprofiler_configure_buffer_tracing_service",
                "KERNEL_DISPATCH, MEMORY_COPY, SCRATCH_MEMORY, CORRELATION_ID_RETIREMENT, HIP_RUNTIME_API, HIP_COMPILER_API, \
                 HSA_CORE_API, HSA_AMD_EXT_API, HSA_IMAGE_EXT_API, MARKER_CORE_API, MARKER_CONTROL_API and MARKER_NAME_API; \
                 HSA_FINALIZE_EXT_API has no calls, since the HSA runtime has no finalizer; INCOMPATIBLE_KERNEL for \
                 PAGE_MIGRATION, which needs events of the kernel's driver; NOT_IMPLEMENTED for RCCL_API, which is not intercepted",
            ),
            ("rocprofiler_query_buffer_tracing_kind_name", ""),
            (
                "rocprofiler_query_buffer_tracing_kind_operation_name",
                "NOT_IMPLEMENTED for RCCL_API and CORRELATION_ID_RETIREMENT",
            ),
            ("rocprofiler_iterate_buffer_tracing_kinds", ""),
            (
                "rocprofiler_iterate_buffer_tracing_kind_operations",
                "NOT_IMPLEMENTED for RCCL_API and CORRELATION_ID_RETIREMENT",
            ),
        ],
    ),
    (
        "`callback_tracing.h`",
        &[
            (
                "rocprofiler_configure_callback_tracing_service",
                "HIP_RUNTIME_API, HIP_COMPILER_API, HSA_CORE_API, HSA_AMD_EXT_API, HSA_IMAGE_EXT_API, MARKER_CORE_API, \
                 MARKER_CONTROL_API, MARKER_NAME_API, CODE_OBJECT, SCRATCH_MEMORY, KERNEL_DISPATCH and MEMORY_COPY; results of \
                 HIP's functions before 6.0 are not known (0), nor all arguments; no calls of \
                 HSA_FINALIZE_EXT_API, and NOT_IMPLEMENTED for RCCL_API, as of buffers",
            ),
            ("rocprofiler_query_callback_tracing_kind_name", ""),
            (
                "rocprofiler_query_callback_tracing_kind_operation_name",
                "NOT_IMPLEMENTED for RCCL_API",
            ),
            ("rocprofiler_iterate_callback_tracing_kinds", ""),
            (
                "rocprofiler_iterate_callback_tracing_kind_operations",
                "NOT_IMPLEMENTED for RCCL_API",
            ),
            (
                "rocprofiler_iterate_callback_tracing_kind_operation_args",
                "strings are followed, other arguments are not; types are those of C, enumerations are numbers",
            ),
        ],
    ),
    (
        "`agent.h`",
        &[(
            "rocprofiler_query_available_agents",
            "product names are those that GPUs say themselves; families of GPUs are 0",
        )],
    ),
    (
        "`internal_threading.h`",
        &[
            (
                "rocprofiler_at_internal_thread_create",
                "of threads that this library and the runtimes create",
            ),
            ("rocprofiler_create_callback_thread", ""),
            ("rocprofiler_assign_callback_thread", ""),
        ],
    ),
    (
        "`external_correlation.h`",
        &[
            ("rocprofiler_push_external_correlation_id", ""),
            ("rocprofiler_pop_external_correlation_id", ""),
            (
                "rocprofiler_configure_external_correlation_id_request_service",
                "of calls, kernels, copies and scratch memory that its context records or is told of",
            ),
        ],
    ),
    (
        "`intercept_table.h`",
        &[(
            "rocprofiler_at_intercept_table_registration",
            "of runtimes that hand their tables over, and that of HSA where the library is loaded as a tool, whose version is \
             told as 0",
        )],
    ),
    (
        "`counters.h`",
        &[
            ("rocprofiler_query_record_counter_id", COUNTERS),
            ("rocprofiler_query_record_dimension_position", COUNTERS),
            ("rocprofiler_iterate_counter_dimensions", COUNTERS),
            ("rocprofiler_query_counter_info", COUNTERS),
            ("rocprofiler_query_counter_instance_count", COUNTERS),
            ("rocprofiler_iterate_agent_supported_counters", COUNTERS),
        ],
    ),
    (
        "`profile_config.h`",
        &[
            ("rocprofiler_create_profile_config", COUNTERS),
            ("rocprofiler_destroy_profile_config", COUNTERS),
        ],
    ),
    (
        "`dispatch_profile.h`",
        &[
            ("rocprofiler_configure_buffered_dispatch_profile_counting_service", COUNTERS),
            ("rocprofiler_configure_callback_dispatch_profile_counting_service", COUNTERS),
        ],
    ),
    (
        "`agent_profile.h`",
        &[
            ("rocprofiler_configure_agent_profile_counting_service", COUNTERS),
            ("rocprofiler_sample_agent_profile_counting_service", COUNTERS),
        ],
    ),
    ("`spm.h`", &[("rocprofiler_configure_spm_service", COUNTERS)]),
    (
        "`pc_sampling.h`",
        &[
            ("rocprofiler_configure_pc_sampling_service", SAMPLES),
            ("rocprofiler_query_pc_sampling_agent_configurations", SAMPLES),
        ],
    ),
    (
        "For the runtimes, and for roctap",
        &[
            (
                "rocprofiler_set_api_table",
                "of `hsa` and `roctx`; tables of HIP are looked for by themselves, and those of `rccl` are not intercepted",
            ),
            ("OnLoad", "for HSA runtimes that load the library as a tool; AMD's has none"),
            ("OnUnload", "the same"),
            (
                "roctap_attach_tool",
                "for `roctap tool`, which puts the library into a running process",
            ),
        ],
    ),
];

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

const BEGIN: &str = "# Functions of ROCprofiler-SDK 0.5

Written by a test of rocprofiler-sdk (`tests/matrix.rs`), from the list of exports and the sources of the tests' clients. \
What each does is said in the [headers](../include/rocprofiler-sdk/rocprofiler.h); the last column says where one does less \
than AMD's, or something else. **It records calls of HIP, of HSA and of roctx, kernels, copies, scratch memory and \
the retirement of correlation ids, and has callbacks of all of these but the last, and of code objects.** Tools are those that the environment names by \
`ROCP_TOOL_LIBRARIES` (with colons between them) or that are loaded; `ROCPROFILER_LOG_LEVEL` says how much is told on standard \
error (`error`, `warning`, `info`). HSA runtimes without rocprofiler-register load the library by `HSA_TOOLS_LIB`; before the \
program begins it names itself there.
";

#[test]
fn every_export_is_in_the_matrix() {
    let list = capi_build::source_directory().expect("sources");
    let list = fs::read_to_string(list.join("abi/librocprofiler-sdk.so.0.txt")).expect("the list");
    let mut known: Vec<&str> =
        SECTIONS.iter().flat_map(|(_, all)| *all).map(|(name, _)| *name).collect();
    let mut exported: Vec<&str> =
        list.lines().filter_map(|line| line.strip_suffix(" function")).collect();
    known.sort_unstable();
    exported.sort_unstable();
    assert_eq!(known, exported);
}

#[test]
fn every_function_has_a_client() {
    let clients = Words::of(PACKAGE).expect("clients");
    for (function, _) in SECTIONS.iter().flat_map(|(_, functions)| *functions) {
        // The runtime and roctap call those: in `rocm`.
        if function.starts_with("On") || function.starts_with("roctap_") {
            continue;
        }
        assert!(clients.callers(function).next().is_some(), "no client calls {function}");
    }
}

#[test]
fn matrix_is_written_from_the_lists() {
    Words::of(PACKAGE).expect("clients").check(PACKAGE, BEGIN, &SECTIONS).expect("MATRIX.md");
}
