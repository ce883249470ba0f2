//! The functions of HIP by their numbers, which differ between releases.

#![expect(unsafe_code, reason = "a function of a library that is loaded")]

use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;
use std::ffi::CString;
use std::sync::{LazyLock, OnceLock};

use tracer_common::activity::Domain;
use tracer_records::api;

use super::Release;
use crate::loaded::Loaded;

/// The name of the runtime's file, without its version.
pub const LIBRARY: &[u8] = b"libamdhip64.so";

/// More functions than HIP has in any release.
pub const MOST_FUNCTIONS: u32 = 1024;

/// The functions of a release by their numbers.
#[derive(Debug)]
pub struct Functions {
    /// None for a number without a function.
    names: Vec<Option<&'static CStr>>,
    release: Release,
    are_loaded: bool,
}

static FIRST: LazyLock<Functions> =
    LazyLock::new(|| Functions::of(of_headers, Release::First, false));
static LOADED: OnceLock<Functions> = OnceLock::new();

impl Functions {
    /// The functions that count in this process: of the runtime that it has loaded; if it has none, of ROCm 5.2.3's
    /// headers. May wait for the dynamic linker.
    pub fn find() -> &'static Self {
        type Name = unsafe extern "C" fn(u32) -> *const c_char;
        if LOADED.get().is_none()
            && let Some(library) = Loaded::find(LIBRARY)
            && let Some(name) = library.function(c"hipApiName")
        {
            // SAFETY: a function of this type, by its name.
            let name = unsafe { transmute::<*mut c_void, Name>(name) };
            let named = |op| {
                // SAFETY: HIP's function takes any number, and returns a string that stays.
                let name = unsafe { CStr::from_ptr(name(op)) };
                Some(name).filter(|&name| name != c"unknown")
            };
            let release = Release::of(|name| library.function(name).is_some());
            // Of two threads one is the first.
            let _ = LOADED.set(Self::of(named, release, true));
        }
        Self::found()
    }

    /// The functions that [`Functions::find`] has found.
    pub fn found() -> &'static Self {
        LOADED.get().unwrap_or_else(|| &FIRST)
    }

    fn of(name: impl Fn(u32) -> Option<&'static CStr>, release: Release, are_loaded: bool) -> Self {
        let mut names: Vec<_> = (0..MOST_FUNCTIONS).map(name).collect();
        let end = names.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        names.truncate(end);
        Self { names, release, are_loaded }
    }

    /// Whether they are those of a runtime that is loaded.
    pub fn are_loaded(&self) -> bool {
        self.are_loaded
    }

    /// The release, which determines the places of arguments.
    pub fn release(&self) -> Release {
        self.release
    }

    /// One past the last number.
    pub fn end(&self) -> u32 {
        self.names.len() as u32
    }

    /// The name of a function, by its number.
    pub fn name(&self, number: u32) -> Option<&'static CStr> {
        *self.names.get(number as usize)?
    }

    /// The numbers and names of all.
    pub fn all(&self) -> impl Iterator<Item = (u32, &'static str)> {
        let names = self.names.iter().map(|name| name.and_then(|name| name.to_str().ok()));
        (0..).zip(names).filter_map(|(number, name)| Some((number, name?)))
    }
}

/// Larger ids are ours, for functions that have no number in the headers.
fn of_headers(op: u32) -> Option<&'static CStr> {
    let function = api::by_id(Domain::HIP_API, u16::try_from(op).ok()?)?;
    // Once for each function.
    CString::new(function.name).ok().map(|name| &*Box::leak(name.into_boxed_c_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_runtime_the_headers_count() {
        let functions = Functions::find();
        assert!(!functions.are_loaded() && functions.release() == Release::First);
        // `HIP_API_ID_LAST` is one less.
        assert_eq!(functions.end(), 334);
        let all: Vec<_> = functions.all().collect();
        assert_eq!(all.len(), 329);
        for &(number, name) in &all {
            assert_eq!(functions.name(number).map(CStr::to_bytes), Some(name.as_bytes()));
        }
        assert!(all.contains(&(107, "hipLaunchKernel")));
        for number in [0, 334, MOST_FUNCTIONS, u32::MAX] {
            assert_eq!(functions.name(number), None);
        }
    }
}
