//! The emulated GPU at the interface of the kernel's driver, for unmodified ROCm runtimes of any release:
//! their thunk (`libhsakmt.so.1`, or inside `libhsa-runtime64.so.1` from ROCm 6.3 on) works as it was built.
//!
//! The library is preloaded and takes the place of calls into libc and libdrm: what opens `/dev/kfd`, the
//! render nodes and the driver's topology in sysfs gets ours (`interpose`, `drm`, `tree`), and `ioctl` on
//! such a device is answered here (`kfd`). What "the device" maps is one sparse file in memory (`file`),
//! so that `mmap` needs no help: the offset of a buffer in it is its address. The GPU itself is
//! `emulated-gpu-core`.
//!
//! Not emulated: memory shared between processes, faults, traps, counters, and sampling.

mod buffers;
mod device;
mod drm;
mod file;
mod interpose;
mod kfd;
mod tree;
