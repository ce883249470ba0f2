//! `MATRIX.md` is written from the list of exports, the specification's sections, and the sources of clients.
//! `ROCTAP_BLESS=1` rewrites it.

use std::fs;

use capi_build::matrix::{Section, Words};

const OF_RELEASES: &str = "operations of HIP and HSA are those of the runtimes that are loaded, and before those of ROCm 5.2.3";

/// The functions of the specification, by the section that describes them, and what there is to say of each.
const SECTIONS: [Section; 8] = [
    ("3.2 Versioning", &[("roctracer_version_major", ""), ("roctracer_version_minor", "")]),
    ("3.3 Status codes", &[("roctracer_error_string", "")]),
    (
        "3.4 Traced runtime domains",
        &[
            ("roctracer_op_string", OF_RELEASES),
            ("roctracer_op_code", OF_RELEASES),
            ("roctracer_set_properties", "EXT_API has properties; those of others mean nothing"),
        ],
    ),
    (
        "3.5 Callbacks",
        &[
            (
                "roctracer_enable_op_callback",
                "an error for HIP of releases after ROCm 7.2; not called, as AMD's, for SUBMIT and KSYMBOL of HSA_EVT",
            ),
            ("roctracer_enable_domain_callback", "the same"),
            ("roctracer_disable_op_callback", ""),
            ("roctracer_disable_domain_callback", ""),
        ],
    ),
    (
        "3.6 Activities",
        &[
            ("roctracer_next_record", ""),
            ("roctracer_open_pool", ""),
            ("roctracer_open_pool_expl", ""),
            ("roctracer_close_pool", ""),
            ("roctracer_close_pool_expl", ""),
            ("roctracer_default_pool", ""),
            ("roctracer_default_pool_expl", ""),
            ("roctracer_enable_op_activity", "an error for HIP of releases after ROCm 7.2"),
            ("roctracer_enable_op_activity_expl", "the same"),
            ("roctracer_enable_domain_activity", "the same"),
            ("roctracer_enable_domain_activity_expl", "the same"),
            ("roctracer_disable_op_activity", ""),
            ("roctracer_disable_domain_activity", ""),
            ("roctracer_flush_activity", ""),
            ("roctracer_flush_activity_expl", ""),
        ],
    ),
    ("3.7 Timestamps", &[("roctracer_get_timestamp", "")]),
    (
        "`roctracer_ext.h`: external correlation ids, start and stop",
        &[
            ("roctracer_activity_push_external_correlation_id", ""),
            ("roctracer_activity_pop_external_correlation_id", ""),
            ("roctracer_start", ""),
            ("roctracer_stop", ""),
        ],
    ),
    (
        "Of roctracer 4.0, and for the runtime",
        &[
            ("roctracer_load", "returns 1, as AMD's"),
            ("roctracer_unload", "does nothing, as AMD's"),
            ("roctracer_flush_buf", "does nothing, as AMD's"),
            ("roctracer_mark", "does nothing, as AMD's"),
            ("roctracer_enable_callback", "fails when it reaches KFD_API, as AMD's"),
            ("roctracer_disable_callback", "fails when it reaches KFD_API, as AMD's"),
            ("roctracer_enable_activity", "fails when it reaches KFD_API, as AMD's"),
            ("roctracer_enable_activity_expl", "fails when it reaches KFD_API, as AMD's"),
            ("roctracer_disable_activity", "fails when it reaches KFD_API, as AMD's"),
            ("OnLoad", "what is enabled is recorded from the runtime's begin on"),
            ("OnUnload", ""),
        ],
    ),
];

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

const BEGIN: &str = "# Functions of roctracer 4.1

Written by a test of roctracer64 (`tests/matrix.rs`), from the list of what AMD's library exports, the sections of its \
specification, and the sources of the tests' clients. Every function is there, with AMD's versions of symbols; the last \
column says where one does less than AMD's, or the same where that is surprising. What each does is said in \
[`roctracer.h`](../include/roctracer/roctracer.h) and [`roctracer_ext.h`](../include/roctracer/roctracer_ext.h).
";

#[test]
fn every_export_is_in_the_matrix() {
    let list = capi_build::source_directory().expect("sources").join("abi/libroctracer64.so.4.txt");
    let list = fs::read_to_string(list).expect("the list");
    let known: Vec<&str> =
        SECTIONS.iter().flat_map(|(_, all)| *all).map(|(name, _)| *name).collect();
    let exported = list.lines().filter(|line| line.ends_with(" function") && line.contains("@@"));
    let exported: Vec<&str> = exported.filter_map(|line| line.split("@@").next()).collect();
    for function in &exported {
        assert!(known.contains(function), "{function} is in no section");
    }
    assert_eq!(known.len(), exported.len());
}

#[test]
fn every_function_has_a_client() {
    let clients = Words::of(PACKAGE).expect("clients");
    for (function, _) in SECTIONS.iter().flat_map(|(_, functions)| *functions) {
        // The runtime calls these.
        let is_called = function.starts_with("On") || clients.callers(function).next().is_some();
        assert!(is_called, "no client calls {function}");
    }
}

#[test]
fn matrix_is_written_from_the_lists() {
    Words::of(PACKAGE).expect("clients").check(PACKAGE, BEGIN, &SECTIONS).expect("MATRIX.md");
}
