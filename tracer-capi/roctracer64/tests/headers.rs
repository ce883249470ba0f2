//! `hsa_prof_str.h` is written from the table of functions, and committed. `ROCTAP_BLESS=1` rewrites it.

use std::{collections::BTreeSet, fmt::Write as _, fs};

use capi_common::hsa::{ALL, Function, Functions};
use tracer_records::api::{Argument, Kind};

const BEGIN: &str = "/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions of the HSA runtime: operations of ACTIVITY_DOMAIN_HSA_API, and what callbacks of that domain get. Binary
 * compatible with the header of the same name of roctracer 4.1 for the release of ROCm whose headers of HSA are included:
 * numbers of functions move with the releases. The headers of 5.5, 6.0 and 6.3 do not tell which release they are of:
 * with them, ask for numbers by name (roctracer_op_code). Written by a test of roctracer64 (tests/headers.rs) from the
 * table of functions. */

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

/// Functions that came after ROCm 5.2.3, by how their names begin, and the version of AMD's extensions that the headers
/// have in which they are there: `HSA_AMD_INTERFACE_VERSION_MINOR`.
const LATER: [(&str, u32); 15] = [
    ("hsa_amd_agent_set_async_scratch_limit", 4),
    ("hsa_amd_ais_file_", 14),
    ("hsa_amd_enable_logging", 7),
    ("hsa_amd_memory_async_copy_on_engine", 1),
    ("hsa_amd_memory_copy_engine_status", 1),
    ("hsa_amd_memory_get_preferred_copy_engine", 8),
    ("hsa_amd_portable_close_dmabuf", 1),
    ("hsa_amd_portable_export_dmabuf_v2", 9),
    ("hsa_amd_portable_export_dmabuf", 1),
    ("hsa_amd_queue_get_info", 6),
    ("hsa_amd_signal_wait_all", 7),
    ("hsa_amd_spm_", 1),
    ("hsa_amd_vmem_address_reserve_align", 6),
    ("hsa_amd_vmem_", 4),
    ("hsa_ext_sampler_create_v2", 7),
];

/// The version that a function came with; none of those of ROCm 5.2.3.
fn version_of(function: &Function) -> Option<u32> {
    let Function { operation, slot, .. } = function;
    // No runtime is loaded.
    if Functions::find().number_of_slot(*slot).is_some() {
        return None;
    }
    let came = LATER.iter().find(|(begin, _)| operation.name.starts_with(begin));
    Some(came.unwrap_or_else(|| panic!("{} came later", operation.name)).1)
}

/// What is written of each function, where the headers have it.
fn each(functions: &[&Function], write: impl Fn(&Function) -> String) -> String {
    let mut text = String::new();
    for same in functions.chunk_by(|one, next| version_of(one) == version_of(next)) {
        let lines: String = same.iter().map(|function| write(function)).collect();
        text += &match version_of(same[0]) {
            Some(minor) => {
                format!("#if HSA_AMD_INTERFACE_VERSION_MINOR >= {minor}\n{lines}#endif\n")
            }
            None => lines,
        };
    }
    text
}

fn arguments(function: &Function) -> String {
    let name = function.operation.name;
    let field = |argument: &Argument| {
        let copied = (name, argument.name) == ("hsa_amd_memory_async_copy_rect", "range");
        let copied = if copied { "      hsa_dim3_t range__val;\n" } else { "" };
        format!("      {};\n{copied}", declaration(argument.ty.name, argument.name))
    };
    let fields: String = function.operation.args.iter().map(field).collect();
    format!("    struct {{\n{fields}    }} {name};\n")
}

fn header() -> String {
    let functions: Vec<&Function> = ALL.iter().collect();
    let mut text = BEGIN.to_owned();
    text += &each(&functions, |function| format!("  HSA_API_ID_{},\n", function.operation.name));
    text += "  HSA_API_ID_DISPATCH,\n  HSA_API_ID_NUMBER\n";
    text += MIDDLE;
    let results: BTreeSet<&str> = functions
        .iter()
        .map(|function| function.operation.ret)
        .filter(|result| !matches!(result.kind, Kind::Void))
        .map(|result| result.name)
        .collect();
    for result in results {
        writeln!(text, "    {result} {result}_retval;").expect("text");
    }
    text += "  };\n  union {\n";
    // C has no structure without a field.
    let with_arguments: Vec<&Function> =
        functions.into_iter().filter(|function| !function.operation.args.is_empty()).collect();
    text + &each(&with_arguments, arguments) + END
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
