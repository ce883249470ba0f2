//! The roctracer 4.1 activity record and its enumerations (`activity_record_t`, `activity_domain_t`).

/// A domain of the roctracer API: the source of an operation or activity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "user", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
#[cfg_attr(feature = "user", derive(zerocopy::Immutable, zerocopy::KnownLayout))]
#[repr(transparent)]
pub struct Domain(pub u32);

impl Domain {
    /// Calls of the HSA API.
    pub const HSA_API: Self = Self(0);
    /// Work that the GPU did for a caller of the HSA API.
    pub const HSA_OPS: Self = Self(1);
    /// Work that the GPU did for a caller of the HIP API.
    pub const HIP_OPS: Self = Self(2);
    /// Calls of the HIP API.
    pub const HIP_API: Self = Self(3);
    /// Nothing: no runtime has calls of this domain.
    pub const KFD_API: Self = Self(4);
    /// roctracer's own: external correlation ids.
    pub const EXT_API: Self = Self(5);
    /// roctx markers and ranges.
    pub const ROCTX: Self = Self(6);
    /// Events of the HSA runtime.
    pub const HSA_EVT: Self = Self(7);

    /// The field's name of the domain.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HSA_API => "HSA_API",
            Self::HSA_OPS => "HSA_OPS",
            Self::HIP_OPS => "HIP_OPS",
            Self::HIP_API => "HIP_API",
            Self::KFD_API => "KFD_API",
            Self::EXT_API => "EXT_API",
            Self::ROCTX => "ROCTX",
            Self::HSA_EVT => "HSA_EVT",
            _ => "UNKNOWN",
        }
    }
}

/// `op` of an [`ActivityRecord`] in the domain `EXT_API`: the record tells the external correlation id of
/// the record after it.
pub const EXTERNAL_ID: u32 = 1;

/// `op` of an [`ActivityRecord`] in the domains `HIP_OPS` and `HSA_OPS`.
pub mod op {
    /// A kernel dispatch.
    pub const DISPATCH: u32 = 0;
    /// A memory copy or fill.
    pub const COPY: u32 = 1;
    /// A barrier packet.
    pub const BARRIER: u32 = 2;
}

/// `op` of an [`ActivityRecord`] in the domain `ROCTX`: the functions of roctx.
pub mod roctx {
    /// `roctxMarkA`: marks a moment.
    pub const MARK: u32 = 0;
    /// `roctxRangePushA`: begins a range of the thread.
    pub const PUSH: u32 = 1;
    /// `roctxRangePop`: ends the thread's innermost range.
    pub const POP: u32 = 2;
    /// `roctxRangeStartA`: begins a range of the process, and returns its id.
    pub const START: u32 = 3;
    /// `roctxRangeStop`: ends the range of an id.
    pub const STOP: u32 = 4;

    /// Whether the function's first argument is a message.
    #[inline(always)]
    pub const fn has_message(op: u32) -> bool {
        matches!(op, MARK | PUSH | START)
    }
}

/// `kind` of an [`ActivityRecord`] in the domain `HIP_OPS`: ROCclr's command type.
pub mod kind {
    /// A kernel launched by the application.
    pub const KERNEL: u32 = 0x11F0;
    /// A copy from device to host.
    pub const COPY_DEVICE_TO_HOST: u32 = 0x11F3;
    /// A copy from host to device.
    pub const COPY_HOST_TO_DEVICE: u32 = 0x11F4;
    /// A copy from device to device.
    pub const COPY_DEVICE_TO_DEVICE: u32 = 0x11F5;
    /// A fill of device memory.
    pub const FILL: u32 = 0x1207;
    /// A marker: a barrier with a signal.
    pub const MARKER: u32 = 0x11FE;
}

/// One activity, in roctracer's layout: 64 bytes, 8-byte aligned.
///
/// The fields that are unions in C have neutral names here; the accessors give them their meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "user", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
#[cfg_attr(feature = "user", derive(zerocopy::Immutable, zerocopy::KnownLayout))]
#[repr(C)]
pub struct ActivityRecord {
    /// The source of the activity.
    pub domain: Domain,
    /// The kind of the GPU's work ([`kind`]), 0 for API calls.
    pub kind: u32,
    /// The operation: an API function's id, or a constant of [`op`].
    pub op: u32,
    /// Zero.
    pub reserved: u32,
    /// Joins an API call with the work that it started; 0 when no call is known.
    pub correlation_id: u64,
    /// Begin, ns of CLOCK_BOOTTIME.
    pub begin_ns: u64,
    /// End, ns of CLOCK_BOOTTIME.
    pub end_ns: u64,
    /// API domains: process id. OPS domains: device id.
    pub process_or_device: u32,
    /// API domains: thread id.
    pub thread_id: u32,
    /// OPS domains: queue id.
    pub queue_id: u64,
    /// Copies: bytes. Dispatches: a string id of the kernel's name inside a trace file, a `const
    /// char*` in the C API. Calls of roctx: a string id of the message inside a trace file.
    pub bytes_or_name: u64,
}

const _: () = {
    assert!(size_of::<ActivityRecord>() == 64);
    assert!(core::mem::offset_of!(ActivityRecord, correlation_id) == 16);
    assert!(core::mem::offset_of!(ActivityRecord, begin_ns) == 24);
    assert!(core::mem::offset_of!(ActivityRecord, process_or_device) == 40);
    assert!(core::mem::offset_of!(ActivityRecord, queue_id) == 48);
    assert!(core::mem::offset_of!(ActivityRecord, bytes_or_name) == 56);
};
