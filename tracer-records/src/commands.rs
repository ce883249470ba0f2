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

/// ROCclr's name of a command (`hipGetCmdName`); none for those that are no work of a GPU's, or not known.
pub fn name(command: u32) -> Option<&'static str> {
    Some(match command {
        kind::KERNEL => "KernelExecution",
        kind::COPY_DEVICE_TO_HOST => "CopyDeviceToHost",
        kind::COPY_HOST_TO_DEVICE => "CopyHostToDevice",
        kind::COPY_DEVICE_TO_DEVICE => "CopyDeviceToDevice",
        rect::DEVICE_TO_HOST => "CopyDeviceToHost2D",
        rect::HOST_TO_DEVICE => "CopyHostToDevice2D",
        rect::DEVICE_TO_DEVICE => "CopyDeviceToDevice2D",
        kind::FILL => "FillBuffer",
        kind::MARKER => "Marker",
        _ => return None,
    })
}
