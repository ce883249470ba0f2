//! The calls of HIP that a thread is in, innermost last, and the place for the arguments of each.

#![expect(unsafe_code, reason = "memory that HIP writes into")]

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;

use crate::client_thread::next_id;

/// `ACTIVITY_API_PHASE_ENTER`.
pub const ENTER: u32 = 0;

/// Bytes of `hip_api_data_t`: 832 of ROCm 5.2.3, and room for what a patch release may add.
const DATA_BYTES: usize = 1024;

/// The begin of `hip_api_data_t`.
#[repr(C)]
pub struct ApiData {
    pub correlation_id: u64,
    pub phase: u32,
}

/// `hip_api_data_t`.
#[repr(C)]
union Data {
    api: core::mem::ManuallyDrop<ApiData>,
    words: [u64; DATA_BYTES / 8],
}

/// A call.
struct Call {
    data: Data,
    op: u32,
    /// None if it was not to be recorded.
    begin_ns: Option<u64>,
    told: Told,
}

/// Whether the client's callback was called when a call began.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    No,
    /// It has not returned: it is being called, or was left by an exception.
    Entered,
    Yes,
}

/// A call that has ended.
pub struct Ended {
    pub correlation_id: u64,
    pub begin_ns: Option<u64>,
}

#[expect(clippy::vec_box, reason = "HIP has pointers to calls, which stay where they are")]
#[derive(Default)]
struct Calls {
    /// Those from the depth on are for the next calls.
    calls: Vec<Box<Call>>,
    depth: usize,
}

thread_local! {
    /// The thread's. Without a destructor: a program calls HIP in destructors of its own, to a thread's very end.
    static CALLS: Cell<*mut Calls> = const { Cell::new(ptr::null_mut()) };
    /// Gives them back when the thread ends. What comes later stays.
    static AT_END: AtEnd = const { AtEnd };
}

struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        let calls = CALLS.get();
        // SAFETY: null, or the thread's own, which nobody else uses.
        let is_in_none = unsafe { calls.as_ref() }.is_some_and(|calls| calls.depth == 0);
        if is_in_none {
            CALLS.set(ptr::null_mut());
            // SAFETY: it was made from a box, and is no one's any more.
            drop(unsafe { Box::from_raw(calls) });
        }
    }
}

impl Calls {
    /// The calling thread's. Nothing of others' is called while they are borrowed.
    fn own<'a>() -> &'a mut Self {
        if CALLS.get().is_null() {
            CALLS.set(Box::into_raw(Box::default()));
            // A thread that is ending gives nothing back any more.
            let _ = AT_END.try_with(|_| ());
        }
        // SAFETY: the thread's own, made above, and not borrowed: nobody who has it comes here again.
        unsafe { &mut *CALLS.get() }
    }

    fn innermost(&mut self) -> Option<&mut Call> {
        self.calls.get_mut(self.depth.checked_sub(1)?).map(|call| &mut **call)
    }
}

/// A call begins, at a time, ns, if it is to be recorded. Returns the place for its arguments, which is null if there is no memory.
pub fn push(op: u32, begin_ns: Option<u64>) -> *mut c_void {
    let own = Calls::own();
    if own.depth == own.calls.len() {
        if own.calls.try_reserve(1).is_err() {
            return ptr::null_mut();
        }
        let data = Data { words: [0; DATA_BYTES / 8] };
        own.calls.push(Box::new(Call { data, op, begin_ns, told: Told::No }));
    }
    own.depth += 1;
    let Some(call) = own.innermost() else { return ptr::null_mut() };
    (call.op, call.begin_ns, call.told) = (op, begin_ns, Told::No);
    let correlation_id = next_id();
    call.data.api = core::mem::ManuallyDrop::new(ApiData { correlation_id, phase: ENTER });
    (&raw mut call.data).cast()
}

/// The innermost call of `op` has ended. Of those inside of it no end was told.
pub fn pop(op: u32) -> Option<Ended> {
    let own = Calls::own();
    let at = own.calls.get(..own.depth)?.iter().rposition(|call| call.op == op)?;
    own.depth = at;
    let call = own.calls.get(at)?;
    // SAFETY: it was written when the call began.
    let correlation_id = unsafe { call.data.api.correlation_id };
    Some(Ended { correlation_id, begin_ns: call.begin_ns })
}

/// The correlation id of the innermost call that the thread is in; 0 if it is in none that is traced.
pub fn innermost_id() -> u64 {
    // SAFETY: null, or the thread's own, which nobody has borrowed: HIP and what it calls run meanwhile.
    let own = unsafe { CALLS.get().as_mut() };
    // SAFETY: it was written when the call began.
    own.and_then(Calls::innermost).map_or(0, |call| unsafe { call.data.api.correlation_id })
}

/// Whether the client's callback is called for the begin of the innermost call. [`was_told`] is to follow, if that returns.
pub fn begins_callback() -> bool {
    // HIP says once more that a call begins when it ends by an exception of the callback's.
    let call = Calls::own().innermost().filter(|call| call.told == Told::No);
    call.map(|call| call.told = Told::Entered).is_some()
}

/// The client's callback has returned for the begin of the innermost call.
pub fn was_told() {
    if let Some(call) = Calls::own().innermost() {
        call.told = Told::Yes;
    }
}

/// Whether it is called for the end, as it was for the begin.
pub fn ends_callback() -> bool {
    Calls::own().innermost().is_some_and(|call| call.told == Told::Yes)
}
