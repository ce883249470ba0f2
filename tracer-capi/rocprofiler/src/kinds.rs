//! The kinds of events that can be traced, and the operations of each.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::LazyLock;

use crate::status::{Result, Status};

/// A kind of events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Functions of the HSA runtime.
    HsaCoreApi,
    /// AMD's extensions of it.
    HsaAmdExtApi,
    /// Its images.
    HsaImageExtApi,
    /// Its finalizer.
    HsaFinalizeExtApi,
    /// Functions of HIP.
    HipRuntimeApi,
    /// Functions of HIP that compilers call.
    HipCompilerApi,
    /// Marks and ranges.
    MarkerCoreApi,
    /// Pauses that a program asks for.
    MarkerControlApi,
    /// Names that a program gives.
    MarkerNameApi,
    /// Code objects that are loaded, and their kernels.
    CodeObject,
    /// Copies.
    MemoryCopy,
    /// Kernels.
    KernelDispatch,
    /// Pages that move between CPUs and GPUs.
    PageMigration,
    /// Scratch memory of queues.
    ScratchMemory,
    /// Correlation ids of which no record follows any more.
    CorrelationIdRetirement,
    /// Functions of RCCL.
    RcclApi,
    /// Events that OpenMP's runtime reports to tools.
    Ompt,
    /// Memory that the HSA runtime allocates.
    MemoryAllocation,
    /// Runtimes that begin.
    RuntimeInitialization,
    /// Functions of rocDecode.
    RocdecodeApi,
    /// Functions of rocJPEG.
    RocjpegApi,
    /// Streams of HIP that calls use.
    HipStream,
    /// Functions of HIP, with arguments.
    HipRuntimeApiExt,
    /// Functions of HIP that compilers call, with arguments.
    HipCompilerApiExt,
    /// Functions of rocDecode, with arguments.
    RocdecodeApiExt,
    /// An event of the driver's: pages migrate.
    KfdEventPageMigrate,
    /// A GPU misses a page.
    KfdEventPageFault,
    /// Queues are evicted or restored.
    KfdEventQueue,
    /// Pages are unmapped from a GPU.
    KfdEventUnmapFromGpu,
    /// Events were lost.
    KfdEventDroppedEvents,
    /// Pages that migrate, from begin to end.
    KfdPageMigrate,
    /// A page that a GPU misses, likewise.
    KfdPageFault,
    /// A queue that is evicted, likewise.
    KfdQueue,
    /// Ranges of roctx, from begin to end.
    MarkerCoreRangeApi,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 34] = [
        Self::HsaCoreApi,
        Self::HsaAmdExtApi,
        Self::HsaImageExtApi,
        Self::HsaFinalizeExtApi,
        Self::HipRuntimeApi,
        Self::HipCompilerApi,
        Self::MarkerCoreApi,
        Self::MarkerControlApi,
        Self::MarkerNameApi,
        Self::CodeObject,
        Self::MemoryCopy,
        Self::KernelDispatch,
        Self::PageMigration,
        Self::ScratchMemory,
        Self::CorrelationIdRetirement,
        Self::RcclApi,
        Self::Ompt,
        Self::MemoryAllocation,
        Self::RuntimeInitialization,
        Self::RocdecodeApi,
        Self::RocjpegApi,
        Self::HipStream,
        Self::HipRuntimeApiExt,
        Self::HipCompilerApiExt,
        Self::RocdecodeApiExt,
        Self::KfdEventPageMigrate,
        Self::KfdEventPageFault,
        Self::KfdEventQueue,
        Self::KfdEventUnmapFromGpu,
        Self::KfdEventDroppedEvents,
        Self::KfdPageMigrate,
        Self::KfdPageFault,
        Self::KfdQueue,
        Self::MarkerCoreRangeApi,
    ];

    /// Its name, as the constants of the interface end.
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::HsaCoreApi => c"HSA_CORE_API",
            Self::HsaAmdExtApi => c"HSA_AMD_EXT_API",
            Self::HsaImageExtApi => c"HSA_IMAGE_EXT_API",
            Self::HsaFinalizeExtApi => c"HSA_FINALIZE_EXT_API",
            Self::HipRuntimeApi => c"HIP_RUNTIME_API",
            Self::HipCompilerApi => c"HIP_COMPILER_API",
            Self::MarkerCoreApi => c"MARKER_CORE_API",
            Self::MarkerControlApi => c"MARKER_CONTROL_API",
            Self::MarkerNameApi => c"MARKER_NAME_API",
            Self::CodeObject => c"CODE_OBJECT",
            Self::MemoryCopy => c"MEMORY_COPY",
            Self::KernelDispatch => c"KERNEL_DISPATCH",
            Self::PageMigration => c"PAGE_MIGRATION",
            Self::ScratchMemory => c"SCRATCH_MEMORY",
            Self::CorrelationIdRetirement => c"CORRELATION_ID_RETIREMENT",
            Self::RcclApi => c"RCCL_API",
            Self::Ompt => c"OMPT",
            Self::MemoryAllocation => c"MEMORY_ALLOCATION",
            Self::RuntimeInitialization => c"RUNTIME_INITIALIZATION",
            Self::RocdecodeApi => c"ROCDECODE_API",
            Self::RocjpegApi => c"ROCJPEG_API",
            Self::HipStream => c"HIP_STREAM",
            Self::HipRuntimeApiExt => c"HIP_RUNTIME_API_EXT",
            Self::HipCompilerApiExt => c"HIP_COMPILER_API_EXT",
            Self::RocdecodeApiExt => c"ROCDECODE_API_EXT",
            Self::KfdEventPageMigrate => c"KFD_EVENT_PAGE_MIGRATE",
            Self::KfdEventPageFault => c"KFD_EVENT_PAGE_FAULT",
            Self::KfdEventQueue => c"KFD_EVENT_QUEUE",
            Self::KfdEventUnmapFromGpu => c"KFD_EVENT_UNMAP_FROM_GPU",
            Self::KfdEventDroppedEvents => c"KFD_EVENT_DROPPED_EVENTS",
            Self::KfdPageMigrate => c"KFD_PAGE_MIGRATE",
            Self::KfdPageFault => c"KFD_PAGE_FAULT",
            Self::KfdQueue => c"KFD_QUEUE",
            Self::MarkerCoreRangeApi => c"MARKER_CORE_RANGE_API",
        }
    }

    /// Its operations, by number: those of the 1.0 interface.
    ///
    /// # Errors
    ///
    /// [`Status::NotImplemented`] of kinds that have none.
    pub fn operations(self) -> Result<&'static [CString]> {
        let operations = OPERATIONS.get(&self.without_arguments()).map(Vec::as_slice);
        operations.ok_or(Status::NotImplemented)
    }

    /// The kind of the same calls whose records have no arguments.
    pub fn without_arguments(self) -> Self {
        match self {
            Self::HipRuntimeApiExt => Self::HipRuntimeApi,
            Self::HipCompilerApiExt => Self::HipCompilerApi,
            itself => itself,
        }
    }

    /// The kind of the same calls whose records have their arguments, if there is one.
    pub fn with_arguments(self) -> Option<Self> {
        match self {
            Self::HipRuntimeApi => Some(Self::HipRuntimeApiExt),
            Self::HipCompilerApi => Some(Self::HipCompilerApiExt),
            _ => None,
        }
    }

    /// The operations of the 0.5 interface.
    ///
    /// # Errors
    ///
    /// As of [`operations`](Self::operations).
    pub fn operations_of_0_5(self) -> Result<&'static [CString]> {
        let all = self.operations()?;
        let count = OF_0_5.iter().find(|(kind, _)| *kind == self).map_or(all.len(), |of| of.1);
        Ok(&all[..count.min(all.len())])
    }
}

/// Functions of the interfaces, in lines of kind, number and name: those of the headers of release 0.5, followed by
/// those that came with 1.0.
const FUNCTIONS: &str = include_str!("../operations.csv");

/// The number of operations of a kind in the 0.5 interface, where 1.0 has more.
const OF_0_5: [(Kind, usize); 3] =
    [(Kind::HipRuntimeApi, 463), (Kind::HsaAmdExtApi, 71), (Kind::CodeObject, 3)];

/// Operations that are no functions of the interfaces. The first of each kind stands for none, but for ranges.
const OTHERS: [(Kind, &[&str]); 9] = [
    (
        Kind::CodeObject,
        &[
            "CODE_OBJECT_NONE",
            "CODE_OBJECT_LOAD",
            "CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER",
            "CODE_OBJECT_HOST_KERNEL_SYMBOL_REGISTER",
        ],
    ),
    (
        Kind::MemoryCopy,
        &[
            "MEMORY_COPY_NONE",
            "MEMORY_COPY_HOST_TO_HOST",
            "MEMORY_COPY_HOST_TO_DEVICE",
            "MEMORY_COPY_DEVICE_TO_HOST",
            "MEMORY_COPY_DEVICE_TO_DEVICE",
        ],
    ),
    (
        Kind::KernelDispatch,
        &["KERNEL_DISPATCH_NONE", "KERNEL_DISPATCH_ENQUEUE", "KERNEL_DISPATCH_COMPLETE"],
    ),
    (
        Kind::PageMigration,
        &[
            "PAGE_MIGRATION_NONE",
            "PAGE_MIGRATION_PAGE_MIGRATE",
            "PAGE_MIGRATION_PAGE_FAULT",
            "PAGE_MIGRATION_QUEUE_SUSPEND",
            "PAGE_MIGRATION_UNMAP_FROM_GPU",
        ],
    ),
    (
        Kind::ScratchMemory,
        &[
            "SCRATCH_MEMORY_NONE",
            "SCRATCH_MEMORY_ALLOC",
            "SCRATCH_MEMORY_FREE",
            "SCRATCH_MEMORY_ASYNC_RECLAIM",
        ],
    ),
    (
        Kind::MemoryAllocation,
        &[
            "MEMORY_ALLOCATION_NONE",
            "MEMORY_ALLOCATION_ALLOCATE",
            "MEMORY_ALLOCATION_VMEM_ALLOCATE",
            "MEMORY_ALLOCATION_FREE",
            "MEMORY_ALLOCATION_VMEM_FREE",
        ],
    ),
    (
        Kind::RuntimeInitialization,
        &[
            "RUNTIME_INITIALIZATION_NONE",
            "RUNTIME_INITIALIZATION_HSA",
            "RUNTIME_INITIALIZATION_HIP",
            "RUNTIME_INITIALIZATION_MARKER",
            "RUNTIME_INITIALIZATION_RCCL",
            "RUNTIME_INITIALIZATION_ROCDECODE",
            "RUNTIME_INITIALIZATION_ROCJPEG",
        ],
    ),
    (
        Kind::HipStream,
        &["HIP_STREAM_NONE", "HIP_STREAM_CREATE", "HIP_STREAM_DESTROY", "HIP_STREAM_SET"],
    ),
    (
        Kind::MarkerCoreRangeApi,
        &["roctxMarkA", "roctxThreadRangeA", "roctxProcessRangeA", "roctxGetThreadId"],
    ),
];

static OPERATIONS: LazyLock<HashMap<Kind, Vec<CString>>> = LazyLock::new(|| {
    let mut operations: HashMap<Kind, Vec<CString>> = HashMap::new();
    let kinds = HashMap::from(Kind::ALL.map(|kind| (kind.name().to_bytes(), kind)));
    // The numbers of a kind follow each other from 0 on, which a test checks.
    for line in FUNCTIONS.lines().skip(1) {
        let mut fields = line.split(',');
        let kind = fields.next().and_then(|name| kinds.get(name.as_bytes()));
        if let (Some(&kind), Some(name)) = (kind, fields.nth(1)) {
            operations.entry(kind).or_default().extend(CString::new(name));
        }
    }
    let others = OTHERS.iter().map(|&(kind, names)| {
        (kind, names.iter().filter_map(|&name| CString::new(name).ok()).collect())
    });
    operations.extend(others);
    operations
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_numbered_as_in_the_list() {
        let mut lines = 0;
        for line in FUNCTIONS.lines().skip(1) {
            let [kind, number, name] = line.split(',').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let kind = Kind::ALL.into_iter().find(|k| k.name().to_bytes() == kind.as_bytes());
            let kind = kind.unwrap_or_else(|| panic!("{line}"));
            let operation = &kind.operations().expect("some")[number.parse::<usize>().expect(line)];
            assert_eq!(operation.to_str(), Ok(name));
            lines += 1;
        }
        let functions =
            Kind::ALL.map(|kind| match OTHERS.iter().any(|&(other, _)| other == kind) {
                _ if matches!(kind, Kind::HipRuntimeApiExt | Kind::HipCompilerApiExt) => 0,
                true => 0,
                false => kind.operations().map_or(0, <[_]>::len),
            });
        assert_eq!(functions.iter().sum::<usize>(), lines, "each number is there once");
        assert_eq!(lines, 716);
        let first = Kind::ALL.map(|kind| kind.operations_of_0_5().map_or(0, <[_]>::len));
        let all = Kind::ALL.map(|kind| kind.operations().map_or(0, <[_]>::len));
        // Those of the kinds with arguments are all of 1.0.
        assert_eq!(all.iter().sum::<usize>() - first.iter().sum::<usize>(), 18);
    }

    #[test]
    fn kinds_with_arguments_are_those_of_the_same_calls() {
        for kind in Kind::ALL {
            let others = Kind::ALL.into_iter().filter(|other| other.without_arguments() == kind);
            let with = others.filter(|&other| other != kind).collect::<Vec<_>>();
            assert_eq!(with, kind.with_arguments().into_iter().collect::<Vec<_>>(), "{kind:?}");
        }
    }

    #[test]
    fn some_kinds_have_no_operations() {
        for kind in [Kind::CorrelationIdRetirement, Kind::RcclApi, Kind::Ompt, Kind::KfdQueue] {
            assert_eq!(kind.operations(), Err(Status::NotImplemented));
        }
    }
}
