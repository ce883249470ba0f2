//! `hsa_prof_str.h` is written from the table of functions, and committed. `ROCTAP_BLESS=1` rewrites it.

use std::{collections::BTreeSet, fmt::Write as _, fs};

use tracer_common::activity::Domain;
use tracer_records::api::{self, Kind};

const BEGIN: &str = "/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions of the HSA runtime of ROCm 5.2.3: operations of ACTIVITY_DOMAIN_HSA_API, and what callbacks of that domain
 * get. Binary compatible with the header of the same name of roctracer 4.1. Written by a test of roctracer64
 * (tests/headers.rs) from the table of functions. */

#ifndef HSA_PROF_STR_H_
#define HSA_PROF_STR_H_

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

/* Of hsa_api_trace.h. */
typedef void (*hsa_amd_queue_intercept_packet_writer)(const void*, uint64_t);
typedef void (*hsa_amd_queue_intercept_handler)(const void*, uint64_t, uint64_t, void*,
                                                hsa_amd_queue_intercept_packet_writer);
typedef void (*hsa_amd_runtime_queue_notifier)(const hsa_queue_t*, hsa_agent_t, void*);

typedef enum hsa_api_id_t {
";
const MIDDLE: &str = "} hsa_api_id_t;

typedef struct hsa_api_data_t {
  uint64_t correlation_id;
  uint32_t phase; /* activity_api_phase_t */
  __extension__ union { /* in the phase of exit */
";
const END: &str = "  } args;
  uint64_t* phase_data; /* the client's, from enter to exit */
} hsa_api_data_t;

#endif /* HSA_PROF_STR_H_ */
";

/// A declaration in C.
fn declaration(ty: &str, name: &str) -> String {
    match ty.split_once("(*)") {
        Some((before, after)) => format!("{before}(*{name}){after}").replace(" *", "*"),
        None => format!("{} {name}", ty.replace(" *", "*")),
    }
}

fn header() -> String {
    let functions: Vec<_> = (0..).map_while(|id| api::by_id(Domain::HSA_API, id)).collect();
    let mut text = BEGIN.to_owned();
    for function in &functions {
        writeln!(text, "  HSA_API_ID_{} = {},", function.name, function.id).expect("text");
    }
    let next = functions.len();
    writeln!(text, "  HSA_API_ID_DISPATCH = {next},").expect("text");
    writeln!(text, "  HSA_API_ID_NUMBER = {}", next + 1).expect("text");
    text += MIDDLE;
    let results: BTreeSet<&str> = functions
        .iter()
        .filter(|function| !matches!(function.ret.kind, Kind::Void))
        .map(|function| function.ret.name)
        .collect();
    for result in results {
        writeln!(text, "    {result} {result}_retval;").expect("text");
    }
    text += "  };\n  union {\n";
    // C has no structure without a field.
    for function in functions.iter().filter(|function| !function.args.is_empty()) {
        text += "    struct {\n";
        for argument in function.args {
            writeln!(text, "      {};", declaration(argument.ty.name, argument.name))
                .expect("text");
            if (function.name, argument.name) == ("hsa_amd_memory_async_copy_rect", "range") {
                text += "      hsa_dim3_t range__val;\n";
            }
        }
        writeln!(text, "    }} {};", function.name).expect("text");
    }
    text + END
}

#[test]
fn hsa_prof_str_is_written_from_the_table() {
    let path = capi_build::include_directory().expect("headers").join("roctracer/hsa_prof_str.h");
    let written = header();
    if std::env::var_os("ROCTAP_BLESS").is_some() {
        fs::write(&path, &written).expect("written");
    }
    assert!(
        fs::read_to_string(&path).expect("the header") == written,
        "ROCTAP_BLESS=1 rewrites it"
    );
}
