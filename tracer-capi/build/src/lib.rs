//! The libraries with C interfaces: they are linked from the archives that cargo makes, and the results are checked.
//!
//! * [`link`](mod@link): archive → shared library, with soname and symbol versions.
//! * [`symbols`]: the symbols that a library exports, compared with `tracer-capi/abi/<soname>.txt`.
//! * [`layouts`]: sizes, offsets and constants of the headers, compared with `tracer-capi/abi/layouts.txt`.
//! * [`install`]: library, headers, and the files for pkg-config and CMake, below a directory.
//! * [`clients`]: programs in C and C++ that use a library, for tests.
//! * [`matrix`]: the functions of each library, and the programs among those that call them.
//!
//! A new library is an entry of [`LIBRARIES`], a crate with an `exports.map`, its list, and, if programs are built with
//! it, its headers, and in `layouts.txt` what those declare; a new function is a line in the map, one in the list, and
//! its declaration.
//!
//! For `cargo xtask` and for tests, which both need the same libraries. The lists are written by hand from AMD's
//! libraries, and are never generated from ours.

#![deny(unsafe_code)]

pub mod clients;
pub mod install;
pub mod layouts;
pub mod link;
pub mod matrix;
pub mod symbols;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A library with a C interface.
#[derive(Debug)]
pub struct Library {
    /// The package that cargo builds.
    pub package: &'static str,
    /// The archive that comes of it.
    pub archive: &'static str,
    /// The name by which programs are linked against it, or load it: also the file's name.
    pub soname: &'static str,
    /// Where it is installed.
    pub directory: &'static str,
    /// The files that programs are built with; none of a library that is only loaded.
    pub development: Option<Development>,
    /// The compiler's definitions for programs that use it.
    defines: &'static [&'static str],
    /// The linker's version script, below `tracer-capi`.
    exports: &'static str,
    /// Further options of the linker.
    options: &'static [&'static str],
}

/// The files that programs that use a library are built with.
#[derive(Debug)]
pub struct Development {
    /// The name by which pkg-config and CMake know it.
    pub name: &'static str,
    /// Its purpose.
    pub description: &'static str,
    /// Its interface's version.
    pub version: &'static str,
    /// Its headers, below the directory of headers.
    pub headers: &'static [&'static str],
    /// The name for the linker's `-l`: a symbolic link.
    pub link: &'static str,
}

/// All of them.
pub const LIBRARIES: [Library; 8] = [
    ROCTRACER,
    ROCTX,
    TOOL,
    FILE_PLUGIN,
    ROCPROFILER_SDK,
    ROCPROFILER_SDK_1,
    ROCPROFILER_SDK_ROCTX,
    ROCPROFILER_REGISTER,
];

/// The directory of libraries.
const LIBRARY_DIRECTORY: &str = "lib";
/// The directory of the libraries of which roctracer's tool consists.
const TOOL_DIRECTORY: &str = "lib/roctracer";

/// Threads run its code, and threads of the program's may be in it: it stays once it was loaded.
const STAYS: &str = "-Wl,-z,nodelete";

/// Callbacks and activity records.
pub const ROCTRACER: Library = Library {
    package: "roctracer64",
    archive: "libroctracer64.a",
    soname: "libroctracer64.so.4",
    directory: LIBRARY_DIRECTORY,
    development: Some(Development {
        name: "roctracer",
        description: "Callbacks and activity records of HIP and HSA",
        version: "4.1.0",
        headers: &[
            "roctracer/roctracer.h",
            "roctracer/roctracer_ext.h",
            "roctracer/roctracer_hip.h",
            "roctracer/roctracer_hsa.h",
            "roctracer/hsa_prof_str.h",
            "roctracer/roctracer_plugin.h",
            "roctracer/roctracer_roctx.h",
            "roctracer/ext/prof_protocol.h",
        ],
        link: "libroctracer64.so",
    }),
    defines: &[],
    exports: "roctracer64/exports.map",
    options: &[STAYS],
};

/// Marks and ranges.
pub const ROCTX: Library = Library {
    package: "roctx",
    archive: "libroctx64.a",
    soname: "libroctx64.so.4",
    directory: LIBRARY_DIRECTORY,
    development: Some(Development {
        name: "roctx",
        description: "Marks and ranges of programs",
        version: "4.1.0",
        headers: &[
            "roctracer/roctx.h",
            "roctracer/roctracer_roctx.h",
            "roctracer/ext/prof_protocol.h",
        ],
        link: "libroctx64.so",
    }),
    defines: &[],
    exports: "roctx/exports.map",
    options: &[],
};

/// The tool that traces a program as its environment says.
pub const TOOL: Library = Library {
    package: "roctracer-tool",
    archive: "libroctracer_tool.a",
    soname: "libroctracer_tool.so",
    directory: TOOL_DIRECTORY,
    development: None,
    defines: &[],
    exports: "roctracer-tool/exports.map",
    // It finds libroctracer64.so.4 in the directory above its own.
    options: &[STAYS, "-Wl,--enable-new-dtags,-rpath,$ORIGIN/.."],
};

/// The plugin of the tool that writes text files.
pub const FILE_PLUGIN: Library = Library {
    package: "file-plugin",
    archive: "libfile_plugin.a",
    soname: "libfile_plugin.so",
    directory: TOOL_DIRECTORY,
    development: None,
    defines: &[],
    exports: "file-plugin/exports.map",
    options: &[],
};

/// Tools, contexts and buffers.
pub const ROCPROFILER_SDK: Library = Library {
    package: "rocprofiler-sdk",
    archive: "librocprofiler_sdk.a",
    soname: "librocprofiler-sdk.so.0",
    directory: LIBRARY_DIRECTORY,
    development: Some(Development {
        name: "rocprofiler-sdk",
        description: "Records of HIP, HSA and GPUs for tools",
        version: "0.5.0",
        headers: &[
            "rocprofiler-sdk/agent.h",
            "rocprofiler-sdk/agent_profile.h",
            "rocprofiler-sdk/buffer.h",
            "rocprofiler-sdk/buffer_tracing.h",
            "rocprofiler-sdk/callback_tracing.h",
            "rocprofiler-sdk/context.h",
            "rocprofiler-sdk/counter_config.h",
            "rocprofiler-sdk/counters.h",
            "rocprofiler-sdk/cxx/hash.hpp",
            "rocprofiler-sdk/cxx/name_info.hpp",
            "rocprofiler-sdk/cxx/operators.hpp",
            "rocprofiler-sdk/defines.h",
            "rocprofiler-sdk/deprecated/counters.h",
            "rocprofiler-sdk/deprecated/profile_config.h",
            "rocprofiler-sdk/device_counting_service.h",
            "rocprofiler-sdk/dispatch_counting_service.h",
            "rocprofiler-sdk/dispatch_profile.h",
            "rocprofiler-sdk/experimental/counters.h",
            "rocprofiler-sdk/external_correlation.h",
            "rocprofiler-sdk/fwd.h",
            "rocprofiler-sdk/hip.h",
            "rocprofiler-sdk/hip/api_args.h",
            "rocprofiler-sdk/hip/api_id.h",
            "rocprofiler-sdk/hip/compiler_api_id.h",
            "rocprofiler-sdk/hip/runtime_api_id.h",
            "rocprofiler-sdk/hip/table_id.h",
            "rocprofiler-sdk/hsa.h",
            "rocprofiler-sdk/hsa/amd_ext_api_id.h",
            "rocprofiler-sdk/hsa/api_args.h",
            "rocprofiler-sdk/hsa/api_id.h",
            "rocprofiler-sdk/hsa/core_api_id.h",
            "rocprofiler-sdk/hsa/finalize_ext_api_id.h",
            "rocprofiler-sdk/hsa/image_ext_api_id.h",
            "rocprofiler-sdk/hsa/scratch_memory_args.h",
            "rocprofiler-sdk/hsa/table_id.h",
            "rocprofiler-sdk/intercept_table.h",
            "rocprofiler-sdk/internal_threading.h",
            "rocprofiler-sdk/marker.h",
            "rocprofiler-sdk/marker/api_args.h",
            "rocprofiler-sdk/marker/api_id.h",
            "rocprofiler-sdk/marker/table_id.h",
            "rocprofiler-sdk/pc_sampling.h",
            "rocprofiler-sdk/profile_config.h",
            "rocprofiler-sdk/rccl.h",
            "rocprofiler-sdk/rccl/api_args.h",
            "rocprofiler-sdk/rccl/api_id.h",
            "rocprofiler-sdk/rccl/details/rccl.h",
            "rocprofiler-sdk/rccl/table_id.h",
            "rocprofiler-sdk/registration.h",
            "rocprofiler-sdk/rocprofiler.h",
            "rocprofiler-sdk/spm.h",
            "rocprofiler-sdk/version.h",
            // Which `marker/api_args.h` includes.
            "rocprofiler-sdk-roctx/api_trace.h",
            "rocprofiler-sdk-roctx/defines.h",
            "rocprofiler-sdk-roctx/types.h",
            "rocprofiler-sdk-roctx/version.h",
        ],
        link: "librocprofiler-sdk.so",
    }),
    defines: &[],
    exports: "rocprofiler-sdk/exports.map",
    options: &[STAYS],
};

/// The same with the 1.0 interface, for programs that are built already.
pub const ROCPROFILER_SDK_1: Library = Library {
    package: "rocprofiler-sdk-1",
    archive: "librocprofiler_sdk_1.a",
    soname: "librocprofiler-sdk.so.1",
    directory: LIBRARY_DIRECTORY,
    development: None,
    defines: &["-DROCPROFILER_SDK_INTERFACE=1"],
    exports: "rocprofiler-sdk-1/exports.map",
    options: &[STAYS],
};

/// Marks, ranges and names for tools of [`ROCPROFILER_SDK`].
pub const ROCPROFILER_SDK_ROCTX: Library = Library {
    package: "rocprofiler-sdk-roctx",
    archive: "librocprofiler_sdk_roctx.a",
    soname: "librocprofiler-sdk-roctx.so.0",
    directory: LIBRARY_DIRECTORY,
    development: Some(Development {
        name: "rocprofiler-sdk-roctx",
        description: "Marks, ranges and names of programs",
        version: "0.5.0",
        headers: &[
            "rocprofiler-sdk-roctx/api_trace.h",
            "rocprofiler-sdk-roctx/defines.h",
            "rocprofiler-sdk-roctx/roctx.h",
            "rocprofiler-sdk-roctx/types.h",
            "rocprofiler-sdk-roctx/version.h",
        ],
        link: "librocprofiler-sdk-roctx.so",
    }),
    defines: &[],
    exports: "rocprofiler-sdk-roctx/exports.map",
    // The library that records has put functions into its tables.
    options: &[STAYS],
};

/// The library by which runtimes hand their tables over to [`ROCPROFILER_SDK`].
pub const ROCPROFILER_REGISTER: Library = Library {
    package: "rocprofiler-register",
    archive: "librocprofiler_register.a",
    soname: "librocprofiler-register.so.0",
    directory: LIBRARY_DIRECTORY,
    development: Some(Development {
        name: "rocprofiler-register",
        description: "Runtimes hand their tables over to tools",
        version: "0.4.0",
        headers: &["rocprofiler-register/rocprofiler-register.h", "rocprofiler-register/version.h"],
        link: "librocprofiler-register.so",
    }),
    defines: &[],
    exports: "rocprofiler-register/exports.map",
    options: &[STAYS],
};

/// The directory `tracer-capi`, where sources, headers and lists are.
pub fn source_directory() -> anyhow::Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no directory above the package")
}

/// The directory of the headers, which a client gives its compiler by `-I`.
pub fn include_directory() -> anyhow::Result<PathBuf> {
    Ok(source_directory()?.join("include"))
}

/// The lines of a committed list: no comments, no empty lines.
fn entries(list: &str) -> impl Iterator<Item = &str> {
    let stripped = list.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    stripped.filter(|line| !line.is_empty())
}
