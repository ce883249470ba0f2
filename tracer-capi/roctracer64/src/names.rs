//! Domains: names of operations, properties (3.4).

#![expect(unsafe_code, reason = "exports, and pointers of the client's")]

use core::ffi::{CStr, c_char, c_int, c_void};
use std::collections::HashMap;
use std::ffi::CString;
use std::ptr;
use std::sync::LazyLock;

use capi_common::hsa::Functions;
use roctracer::domains::{all_names, operation_name, operation_of};
use roctracer::error::{self, Error};
use roctracer::tracer::TransitionFunction;
use tracer_common::activity::Domain;

use crate::answer;
use crate::hip;
use crate::sources::tracer;

/// All names but those of HIP's functions, for C.
static NAMES: LazyLock<HashMap<&'static str, CString>> = LazyLock::new(|| {
    all_names().filter_map(|name| Some((name, CString::new(name).ok()?))).collect()
});

/// `roctracer_ext_properties_t`.
#[repr(C)]
struct ExtProperties {
    start: Option<TransitionFunction>,
    stop: Option<TransitionFunction>,
}

/// Operations of HIP and of HSA are those of the runtimes that are loaded.
fn look_for(domain: Domain) {
    match domain {
        // One whose calls cannot be traced has names, too.
        Domain::HIP_API => drop(hip::look()),
        Domain::HSA_API => drop(Functions::find()),
        _ => {}
    }
}

/// The name of an operation, which stays this library's; null if there is none. In `HIP_OPS` it is that of the
/// kind.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_op_string(domain: u32, op: u32, kind: u32) -> *const c_char {
    let name = answer::guarded(|| {
        look_for(Domain(domain));
        let name = operation_name(Domain(domain), op, kind)?;
        if Domain(domain) == Domain::HIP_API {
            let name = capi_common::hip::Functions::found().name(op);
            return name.map(CStr::as_ptr).ok_or(Error::Internal);
        }
        NAMES.get(name).map(|name| name.as_ptr()).ok_or(Error::Internal)
    });
    name.unwrap_or_else(|error| {
        error::keep("roctracer_op_string", &error);
        ptr::null()
    })
}

/// The operation of a name. Its kind is 0.
///
/// # Safety
///
/// `name` is a string or null, `op` and `kind` valid for a write or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctracer_op_code(
    domain: u32,
    name: *const c_char,
    op: *mut u32,
    kind: *mut u32,
) -> c_int {
    answer::to("roctracer_op_code", || {
        if name.is_null() || op.is_null() {
            return Err(Error::InvalidArgument);
        }
        // SAFETY: a string, as the caller promises.
        let name = unsafe { CStr::from_ptr(name) };
        look_for(Domain(domain));
        let found = operation_of(Domain(domain), &name.to_string_lossy())?;
        // SAFETY: valid for writes, as the caller promises.
        unsafe {
            op.write(found);
            if !kind.is_null() {
                kind.write(0);
            }
        }
        Ok(())
    })
}

/// Properties of a domain. `EXT_API` has some: the functions that are called when tracing starts and stops.
///
/// # Safety
///
/// `properties` are those of the domain, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctracer_set_properties(
    domain: u32,
    properties: *const c_void,
) -> c_int {
    answer::to("roctracer_set_properties", || match Domain(domain) {
        Domain::EXT_API => {
            // SAFETY: as the caller promises.
            let properties = unsafe { properties.cast::<ExtProperties>().as_ref() };
            let &ExtProperties { start, stop } = properties.ok_or(Error::InvalidArgument)?;
            tracer().set_transitions(start, stop);
            Ok(())
        }
        Domain::HSA_API | Domain::HSA_OPS | Domain::HSA_EVT | Domain::HIP_API | Domain::HIP_OPS => {
            Ok(())
        }
        Domain(domain) => Err(Error::NoProperties { domain }),
    })
}
