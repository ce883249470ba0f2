//! Commands of HIP's queues, ROCclr's `cl_command_type`: `kind` of an activity record in the domain `HIP_OPS`.

use tracer_common::activity::kind;

/// Copies of rectangles: `CL_COMMAND_*_BUFFER_RECT`.
pub mod rect {
    /// From device to host.
    pub const DEVICE_TO_HOST: u32 = 0x1201;
    /// From host to device.
    pub const HOST_TO_DEVICE: u32 = 0x1202;
    /// From device to device.
    pub const DEVICE_TO_DEVICE: u32 = 0x1203;
}

/// All of them, and ROCclr's names (`hipGetCmdName`); 0 is none of the program's.
pub const ALL: [(u32, &str); 31] = [
    (0, "InternalMarker"),
    (kind::KERNEL, "KernelExecution"),
    (0x11F1, "Task"),
    (0x11F2, "NativeKernel"),
    (kind::COPY_DEVICE_TO_HOST, "CopyDeviceToHost"),
    (kind::COPY_HOST_TO_DEVICE, "CopyHostToDevice"),
    (kind::COPY_DEVICE_TO_DEVICE, "CopyDeviceToDevice"),
    (0x11F6, "ReadImage"),
    (0x11F7, "WriteImage"),
    (0x11F8, "CopyImage"),
    (0x11F9, "CopyImageToBuffer"),
    (0x11FA, "CopyBufferToImage"),
    (0x11FB, "MapBuffer"),
    (0x11FC, "MapImage"),
    (0x11FD, "UnmapMemObject"),
    (kind::MARKER, "Marker"),
    (0x11FF, "AcquireGLObjects"),
    (0x1200, "ReleaseGLObjects"),
    (rect::DEVICE_TO_HOST, "CopyDeviceToHost2D"),
    (rect::HOST_TO_DEVICE, "CopyHostToDevice2D"),
    (rect::DEVICE_TO_DEVICE, "CopyDeviceToDevice2D"),
    (0x1204, "User"),
    (0x1205, "Barrier"),
    (0x1206, "MigrateMemObjects"),
    (kind::FILL, "FillBuffer"),
    (0x1208, "FillImage"),
    (0x1209, "SvmFree"),
    (0x120A, "SvmMemcpy"),
    (0x120B, "SvmMemFill"),
    (0x120C, "SvmMap"),
    (0x120D, "SvmUnmap"),
];

/// The name of a command, if it is one of [`ALL`].
pub fn name(command: u32) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == command).map(|(_, name)| *name)
}
