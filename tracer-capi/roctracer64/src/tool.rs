//! The functions that the HSA runtime looks for in a library that `HSA_TOOLS_LIB` names or that is loaded already.

#![expect(unsafe_code, reason = "exports")]

use core::ffi::{c_char, c_void};

use tracer_hooks::abi::ApiTable;
use tracer_hooks::{Tables, contained};

use crate::hsa;

/// The library's place among other tools: the lower comes first.
#[unsafe(no_mangle)]
static HSA_AMD_TOOL_PRIORITY: u32 = 50;

/// The runtime has begun. Returns true: the library is to stay.
///
/// # Safety
///
/// `table` is null or the runtime's own table.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn OnLoad(
    table: *const c_void,
    _runtime_version: u64,
    _failed_tools: u64,
    _failed_tool_names: *const *const c_char,
) -> bool {
    contained(|| {
        // SAFETY: the caller's promise.
        if let Ok(tables) = unsafe { Tables::of(table.cast::<ApiTable>()) } {
            hsa::runtime_begins(tables);
        }
    });
    true
}

/// The runtime ends.
#[unsafe(no_mangle)]
extern "C-unwind" fn OnUnload() {
    contained(tracer_hooks::close);
}
