//! The record of a call.

use rocprofiler::sdk::{Externals, Services};
use rocprofiler::threads::CallbackThread;
use roctracer::thread::own_ids;

use super::operations::Operation;
use crate::layout::number;
use crate::records::{self, Common};
use crate::retirement::{CallUse, Use};
use crate::{SDK, process};

/// A call that somebody wants to have recorded, and that has begun.
pub struct Begun {
    operation: Operation,
    /// Who wants it.
    services: Services,
    externals: Externals,
    /// Of its correlation id.
    id_use: CallUse,
    /// ns of CLOCK_BOOTTIME.
    begin_ns: u64,
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
        let ids = own_ids();
        let externals = SDK.externals(ids.thread.into(), ids.process.into());
        let id_use = CallUse::begin();
        // Last: what is done before is no part of the call.
        let begin_ns = begin_ns();
        Some(Self { operation, services, externals, id_use, begin_ns })
    }

    /// It enqueues an operation of a GPU, which uses its correlation id from now on.
    pub fn share(&mut self, correlation_id: u64) -> Use {
        self.id_use.share(correlation_id)
    }

    /// It has ended.
    pub fn end(self, correlation_id: u64, end_ns: u64) {
        let Self { operation, services, externals, id_use, begin_ns } = self;
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
            service.buffer.write(&records::call(&Common { external_id, ..common }));
        }
        id_use.end(correlation_id);
    }
}
