//! The functions of HIP by their numbers, which differ between releases.

#![expect(unsafe_code, reason = "a function of a library that is loaded")]

use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;
use std::borrow::Cow;
use std::collections::HashMap;

use tracer_common::activity::Domain;
use tracer_records::api;

use super::Release;
use crate::loaded::Loaded;

/// What the file of the runtime is called, but for its version.
pub const LIBRARY: &[u8] = b"libamdhip64.so";

/// More functions than HIP has in any release.
const MOST_FUNCTIONS: u32 = 1024;

type Name = unsafe extern "C" fn(u32) -> *const c_char;

/// The functions of the HIP runtime that the process has loaded; if it has none, those of ROCm 5.2.3's headers.
#[derive(Debug)]
pub struct Functions {
    loaded: Option<Name>,
    release: Release,
}

impl Functions {
    /// Those that count in this process now.
    pub fn find() -> Self {
        let of_headers = Self { loaded: None, release: Release::First };
        let Some(library) = Loaded::find(LIBRARY) else { return of_headers };
        let Some(name) = library.function(c"hipApiName") else { return of_headers };
        let release = Release::of(|name| library.function(name).is_some());
        // SAFETY: a function of this type, by its name.
        Self { loaded: Some(unsafe { transmute::<*mut c_void, Name>(name) }), release }
    }

    /// Whether they are those of a runtime that is loaded.
    pub fn are_loaded(&self) -> bool {
        self.loaded.is_some()
    }

    /// The release, which says where arguments are.
    pub fn release(&self) -> Release {
        self.release
    }

    /// The name of a function. A runtime has one for any number; the headers have not.
    pub fn name(&self, op: u32) -> Option<Cow<'static, str>> {
        match self.loaded {
            // SAFETY: HIP's function takes any number, and returns a string that stays.
            Some(name) => Some(unsafe { CStr::from_ptr(name(op)) }.to_string_lossy()),
            None => of_headers(op).map(Cow::Borrowed),
        }
    }

    /// The numbers of all functions.
    pub fn numbers(&self) -> HashMap<Cow<'static, str>, u32> {
        // A number that is no function's has a name that is none either.
        let is_function = |name: &str| name.starts_with("hip") || name.starts_with("__hip");
        (0..MOST_FUNCTIONS)
            .filter_map(|op| Some((self.name(op)?, op)))
            .filter(|(name, _)| is_function(name))
            .collect()
    }
}

/// Larger ids are ours, of functions that the headers have no number for.
fn of_headers(op: u32) -> Option<&'static str> {
    let id = u16::try_from(op).ok().filter(|_| op < MOST_FUNCTIONS)?;
    api::by_id(Domain::HIP_API, id).map(|function| function.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_runtime_the_headers_count() {
        let functions = Functions::find();
        assert!(!functions.are_loaded() && functions.release() == Release::First);
        let numbers = functions.numbers();
        assert!(numbers.len() > 300, "{}", numbers.len());
        for (name, op) in &numbers {
            assert_eq!(functions.name(*op).as_ref(), Some(name));
        }
        assert!(numbers.contains_key("hipLaunchKernel"));
        for op in [MOST_FUNCTIONS, 2048, u32::MAX] {
            assert_eq!(functions.name(op), None);
        }
    }
}
