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
    pub fn find(name: &[u8]) -> Option<Self> {
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
fn path_of(name: &[u8]) -> Option<CString> {
    let is_so = |path: &CString| {
        let file = path.to_bytes().rsplit(|&byte| byte == b'/').next();
        file.is_some_and(|file| file.starts_with(name))
    };
    paths().into_iter().find(is_so)
}

/// The paths of all libraries that are loaded, in their order. The program itself has none.
pub fn paths() -> Vec<CString> {
    /// # Safety
    ///
    /// `paths` is the list of below.
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        paths: *mut c_void,
    ) -> c_int {
        // SAFETY: what the C library gives, and the list of below.
        let (path, paths) = unsafe { ((*info).dlpi_name, &mut *paths.cast::<Vec<CString>>()) };
        // SAFETY: null, or a path, which is there while the library is.
        let path = unsafe { path.as_ref().map(|path| CStr::from_ptr(path)) };
        paths.extend(path.filter(|path| !path.is_empty()).map(CStr::to_owned));
        0
    }
    let mut paths: Vec<CString> = Vec::new();
    // SAFETY: a function that takes what it is given here.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut paths).cast()) };
    paths
}
