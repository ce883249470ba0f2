//! An operation that begins and ends on the same thread, and the services that are told of both: callbacks with a
//! payload that they have pointers to, and buffers at the end.

use core::cell::{Cell, RefCell, UnsafeCell};
use core::ffi::c_void;

use capi_sources::client_thread::InCallback;
use rocprofiler::buffer::Buffer;
use rocprofiler::callback::{CorrelationIds, Event, Phase, Request};
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::{Externals, Service, Services};
use roctracer::thread::own_ids;

use crate::layout::number;
use crate::records::Common;
use crate::retirement::Use;
use crate::{SDK, externals};

/// An operation of a kind.
pub struct TracedOperation<P> {
    kind: Kind,
    operation: u32,
    services: Services,
    /// The callbacks, and the data that each of them keeps.
    callbacks: Vec<(&'static Service, UnsafeCell<u64>)>,
    /// Callbacks have been told of the begin.
    has_begun: Cell<bool>,
    payload: UnsafeCell<P>,
    externals: RefCell<Externals>,
    pub ids: CorrelationIds,
    /// It uses its id until it has ended.
    _id_use: Use,
}

impl<P: Copy> TracedOperation<P> {
    /// An operation of which no service has been told yet.
    pub fn new(
        (kind, operation): (Kind, u32),
        services: Services,
        payload: P,
        (ids, id_use): (CorrelationIds, Use),
    ) -> Self {
        let all = SDK.each(kind, services).filter(|service| service.has_callback());
        Self {
            kind,
            operation,
            services,
            callbacks: all.map(|service| (service, UnsafeCell::new(0))).collect(),
            has_begun: Cell::new(false),
            payload: UnsafeCell::new(payload),
            externals: RefCell::new(externals::own()),
            ids,
            _id_use: id_use,
        }
    }

    /// Asks tools for external ids, and tells callbacks of the begin, if the thread is in no callback; `at` is a frame of
    /// ours. Both may throw.
    pub fn begin(&self, at: usize) {
        if let Some(_inside) = InCallback::enter(at) {
            let &Self { kind, operation, services, ids, .. } = self;
            let thread = own_ids().thread.into();
            let request = Request { thread, kind, operation, correlation_id: ids.internal };
            let answers = SDK.ask(kind, services, &request);
            self.externals.replace(externals::own().with(&answers));
            self.tell(Phase::Enter);
            self.externals.replace(externals::own().with(&answers));
            self.has_begun.set(true);
        }
    }

    /// Tells the callbacks of the end that were told of the begin.
    pub fn end(&self, at: usize) {
        if self.has_begun.get()
            && let Some(_inside) = InCallback::enter(at)
        {
            self.tell(Phase::Exit);
        }
    }

    fn tell(&self, phase: Phase) {
        let event = Event {
            thread: own_ids().thread.into(),
            ids: self.ids,
            external_id: 0,
            kind: self.kind,
            operation: self.operation,
            phase,
            payload: self.payload.get().cast::<c_void>(),
        };
        for (service, kept) in &self.callbacks {
            let external_id = self.externals.borrow().of(service);
            service.tell(&Event { external_id, ..event }, kept.get());
        }
    }

    /// The payload, as it is now. Not to be called while a tool is called.
    #[expect(unsafe_code, reason = "memory that tools have pointers to")]
    pub fn payload(&self) -> P {
        // SAFETY: the thread's own, and no tool is called just now.
        unsafe { *self.payload.get() }
    }

    /// Changes the payload. Not to be called while a tool is called.
    #[expect(unsafe_code, reason = "memory that tools have pointers to")]
    pub fn set_payload(&self, payload: P) {
        // SAFETY: as above.
        unsafe { *self.payload.get() = payload };
    }

    /// The buffers that want the operation, with the parts that all records of it have.
    pub fn buffers(
        &self,
        [begin_ns, end_ns]: [u64; 2],
    ) -> impl Iterator<Item = (&'static Buffer, Common)> {
        let common = move |service: &'static Service| {
            let common = Common {
                kind: number(self.kind),
                operation: self.operation,
                ids: self.ids,
                external_id: self.externals.borrow().of(service),
                begin_ns,
                end_ns,
                thread: own_ids().thread,
            };
            Some((service.buffer()?, common))
        };
        SDK.each(self.kind, self.services).filter_map(common)
    }
}
