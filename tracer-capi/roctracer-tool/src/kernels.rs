//! The functions of HIP that is loaded: their arguments, and which kernels they launch.

#![expect(unsafe_code, reason = "functions of HIP's")]

use core::ffi::{c_char, c_void};
use core::mem::transmute;
use std::ptr;

use capi_common::hip::{Data, Field, LIBRARY, Release, fields};
use capi_common::loaded::Loaded;
use tracer_common::activity::Domain;

use crate::roctracer::Roctracer;

/// More functions than HIP has in any release.
const MOST_FUNCTIONS: u32 = 1024;

/// How a function is told which kernel it launches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KernelReference {
    /// By the address of its stub in the program.
    Stub,
    /// By a `hipFunction_t`.
    Function,
}

/// Functions that launch one kernel, and the argument that says which.
const LAUNCHES: [(&str, &str, KernelReference); 7] = [
    ("hipExtLaunchKernel", "function_address", KernelReference::Stub),
    ("hipExtModuleLaunchKernel", "f", KernelReference::Function),
    ("hipHccModuleLaunchKernel", "f", KernelReference::Function),
    ("hipLaunchByPtr", "hostFunction", KernelReference::Stub),
    ("hipLaunchCooperativeKernel", "f", KernelReference::Stub),
    ("hipLaunchKernel", "function_address", KernelReference::Stub),
    ("hipModuleLaunchKernel", "f", KernelReference::Function),
];

type OfStub = unsafe extern "C" fn(*const c_void, *mut c_void) -> *const c_char;
type OfFunction = unsafe extern "C" fn(*const c_void) -> *const c_char;

/// A function of HIP.
#[derive(Default)]
struct Function {
    fields: &'static [Field],
    launches: Option<(&'static Field, KernelReference)>,
}

/// The HIP runtime that is loaded.
pub struct Hip {
    /// By operation.
    functions: Vec<Function>,
    of_stub: Option<OfStub>,
    of_function: Option<OfFunction>,
}

impl Hip {
    /// The runtime; one without functions if none is loaded.
    pub fn find(roctracer: &Roctracer) -> Self {
        let Some(library) = Loaded::find(LIBRARY) else {
            return Self { functions: Vec::new(), of_stub: None, of_function: None };
        };
        let release = Release::of(|name| library.function(name).is_some());
        let function = |op| {
            let name = roctracer.operation_name(Domain::HIP_API, op);
            let name = name.and_then(|name| name.to_str().ok()).unwrap_or_default();
            Function::of(name, release)
        };
        let of_stub = library.function(c"hipKernelNameRefByPtr");
        let of_function = library.function(c"hipKernelNameRef");
        // SAFETY: functions of these types, by their names.
        unsafe {
            Self {
                functions: (0..MOST_FUNCTIONS).map(function).collect(),
                of_stub: of_stub.map(|found| transmute::<*mut c_void, OfStub>(found)),
                of_function: of_function.map(|found| transmute::<*mut c_void, OfFunction>(found)),
            }
        }
    }

    /// The arguments of an operation.
    pub fn fields(&self, op: u32) -> &'static [Field] {
        self.functions.get(op as usize).map_or(&[], |function| function.fields)
    }

    /// The kernel that a call has launched. Null if it launches none, or it is not known.
    pub fn kernel(&self, op: u32, data: Data) -> *const c_char {
        let launches = self.functions.get(op as usize).and_then(|function| function.launches);
        let Some((field, by)) = launches else { return ptr::null() };
        let argument = ptr::with_exposed_provenance::<c_void>(data.argument(field) as usize);
        if argument.is_null() {
            return ptr::null();
        }
        // SAFETY: HIP's functions, with the argument of a call that HIP has made.
        let name = unsafe {
            match by {
                KernelReference::Stub => self.of_stub.map(|name| name(argument, ptr::null_mut())),
                KernelReference::Function => self.of_function.map(|name| name(argument)),
            }
        };
        name.unwrap_or(ptr::null())
    }
}

impl Function {
    fn of(name: &str, release: Release) -> Self {
        let fields = fields(name, release);
        let launch = LAUNCHES.iter().find(|(function, ..)| *function == name);
        let launches = launch.and_then(|(_, argument, by)| {
            fields.iter().find(|field| field.name == *argument).zip(Some(*by))
        });
        Self { fields, launches }
    }
}

/// Whether HIP is loaded.
pub fn is_hip_loaded() -> bool {
    Loaded::find(LIBRARY).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_have_the_argument_that_says_which_kernel() {
        for release in [Release::First, Release::Five, Release::Later] {
            for (name, argument, by) in LAUNCHES {
                let function = Function::of(name, release);
                // Later releases have no such function any more.
                if name == "hipHccModuleLaunchKernel" && function.fields.is_empty() {
                    continue;
                }
                let (field, found) = function.launches.expect(name);
                assert_eq!((field.name, found), (argument, by));
            }
        }
        assert!(Function::of("hipMalloc", Release::First).launches.is_none());
    }
}
