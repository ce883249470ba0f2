//! The record of a call.

use std::rc::Rc;

use rocprofiler::callback::CorrelationIds;
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::{Externals, Services};
use rocprofiler::threads::CallbackThread;
use roctracer::thread::own_ids;

use super::callbacks::{Callbacks, Times};
use super::operations::Operation;
use super::streams;
use crate::layout::number;
use crate::records::{self, Common};
use crate::retirement::{CallUse, Use};
use crate::{SDK, externals, process};

/// A call that a service wants recorded, and that has begun.
pub struct Begun {
    operation: Operation,
    /// The services that want it.
    services: Services,
    externals: Externals,
    /// The id of the call that it is made in; 0 if there is none.
    ancestor: u64,
    /// The thread in which it began.
    thread: u32,
    /// The use of its correlation id; none if tools are told of its stream alone.
    id_use: Option<CallUse>,
    /// ns of CLOCK_BOOTTIME.
    begin_ns: u64,
    /// None if no tool is told of it.
    pub callbacks: Option<Rc<Callbacks>>,
}

impl Begun {
    /// A call of the calling thread begins, in the call of the id `ancestor`. None: no service wants it, a tool makes it in the callback of a buffer, or
    /// a forked child does, where locks may be taken for ever.
    #[inline]
    pub fn new(
        operation: Operation,
        ancestor: u64,
        streams: impl FnOnce() -> Option<streams::StreamCallbacks>,
        begin_ns: impl FnOnce() -> u64,
    ) -> Option<Self> {
        if CallbackThread::is_any_current() || process::is_forked() {
            return None;
        }
        let services = SDK.wanting(operation.kind, Some(operation.number as usize));
        let streams = streams();
        if services.is_empty() && streams.is_none() {
            return None;
        }
        let ids = own_ids();
        let (externals, thread) = (externals::of(ids), ids.thread);
        let callbacks = Callbacks::of(operation, services, streams, (thread, ancestor));
        let id_use = (!services.is_empty()).then(|| CallUse::begin(operation.kind, services));
        // Last: the work before is no part of the call.
        let begin_ns = begin_ns();
        Some(Self { operation, services, externals, ancestor, thread, id_use, begin_ns, callbacks })
    }

    /// The kind of its function.
    pub fn kind(&self) -> Kind {
        self.operation.kind
    }

    /// Whether a service has its correlation id.
    pub fn is_traced(&self) -> bool {
        self.id_use.is_some()
    }

    /// The call enqueues an operation of a GPU, which uses its correlation id from now on.
    pub fn share(&mut self, correlation_id: u64) -> Use {
        self.id_use.as_mut().map(|id_use| id_use.share(correlation_id)).unwrap_or_default()
    }

    /// The call has ended: its records are written, if it was made, and it does not use its correlation id any more. By
    /// reference: to move it would take longer than to write it.
    pub fn end(&mut self, correlation_id: u64, end_ns: u64) {
        let callbacks = self.callbacks.take();
        if let Some(times) = self.made(callbacks.as_deref(), end_ns) {
            self.write(correlation_id, times, callbacks.as_deref());
        }
        self.leave(correlation_id);
    }

    /// A callback has thrown at the begin of the call, which is not made: it does not use its correlation id any more.
    pub fn leave(&mut self, correlation_id: u64) {
        if let Some(id_use) = self.id_use.take() {
            id_use.end(correlation_id);
        }
    }

    /// The time when the call was made; none if it was not, since a callback has thrown. External ids that callbacks
    /// have given count.
    fn made(&mut self, callbacks: Option<&Callbacks>, end_ns: u64) -> Option<Times> {
        let times = Times { begin_ns: self.begin_ns, end_ns };
        let Some(callbacks) = callbacks else { return Some(times) };
        if callbacks.were_left() {
            return None;
        }
        if let Some(externals) = callbacks.externals() {
            self.externals = externals;
        }
        Some(callbacks.times().unwrap_or(times))
    }

    /// Writes the record for each service that wants one.
    fn write(&self, correlation_id: u64, times: Times, callbacks: Option<&Callbacks>) {
        let &Self { operation, services, ref externals, ancestor, thread, .. } = self;
        let Times { begin_ns, end_ns } = times;
        let common = Common {
            kind: number(operation.kind),
            operation: operation.number,
            ids: CorrelationIds { internal: correlation_id, ancestor },
            external_id: 0,
            begin_ns,
            end_ns,
            thread,
        };
        for service in SDK.each(operation.kind, services) {
            let Some(buffer) = service.buffer() else { continue };
            let common = Common { external_id: externals.of(service), ..common };
            match operation.kind.with_arguments().filter(|_| service.has_arguments()) {
                Some(kind) => {
                    let arguments = callbacks.map(Callbacks::arguments).unwrap_or_default();
                    let common = Common { kind: number(kind), ..common };
                    buffer.write(&records::call_of_hip(&common, &arguments));
                }
                None => {
                    buffer.write(&records::call(&common));
                }
            }
        }
    }
}

/// The ids of the innermost of these calls of the thread, and a use of its id; none if there are none.
pub fn share_innermost(calls: [Option<(u64, Option<&mut Begun>)>; 2]) -> (CorrelationIds, Use) {
    // Ids of a thread ascend.
    let innermost = calls.into_iter().flatten().max_by_key(|&(id, _)| id);
    let Some((internal, call)) = innermost else { return <_>::default() };
    let Some(call) = call else {
        return (CorrelationIds { internal, ancestor: 0 }, Use::default());
    };
    (CorrelationIds { internal, ancestor: call.ancestor }, call.share(internal))
}
