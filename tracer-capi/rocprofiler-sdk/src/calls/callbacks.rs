//! Callbacks of a call: the tools that are told when it begins and when it ends, and the data that they keep in
//! between.

use core::cell::{Cell, RefCell, UnsafeCell};
use core::ffi::c_void;
use std::rc::Rc;

use rocprofiler::callback::{CorrelationIds, Event, Phase, Request};
use rocprofiler::sdk::{Externals, Service, Services};
use roctracer::timestamp_ns;

use super::operations::Operation;
use super::payload::Payload;
use super::streams;
use crate::records::HipWords;
use crate::{SDK, externals, process};

/// The progress of telling tools.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallbackState {
    /// Of nothing: the call was made in a callback, or has just begun.
    Nothing,
    /// A callback has not returned: it is being called, or was left by an exception.
    Entered,
    /// Of the begin.
    Begin,
}

/// When a call that tools are told of was made, without their callbacks.
#[derive(Clone, Copy)]
pub struct Times {
    /// ns of CLOCK_BOOTTIME.
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// The callbacks of a call.
pub struct Callbacks {
    operation: Operation,
    /// The thread in which it began.
    thread: u64,
    /// The id of the call that it is made in; 0 if there is none.
    ancestor: u64,
    /// The services that are told, and the data that each of them keeps.
    subscribers: Vec<(&'static Service, UnsafeCell<u64>)>,
    /// The services that want the call recorded, or want to be told.
    services: Services,
    /// Of a call of HIP: the services that are told of its stream.
    pub streams: Option<streams::StreamCallbacks>,
    state: Cell<CallbackState>,
    externals: RefCell<Externals>,
    times: Cell<Option<Times>>,
    payload: UnsafeCell<Payload>,
}

impl Callbacks {
    /// The services that are to be told, or asked for external ids, and those of the call's stream; none if there are
    /// none, and no service wants the arguments.
    pub fn of(
        operation: Operation,
        services: Services,
        streams: Option<streams::StreamCallbacks>,
        (thread, ancestor): (u32, u64),
    ) -> Option<Rc<Self>> {
        let all = || SDK.each(operation.kind, services);
        let subscribers: Vec<_> = all()
            .filter(|service| service.has_callback())
            .map(|service| (service, UnsafeCell::new(0)))
            .collect();
        let is_for_nobody = subscribers.is_empty() && streams.is_none();
        if is_for_nobody
            && !all().any(Service::has_arguments)
            && !SDK.asks(operation.kind, services)
        {
            return None;
        }
        Some(Rc::new(Self {
            operation,
            thread: thread.into(),
            ancestor,
            subscribers,
            services,
            streams,
            state: Cell::new(CallbackState::Nothing),
            externals: RefCell::default(),
            times: Cell::new(None),
            payload: UnsafeCell::new(Payload::new(operation.kind)),
        }))
    }

    /// The call begins, with arguments that `fill` writes down. Ids that callbacks give the thread count for it.
    pub fn enter(&self, correlation_id: u64, fill: impl FnOnce(&mut Payload)) {
        self.state.set(CallbackState::Entered);
        let mut stream = 0;
        self.fill(|payload| {
            fill(payload);
            stream = self.streams.as_ref().map_or(0, |streams| payload.word(streams.at()));
        });
        let Operation { kind, number: operation } = self.operation;
        let thread = self.thread;
        let answers =
            SDK.ask(kind, self.services, &Request { thread, kind, operation, correlation_id });
        self.externals.replace(externals::own().with(&answers));
        self.call(Phase::Enter, correlation_id);
        if let Some(streams) = &self.streams {
            streams.begin(stream, &self.externals.borrow());
        }
        self.externals.replace(externals::own().with(&answers));
        self.state.set(CallbackState::Begin);
        let begin_ns = timestamp_ns();
        self.times.set(Some(Times { begin_ns, end_ns: 0 }));
    }

    /// The call has ended, with a result, which `fill` writes down if it is known, and with success or not, if that is
    /// known. Only services that were told of the begin are told of the end.
    pub fn exit(
        &self,
        correlation_id: u64,
        has_succeeded: Option<bool>,
        fill: impl FnOnce(&mut Payload),
    ) {
        let times = self.times.get().map(|times| Times { end_ns: timestamp_ns(), ..times });
        self.times.set(times);
        if self.state.get() == CallbackState::Begin && !process::is_forked() {
            if let Some(streams) = &self.streams {
                streams.end(has_succeeded, &self.externals.borrow());
            }
            self.fill(fill);
            self.call(Phase::Exit, correlation_id);
        }
    }

    /// Whether a callback was left by an exception at the begin: the call has not been made.
    pub fn were_left(&self) -> bool {
        self.state.get() == CallbackState::Entered
    }

    /// The time when the call was made, if tools were told of its begin and of its end.
    pub fn times(&self) -> Option<Times> {
        self.times.get().filter(|times| times.end_ns != 0)
    }

    /// The external ids that count for the call, if tools were told of its begin.
    pub fn externals(&self) -> Option<Externals> {
        (self.state.get() == CallbackState::Begin).then(|| self.externals.take())
    }

    /// The arguments of a call of HIP, and its result, if that is known.
    #[expect(unsafe_code, reason = "memory that tools have pointers to")]
    pub fn arguments(&self) -> HipWords {
        // SAFETY: the thread's own, and no tool is called just now.
        unsafe { &*self.payload.get() }.hip_words()
    }

    #[expect(unsafe_code, reason = "memory that tools have pointers to")]
    fn fill(&self, fill: impl FnOnce(&mut Payload)) {
        // SAFETY: the thread's own, and no tool is called just now.
        fill(unsafe { &mut *self.payload.get() });
    }

    fn call(&self, phase: Phase, correlation_id: u64) {
        let event = Event {
            thread: self.thread,
            ids: CorrelationIds { internal: correlation_id, ancestor: self.ancestor },
            external_id: 0,
            kind: self.operation.kind,
            operation: self.operation.number,
            phase,
            payload: self.payload.get().cast::<c_void>(),
        };
        for (service, kept) in &self.subscribers {
            let external_id = self.externals.borrow().of(service);
            service.tell(&Event { external_id, ..event }, kept.get());
        }
    }
}
