//! Records as the interface has them, in words of 8 bytes.

use capi_sources::gpu::MemoryCopy;
use rocprofiler::callback::CorrelationIds;
use tracer_common::shim::Dispatch;

use crate::layout::{COPY_ADDRESSES, HIP_CALL, ID_WORDS, SCRATCH_IDS_FIRST, SCRATCH_SIZE};

/// The parts that all records have.
#[derive(Clone, Copy)]
pub struct Common {
    /// `rocprofiler_buffer_tracing_kind_t`.
    pub kind: u32,
    pub operation: u32,
    pub ids: CorrelationIds,
    /// The external id of the thread in the context.
    pub external_id: u64,
    /// ns of CLOCK_BOOTTIME.
    pub begin_ns: u64,
    pub end_ns: u64,
    pub thread: u32,
}

/// Two halves of a word.
const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// A record of this many words begins with its bytes.
const fn bytes<const WORDS: usize>() -> u64 {
    (WORDS * size_of::<u64>()) as u64
}

/// `rocprofiler_correlation_id_t`.
pub fn correlation_id(ids: CorrelationIds, external_id: u64) -> [u64; ID_WORDS] {
    let mut id = [0; ID_WORDS];
    let words = [ids.internal, external_id, ids.ancestor];
    id.iter_mut().zip(words).for_each(|(part, word)| *part = word);
    id
}

/// Words of [`call`].
const CALL: usize = 5 + ID_WORDS;

/// `rocprofiler_buffer_tracing_hip_api_record_t`, and those of HSA and roctx.
pub fn call(common: &Common) -> [u64; CALL] {
    let &Common { kind, operation, ids, external_id, begin_ns, end_ns, thread } = common;
    let mut record = [0; CALL];
    let (head, times) = record.split_at_mut(2 + ID_WORDS);
    head[..2].copy_from_slice(&[bytes::<CALL>(), pair(kind, operation)]);
    head[2..].copy_from_slice(&correlation_id(ids, external_id));
    times.copy_from_slice(&[begin_ns, end_ns, thread.into()]);
    record
}

/// Bytes of the parts that all records of calls have.
#[cfg(feature = "v1")]
pub const CALL_BYTES: usize = 8 * CALL;

/// `rocprofiler_hip_api_args_t` and `rocprofiler_hip_api_retval_t`.
pub type HipWords = [u64; HIP_CALL.bytes / 8 - 1];

/// Words of [`call_of_hip`].
const CALL_OF_HIP: usize = CALL + size_of::<HipWords>() / 8;

/// `rocprofiler_buffer_tracing_hip_api_ext_record_t`.
pub fn call_of_hip(common: &Common, arguments_and_result: &HipWords) -> [u64; CALL_OF_HIP] {
    let mut record = [0; CALL_OF_HIP];
    let (head, rest) = record.split_at_mut(CALL);
    head.copy_from_slice(&call(common));
    head[0] = bytes::<CALL_OF_HIP>();
    rest.copy_from_slice(arguments_and_result);
    record
}

/// The data of a callback of work; a copy has only the first words. The first word is the size in bytes.
pub type Data = [u64; 19];

/// `rocprofiler_callback_tracing_memory_copy_data_t`; begin and end are zeros until it is done.
/// `from` and `to` are the agents' ids.
pub fn copy_data([begin_ns, end_ns]: [u64; 2], [from, to]: [u64; 2], copy: &MemoryCopy) -> Data {
    let mut data = [0; 19];
    let known = [bytes::<{ 6 + COPY_ADDRESSES }>(), begin_ns, end_ns, to, from, copy.bytes];
    let (head, rest) = data.split_at_mut(known.len());
    head.copy_from_slice(&known);
    rest[..COPY_ADDRESSES].copy_from_slice(&addresses(copy));
    data
}

/// Destination and source of a copy, as far as the interface has them.
fn addresses(copy: &MemoryCopy) -> [u64; COPY_ADDRESSES] {
    let mut addresses = [0; COPY_ADDRESSES];
    let words = [copy.to_address, copy.from_address];
    addresses.iter_mut().zip(words).for_each(|(address, word)| *address = word);
    addresses
}

/// `rocprofiler_callback_tracing_kernel_dispatch_data_t`, likewise.
pub fn kernel_data([begin_ns, end_ns]: [u64; 2], kernel: &Kernel, launch: &Launch) -> Data {
    let mut data = [0; 19];
    data[..3].copy_from_slice(&[bytes::<19>(), begin_ns, end_ns]);
    data[3..].copy_from_slice(&dispatch_info(kernel, launch));
    data
}

/// Words of [`copy`].
const COPY: usize = 10 + COPY_ADDRESSES;

/// `rocprofiler_buffer_tracing_memory_copy_record_t`; `from` and `to` are the agents' ids.
pub fn copy(common: &Common, [from, to]: [u64; 2], copy: &MemoryCopy) -> [u64; COPY] {
    let &Common { kind, operation, ids, external_id, begin_ns, end_ns, thread } = common;
    let mut record = [0; COPY];
    let (head, rest) = record.split_at_mut(10);
    head.copy_from_slice(&[
        bytes::<COPY>(),
        pair(kind, operation),
        ids.internal,
        external_id,
        thread.into(),
        begin_ns,
        end_ns,
        to,
        from,
        copy.bytes,
    ]);
    rest.copy_from_slice(&addresses(copy));
    record
}

/// `rocprofiler_buffer_tracing_correlation_id_retirement_record_t`: the time since when nothing of an id is under way,
/// ns of CLOCK_BOOTTIME.
pub fn retirement(kind: u32, time_ns: u64, correlation_id: u64) -> [u64; 4] {
    [bytes::<4>(), pair(kind, 0), time_ns, correlation_id]
}

/// Words of [`allocation`].
const ALLOCATION: usize = 8 + ID_WORDS;

/// `rocprofiler_buffer_tracing_memory_allocation_record_t`.
pub fn allocation(common: &Common, agent: u64, address: u64, size: u64) -> [u64; ALLOCATION] {
    let &Common { kind, operation, ids, external_id, begin_ns, end_ns, thread } = common;
    let mut record = [0; ALLOCATION];
    let (head, rest) = record.split_at_mut(2 + ID_WORDS);
    head[..2].copy_from_slice(&[bytes::<ALLOCATION>(), pair(kind, operation)]);
    head[2..].copy_from_slice(&correlation_id(ids, external_id));
    rest.copy_from_slice(&[thread.into(), begin_ns, end_ns, agent, address, size]);
    record
}

/// Words of [`scratch`].
const SCRATCH: usize = 8 + ID_WORDS + SCRATCH_SIZE;

/// `rocprofiler_buffer_tracing_scratch_memory_record_t`.
pub fn scratch(common: &Common, agent: u64, queue: u64, flags: u32, size: u64) -> [u64; SCRATCH] {
    let &Common { kind, operation, ids, external_id, begin_ns, end_ns, thread } = common;
    let ids = correlation_id(ids, external_id);
    let place = [agent, queue, thread.into(), begin_ns, end_ns];
    let mut record = [0; SCRATCH];
    let (head, rest) = record.split_at_mut(2);
    head.copy_from_slice(&[bytes::<SCRATCH>(), pair(kind, operation)]);
    let (first, second) =
        if SCRATCH_IDS_FIRST { (&ids[..], &place[..]) } else { (&place[..], &ids[..]) };
    let last = [flags.into(), size];
    let words = first.iter().chain(second).chain(&last);
    rest.iter_mut().zip(words).for_each(|(to, from)| *to = *from);
    record
}

/// A runtime: an operation of `RUNTIME_INITIALIZATION`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runtime {
    Hsa = 1,
    Hip = 2,
    Marker = 3,
    Rccl = 4,
}

/// The begin of a runtime, as tools are told of it.
#[derive(Clone, Copy)]
pub struct Initialization {
    pub runtime: Runtime,
    /// 10000 * major + 100 * minor + patch; 0 where the runtime does not tell.
    pub version: u64,
    /// The number of runtimes of its kind that have begun before it.
    pub instance: u64,
}

/// Words of [`initialization`].
const INITIALIZATION: usize = 6 + ID_WORDS;

/// `rocprofiler_buffer_tracing_runtime_initialization_record_t`, which has no ids: the time when a thread had a runtime
/// begin, ns of CLOCK_BOOTTIME.
pub fn initialization(
    kind: u32,
    &Initialization { runtime, version, instance }: &Initialization,
    time_ns: u64,
    thread: u32,
) -> [u64; INITIALIZATION] {
    let mut record = [0; INITIALIZATION];
    let (head, rest) = record.split_at_mut(2 + ID_WORDS);
    head[..2].copy_from_slice(&[bytes::<INITIALIZATION>(), pair(kind, runtime as u32)]);
    rest.copy_from_slice(&[thread.into(), time_ns, version, instance]);
    record
}

/// The launch parameters of a kernel.
#[derive(Clone, Copy, Default)]
pub struct Launch {
    workgroup: [u16; 3],
    grid: [u32; 3],
    private_bytes: u32,
    group_bytes: u32,
}

impl Launch {
    pub fn of(dispatch: &Dispatch) -> Self {
        let &Dispatch { workgroup, grid, private_bytes, group_bytes, .. } = dispatch;
        Self { workgroup, grid, private_bytes, group_bytes }
    }
}

/// A kernel that ran, and the place where it ran.
#[derive(Clone, Copy)]
pub struct Kernel {
    pub agent: u64,
    pub queue: u64,
    /// 0 if it is not known.
    pub kernel: u64,
    /// Its number among all dispatches.
    pub dispatch: u64,
}

/// `rocprofiler_kernel_dispatch_info_t`.
fn dispatch_info(kernel: &Kernel, launch: &Launch) -> [u64; 16] {
    let &Launch { workgroup, grid, private_bytes, group_bytes } = launch;
    let [wide, high, deep] = workgroup.map(u32::from);
    let mut info = [0; 16];
    let known = [
        // Without the reserved bytes.
        bytes::<9>(),
        kernel.agent,
        kernel.queue,
        kernel.kernel,
        kernel.dispatch,
        pair(private_bytes, group_bytes),
        pair(wide, high),
        pair(deep, grid[0]),
        pair(grid[1], grid[2]),
    ];
    info[..known.len()].copy_from_slice(&known);
    info
}

/// `rocprofiler_buffer_tracing_kernel_dispatch_record_t`.
pub fn kernel(common: &Common, kernel: &Kernel, launch: &Launch) -> [u64; 23] {
    let mut record = [0; 23];
    let known = [
        bytes::<23>(),
        pair(common.kind, common.operation),
        common.ids.internal,
        common.external_id,
        common.thread.into(),
        common.begin_ns,
        common.end_ns,
    ];
    record[..known.len()].copy_from_slice(&known);
    record[known.len()..].copy_from_slice(&dispatch_info(kernel, launch));
    record
}
