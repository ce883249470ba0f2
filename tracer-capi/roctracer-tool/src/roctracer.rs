//! `libroctracer64.so.4`, as its headers have it (`roctracer.h`, `roctracer_ext.h`).

#![expect(unsafe_code, reason = "functions of a library that is loaded")]

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::mem;
use std::ptr;

use capi_common::plugin::{MAJOR, MINOR};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use tracer_common::activity::{ActivityRecord, Domain};

/// The library.
const LIBRARY: &str = "libroctracer64.so.4";

/// `activity_rtapi_callback_t`.
pub type Callback = unsafe extern "C-unwind" fn(u32, u32, *const c_void, *mut c_void);
/// `roctracer_buffer_callback_t`.
pub type Delivered =
    unsafe extern "C-unwind" fn(*const ActivityRecord, *const ActivityRecord, *mut c_void);

/// `roctracer_properties_t`.
#[repr(C)]
struct Properties {
    mode: u32,
    buffer_bytes: usize,
    allocate: *const c_void,
    allocate_argument: *mut c_void,
    delivered: Option<Delivered>,
    delivered_argument: *mut c_void,
}

const _: () = assert!(size_of::<Properties>() == 48);

/// The reason for which the library is of no use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not there, or lacks a function.
    #[error("{LIBRARY} cannot be used: {0}")]
    Library(#[from] libloading::Error),
    /// It has another version.
    #[error("{LIBRARY} has version {major}.{minor}, and the tool serves {MAJOR}.{MINOR}")]
    Version {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
    /// One of its functions failed.
    #[error("{function} failed: {said}")]
    Failed {
        /// The function.
        function: &'static str,
        /// The library's error text.
        said: String,
    },
}

/// Its functions.
pub struct Roctracer {
    error_string: unsafe extern "C-unwind" fn() -> *mut c_char,
    op_string: unsafe extern "C-unwind" fn(u32, u32, u32) -> *const c_char,
    op_code: unsafe extern "C-unwind" fn(u32, *const c_char, *mut u32, *mut u32) -> c_int,
    enable_op_callback: unsafe extern "C-unwind" fn(u32, u32, Callback, *mut c_void) -> c_int,
    enable_domain_callback: unsafe extern "C-unwind" fn(u32, Callback, *mut c_void) -> c_int,
    enable_op_activity: unsafe extern "C-unwind" fn(u32, u32) -> c_int,
    enable_domain_activity: unsafe extern "C-unwind" fn(u32) -> c_int,
    open_pool: unsafe extern "C-unwind" fn(*const Properties) -> c_int,
    default_pool: unsafe extern "C-unwind" fn() -> *mut c_void,
    close_pool: unsafe extern "C-unwind" fn() -> c_int,
    flush_activity: unsafe extern "C-unwind" fn() -> c_int,
    get_timestamp: unsafe extern "C-unwind" fn(*mut u64) -> c_int,
    start: unsafe extern "C-unwind" fn(),
    stop: unsafe extern "C-unwind" fn(),
}

impl Roctracer {
    /// Loads the library, which stays.
    pub fn load() -> Result<Self, Error> {
        // SAFETY: what it does when it is loaded harms nobody; its functions have these types, by their names.
        unsafe {
            let library = Library::open(Some(LIBRARY), RTLD_NOW | RTLD_LOCAL)?;
            let version: [unsafe extern "C-unwind" fn() -> u32; 2] = [
                *library.get(b"roctracer_version_major\0")?,
                *library.get(b"roctracer_version_minor\0")?,
            ];
            let [major, minor] = version.map(|version| version());
            if major != MAJOR || minor < MINOR {
                return Err(Error::Version { major, minor });
            }
            let found = Self {
                error_string: *library.get(b"roctracer_error_string\0")?,
                op_string: *library.get(b"roctracer_op_string\0")?,
                op_code: *library.get(b"roctracer_op_code\0")?,
                enable_op_callback: *library.get(b"roctracer_enable_op_callback\0")?,
                enable_domain_callback: *library.get(b"roctracer_enable_domain_callback\0")?,
                enable_op_activity: *library.get(b"roctracer_enable_op_activity\0")?,
                enable_domain_activity: *library.get(b"roctracer_enable_domain_activity\0")?,
                open_pool: *library.get(b"roctracer_open_pool\0")?,
                default_pool: *library.get(b"roctracer_default_pool\0")?,
                close_pool: *library.get(b"roctracer_close_pool\0")?,
                flush_activity: *library.get(b"roctracer_flush_activity\0")?,
                get_timestamp: *library.get(b"roctracer_get_timestamp\0")?,
                start: *library.get(b"roctracer_start\0")?,
                stop: *library.get(b"roctracer_stop\0")?,
            };
            mem::forget(library);
            Ok(found)
        }
    }

    fn check(&self, function: &'static str, status: c_int) -> Result<(), Error> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library's function; the string is given back to `free`, as it says.
        let said = unsafe {
            let text = (self.error_string)();
            let said = if text.is_null() { c"" } else { CStr::from_ptr(text) };
            let said = said.to_string_lossy().into_owned();
            libc::free(text.cast());
            said
        };
        Err(Error::Failed { function, said })
    }

    /// The name of an operation; none if there is no such.
    pub fn operation_name(&self, domain: Domain, op: u32) -> Option<&'static CStr> {
        // SAFETY: the library's function, whose strings stay.
        unsafe {
            let name = (self.op_string)(domain.0, op, 0);
            (!name.is_null()).then(|| CStr::from_ptr(name))
        }
    }

    /// Has a function called for calls of a domain, of the named functions or, if none is named, of all. Returns the
    /// names of which there is no function.
    pub fn enable_calls<'a>(
        &self,
        domain: Domain,
        names: &'a [String],
        callback: Callback,
    ) -> Result<Vec<&'a str>, Error> {
        if names.is_empty() {
            // SAFETY: the library's function, and one that takes what its domain has.
            let status =
                unsafe { (self.enable_domain_callback)(domain.0, callback, ptr::null_mut()) };
            return self.check("roctracer_enable_domain_callback", status).map(|()| Vec::new());
        }
        let is_unknown = |name: &&str| {
            let Ok(name) = CString::new(*name) else { return true };
            let mut op = 0;
            // SAFETY: the library's functions, a string, a place, and a function that takes what its domain has.
            unsafe {
                (self.op_code)(domain.0, name.as_ptr(), &raw mut op, ptr::null_mut()) != 0
                    || (self.enable_op_callback)(domain.0, op, callback, ptr::null_mut()) != 0
            }
        };
        Ok(names.iter().map(String::as_str).filter(is_unknown).collect())
    }

    /// Has work of GPUs recorded, that of one operation or all of a domain.
    pub fn enable_work(&self, domain: Domain, op: Option<u32>) -> Result<(), Error> {
        // SAFETY: the library's functions.
        unsafe {
            match op {
                Some(op) => {
                    let status = (self.enable_op_activity)(domain.0, op);
                    self.check("roctracer_enable_op_activity", status)
                }
                None => {
                    let status = (self.enable_domain_activity)(domain.0);
                    self.check("roctracer_enable_domain_activity", status)
                }
            }
        }
    }

    /// Opens the default pool.
    pub fn open_pool(&self, buffer_bytes: usize, delivered: Delivered) -> Result<(), Error> {
        let properties = Properties {
            mode: 0,
            buffer_bytes,
            allocate: ptr::null(),
            allocate_argument: ptr::null_mut(),
            delivered: Some(delivered),
            delivered_argument: ptr::null_mut(),
        };
        // SAFETY: the library's function, and properties that are there during the call.
        let status = unsafe { (self.open_pool)(&raw const properties) };
        self.check("roctracer_open_pool", status)
    }

    /// Whether somebody has opened the default pool.
    pub fn has_pool(&self) -> bool {
        // SAFETY: the library's function.
        unsafe { !(self.default_pool)().is_null() }
    }

    /// Delivers the recorded activities.
    pub fn flush(&self) -> Result<(), Error> {
        // SAFETY: the library's function.
        let status = unsafe { (self.flush_activity)() };
        self.check("roctracer_flush_activity", status)
    }

    /// Closes the default pool, and delivers the records in it.
    pub fn close_pool(&self) -> Result<(), Error> {
        // SAFETY: the library's function.
        let status = unsafe { (self.close_pool)() };
        self.check("roctracer_close_pool", status)
    }

    /// The time, ns of CLOCK_BOOTTIME.
    pub fn now_ns(&self) -> u64 {
        let mut now = 0;
        // SAFETY: the library's function, and a place for a number.
        unsafe { (self.get_timestamp)(&raw mut now) };
        now
    }

    /// Goes on tracing.
    pub fn start(&self) {
        // SAFETY: the library's function.
        unsafe { (self.start)() };
    }

    /// Traces nothing but marks and ranges.
    pub fn stop(&self) {
        // SAFETY: the library's function.
        unsafe { (self.stop)() };
    }
}
