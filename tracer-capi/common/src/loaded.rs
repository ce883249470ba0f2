//! Libraries that the process has loaded.

#![expect(unsafe_code, reason = "the dynamic linker's functions")]

use core::ffi::{CStr, c_int, c_void};
use std::ffi::CString;
use std::ptr::NonNull;

/// A library that is loaded, and stays so from then on.
pub struct Loaded {
    handle: NonNull<c_void>,
    path: CString,
}

impl Loaded {
    /// The one whose file is called so, or so and a version; none if there is none.
    pub fn find(name: &'static [u8]) -> Option<Self> {
        let path = path_of(name)?;
        // SAFETY: it loads nothing, and the handle is kept for ever.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        NonNull::new(handle).map(|handle| Self { handle, path })
    }

    /// Its file, as the dynamic linker has it.
    pub fn path(&self) -> &CStr {
        &self.path
    }

    /// The address of a function of it.
    pub fn function(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: a library that is loaded.
        let found = unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }
}

/// The path of a loaded library whose file is called so, or so and a version.
fn path_of(name: &'static [u8]) -> Option<CString> {
    struct Search {
        name: &'static [u8],
        found: Option<CString>,
    }
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: what the C library gives, and the search of below.
        let (path, search) = unsafe { ((*info).dlpi_name, &mut *search.cast::<Search>()) };
        if path.is_null() {
            return 0;
        }
        // SAFETY: a path, which is there while the library is.
        let path = unsafe { CStr::from_ptr(path) };
        let file = path.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        if file.starts_with(search.name) {
            search.found = Some(path.to_owned());
            return 1;
        }
        0
    }
    let mut search = Search { name, found: None };
    // SAFETY: a function that takes what it is given here.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}
