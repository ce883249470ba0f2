//! The functions of HIP's dispatch tables (ROCm 6.0 and later), and the number of words of their arguments on the
//! stack: [`SLOTS`], in the order of `HipDispatchTable` and of `HipCompilerDispatchTable`
//! (`hip/amd_detail/hip_api_trace.hpp`, ROCm 7.2.4).
//!
//! Each table begins with its size in bytes, and a function's entry follows the one before it. Later releases add
//! functions at the end of a table: an earlier table is shorter, and further functions of a later one are not known
//! here.

use core::ops::Range;

use crate::hsa_functions::Slot;

/// Slots of `HipDispatchTable`.
pub const RUNTIME: Range<usize> = 0..506;
/// Slots of `HipCompilerDispatchTable`.
pub const COMPILER: Range<usize> = 506..515;
/// The number of slots.
pub const SLOT_COUNT: usize = COMPILER.end;

/// Functions that take floating-point numbers, which the shim's functions do not pass on.
pub const LEFT_OUT: [&str; 2] = ["hipTexRefSetMipmapLevelBias", "hipTexRefSetMipmapLevelClamp"];

/// Where the entry of a slot is in its table, bytes from its begin.
pub const fn offset(slot: usize) -> usize {
    let before = if slot < COMPILER.start { slot } else { slot - COMPILER.start };
    size_of::<u64>() * (1 + before)
}

/// The slot of a function that can be recorded, by its name.
pub fn slot_of(name: &str) -> Option<usize> {
    SLOTS.iter().position(|slot| slot.name == name).filter(|_| !LEFT_OUT.contains(&name))
}

macro_rules! slots {
    ($($name:literal $(+ $stack:literal)?),* $(,)?) => {
        [$(Slot { name: $name, stack_words: 0 $(+ $stack)? }),*]
    };
}

/// The functions of the tables.
#[rustfmt::skip]
pub const SLOTS: [Slot; SLOT_COUNT] = slots![
    // HipDispatchTable
    "hipApiName", "hipArray3DCreate", "hipArray3DGetDescriptor", "hipArrayCreate", "hipArrayDestroy",
    "hipArrayGetDescriptor", "hipArrayGetInfo", "hipBindTexture", "hipBindTexture2D" + 1,
    "hipBindTextureToArray", "hipBindTextureToMipmappedArray", "hipChooseDevice",
    "hipChooseDeviceR0000", "hipConfigureCall", "hipCreateSurfaceObject", "hipCreateTextureObject",
    "hipCtxCreate", "hipCtxDestroy", "hipCtxDisablePeerAccess", "hipCtxEnablePeerAccess",
    "hipCtxGetApiVersion", "hipCtxGetCacheConfig", "hipCtxGetCurrent", "hipCtxGetDevice",
    "hipCtxGetFlags", "hipCtxGetSharedMemConfig", "hipCtxPopCurrent", "hipCtxPushCurrent",
    "hipCtxSetCacheConfig", "hipCtxSetCurrent", "hipCtxSetSharedMemConfig", "hipCtxSynchronize",
    "hipDestroyExternalMemory", "hipDestroyExternalSemaphore", "hipDestroySurfaceObject",
    "hipDestroyTextureObject", "hipDeviceCanAccessPeer", "hipDeviceComputeCapability",
    "hipDeviceDisablePeerAccess", "hipDeviceEnablePeerAccess", "hipDeviceGet", "hipDeviceGetAttribute",
    "hipDeviceGetByPCIBusId", "hipDeviceGetCacheConfig", "hipDeviceGetDefaultMemPool",
    "hipDeviceGetGraphMemAttribute", "hipDeviceGetLimit", "hipDeviceGetMemPool", "hipDeviceGetName",
    "hipDeviceGetP2PAttribute", "hipDeviceGetPCIBusId", "hipDeviceGetSharedMemConfig",
    "hipDeviceGetStreamPriorityRange", "hipDeviceGetUuid", "hipDeviceGraphMemTrim",
    "hipDevicePrimaryCtxGetState", "hipDevicePrimaryCtxRelease", "hipDevicePrimaryCtxReset",
    "hipDevicePrimaryCtxRetain", "hipDevicePrimaryCtxSetFlags", "hipDeviceReset",
    "hipDeviceSetCacheConfig", "hipDeviceSetGraphMemAttribute", "hipDeviceSetLimit",
    "hipDeviceSetMemPool", "hipDeviceSetSharedMemConfig", "hipDeviceSynchronize", "hipDeviceTotalMem",
    "hipDriverGetVersion", "hipDrvGetErrorName", "hipDrvGetErrorString", "hipDrvGraphAddMemcpyNode",
    "hipDrvMemcpy2DUnaligned", "hipDrvMemcpy3D", "hipDrvMemcpy3DAsync", "hipDrvPointerGetAttributes",
    "hipEventCreate", "hipEventCreateWithFlags", "hipEventDestroy", "hipEventElapsedTime",
    "hipEventQuery", "hipEventRecord", "hipEventSynchronize", "hipExtGetLinkTypeAndHopCount",
    "hipExtLaunchKernel" + 5, "hipExtLaunchMultiKernelMultiDevice", "hipExtMallocWithFlags",
    "hipExtStreamCreateWithCUMask", "hipExtStreamGetCUMask", "hipExternalMemoryGetMappedBuffer",
    "hipFree", "hipFreeArray", "hipFreeAsync", "hipFreeHost", "hipFreeMipmappedArray",
    "hipFuncGetAttribute", "hipFuncGetAttributes", "hipFuncSetAttribute", "hipFuncSetCacheConfig",
    "hipFuncSetSharedMemConfig", "hipGLGetDevices", "hipGetChannelDesc", "hipGetDevice",
    "hipGetDeviceCount", "hipGetDeviceFlags", "hipGetDevicePropertiesR0600",
    "hipGetDevicePropertiesR0000", "hipGetErrorName", "hipGetErrorString", "hipGetLastError",
    "hipGetMipmappedArrayLevel", "hipGetSymbolAddress", "hipGetSymbolSize",
    "hipGetTextureAlignmentOffset", "hipGetTextureObjectResourceDesc",
    "hipGetTextureObjectResourceViewDesc", "hipGetTextureObjectTextureDesc", "hipGetTextureReference",
    "hipGraphAddChildGraphNode", "hipGraphAddDependencies", "hipGraphAddEmptyNode",
    "hipGraphAddEventRecordNode", "hipGraphAddEventWaitNode", "hipGraphAddHostNode",
    "hipGraphAddKernelNode", "hipGraphAddMemAllocNode", "hipGraphAddMemFreeNode",
    "hipGraphAddMemcpyNode", "hipGraphAddMemcpyNode1D" + 2, "hipGraphAddMemcpyNodeFromSymbol" + 3,
    "hipGraphAddMemcpyNodeToSymbol" + 3, "hipGraphAddMemsetNode", "hipGraphChildGraphNodeGetGraph",
    "hipGraphClone", "hipGraphCreate", "hipGraphDebugDotPrint", "hipGraphDestroy",
    "hipGraphDestroyNode", "hipGraphEventRecordNodeGetEvent", "hipGraphEventRecordNodeSetEvent",
    "hipGraphEventWaitNodeGetEvent", "hipGraphEventWaitNodeSetEvent",
    "hipGraphExecChildGraphNodeSetParams", "hipGraphExecDestroy",
    "hipGraphExecEventRecordNodeSetEvent", "hipGraphExecEventWaitNodeSetEvent",
    "hipGraphExecHostNodeSetParams", "hipGraphExecKernelNodeSetParams",
    "hipGraphExecMemcpyNodeSetParams", "hipGraphExecMemcpyNodeSetParams1D",
    "hipGraphExecMemcpyNodeSetParamsFromSymbol" + 1, "hipGraphExecMemcpyNodeSetParamsToSymbol" + 1,
    "hipGraphExecMemsetNodeSetParams", "hipGraphExecUpdate", "hipGraphGetEdges", "hipGraphGetNodes",
    "hipGraphGetRootNodes", "hipGraphHostNodeGetParams", "hipGraphHostNodeSetParams",
    "hipGraphInstantiate", "hipGraphInstantiateWithFlags", "hipGraphKernelNodeCopyAttributes",
    "hipGraphKernelNodeGetAttribute", "hipGraphKernelNodeGetParams", "hipGraphKernelNodeSetAttribute",
    "hipGraphKernelNodeSetParams", "hipGraphLaunch", "hipGraphMemAllocNodeGetParams",
    "hipGraphMemFreeNodeGetParams", "hipGraphMemcpyNodeGetParams", "hipGraphMemcpyNodeSetParams",
    "hipGraphMemcpyNodeSetParams1D", "hipGraphMemcpyNodeSetParamsFromSymbol",
    "hipGraphMemcpyNodeSetParamsToSymbol", "hipGraphMemsetNodeGetParams",
    "hipGraphMemsetNodeSetParams", "hipGraphNodeFindInClone", "hipGraphNodeGetDependencies",
    "hipGraphNodeGetDependentNodes", "hipGraphNodeGetEnabled", "hipGraphNodeGetType",
    "hipGraphNodeSetEnabled", "hipGraphReleaseUserObject", "hipGraphRemoveDependencies",
    "hipGraphRetainUserObject", "hipGraphUpload", "hipGraphicsGLRegisterBuffer",
    "hipGraphicsGLRegisterImage", "hipGraphicsMapResources", "hipGraphicsResourceGetMappedPointer",
    "hipGraphicsSubResourceGetMappedArray", "hipGraphicsUnmapResources",
    "hipGraphicsUnregisterResource", "hipHostAlloc", "hipHostFree", "hipHostGetDevicePointer",
    "hipHostGetFlags", "hipHostMalloc", "hipHostRegister", "hipHostUnregister",
    "hipImportExternalMemory", "hipImportExternalSemaphore", "hipInit", "hipIpcCloseMemHandle",
    "hipIpcGetEventHandle", "hipIpcGetMemHandle", "hipIpcOpenEventHandle" + 8,
    "hipIpcOpenMemHandle" + 8, "hipKernelNameRef", "hipKernelNameRefByPtr", "hipLaunchByPtr",
    "hipLaunchCooperativeKernel" + 2, "hipLaunchCooperativeKernelMultiDevice", "hipLaunchHostFunc",
    "hipLaunchKernel" + 2, "hipMalloc", "hipMalloc3D" + 3, "hipMalloc3DArray" + 3, "hipMallocArray",
    "hipMallocAsync", "hipMallocFromPoolAsync", "hipMallocHost", "hipMallocManaged",
    "hipMallocMipmappedArray" + 3, "hipMallocPitch", "hipMemAddressFree", "hipMemAddressReserve",
    "hipMemAdvise", "hipMemAllocHost", "hipMemAllocPitch", "hipMemCreate",
    "hipMemExportToShareableHandle", "hipMemGetAccess", "hipMemGetAddressRange",
    "hipMemGetAllocationGranularity", "hipMemGetAllocationPropertiesFromHandle", "hipMemGetInfo",
    "hipMemImportFromShareableHandle", "hipMemMap", "hipMemMapArrayAsync", "hipMemPoolCreate",
    "hipMemPoolDestroy", "hipMemPoolExportPointer", "hipMemPoolExportToShareableHandle",
    "hipMemPoolGetAccess", "hipMemPoolGetAttribute", "hipMemPoolImportFromShareableHandle",
    "hipMemPoolImportPointer", "hipMemPoolSetAccess", "hipMemPoolSetAttribute", "hipMemPoolTrimTo",
    "hipMemPrefetchAsync", "hipMemPtrGetInfo", "hipMemRangeGetAttribute", "hipMemRangeGetAttributes",
    "hipMemRelease", "hipMemRetainAllocationHandle", "hipMemSetAccess", "hipMemUnmap", "hipMemcpy",
    "hipMemcpy2D" + 1, "hipMemcpy2DAsync" + 2, "hipMemcpy2DFromArray" + 2,
    "hipMemcpy2DFromArrayAsync" + 3, "hipMemcpy2DToArray" + 2, "hipMemcpy2DToArrayAsync" + 3,
    "hipMemcpy3D", "hipMemcpy3DAsync", "hipMemcpyAsync", "hipMemcpyAtoH", "hipMemcpyDtoD",
    "hipMemcpyDtoDAsync", "hipMemcpyDtoH", "hipMemcpyDtoHAsync", "hipMemcpyFromArray",
    "hipMemcpyFromSymbol", "hipMemcpyFromSymbolAsync", "hipMemcpyHtoA", "hipMemcpyHtoD",
    "hipMemcpyHtoDAsync", "hipMemcpyParam2D", "hipMemcpyParam2DAsync", "hipMemcpyPeer",
    "hipMemcpyPeerAsync", "hipMemcpyToArray", "hipMemcpyToSymbol", "hipMemcpyToSymbolAsync",
    "hipMemcpyWithStream", "hipMemset", "hipMemset2D", "hipMemset2DAsync", "hipMemset3D" + 7,
    "hipMemset3DAsync" + 7, "hipMemsetAsync", "hipMemsetD16", "hipMemsetD16Async", "hipMemsetD32",
    "hipMemsetD32Async", "hipMemsetD8", "hipMemsetD8Async", "hipMipmappedArrayCreate",
    "hipMipmappedArrayDestroy", "hipMipmappedArrayGetLevel", "hipModuleGetFunction",
    "hipModuleGetGlobal", "hipModuleGetTexRef", "hipModuleLaunchCooperativeKernel" + 4,
    "hipModuleLaunchCooperativeKernelMultiDevice", "hipModuleLaunchKernel" + 5, "hipModuleLoad",
    "hipModuleLoadData", "hipModuleLoadDataEx", "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
    "hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "hipModuleOccupancyMaxPotentialBlockSize", "hipModuleOccupancyMaxPotentialBlockSizeWithFlags",
    "hipModuleUnload", "hipOccupancyMaxActiveBlocksPerMultiprocessor",
    "hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "hipOccupancyMaxPotentialBlockSize",
    "hipPeekAtLastError", "hipPointerGetAttribute", "hipPointerGetAttributes",
    "hipPointerSetAttribute", "hipProfilerStart", "hipProfilerStop", "hipRuntimeGetVersion",
    "hipSetDevice", "hipSetDeviceFlags", "hipSetupArgument", "hipSignalExternalSemaphoresAsync",
    "hipStreamAddCallback", "hipStreamAttachMemAsync", "hipStreamBeginCapture", "hipStreamCreate",
    "hipStreamCreateWithFlags", "hipStreamCreateWithPriority", "hipStreamDestroy",
    "hipStreamEndCapture", "hipStreamGetCaptureInfo", "hipStreamGetCaptureInfo_v2",
    "hipStreamGetDevice", "hipStreamGetFlags", "hipStreamGetPriority", "hipStreamIsCapturing",
    "hipStreamQuery", "hipStreamSynchronize", "hipStreamUpdateCaptureDependencies",
    "hipStreamWaitEvent", "hipStreamWaitValue32", "hipStreamWaitValue64", "hipStreamWriteValue32",
    "hipStreamWriteValue64", "hipTexObjectCreate", "hipTexObjectDestroy",
    "hipTexObjectGetResourceDesc", "hipTexObjectGetResourceViewDesc", "hipTexObjectGetTextureDesc",
    "hipTexRefGetAddress", "hipTexRefGetAddressMode", "hipTexRefGetFilterMode", "hipTexRefGetFlags",
    "hipTexRefGetFormat", "hipTexRefGetMaxAnisotropy", "hipTexRefGetMipMappedArray",
    "hipTexRefGetMipmapFilterMode", "hipTexRefGetMipmapLevelBias", "hipTexRefGetMipmapLevelClamp",
    "hipTexRefSetAddress", "hipTexRefSetAddress2D", "hipTexRefSetAddressMode", "hipTexRefSetArray",
    "hipTexRefSetBorderColor", "hipTexRefSetFilterMode", "hipTexRefSetFlags", "hipTexRefSetFormat",
    "hipTexRefSetMaxAnisotropy", "hipTexRefSetMipmapFilterMode", "hipTexRefSetMipmapLevelBias",
    "hipTexRefSetMipmapLevelClamp", "hipTexRefSetMipmappedArray", "hipThreadExchangeStreamCaptureMode",
    "hipUnbindTexture", "hipUserObjectCreate", "hipUserObjectRelease", "hipUserObjectRetain",
    "hipWaitExternalSemaphoresAsync", "hipCreateChannelDesc", "hipExtModuleLaunchKernel" + 8,
    "hipHccModuleLaunchKernel" + 7, "hipMemcpy_spt", "hipMemcpyToSymbol_spt",
    "hipMemcpyFromSymbol_spt", "hipMemcpy2D_spt" + 1, "hipMemcpy2DFromArray_spt" + 2,
    "hipMemcpy3D_spt", "hipMemset_spt", "hipMemsetAsync_spt", "hipMemset2D_spt",
    "hipMemset2DAsync_spt", "hipMemset3DAsync_spt" + 7, "hipMemset3D_spt" + 7, "hipMemcpyAsync_spt",
    "hipMemcpy3DAsync_spt", "hipMemcpy2DAsync_spt" + 2, "hipMemcpyFromSymbolAsync_spt",
    "hipMemcpyToSymbolAsync_spt", "hipMemcpyFromArray_spt", "hipMemcpy2DToArray_spt" + 2,
    "hipMemcpy2DFromArrayAsync_spt" + 3, "hipMemcpy2DToArrayAsync_spt" + 3, "hipStreamQuery_spt",
    "hipStreamSynchronize_spt", "hipStreamGetPriority_spt", "hipStreamWaitEvent_spt",
    "hipStreamGetFlags_spt", "hipStreamAddCallback_spt", "hipEventRecord_spt",
    "hipLaunchCooperativeKernel_spt" + 2, "hipLaunchKernel_spt" + 2, "hipGraphLaunch_spt",
    "hipStreamBeginCapture_spt", "hipStreamEndCapture_spt", "hipStreamIsCapturing_spt",
    "hipStreamGetCaptureInfo_spt", "hipStreamGetCaptureInfo_v2_spt", "hipLaunchHostFunc_spt",
    "hipGetStreamDeviceId", "hipDrvGraphAddMemsetNode", "hipGraphAddExternalSemaphoresWaitNode",
    "hipGraphAddExternalSemaphoresSignalNode", "hipGraphExternalSemaphoresSignalNodeSetParams",
    "hipGraphExternalSemaphoresWaitNodeSetParams", "hipGraphExternalSemaphoresSignalNodeGetParams",
    "hipGraphExternalSemaphoresWaitNodeGetParams", "hipGraphExecExternalSemaphoresSignalNodeSetParams",
    "hipGraphExecExternalSemaphoresWaitNodeSetParams", "hipGraphAddNode",
    "hipGraphInstantiateWithParams", "hipExtGetLastError", "hipTexRefGetBorderColor",
    "hipTexRefGetArray", "hipGetProcAddress", "hipStreamBeginCaptureToGraph", "hipGetFuncBySymbol",
    "hipSetValidDevices", "hipMemcpyAtoD", "hipMemcpyDtoA", "hipMemcpyAtoA", "hipMemcpyAtoHAsync",
    "hipMemcpyHtoAAsync", "hipMemcpy2DArrayToArray" + 3, "hipDrvGraphAddMemFreeNode",
    "hipDrvGraphExecMemcpyNodeSetParams", "hipDrvGraphExecMemsetNodeSetParams", "hipGraphExecGetFlags",
    "hipGraphNodeSetParams", "hipGraphExecNodeSetParams", "hipExternalMemoryGetMappedMipmappedArray",
    "hipDrvGraphMemcpyNodeGetParams", "hipDrvGraphMemcpyNodeSetParams", "hipExtHostAlloc",
    "hipDeviceGetTexture1DLinearMaxWidth", "hipStreamBatchMemOp", "hipGraphAddBatchMemOpNode",
    "hipGraphBatchMemOpNodeGetParams", "hipGraphBatchMemOpNodeSetParams",
    "hipGraphExecBatchMemOpNodeSetParams", "hipLinkAddData" + 2, "hipLinkAddFile", "hipLinkComplete",
    "hipLinkCreate", "hipLinkDestroy", "hipEventRecordWithFlags", "hipLaunchKernelExC",
    "hipDrvLaunchKernelEx", "hipMemGetHandleForAddressRange", "hipModuleGetFunctionCount",
    "hipMemsetD2D8", "hipMemsetD2D8Async", "hipMemsetD2D16", "hipMemsetD2D16Async", "hipMemsetD2D32",
    "hipMemsetD2D32Async", "hipStreamGetAttribute", "hipStreamSetAttribute", "hipModuleLoadFatBinary",
    "hipMemcpyBatchAsync" + 3, "hipMemcpy3DBatchAsync", "hipMemcpy3DPeer", "hipMemcpy3DPeerAsync",
    "hipGetDriverEntryPoint", "hipGetDriverEntryPoint_spt", "hipMemPrefetchAsync_v2",
    "hipMemAdvise_v2", "hipStreamGetId", "hipLibraryLoadData" + 2, "hipLibraryLoadFromFile" + 2,
    "hipLibraryUnload", "hipLibraryGetKernel", "hipLibraryGetKernelCount", "hipStreamCopyAttributes",
    "hipLibraryEnumerateKernels", "hipKernelGetLibrary", "hipKernelGetName",
    "hipOccupancyAvailableDynamicSMemPerBlock",
    // HipCompilerDispatchTable
    "__hipPopCallConfiguration", "__hipPushCallConfiguration", "__hipRegisterFatBinary",
    "__hipRegisterFunction" + 4, "__hipRegisterManagedVar", "__hipRegisterSurface",
    "__hipRegisterTexture" + 1, "__hipRegisterVar" + 2, "__hipUnregisterFatBinary",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_where_the_headers_have_them() {
        let at = |name| slot_of(name).map(offset);
        assert_eq!(at("hipApiName"), Some(8));
        assert_eq!(at("hipGetDevice"), Some(0x338));
        assert_eq!(at("hipMalloc"), Some(0x6c0));
        assert_eq!(at("__hipPopCallConfiguration"), Some(8));
        assert_eq!(offset(RUNTIME.end - 1) + 8, 0xfd8, "the size of 7.2.4's");
        assert_eq!(offset(COMPILER.end - 1) + 8, 0x50);
        assert_eq!(at(LEFT_OUT[0]), None);
    }
}
