//! Calls that pass through the tables of the HSA runtime, and of HIP since 6.0: callbacks and records.

#![expect(unsafe_code, reason = "functions of the client's")]

use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;

use capi_sources::client_thread::{InCallback, next_id};
use capi_sources::hsa::Client;
use capi_sources::open::{CallbackState, OfThreads};
use roctracer::tracer::Callback;
use tracer_common::activity::Domain;
use tracer_common::bpf::flag;
use tracer_common::calls::{self, Call};
use tracer_common::slots;
use tracer_hooks::calls::{CallSink, Detail};

use crate::call_record;
use crate::enabled::TRACER;

/// A runtime with tables.
pub trait Runtime: Sync + 'static {
    /// The domain of its calls.
    const DOMAIN: Domain;

    /// The data of a call that callbacks get.
    type Data: Default + 'static;

    /// The calls of every thread: [`calls_of_threads`](capi_sources::calls_of_threads).
    const THREADS: OfThreads<OpenCall<Self::Data>>;

    /// The parts of a function's calls that are recorded, by the function's place among those of the runtime's tables.
    fn wish(place: usize) -> Option<calls::Wanted>;

    /// Whether calls of a function are to be recorded just now.
    fn is_wanted(place: usize) -> bool;

    /// The operation of a call.
    fn op(call: &Call) -> u32;

    /// A function is called. Returns whether [`Runtime::event_begins`] and [`Runtime::event_ends`] are wanted.
    fn comes(call: &Call) -> bool;

    /// The call begins. The thread is in nothing of ours.
    fn event_begins(_call: &Call, _at: usize) {}

    /// The call has ended.
    fn event_ends(_call: &Call, _at: usize) {}

    /// A call begins, with these words of arguments on the stack. The client may keep a number at `phase_data` until
    /// the call has ended.
    fn begin(data: &mut Self::Data, call: &Call, stack: &[u64], phase_data: *mut u64);

    /// The call has returned.
    fn end(data: &mut Self::Data, call: &Call);
}

/// The data that is kept of a call.
#[derive(Default)]
pub struct OpenCall<D> {
    op: u32,
    callback: CallbackState,
    /// Callbacks are told of it.
    has_callback: bool,
    data: D,
    /// The client's number, from the begin to the end.
    phase_data: u64,
}

impl<D> OpenCall<D> {
    /// Whether it is a call of an operation.
    pub fn is_of(&self, op: u32) -> bool {
        self.op == op
    }
}

fn callback<R: Runtime>(op: u32) -> Option<Callback> {
    TRACER.callback(R::DOMAIN, op)
}

/// A call begins: calls the client's callback, unless the thread is in one.
fn call_back<R: Runtime>(call: &Call, stack: &[u64], at: usize) {
    let op = R::op(call);
    let Some(Callback { function, argument }) = callback::<R>(op) else { return };
    let Some(inside) = InCallback::enter(at) else { return };
    let Some(kept) = R::THREADS.find(at).filter(|kept| kept.has_callback) else { return };
    R::begin(&mut kept.data, call, stack, &raw mut kept.phase_data);
    kept.callback = CallbackState::Entered;
    let data = ptr::from_ref(&kept.data).cast();
    // SAFETY: the client's function, with the data of its domain.
    unsafe { function(R::DOMAIN.0, op, data, argument) };
    drop(inside);
    if let Some(kept) = R::THREADS.find(at) {
        kept.callback = CallbackState::Returned;
    }
}

/// When this is dropped, the call whose frame is there has ended.
struct Ends<R: Runtime>(usize, PhantomData<R>);

impl<R: Runtime> Ends<R> {
    fn of(at: usize) -> Self {
        Self(at, PhantomData)
    }
}

impl<R: Runtime> Drop for Ends<R> {
    fn drop(&mut self) {
        R::THREADS.end(self.0);
    }
}

/// A recorder of the calls of one runtime: see [`Client`] and [`CallSink`].
pub trait Recorder: Sync {
    fn wish(&self, place: usize) -> Option<calls::Wanted>;
    fn is_wanted(&self, place: usize) -> bool;
    fn begins(&self, call: &mut Call, at: usize) -> Detail;
    fn entered(&self, call: &Call, stack: &[u64], at: usize);
    fn ends(&self, call: &Call, at: usize);
    fn left(&self, call: &Call, at: usize);
}

impl<R: Runtime> Recorder for R {
    fn wish(&self, place: usize) -> Option<calls::Wanted> {
        R::wish(place)
    }

    fn is_wanted(&self, place: usize) -> bool {
        R::is_wanted(place)
    }

    fn begins(&self, call: &mut Call, at: usize) -> Detail {
        let or = if R::comes(call) { Detail::All } else { Detail::Nothing };
        let op = R::op(call);
        let has_callback = callback::<R>(op).is_some();
        if !has_callback && TRACER.activity(R::DOMAIN, op).is_none() {
            return or;
        }
        call.correlation_id = next_id();
        let Some(kept) = R::THREADS.begin(at, call.correlation_id) else { return or };
        (kept.op, kept.has_callback) = (op, has_callback);
        (kept.callback, kept.phase_data) = (CallbackState::NotCalled, 0);
        if has_callback || or == Detail::All { Detail::All } else { Detail::End }
    }

    fn entered(&self, call: &Call, stack: &[u64], at: usize) {
        R::event_begins(call, at);
        call_back::<R>(call, stack, at);
    }

    /// Here a call of which callbacks are not told is over.
    fn ends(&self, call: &Call, at: usize) {
        if R::THREADS.find(at).is_some_and(|kept| !kept.has_callback) {
            let _ended = Ends::<R>::of(at);
            let (op, end_ns) = (R::op(call), Some(call.end_ns));
            call_record::write(R::DOMAIN, op, call.correlation_id, call.begin_ns, end_ns);
        }
    }

    /// Here a call of which callbacks are told is over.
    fn left(&self, call: &Call, at: usize) {
        // Also when a callback throws.
        let _ended = Ends::<R>::of(at);
        R::event_ends(call, at);
        let op = R::op(call);
        let Some(kept) = R::THREADS.find(at) else { return };
        let state = kept.callback;
        // Only a callback that was told of the begin is told of the end.
        if state == CallbackState::Returned
            && call.flags & flag::ENTRY_ONLY == 0
            && let Some(Callback { function, argument }) = callback::<R>(op)
            && let Some(_inside) = InCallback::enter(at)
        {
            R::end(&mut kept.data, call);
            let data = ptr::from_ref(&kept.data).cast();
            // SAFETY: the client's function, with the data of its domain.
            unsafe { function(R::DOMAIN.0, op, data, argument) };
        }
        // A callback that has thrown has kept the call from being made.
        if state != CallbackState::Entered {
            call_record::write(R::DOMAIN, op, call.correlation_id, call.begin_ns, None);
        }
    }
}

/// Calls of both runtimes.
pub struct Calls {
    recorders: OnceLock<Recorders>,
}

/// The recorders of both runtimes.
pub struct Recorders {
    pub hip: &'static dyn Recorder,
    pub hsa: &'static dyn Recorder,
}

/// The one source of them.
pub static CALLS: Calls = Calls { recorders: OnceLock::new() };

impl Calls {
    /// Sets the recorders: once, and before anything is wanted.
    pub fn set_recorders(&self, recorders: Recorders) {
        let _ = self.recorders.set(recorders);
    }

    fn of(&self, call: &Call) -> Option<&'static dyn Recorder> {
        let recorders = self.recorders.get()?;
        let is_of_hip = u32::from(call.domain) == Domain::HIP_API.0;
        Some(if is_of_hip { recorders.hip } else { recorders.hsa })
    }

    /// The recorder of the calls of a slot, and the slot's place there.
    fn of_slot(&self, slot: usize) -> Option<(&'static dyn Recorder, usize)> {
        let recorders = self.recorders.get()?;
        let of_hip = slot.checked_sub(slots::HIP.start);
        Some(of_hip.map_or((recorders.hsa, slot), |place| (recorders.hip, place)))
    }
}

impl Client for Calls {
    fn wish(&self, slot: usize) -> Option<calls::Wanted> {
        let (recorder, place) = self.of_slot(slot)?;
        recorder.wish(place)
    }

    fn is_wanted(&self, slot: usize) -> bool {
        self.of_slot(slot).is_some_and(|(recorder, place)| recorder.is_wanted(place))
    }
}

impl CallSink for Calls {
    fn begins(&self, call: &mut Call, at: usize) -> Detail {
        self.of(call).map_or(Detail::Nothing, |recorder| recorder.begins(call, at))
    }

    fn ends(&self, call: &Call, at: usize) {
        if let Some(recorder) = self.of(call) {
            recorder.ends(call, at);
        }
    }

    fn entered(&self, call: &Call, stack: &[u64], at: usize) {
        if let Some(recorder) = self.of(call) {
            recorder.entered(call, stack, at);
        }
    }

    fn left(&self, call: &Call, at: usize) {
        if let Some(recorder) = self.of(call) {
            recorder.left(call, at);
        }
    }
}
