//! The client that receives calls of HIP, and the calls that a thread is in.

use roctracer::tracer::Callback;

use crate::open::{Call, CallbackState, Calls, OfThreads};

/// A library with an interface of its own, which writes records. It is called on the threads that make calls.
pub trait Client: Sized + 'static {
    /// The data that it keeps of a call that is recorded.
    type Begin: 'static;

    /// The calls of every thread: [`calls_of_threads`](crate::calls_of_threads).
    const CALLS: OfThreads<OpenCall<Self::Begin>>;

    /// Whether the call that the runtime reports has passed through a function of ours in its tables, which reports the
    /// call, too. Nothing that this runs is a cancellation point.
    fn is_reported_by_tables(op: u32) -> bool;

    /// A call begins. None: it is not recorded.
    fn begin(op: u32) -> Option<Self::Begin>;

    /// A call that is recorded has ended.
    fn end(op: u32, correlation_id: u64, begin: Self::Begin);

    /// Whether the work that the call enqueues belongs to the call.
    fn is_traced(_begin: &Self::Begin) -> bool {
        true
    }

    /// The callback has thrown at the begin of a call, which is not made: no end of the call follows.
    fn leave(_correlation_id: u64, _begin: Self::Begin) {}

    /// The callback of a call, which gets `hip_api_data_t` when the call begins and when it ends; `begin` is the data
    /// that is kept of the call.
    fn callback(op: u32, begin: Option<&Self::Begin>) -> Option<Callback>;
}

/// Bytes of `hip_api_data_t`: 832 of ROCm 5.2.3, and room for what a patch release may add.
const DATA_BYTES: usize = 1024;

/// The begin of `hip_api_data_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ApiData {
    pub correlation_id: u64,
    pub phase: u32,
}

/// `hip_api_data_t`.
#[repr(C)]
pub union Data {
    pub api: ApiData,
    words: [u64; DATA_BYTES / 8],
}

/// The data that is kept of a call.
#[repr(C)]
pub struct OpenCall<B> {
    /// First: runtimes of before ROCm 5.3.1 have a pointer to it.
    pub(super) data: Data,
    pub(super) op: u32,
    pub(super) callback: CallbackState,
    /// None if it is not recorded.
    pub(super) begin: Option<B>,
}

impl<B> Default for OpenCall<B> {
    fn default() -> Self {
        let data = Data { words: [0; DATA_BYTES / 8] };
        Self { data, op: 0, callback: CallbackState::NotCalled, begin: None }
    }
}

/// A call begins, whose frame is at `at` if that is known. None if there is no memory.
pub fn begin<'a, C: Client>(
    op: u32,
    at: usize,
    id: u64,
    begin: Option<C::Begin>,
) -> Option<&'a mut OpenCall<C::Begin>> {
    let kept = &mut C::CALLS.own().begin(at, id)?.kept;
    (kept.op, kept.callback, kept.begin) = (op, CallbackState::NotCalled, begin);
    Some(kept)
}

/// The innermost that is meant has ended; its id and what was kept of it, if it is recorded.
pub fn end<C: Client>(
    is_meant: impl Fn(&Call<OpenCall<C::Begin>>) -> bool,
) -> Option<(u64, C::Begin)> {
    let call = C::CALLS.known()?.end(is_meant)?;
    Some((call.id, call.kept.begin.take()?))
}

/// The innermost call that the thread is in, if it is in one that is traced: its id, and what was kept of it if it is
/// recorded. Nothing of others' is called while that is borrowed.
pub fn innermost<'a, C: Client>() -> Option<(u64, Option<&'a mut C::Begin>)> {
    let is_traced =
        |call: &Call<OpenCall<C::Begin>>| call.kept.begin.as_ref().is_none_or(C::is_traced);
    let call = C::CALLS.known()?.innermost_of(is_traced)?;
    Some((call.id, call.kept.begin.as_mut()))
}

/// The callback of the innermost that is meant.
pub fn callback<C: Client>(
    op: u32,
    is_meant: impl Fn(&Call<OpenCall<C::Begin>>) -> bool,
) -> Option<Callback> {
    let call = C::CALLS.known()?.find(is_meant)?;
    C::callback(op, call.kept.begin.as_ref())
}

/// The correlation id of the innermost call that the thread is in; 0 if it is in none that is traced.
pub fn innermost_id<C: Client>() -> u64 {
    C::CALLS.known().map_or(0, Calls::innermost_id)
}
