//! The parts of a call that the probes capture, beyond the six argument registers and the result.
//!
//! The choice is made here once and reaches the BPF programs through each probe's [`Capture`]. A
//! record has room for three words, so a function has either stack arguments or an output value.

use tracer_common::{
    activity::{Domain, roctx},
    bpf::Capture,
    calls::Wanted,
    hsa_functions::{LEFT_OUT, Slot},
};

use super::{
    by_name,
    table::{ArgumentPlace, Operation},
};

/// The number of stack words that a record holds.
const MAX_STACK_ARGS: usize = 3;

/// Functions that call back into user code before they return, and the reason to think so. They get no return probe,
/// only an entry probe, so their calls have neither duration nor result.
///
/// A return probe replaces the return address on the stack. A C++ exception that unwinds through
/// such a frame finds no unwind information at the replaced address, and the process is aborted:
/// a program that runs well without us would die under us. HIP and HSA themselves do not throw
/// across their C interfaces; callbacks of the user may.
///
/// The list holds every function with a function-pointer parameter that may be called before the
/// function returns; [`STORES_CALLBACK`] has the others. Where a release's sources show that an
/// exception could not get out (HSA 5.2.3 ends every function in `catch (...)`), that is not relied
/// upon: another release may differ.
///
/// Not listed, on purpose (sources: hipamd, ROCclr and ROCR-Runtime, tag rocm-5.2.3):
/// * `hipStreamSynchronize`, `hipDeviceSynchronize`, `hipEventSynchronize`, `hipGraphLaunch`: the
///   markers that carry stream callbacks and graph host nodes complete on the HSA runtime's event
///   thread (or on ROCclr's queue thread, without direct dispatch), never on the waiting thread.
/// * `hsa_signal_store_*` on an intercepted queue, `hsa_memory_free` and `hsa_amd_memory_pool_free`
///   with a deallocation callback, `hsa_queue_create` with a queue notifier, `hsa_init` and
///   `hsa_shut_down` with tools: these do run registered code on the calling thread, but only of
///   tools, and inside the `catch (...)`. Losing their durations would cost more.
/// * HIP functions and `roctxRangeStartA` while a tool such as roctracer has its callbacks on: the same.
/// * `longjmp` over a probed frame is harmless: the kernel drops the frames that were left.
pub const CALLS_BACK: &[(&str, &str)] = &[
    ("hipLaunchHostFunc", HIP_HOST_FUNCTION),
    ("hipLaunchHostFunc_spt", HIP_HOST_FUNCTION),
    ("hipStreamAddCallback", HIP_HOST_FUNCTION),
    ("hipStreamAddCallback_spt", HIP_HOST_FUNCTION),
    ("hsa_agent_iterate_caches", ITERATES),
    ("hsa_agent_iterate_isas", ITERATES),
    ("hsa_agent_iterate_regions", ITERATES),
    ("hsa_amd_agent_iterate_memory_pools", ITERATES),
    ("hsa_amd_pointer_info", ALLOCATES),
    ("hsa_code_object_iterate_symbols", ITERATES),
    ("hsa_code_object_serialize", ALLOCATES),
    ("hsa_executable_iterate_agent_symbols", ITERATES),
    ("hsa_executable_iterate_program_symbols", ITERATES),
    ("hsa_executable_iterate_symbols", ITERATES),
    ("hsa_ext_program_iterate_modules", ITERATES),
    ("hsa_isa_iterate_wavefronts", ITERATES),
    ("hsa_iterate_agents", ITERATES),
    ("hsa_ven_amd_aqlprofile_iterate_data", ITERATES),
    ("hsa_ven_amd_loader_executable_iterate_loaded_code_objects", ITERATES),
    ("hsa_ven_amd_loader_iterate_executables", ITERATES),
    ("hsa_ven_amd_pcs_iterate_configuration", ITERATES),
];

const ITERATES: &str = "calls the callback once for each element, on the calling thread";
const ALLOCATES: &str = "calls the caller's allocator, on the calling thread";
const HIP_HOST_FUNCTION: &str = "ROCclr's Event::setCallback calls the function at once when the \
     command has already completed; hipamd 5.2.3 sets it before it enqueues, others need not";

/// Functions that take a function pointer but only keep it: the registered function is called later, on a thread of the
/// runtime or inside another function.
pub const STORES_CALLBACK: &[&str] = &[
    // Called by a destructor when the last reference goes: an exception ends the program there anyway.
    "hipUserObjectCreate",
    // Called on the HSA runtime's event thread.
    "hsa_amd_async_function",
    "hsa_amd_queue_intercept_create",
    "hsa_amd_register_system_event_handler",
    "hsa_amd_signal_async_handler",
    "hsa_queue_create",
    // Called when the memory is freed.
    "hsa_amd_deregister_deallocation_callback",
    "hsa_amd_register_deallocation_callback",
    // Called when packets are submitted, or a queue is created: tools.
    "hsa_amd_queue_intercept_register",
    "hsa_amd_runtime_queue_create_register",
    // Called when samples are there, or flushed.
    "hsa_ven_amd_pcs_create",
    "hsa_ven_amd_pcs_create_from_id",
];

/// Functions that write a handle or an address through a pointer argument, and the argument. The pointee has 8 bytes.
/// The BPF programs read it when the call returns, whatever it returns: after an error it is the caller's value of
/// before. The shim reads it only after success. `hsa_queue_create` and `hsa_amd_memory_lock_to_pool` are not among
/// them: their pointers are on the stack.
pub const OUTPUTS: &[(&str, &str)] = &[
    ("hipCtxCreate", "ctx"),
    ("hipEventCreate", "event"),
    ("hipEventCreateWithFlags", "event"),
    ("hipExtMallocWithFlags", "ptr"),
    ("hipExtStreamCreateWithCUMask", "stream"),
    ("hipGraphClone", "pGraphClone"),
    ("hipGraphCreate", "pGraph"),
    ("hipGraphInstantiate", "pGraphExec"),
    ("hipGraphInstantiateWithFlags", "pGraphExec"),
    ("hipHostAlloc", "ptr"),
    ("hipHostGetDevicePointer", "devPtr"),
    ("hipHostMalloc", "ptr"),
    ("hipIpcOpenEventHandle", "event"),
    ("hipIpcOpenMemHandle", "devPtr"),
    ("hipLibraryGetKernel", "pKernel"),
    ("hipLibraryLoadData", "library"),
    ("hipLibraryLoadFromFile", "library"),
    ("hipMalloc", "ptr"),
    ("hipMallocAsync", "dev_ptr"),
    ("hipMallocFromPoolAsync", "dev_ptr"),
    ("hipMallocHost", "ptr"),
    ("hipMallocManaged", "dev_ptr"),
    ("hipMallocPitch", "ptr"),
    ("hipMemAllocHost", "ptr"),
    ("hipMemAllocPitch", "dptr"),
    ("hipMemPoolCreate", "mem_pool"),
    ("hipModuleGetFunction", "function"),
    ("hipModuleGetGlobal", "dptr"),
    ("hipModuleLoad", "module"),
    ("hipModuleLoadData", "module"),
    ("hipModuleLoadDataEx", "module"),
    ("hipStreamCreate", "stream"),
    ("hipStreamCreateWithFlags", "stream"),
    ("hipStreamCreateWithPriority", "stream"),
    ("hipStreamEndCapture", "pGraph"),
    ("hipStreamEndCapture_spt", "pGraph"),
    ("hipUserObjectCreate", "object_out"),
    ("hsa_amd_ipc_memory_attach", "mapped_ptr"),
    ("hsa_amd_ipc_signal_attach", "signal"),
    ("hsa_amd_memory_lock", "agent_ptr"),
    ("hsa_amd_memory_pool_allocate", "ptr"),
    ("hsa_amd_signal_create", "signal"),
    ("hsa_code_object_reader_create_from_file", "code_object_reader"),
    ("hsa_code_object_reader_create_from_memory", "code_object_reader"),
    ("hsa_executable_create", "executable"),
    ("hsa_executable_create_alt", "executable"),
    ("hsa_executable_get_symbol_by_name", "symbol"),
    ("hsa_memory_allocate", "ptr"),
    ("hsa_signal_create", "signal"),
];

/// The reason for which a function gets no return probe; `None` for one that gets it.
pub fn calls_back(op: &Operation) -> Option<&'static str> {
    CALLS_BACK.iter().find(|(name, _)| *name == op.name).map(|(_, reason)| *reason)
}

/// Whether the entry of a call is all that matters of it: of the calls of roctx, but for the one that returns the id of
/// a range.
fn is_a_moment(op: &Operation) -> bool {
    op.domain == Domain::ROCTX && u32::from(op.id) != roctx::START
}

/// The register whose pointee is captured when the call returns.
pub(super) fn out_register(op: &Operation) -> Option<u8> {
    let (_, arg) = OUTPUTS.iter().find(|(name, _)| *name == op.name)?;
    match op.arg(arg)?.place {
        ArgumentPlace::Register(n) => Some(n),
        ArgumentPlace::Stack(_) | ArgumentPlace::Vector(_) => None,
    }
}

/// The number of stack words that are captured: up to the last argument that can be printed, 3 at most. For launches
/// this takes in shared memory and stream, for `hipMemcpy2DAsync` and the like the stream.
pub(super) fn stack_args(op: &Operation) -> u8 {
    if out_register(op).is_some() {
        return 0;
    }
    let ends = op.args.iter().filter_map(|arg| match arg.place {
        ArgumentPlace::Stack(first) if arg.ty.kind.printable() => {
            Some(usize::from(first) + arg.words())
        }
        _ => None,
    });
    ends.filter(|end| *end <= MAX_STACK_ARGS).max().unwrap_or(0) as u8
}

/// The capture of the probes on a function.
pub fn captured(op: &Operation) -> Capture {
    Capture {
        domain: op.domain.0 as u8,
        operation: op.id,
        stack_args: stack_args(op),
        out_arg: out_register(op).map_or(0, |register| register + 1),
        entry_only: (calls_back(op).is_some() || is_a_moment(op)).into(),
        numbered: (op.domain == Domain::ROCTX).into(),
        shim_calls: is_called_by_shim(op.name).into(),
        by_shim: 0,
    }
}

/// The parts of a function of the runtime's tables that the shim is to record; none if it cannot record the function.
pub fn shim_call(slot: &Slot) -> Option<Wanted> {
    let op = by_name(slot.name).filter(|op| op.name != LEFT_OUT)?;
    let registers = op.args.iter().filter_map(|arg| match arg.place {
        ArgumentPlace::Register(first) => Some(first + arg.words() as u8),
        ArgumentPlace::Stack(_) | ArgumentPlace::Vector(_) => None,
    });
    let capture = captured(op);
    Some(Wanted {
        domain: op.domain.0 as u8,
        operation: op.id,
        args: registers.max().unwrap_or(0).min(6),
        stack_args: capture.stack_args,
        out_arg: capture.out_arg,
    })
}

/// Whether the shim calls a function for itself: a call from its code is not the program's. That of
/// `hsa_shut_down` may be, passed on by a hook; where there is one, the shim records HSA calls itself.
pub fn is_called_by_shim(name: &str) -> bool {
    SHIM_CALLS.contains(&name)
}

/// The functions whose calls from the shim's code are left out.
const SHIM_CALLS: [&str; 13] = [
    "hsa_init",
    "hsa_shut_down",
    "hsa_iterate_agents",
    "hsa_agent_get_info",
    "hsa_signal_destroy",
    "hsa_signal_subtract_screlease",
    "hsa_executable_get_info",
    "hsa_executable_symbol_get_info",
    "hsa_system_get_major_extension_table",
    "hsa_executable_iterate_agent_symbols",
    "hsa_amd_profiling_set_profiler_enabled",
    "hsa_amd_profiling_get_dispatch_time",
    "hsa_amd_signal_create",
];
