//! Scratch memory of queues, which the HSA runtime allocates, frees and reclaims (`SCRATCH_MEMORY`).
//!
//! Runtimes tell of it since ROCm 6.1, mostly on a thread of their own. The correlation id is that of the innermost call
//! that the thread is in; 0 where no call is traced.

#![expect(unsafe_code, reason = "events of the runtime")]

use core::cell::RefCell;
use core::mem::offset_of;
use core::ptr;

use rocprofiler::callback::Phase;
use rocprofiler::kinds::Kind;
use rocprofiler::threads::CallbackThread;
use roctracer::timestamp_ns;
use tracer_hooks::abi::{SUCCESS, ScratchEvent, Status, ToolEvent};
use tracer_hooks::{Tables, scratch};

use crate::layout::agent_id;
use crate::traced_operation::TracedOperation;
use crate::{SDK, calls, log, process, records};

const KIND: Kind = Kind::ScratchMemory;

/// The events that the runtime reports: the begin and the end of each operation of the kind.
const FUNCTIONS: [ToolEvent; 6] =
    [begins::<1>, ends::<1>, begins::<2>, ends::<2>, begins::<3>, ends::<3>];
/// The operation that allocates.
const ALLOCATES: usize = 1;

thread_local! {
    /// The operations that have begun and not ended, by operation.
    static BEGUN: RefCell<[Option<Begun>; 3]> = const { RefCell::new([const { None }; 3]) };
}

/// Has the runtime of these tables report scratch memory, if that is wanted.
pub fn follow(tables: &Tables) {
    if SDK.is_wanted(KIND) && !scratch::tell(tables, &FUNCTIONS) {
        log::info(format_args!(
            "the HSA runtime does not tell of scratch memory, as before ROCm 6.1, or tells another tool"
        ));
    }
}

/// `rocprofiler_callback_tracing_scratch_memory_data_t`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Payload {
    size: usize,
    agent: u64,
    queue: u64,
    flags: u32,
    /// The kind of the runtime's event, which says what its arguments are.
    event: u32,
    /// Of an allocation: the packet that wants it; at its end bytes, and waves at most.
    arguments: [u64; 3],
}

const _: () = assert!(size_of::<Payload>() == 56 && offset_of!(Payload, arguments) == 32);

impl Payload {
    /// The payload at the begin of an operation.
    ///
    /// # Safety
    ///
    /// The runtime reports `event`, which has the fields of the operation's begin.
    unsafe fn new(event: *const ScratchEvent, operation: usize) -> Self {
        // SAFETY: all events have it.
        let queue = unsafe { (&raw const (*event).queue).read() };
        let (agent, queue) = scratch::queue(queue as usize).unwrap_or_default();
        let agent = tracer_hooks::device(agent).map_or(0, |(_, node)| agent_id(node));
        let payload = Self { size: size_of::<Self>(), agent, queue, ..Self::default() };
        // SAFETY: as the caller promises.
        unsafe { payload.with(event, operation, Phase::Enter) }
    }

    /// Adds the data of an event of the same queue, which may be gone at the end.
    ///
    /// # Safety
    ///
    /// The runtime reports `event`, which has the fields of the operation in this phase.
    unsafe fn with(self, event: *const ScratchEvent, operation: usize, phase: Phase) -> Self {
        // SAFETY: all events have these.
        let (kind, flags) =
            unsafe { ((&raw const (*event).kind).read(), (&raw const (*event).flags).read()) };
        let mut arguments = [0; 3];
        if operation == ALLOCATES {
            // SAFETY: an allocation has a packet.
            arguments[0] = unsafe { (&raw const (*event).dispatch).read() };
            if phase == Phase::Exit {
                // SAFETY: its end has these.
                let (bytes, slots) = unsafe {
                    ((&raw const (*event).bytes).read(), (&raw const (*event).slots).read())
                };
                (arguments[1], arguments[2]) = (bytes as u64, slots as u64);
            }
        }
        Self { flags, event: kind, arguments, ..self }
    }
}

/// An operation that has begun, and the time, ns of CLOCK_BOOTTIME.
type Begun = (Box<TracedOperation<Payload>>, u64);

/// The runtime begins an operation.
unsafe extern "C-unwind" fn begins<const OPERATION: usize>(event: *const ScratchEvent) -> Status {
    let frame = 0_u8;
    if CallbackThread::is_any_current() || process::is_forked() {
        return SUCCESS;
    }
    let services = SDK.wanting(KIND, Some(OPERATION));
    if services.is_empty() {
        return SUCCESS;
    }
    // SAFETY: the runtime's event, at the begin of this operation.
    let payload = unsafe { Payload::new(event, OPERATION) };
    let of = (KIND, OPERATION as u32);
    let traced = Box::new(TracedOperation::new(of, services, payload, calls::enqueue()));
    traced.begin(ptr::from_ref(&frame) as usize);
    // Last: the work before is no part of the operation.
    keep(OPERATION, Some((traced, timestamp_ns())));
    SUCCESS
}

/// The operation has ended.
unsafe extern "C-unwind" fn ends<const OPERATION: usize>(event: *const ScratchEvent) -> Status {
    let frame = 0_u8;
    let Some((traced, begin_ns)) = keep(OPERATION, None) else { return SUCCESS };
    if process::is_forked() {
        return SUCCESS;
    }
    let end_ns = timestamp_ns();
    // SAFETY: the runtime's event, at the end of this operation.
    let payload = unsafe { traced.payload().with(event, OPERATION, Phase::Exit) };
    traced.set_payload(payload);
    traced.end(ptr::from_ref(&frame) as usize);
    let Payload { agent, queue, flags, arguments: [_, bytes, _], .. } = payload;
    for (buffer, common) in traced.buffers([begin_ns, end_ns]) {
        // The runtime holds a lock: this waits for nobody.
        buffer.write_at_once(&records::scratch(&common, agent, queue, flags, bytes));
    }
    SUCCESS
}

/// Keeps an operation that has begun in the place of the one that began before.
fn keep(operation: usize, traced: Option<Begun>) -> Option<Begun> {
    // A thread that ends has no place any more.
    let replace =
        |begun: &RefCell<[_; 3]>| std::mem::replace(&mut begun.borrow_mut()[operation - 1], traced);
    BEGUN.try_with(replace).ok().flatten()
}
