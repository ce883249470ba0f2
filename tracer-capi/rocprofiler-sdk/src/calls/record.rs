//! The record of a call.

use std::rc::Rc;

use rocprofiler::sdk::{Externals, Services};
use rocprofiler::threads::CallbackThread;
use roctracer::thread::own_ids;

use super::callbacks::{Callbacks, Times};
use super::operations::Operation;
use crate::layout::number;
use crate::records::{self, Common};
use crate::{SDK, externals, process};

/// A call that somebody wants to have recorded, and that has begun.
pub struct Begun {
    operation: Operation,
    /// Who wants it.
    services: Services,
    externals: Externals,
    /// ns of CLOCK_BOOTTIME.
    begin_ns: u64,
    /// None if nobody is told of it.
    pub callbacks: Option<Rc<Callbacks>>,
}

impl Begun {
    /// A call of the calling thread begins. None: nobody wants it, a tool makes it in the callback of a buffer, or a
    /// forked child does, where locks may be taken for ever.
    #[inline]
    pub fn new(operation: Operation, begin_ns: impl FnOnce() -> u64) -> Option<Self> {
        let services = SDK.wanting(operation.kind, Some(operation.number as usize));
        if services.is_empty() || CallbackThread::is_any_current() || process::is_forked() {
            return None;
        }
        let (externals, callbacks) = (externals::own(), Callbacks::of(operation, services));
        // Last: what is done before is no part of the call.
        let begin_ns = begin_ns();
        Some(Self { operation, services, externals, begin_ns, callbacks })
    }

    /// It has ended. One that was not made, since a callback has thrown, is not recorded.
    pub fn end(mut self, correlation_id: u64, end_ns: u64) {
        let mut times = Times { begin_ns: self.begin_ns, end_ns };
        if let Some(callbacks) = self.callbacks.take() {
            if callbacks.were_left() {
                return;
            }
            times = callbacks.times().unwrap_or(times);
            self.externals = callbacks.externals().unwrap_or(self.externals);
        }
        let Self { operation, services, externals, .. } = self;
        let Times { begin_ns, end_ns } = times;
        let common = Common {
            kind: number(operation.kind),
            operation: operation.number,
            correlation_id,
            external_id: 0,
            begin_ns,
            end_ns,
            thread: own_ids().thread,
        };
        for service in SDK.each(operation.kind, services) {
            let external_id = externals.of(service);
            if let Some(buffer) = service.buffer() {
                buffer.write(&records::call(&Common { external_id, ..common }));
            }
        }
    }
}
