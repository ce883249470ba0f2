//! `hip/api_args.h` and `hsa/api_args.h` are written from the list of functions, and committed. `ROCTAP_BLESS=1` rewrites
//! them.

use std::{fmt::Write as _, fs};

use rocprofiler::{
    arguments::{Argument, arguments},
    kinds::Kind,
};
use tracer_records::api;

/// A runtime's header.
struct Header {
    path: &'static str,
    begin: &'static str,
    /// The word of its types: `rocprofiler_<word>_api_args_t`.
    word: &'static str,
    results: &'static [&'static str],
    /// What is there where arguments have the types of the runtime's headers.
    is_typed: &'static str,
    /// What the runtime's headers are where functions are known that came after ROCm 5.2.3.
    is_later: &'static str,
    /// The same of functions that came with the 1.0 interface.
    is_of_1_0: &'static str,
    includes: &'static [&'static str],
    types: &'static str,
    kinds: &'static [Kind],
    /// Words of the largest arguments, and of the result.
    words: [usize; 2],
}

const HEADERS: [Header; 2] = [
    Header {
        path: "rocprofiler-sdk/hip/api_args.h",
        begin: "The arguments of HIP's functions, as callbacks get them. Binary compatible with the header of the same name of
 * ROCprofiler-SDK 0.5. They have the types of HIP's headers where a source is for AMD GPUs (__HIP_PLATFORM_AMD__), as
 * these headers want it, and are words elsewhere; functions later than ROCm 5.2.3 are there with ROCm 6.3 and later, those of 1.0 alone with ROCm 7.2 and later.",
        word: "hip",
        results: &[
            "int int_retval",
            "const char* const_charp_retval",
            "hipError_t hipError_t_retval",
            "hipChannelFormatDesc hipChannelFormatDesc_retval",
            "void** voidpp_retval",
        ],
        is_typed: "defined(__HIP_PLATFORM_AMD__)",
        is_later: "HIP_VERSION >= 60300000",
        is_of_1_0: "HIP_VERSION >= 70200000",
        // All of HIP, as AMD has it: tools take std::thread from there.
        includes: &["hip/hip_runtime.h", "hip/hip_version.h"],
        types: "",
        kinds: &[Kind::HipRuntimeApi, Kind::HipCompilerApi],
        words: [11, 3],
    },
    Header {
        path: "rocprofiler-sdk/hsa/api_args.h",
        begin: "The arguments of HSA's functions, as callbacks get them. Binary compatible with the header of the same name of
 * ROCprofiler-SDK 0.5. They have the types of HSA's headers where these are installed, and are words elsewhere; functions
 * later than ROCm 5.2.3 are there with ROCm 6.3 and later, those of 1.0 alone with ROCm 7.2 and later.",
        word: "hsa",
        results: &[
            "uint64_t uint64_t_retval",
            "uint32_t uint32_t_retval",
            "hsa_signal_value_t hsa_signal_value_t_retval",
            "hsa_status_t hsa_status_t_retval",
        ],
        is_typed: "defined(ROCPROFILER_HAS_HSA)",
        is_later: "defined(HSA_AMD_INTERFACE_VERSION_MINOR) && HSA_AMD_INTERFACE_VERSION_MINOR >= 6",
        is_of_1_0: "defined(HSA_AMD_INTERFACE_VERSION_MINOR) && HSA_AMD_INTERFACE_VERSION_MINOR >= 15",
        includes: &[
            "hsa/hsa.h",
            "hsa/hsa_ext_amd.h",
            "hsa/hsa_ext_finalize.h",
            "hsa/hsa_ext_image.h",
        ],
        types: "/* Of hsa_api_trace.h. */
typedef hsa_status_t (*hsa_ext_program_iterate_modules_cb_t)(hsa_ext_program_t, hsa_ext_module_t, void*);
typedef void (*hsa_amd_queue_intercept_packet_writer)(const void*, uint64_t);
typedef void (*hsa_amd_queue_intercept_handler)(const void*, uint64_t, uint64_t, void*,
                                                hsa_amd_queue_intercept_packet_writer);
typedef void (*hsa_amd_runtime_queue_notifier)(const hsa_queue_t*, hsa_agent_t, void*);

",
        kinds: &[
            Kind::HsaCoreApi,
            Kind::HsaAmdExtApi,
            Kind::HsaImageExtApi,
            Kind::HsaFinalizeExtApi,
        ],
        words: [24, 1],
    },
];

/// A declaration in C.
fn declaration(argument: &Argument) -> String {
    let text = |text: &std::ffi::CStr| text.to_str().expect("UTF-8").to_owned();
    let (ty, name) = (text(&argument.ty), text(&argument.name));
    match ty.split_once("(*)") {
        Some((before, after)) => format!("{before}(*{name}){after}"),
        None => format!("{ty} {name}"),
    }
}

fn structure(word: &str, kind: Kind, number: u32, name: &str) -> String {
    let mut text = "  struct {\n".to_owned();
    let all = arguments(kind, number);
    for argument in all {
        writeln!(text, "    {};", declaration(argument)).expect("text");
    }
    if all.is_empty() {
        writeln!(text, "    rocprofiler_{word}_api_no_args no_args;").expect("text");
    }
    text + &format!("  }} {name};\n")
}

/// Whether the headers of ROCm 5.2.3 declare a function, with these arguments.
fn is_in_the_first(name: &str, arguments: &[Argument]) -> bool {
    const FIRST_OF_LATER_RELEASES: u16 = 2048;
    // The first of ROCm 6.
    let is_later = |argument: &Argument| declaration(argument).contains("hipDeviceProp_tR0600");
    api::by_name(name).is_some_and(|function| function.id < FIRST_OF_LATER_RELEASES)
        && !arguments.iter().any(is_later)
}

impl Header {
    fn text(&self) -> String {
        let (mut first, mut later, mut of_1_0) = (String::new(), String::new(), String::new());
        for &kind in self.kinds {
            let of_0_5 = kind.operations_of_0_5().expect("functions").len();
            for (number, name) in (0..).zip(kind.operations().expect("functions")) {
                let name = name.to_str().expect("UTF-8");
                let is_first = is_in_the_first(name, arguments(kind, number));
                let part = match number as usize {
                    number if number >= of_0_5 => &mut of_1_0,
                    _ if is_first => &mut first,
                    _ => &mut later,
                };
                *part += &structure(self.word, kind, number, name);
            }
        }
        let Self {
            begin,
            word,
            is_typed,
            is_later,
            is_of_1_0,
            types,
            words: [arguments, result],
            ..
        } = self;
        let guard = format!("ROCPROFILER_SDK_{}_API_ARGS_H_", word.to_uppercase());
        let includes: String =
            self.includes.iter().map(|path| format!("#include <{path}>\n")).collect();
        let results: String = self.results.iter().map(|result| format!("  {result};\n")).collect();
        let found = match *word {
            "hsa" => {
                "#if defined(__has_include)
#if __has_include(<hsa/hsa_ext_finalize.h>)
#define ROCPROFILER_HAS_HSA
#endif
#endif

"
            }
            _ => "",
        };
        format!(
            "/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * {begin} Written by a test of rocprofiler-sdk (tests/headers.rs) from the list of
 * functions. */

#ifndef {guard}
#define {guard}

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

{found}#if {is_typed}
{includes}#endif

ROCPROFILER_EXTERN_C_INIT

/* A structure without a field has another size in C than in C++. */
typedef struct rocprofiler_{word}_api_no_args {{
  char empty;
}} rocprofiler_{word}_api_no_args;

#if {is_typed}

{types}typedef union rocprofiler_{word}_api_retval_t {{
{results}}} rocprofiler_{word}_api_retval_t;

typedef union rocprofiler_{word}_api_args_t {{
{first}#if {is_later}
{later}#endif
#if ROCPROFILER_SDK_INTERFACE >= 1 && {is_of_1_0}
{of_1_0}#endif
}} rocprofiler_{word}_api_args_t;

#else

typedef union rocprofiler_{word}_api_retval_t {{
  uint64_t words[{result}];
}} rocprofiler_{word}_api_retval_t;

typedef union rocprofiler_{word}_api_args_t {{
  uint64_t words[{arguments}];
}} rocprofiler_{word}_api_args_t;

#endif

ROCPROFILER_EXTERN_C_FINI

#endif /* {guard} */
"
        )
    }
}

#[test]
fn arguments_are_written_from_the_list() {
    for header in &HEADERS {
        let path = capi_build::include_directory().expect("headers").join(header.path);
        let written = header.text();
        if std::env::var_os("ROCTAP_BLESS").is_some() {
            fs::write(&path, &written).expect("written");
        }
        let there = fs::read_to_string(&path).expect("the header");
        assert!(there == written, "{}: ROCTAP_BLESS=1 rewrites it", header.path);
    }
}
