//! The part of libdrm that the runtimes use: devices, and buffers that were exported by one and are
//! mapped at another address.
#![expect(unsafe_code, reason = "exported C functions that follow the caller's pointers")]

use std::ffi::{c_char, c_void};
use std::io::{Read as _, Seek as _, Write as _};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd as _, IntoRawFd as _};

use emulated_gpu_core::platform::platform;

use crate::device::{self, Device};
use crate::file;

/// `AMDGPU_FAMILY_AI` and `AMDGPU_FAMILY_NV`.
const FAMILY_GFX9: u32 = 141;
const FAMILY_GFX10: u32 = 143;
const AMDGPU_GEM_MMAP: u64 = 1;
const VA_OP_MAP: u32 = 1;
const VA_OP_REPLACE: u32 = 4;
/// Minor number of the first render node, whose GPU is node 1.
const FIRST_RENDER_MINOR: i32 = 128;

/// `amdgpu_device_handle` points to it.
pub struct OpenDevice {
    fd: i32,
    node: u32,
}

/// `amdgpu_bo_handle` points to it: a part of the device's file.
pub struct Shared {
    offset: u64,
    bytes: u64,
}

/// `struct amdgpu_bo_import_result`.
#[repr(C)]
pub struct Imported {
    shared: *mut Shared,
    bytes: u64,
}

/// The node of a render node's minor number.
pub fn node_of_minor(minor: i32) -> Option<u32> {
    let node = u32::try_from(minor.checked_sub(FIRST_RENDER_MINOR)?).ok()? + 1;
    platform().gpu(node).map(|_| node)
}

/// A descriptor that names a part of the device's file.
pub fn share(offset: u64, bytes: u64) -> Option<i32> {
    // SAFETY: the name is a C string; the descriptor that comes back is nobody else's.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"emulated-gpu-shared".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return None;
        }
        std::fs::File::from_raw_fd(fd)
    };
    file.write_all(&offset.to_le_bytes()).ok()?;
    file.write_all(&bytes.to_le_bytes()).ok()?;
    Some(file.into_raw_fd())
}

fn shared(fd: i32) -> Option<Shared> {
    // SAFETY: the caller's descriptor is read from and not closed.
    let mut file = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd) });
    let mut words = [0; 16];
    file.rewind().ok()?;
    file.read_exact(&mut words).ok()?;
    let word = |at: usize| words[at..at + 8].try_into().ok().map(u64::from_le_bytes);
    Some(Shared { offset: word(0)?, bytes: word(8)? })
}

#[unsafe(no_mangle)]
extern "C" fn drmOpenRender(minor: i32) -> i32 {
    node_of_minor(minor).map_or(-libc::ENOENT, |node| device::open(Device::Render(node)))
}

#[unsafe(no_mangle)]
extern "C" fn drmClose(fd: i32) -> i32 {
    // SAFETY: the caller's descriptor.
    unsafe { libc::close(fd) }
}

/// # Safety
/// The pointers can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn amdgpu_device_initialize(
    fd: i32,
    major: *mut u32,
    minor: *mut u32,
    device: *mut *mut OpenDevice,
) -> i32 {
    let Some(Device::Render(node)) = device::of(fd) else { return -libc::EBADF };
    let own = device::open(Device::Render(node));
    if own < 0 {
        return -libc::EMFILE;
    }
    // SAFETY: the caller passes words to fill, and gives the device back to `deinitialize`.
    unsafe {
        major.write(3);
        minor.write(57);
        device.write(Box::into_raw(Box::new(OpenDevice { fd: own, node })));
    }
    0
}

/// # Safety
/// `device` came from [`amdgpu_device_initialize`] and is not used again.
#[unsafe(no_mangle)]
unsafe extern "C" fn amdgpu_device_deinitialize(device: *mut OpenDevice) -> i32 {
    // SAFETY: as this function requires; the descriptor is its own.
    unsafe { libc::close(Box::from_raw(device).fd) };
    0
}

/// # Safety
/// `device` came from [`amdgpu_device_initialize`].
#[unsafe(no_mangle)]
unsafe extern "C" fn amdgpu_device_get_fd(device: *const OpenDevice) -> i32 {
    // SAFETY: as this function requires.
    unsafe { (*device).fd }
}

#[unsafe(no_mangle)]
extern "C" fn amdgpu_get_marketing_name(_device: *const OpenDevice) -> *const c_char {
    c"Emulated AMD GPU".as_ptr()
}

/// # Safety
/// `device` came from [`amdgpu_device_initialize`]; `info` is a `struct amdgpu_gpu_info`.
#[unsafe(no_mangle)]
unsafe extern "C" fn amdgpu_query_gpu_info(device: *const OpenDevice, info: *mut u32) -> i32 {
    // SAFETY: as this function requires.
    let gpu = platform().gpu(unsafe { (*device).node });
    let family =
        if gpu.is_some_and(|gpu| gpu.arch.major == 9) { FAMILY_GFX9 } else { FAMILY_GFX10 };
    // asic_id, chip_rev, chip_external_rev, family_id, and a 64-bit word of flags: no APU.
    for (i, value) in [0x6860, 0, 1, family, 0, 0].into_iter().enumerate() {
        // SAFETY: these are the first fields of the structure.
        unsafe { info.add(i).write(value) };
    }
    0
}

/// # Safety
/// `value` has `bytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn amdgpu_query_info(
    _device: *const OpenDevice,
    _id: u32,
    bytes: u32,
    value: *mut c_void,
) -> i32 {
    // SAFETY: as this function requires.
    unsafe { std::ptr::write_bytes(value.cast::<u8>(), 0, bytes as usize) };
    0
}

/// # Safety
/// `data` is the argument of the command.
#[unsafe(no_mangle)]
unsafe extern "C" fn drmCommandWriteRead(
    _fd: i32,
    command: u64,
    data: *mut u64,
    _bytes: u64,
) -> i32 {
    if command != AMDGPU_GEM_MMAP {
        return -libc::EINVAL;
    }
    // SAFETY: in: the handle; out: the offset to map at. Handles are pages of the file here.
    unsafe { data.write(u64::from(data.cast::<u32>().read()) << 12) };
    0
}

/// # Safety
/// `imported` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn amdgpu_bo_import(
    _device: *const OpenDevice,
    _kind: u32,
    fd: u32,
    imported: *mut Imported,
) -> i32 {
    let Some(shared) = shared(fd as i32) else { return -libc::EINVAL };
    let bytes = shared.bytes;
    // SAFETY: the caller passes a structure to fill, and gives the buffer back to `amdgpu_bo_free`.
    unsafe { imported.write(Imported { shared: Box::into_raw(Box::new(shared)), bytes }) };
    0
}

/// # Safety
/// `buffer` came from [`amdgpu_bo_import`]; `handle` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn amdgpu_bo_export(buffer: *const Shared, _kind: u32, handle: *mut u32) -> i32 {
    // SAFETY: as this function requires.
    unsafe { handle.write(((*buffer).offset >> 12) as u32) };
    0
}

/// # Safety
/// `buffer` came from [`amdgpu_bo_import`] and is not used again.
#[unsafe(no_mangle)]
unsafe extern "C" fn amdgpu_bo_free(buffer: *mut Shared) -> i32 {
    // SAFETY: as this function requires.
    drop(unsafe { Box::from_raw(buffer) });
    0
}

#[unsafe(no_mangle)]
extern "C" fn amdgpu_bo_set_metadata(_buffer: *const Shared, _metadata: *const c_void) -> i32 {
    0
}

/// # Safety
/// `buffer` came from [`amdgpu_bo_import`]; `address` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn amdgpu_bo_cpu_map(buffer: *const Shared, address: *mut *mut c_void) -> i32 {
    // SAFETY: as this function requires.
    let Shared { offset, bytes } = unsafe { &*buffer };
    let mut state = device::state();
    let descriptor = state.get().map(|state| state.file);
    match descriptor.and_then(|file| file::map(None, *bytes, file, *offset)) {
        Some(at) => {
            // SAFETY: as this function requires.
            unsafe { address.write(at as *mut c_void) };
            0
        }
        None => -libc::ENOMEM,
    }
}

/// # Safety
/// `buffer` came from [`amdgpu_bo_import`]; the runtime has reserved the addresses.
#[unsafe(no_mangle)]
unsafe extern "C" fn amdgpu_bo_va_op(
    buffer: *const Shared,
    offset: u64,
    bytes: u64,
    address: u64,
    _flags: u64,
    operation: u32,
) -> i32 {
    if !matches!(operation, VA_OP_MAP | VA_OP_REPLACE) {
        return 0;
    }
    // SAFETY: as this function requires.
    let from = unsafe { (*buffer).offset } + offset;
    let mut state = device::state();
    let descriptor = state.get().map(|state| state.file);
    match descriptor.and_then(|file| file::map(Some(address), bytes, file, from)) {
        Some(_) => 0,
        None => -libc::EINVAL,
    }
}
