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

/// Those that are work of a GPU's, and ROCclr's names of them (`hipGetCmdName`).
pub const ALL: [(u32, &str); 9] = [
    (kind::KERNEL, "KernelExecution"),
    (kind::COPY_DEVICE_TO_HOST, "CopyDeviceToHost"),
    (kind::COPY_HOST_TO_DEVICE, "CopyHostToDevice"),
    (kind::COPY_DEVICE_TO_DEVICE, "CopyDeviceToDevice"),
    (rect::DEVICE_TO_HOST, "CopyDeviceToHost2D"),
    (rect::HOST_TO_DEVICE, "CopyHostToDevice2D"),
    (rect::DEVICE_TO_DEVICE, "CopyDeviceToDevice2D"),
    (kind::FILL, "FillBuffer"),
    (kind::MARKER, "Marker"),
];

/// The name of a command, if it is one of [`ALL`].
pub fn name(command: u32) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == command).map(|(_, name)| *name)
}
