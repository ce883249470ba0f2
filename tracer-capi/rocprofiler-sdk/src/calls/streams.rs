//! Streams of HIP: tools are told which stream a call makes, destroys, or uses (`HIP_STREAM`, since 1.0).

use core::cell::{Cell, UnsafeCell};
use core::ffi::c_void;
use std::collections::BTreeMap;
use std::sync::{LazyLock, Once};

use capi_common::{errno, memory};
use rocprofiler::arguments::arguments;
use rocprofiler::callback::{CorrelationIds, Event, Phase};
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::{Externals, Service};
use roctracer::thread::own_ids;
use tracer_hooks::lock::Lock;

use super::operations::Operation;
use crate::{SDK, log};

/// The time that a thread waits for another one that looks for a stream's id.
const WAIT_NS: u64 = 1_000_000_000;

/// The effect of a function on its stream: the operations of the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StreamEffect {
    Create = 1,
    Destroy = 2,
    Use = 3,
}

/// A function's stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stream {
    does: StreamEffect,
    /// The place of the argument among all: the stream, or the address of the place for it.
    at: usize,
}

impl Stream {
    /// The stream of a function; none of a function without one.
    fn of(operation: Operation) -> Option<Self> {
        let arguments = arguments(operation.kind, operation.number);
        let find = |ty: &[u8]| {
            let argument = arguments.iter().find(|argument| argument.ty.to_bytes() == ty)?;
            Some(argument.at)
        };
        let used = find(b"hipStream_t").map(|at| {
            let names = operation.kind.operations().unwrap_or_default();
            let name = names.get(operation.number as usize).map(|name| name.to_bytes());
            let does = if name == Some(b"hipStreamDestroy") {
                StreamEffect::Destroy
            } else {
                StreamEffect::Use
            };
            Self { does, at }
        });
        used.or_else(|| find(b"hipStream_t*").map(|at| Self { does: StreamEffect::Create, at }))
    }
}

/// The streams of the functions of HIP's runtime, by number.
static OF_FUNCTIONS: LazyLock<Vec<Option<Stream>>> = LazyLock::new(|| {
    let kind = Kind::HipRuntimeApi;
    let count = kind.operations().map_or(0, <[_]>::len);
    (0..count as u32).map(|number| Stream::of(Operation { kind, number })).collect()
});

fn of_function(operation: Operation) -> Option<Stream> {
    // Where no tool has asked for streams there is no need of the table.
    if operation.kind != Kind::HipRuntimeApi || !SDK.has_services(Kind::HipStream) {
        return None;
    }
    OF_FUNCTIONS.get(operation.number as usize).copied().flatten()
}

/// Makes the data that calls need before they are made.
pub fn prepare() {
    if SDK.has_services(Kind::HipStream) {
        LazyLock::force(&OF_FUNCTIONS);
    } else if let Some(mut ids) = IDS.lock_or_lose(WAIT_NS) {
        // Nobody follows them any more.
        ids.of.clear();
    }
}

/// Whether the calls of a function are to be followed for their streams just now: those that make and destroy streams for
/// as long as there is a tool that may want their ids.
pub fn are_followed(operation: Operation) -> bool {
    of_function(operation).is_some_and(|stream| {
        stream.does != StreamEffect::Use
            || !SDK.wanting(Kind::HipStream, Some(StreamEffect::Use as usize)).is_empty()
    })
}

/// Ids of streams. Tools have them in the place of addresses, which are used again.
struct Ids {
    last: u64,
    /// None of a stream that was destroyed.
    of: BTreeMap<u64, Option<u64>>,
}

static IDS: Lock<Ids> = Lock::new(Ids { last: 0, of: BTreeMap::new() });

impl Ids {
    /// The id of a stream, which may have been there before anybody was told of it. The null stream has 0.
    fn of(&mut self, stream: u64) -> u64 {
        if stream == 0 {
            return 0;
        }
        let Self { last, of } = self;
        *of.entry(stream).or_default().get_or_insert_with(|| {
            *last += 1;
            *last
        })
    }

    /// The id of a stream which has just been made, if it was. If its address was there before, another stream had it
    /// that was destroyed, or the call has failed.
    fn renew(&mut self, stream: u64, was_there: bool) -> Option<u64> {
        if stream == 0 || was_there && self.of.get(&stream) != Some(&None) {
            return None;
        }
        self.of.insert(stream, None);
        Some(self.of(stream))
    }

    /// The id of a stream which is being destroyed: its address is another stream's next.
    fn take(&mut self, stream: u64) -> u64 {
        let id = self.of(stream);
        self.of.insert(stream, None);
        id
    }
}

/// Looks for ids. Once another thread has not come back from here, streams have none, and nobody is told of them.
fn ids<T>(look: impl FnOnce(&mut Ids) -> T) -> Option<T> {
    let id = IDS.lock_or_lose(WAIT_NS).map(|mut ids| look(&mut ids));
    if id.is_none() {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            log::warn(format_args!(
                "streams of HIP are not reported any more: a thread has left while it looked one up"
            ))
        });
    }
    id
}

/// The stream at an address, which may lead nowhere.
fn stream_at(address: u64) -> Option<u64> {
    let mut stream = [0; size_of::<u64>()];
    let is_read = address != 0 && errno::kept(|| memory::copy(address, &mut stream));
    is_read.then(|| u64::from_le_bytes(stream))
}

/// `rocprofiler_callback_tracing_hip_stream_data_t`.
#[derive(Default)]
#[repr(C)]
struct Payload {
    size: usize,
    id: u64,
    stream: u64,
}

/// The stream of a call, and the services that are told of it.
pub struct StreamCallbacks {
    stream: Stream,
    /// The services, and the data that each of them keeps.
    services: Vec<(&'static Service, UnsafeCell<u64>)>,
    payload: UnsafeCell<Payload>,
    /// The argument.
    argument: Cell<u64>,
    /// The id of the stream that a call uses or destroys; of a call that makes a stream, the word that is at the place
    /// before.
    begun: Cell<Option<u64>>,
}

impl StreamCallbacks {
    /// None where no service is told, and where no stream is made or destroyed.
    pub fn of(operation: Operation) -> Option<Self> {
        let stream = of_function(operation)?;
        let wanting = SDK.wanting(Kind::HipStream, Some(stream.does as usize));
        let services: Vec<_> = SDK
            .each(Kind::HipStream, wanting)
            .map(|service| (service, UnsafeCell::new(0)))
            .collect();
        let is_meant = stream.does != StreamEffect::Use || !services.is_empty();
        is_meant.then(|| Self {
            stream,
            services,
            payload: UnsafeCell::default(),
            argument: Cell::new(0),
            begun: Cell::new(None),
        })
    }

    /// The place of the argument among all.
    pub fn at(&self) -> usize {
        self.stream.at
    }

    /// The call begins, with this argument. The callbacks may throw.
    pub fn begin(&self, argument: u64, externals: &Externals) {
        self.argument.set(argument);
        self.begun.set(match self.stream.does {
            StreamEffect::Create => stream_at(argument),
            StreamEffect::Use => ids(|ids| ids.of(argument)),
            StreamEffect::Destroy if argument == 0 => None,
            // Before another thread makes one at its address.
            StreamEffect::Destroy => ids(|ids| ids.take(argument)),
        });
        if self.stream.does == StreamEffect::Use
            && let Some(id) = self.begun.get()
        {
            self.tell(Phase::Enter, id, argument, externals);
        }
    }

    /// The call has ended, and has succeeded or not, if that is known.
    pub fn end(&self, has_succeeded: Option<bool>, externals: &Externals) {
        let (argument, begun) = (self.argument.get(), self.begun.get());
        if self.stream.does == StreamEffect::Create {
            let made = stream_at(argument).filter(|_| has_succeeded != Some(false));
            let was_there = has_succeeded.is_none() && made == begun;
            let id = |stream| ids(|ids| ids.renew(stream, was_there)).flatten();
            if let Some((stream, id)) = made.and_then(|made| Some((made, id(made)?))) {
                self.tell(Phase::None, id, stream, externals);
            }
        } else if let Some(id) = begun {
            let is_used = self.stream.does == StreamEffect::Use;
            let phase = if is_used { Phase::Exit } else { Phase::None };
            self.tell(phase, id, argument, externals);
        }
    }

    #[expect(unsafe_code, reason = "memory that tools have pointers to")]
    fn tell(&self, phase: Phase, id: u64, stream: u64, externals: &Externals) {
        let payload = Payload { size: size_of::<Payload>(), id, stream };
        // SAFETY: the thread's own, and no tool is called just now.
        unsafe { self.payload.get().write(payload) };
        let event = Event {
            thread: own_ids().thread.into(),
            ids: CorrelationIds::default(),
            external_id: 0,
            kind: Kind::HipStream,
            operation: self.stream.does as u32,
            phase,
            payload: self.payload.get().cast::<c_void>(),
        };
        for (service, kept) in &self.services {
            service.tell(&Event { external_id: externals.of(service), ..event }, kept.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::payload;
    use capi_common::hip::Release;

    #[test]
    fn a_stream_has_an_id_until_it_is_destroyed() {
        let mut ids = Ids { last: 0, of: BTreeMap::new() };
        assert_eq!([0, 7, 8, 7].map(|stream| ids.of(stream)), [0, 1, 2, 1]);
        assert_eq!([ids.take(7), ids.of(7), ids.take(9), ids.of(9)], [1, 3, 4, 5]);
        assert_eq!([(8, false), (0, false)].map(|(at, was)| ids.renew(at, was)), [Some(6), None]);
        // A call that has failed, and one whose stream is where one was destroyed.
        assert_eq!([(8, true), (10, true)].map(|(at, was)| ids.renew(at, was)), [None, None]);
        assert_eq!((ids.take(8), ids.renew(8, true), ids.of(8)), (6, Some(7), 7));
    }

    /// Of each release as of AMD's: a function of the runtime's that has a stream makes, destroys or uses it.
    #[test]
    fn functions_with_streams_are_known() {
        let kind = Kind::HipRuntimeApi;
        let of = |name: &str| {
            let all = kind.operations().expect("some");
            let number = all.iter().position(|one| one.to_str() == Ok(name)).expect("a function");
            let operation = Operation { kind, number: number as u32 };
            let stream = Stream::of(operation)?;
            for release in [Release::First, Release::Five, Release::Later] {
                assert!(
                    payload::is_reported(name, operation, release, stream.at),
                    "{name} {release:?}"
                );
            }
            Some(stream.does)
        };
        assert_eq!(of("hipStreamCreateWithFlags"), Some(StreamEffect::Create));
        assert_eq!(of("hipStreamDestroy"), Some(StreamEffect::Destroy));
        assert_eq!(of("hipLaunchKernel"), Some(StreamEffect::Use));
        assert_eq!(of("hipMemcpyAsync"), Some(StreamEffect::Use));
        assert_eq!(of("hipMalloc"), None);
    }
}
