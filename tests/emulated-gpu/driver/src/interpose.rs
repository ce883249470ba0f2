//! The functions of libc that open files and ask devices. What is not the driver's goes on to the system.
#![expect(unsafe_code, reason = "exported C functions that take the place of libc's")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt as _;

use crate::device::{self, Device};
use crate::{drm, kfd, tree};

const KFD: &str = "/dev/kfd";
const RENDER: &str = "/dev/dri/renderD";

/// The file that is opened for a path.
enum OpenedPath {
    Device(Device),
    Elsewhere(CString),
    Unchanged,
}

/// # Safety
/// `path` is null or a C string.
unsafe fn opened(path: *const c_char) -> OpenedPath {
    if path.is_null() {
        return OpenedPath::Unchanged;
    }
    // SAFETY: as this function requires.
    let Ok(path) = unsafe { CStr::from_ptr(path) }.to_str() else { return OpenedPath::Unchanged };
    if path == KFD {
        return OpenedPath::Device(Device::Kfd);
    }
    if let Some(minor) = path.strip_prefix(RENDER) {
        let node = minor.parse().ok().and_then(drm::node_of_minor);
        return node.map_or(OpenedPath::Unchanged, |node| OpenedPath::Device(Device::Render(node)));
    }
    tree::redirect(path)
        .and_then(|path| CString::new(path.as_os_str().as_bytes()).ok())
        .map_or(OpenedPath::Unchanged, OpenedPath::Elsewhere)
}

/// # Safety
/// `path` is a C string.
unsafe fn open_at(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: as this function requires; the system call checks the rest.
    unsafe {
        let path = match opened(path) {
            OpenedPath::Device(device) => return device::open(device),
            OpenedPath::Elsewhere(there) => there,
            OpenedPath::Unchanged => {
                return libc::syscall(libc::SYS_openat, directory, path, flags, mode) as c_int;
            }
        };
        libc::syscall(libc::SYS_openat, directory, path.as_ptr(), flags, mode) as c_int
    }
}

macro_rules! opens {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As for libc's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
            // SAFETY: as for libc's. The mode is unused, whatever it is, where no file is made.
            unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
        }
    )*};
}

macro_rules! opens_at {
    ($($name:ident),*) => {$(
        /// # Safety
        /// As for libc's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            directory: c_int,
            path: *const c_char,
            flags: c_int,
            mode: c_uint,
        ) -> c_int {
            // SAFETY: as for libc's.
            unsafe { open_at(directory, path, flags, mode) }
        }
    )*};
}

opens!(open, open64, __open_2, __open64_2);
opens_at!(openat, openat64, __openat_2, __openat64_2);

/// The function of that name that comes after ours.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: only looks the name up.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

macro_rules! file_opens {
    ($($name:ident: $c_name:literal),*) => {$(
        /// # Safety
        /// As for libc's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut c_void {
            type Original = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void;
            // SAFETY: libc has the function, and it has this type.
            unsafe {
                let original: Original = std::mem::transmute(next($c_name));
                match opened(path) {
                    OpenedPath::Elsewhere(there) => original(there.as_ptr(), mode),
                    OpenedPath::Device(_) | OpenedPath::Unchanged => original(path, mode),
                }
            }
        }
    )*};
}

file_opens!(fopen: c"fopen", fopen64: c"fopen64");

/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn opendir(path: *const c_char) -> *mut c_void {
    type Original = unsafe extern "C" fn(*const c_char) -> *mut c_void;
    // SAFETY: libc has the function, and it has this type.
    unsafe {
        let original: Original = std::mem::transmute(next(c"opendir"));
        match opened(path) {
            OpenedPath::Elsewhere(there) => original(there.as_ptr()),
            OpenedPath::Device(_) | OpenedPath::Unchanged => original(path),
        }
    }
}

/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: u64, argument: *mut c_void) -> c_int {
    let (kind, number) = (request >> 8 & 0xff, request & 0xff);
    if kind == kfd::TYPE && device::of(fd) == Some(Device::Kfd) {
        return match kfd::request(number, argument as u64) {
            Ok(()) => 0,
            Err(errno) => {
                // SAFETY: the calling thread's own word.
                unsafe { *libc::__errno_location() = errno };
                -1
            }
        };
    }
    // SAFETY: the kernel checks what it is given.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int }
}

/// Not part of the driver's interface: where the host finds what a GPU's pointer points to. Host functions
/// that stand in for kernels need it for pointers to registered memory.
#[unsafe(no_mangle)]
extern "C" fn emugpu_host_address(pointer: *const c_void) -> *mut c_void {
    emulated_gpu_core::platform::platform().memory.host_address(pointer as u64) as *mut c_void
}
