//! Streams of HIP: tools are told which one a call makes, destroys, or uses (`HIP_STREAM`, since 1.0).

use core::cell::{Cell, UnsafeCell};
use core::ffi::c_void;
use std::collections::BTreeMap;
use std::sync::{LazyLock, Once};

use capi_common::hip::{self, Data, Field, Functions};
use capi_common::{errno, memory};
use rocprofiler::arguments::arguments;
use rocprofiler::callback::{Event, Phase};
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::{Externals, Service};
use roctracer::domains::{MOST_HIP_FUNCTIONS, loaded_hip_function};
use roctracer::thread::own_ids;
use tracer_hooks::lock::Lock;

use super::operations::{OF_HIP, Operation};
use crate::{SDK, log};

/// How long a thread waits for another one that looks for a stream's id.
const WAIT_NS: u64 = 1_000_000_000;

/// What a function does with its stream: the operations of the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Does {
    Create = 1,
    Destroy = 2,
    Use = 3,
}

/// A function's stream.
#[derive(Clone, Copy, Debug)]
struct Stream {
    does: Does,
    /// The argument: it, or the address of the place for it.
    argument: &'static Field,
}

impl Stream {
    /// None of a function without one, or whose arguments a release tells otherwise than tools know them.
    fn of(operation: Operation, name: &str, fields: &'static [Field]) -> Option<Self> {
        let known = arguments(operation.kind, operation.number);
        if operation.kind != Kind::HipRuntimeApi || fields.len() != known.len() {
            return None;
        }
        let find = |ty: &[u8]| {
            let at = known.iter().position(|argument| argument.ty.to_bytes() == ty)?;
            fields.get(at)
        };
        let used = find(b"hipStream_t").map(|argument| {
            let does = if name == "hipStreamDestroy" { Does::Destroy } else { Does::Use };
            Self { does, argument }
        });
        used.or_else(|| find(b"hipStream_t*").map(|argument| Self { does: Does::Create, argument }))
    }
}

/// By the ids that the runtime that is loaded has for functions.
static OF_FUNCTIONS: LazyLock<Vec<Option<Stream>>> = LazyLock::new(|| {
    let release = Functions::find().release();
    let of = |op: u32| {
        let operation = OF_HIP.get(op as usize).copied().flatten()?;
        let name = loaded_hip_function(op)?.to_str().ok()?;
        Stream::of(operation, name, hip::fields(name, release))
    };
    (0..MOST_HIP_FUNCTIONS).map(of).collect()
});

fn of_function(op: u32) -> Option<Stream> {
    // Where no tool has asked for streams there is no need of the table.
    if !SDK.has_services(Kind::HipStream) {
        return None;
    }
    OF_FUNCTIONS.get(op as usize).copied().flatten()
}

/// Has what calls need be there before they are made.
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
pub fn are_followed(op: u32) -> bool {
    of_function(op).is_some_and(|stream| {
        stream.does != Does::Use
            || !SDK.wanting(Kind::HipStream, Some(Does::Use as usize)).is_empty()
    })
}

/// Ids of streams, which tools have in the place of addresses: these are used again.
struct Ids {
    last: u64,
    of: BTreeMap<u64, u64>,
}

static IDS: Lock<Ids> = Lock::new(Ids { last: 0, of: BTreeMap::new() });

impl Ids {
    /// That of a stream which may have been there before anybody was told of it. The null stream has 0.
    fn of(&mut self, stream: u64) -> u64 {
        if stream == 0 {
            return 0;
        }
        let Self { last, of } = self;
        *of.entry(stream).or_insert_with(|| {
            *last += 1;
            *last
        })
    }

    /// That of a stream which has just been made.
    fn renew(&mut self, stream: u64) -> u64 {
        self.of.remove(&stream);
        self.of(stream)
    }

    /// That of a stream which is being destroyed: its address is another one's next.
    fn take(&mut self, stream: u64) -> u64 {
        let id = self.of(stream);
        self.of.remove(&stream);
        id
    }
}

/// The id of a stream. Once another thread has not come back from here, streams have none, and nobody is told of them.
fn id_of(stream: u64, look: fn(&mut Ids, u64) -> u64) -> Option<u64> {
    let id = IDS.lock_or_lose(WAIT_NS).map(|mut ids| look(&mut ids, stream));
    if id.is_none() {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            log::warn(format_args!("streams of HIP are told no more: a thread left"))
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

/// The stream of a call, and who is told of it.
pub struct Told {
    stream: Stream,
    /// And what each of them keeps.
    services: Vec<(&'static Service, UnsafeCell<u64>)>,
    payload: UnsafeCell<Payload>,
    /// The stream's id, of a call that uses or destroys it; of one that makes a stream, what is there before.
    begun: Cell<Option<u64>>,
}

impl Told {
    /// None where nobody is, and where no stream is made or destroyed.
    pub fn of(op: u32) -> Option<Self> {
        let stream = of_function(op)?;
        let wanting = SDK.wanting(Kind::HipStream, Some(stream.does as usize));
        let services: Vec<_> = SDK
            .each(Kind::HipStream, wanting)
            .map(|service| (service, UnsafeCell::new(0)))
            .collect();
        let (payload, begun) = (UnsafeCell::default(), Cell::new(None));
        let is_meant = stream.does != Does::Use || !services.is_empty();
        is_meant.then_some(Self { stream, services, payload, begun })
    }

    /// The call's argument.
    pub fn argument(&self, data: Data) -> u64 {
        data.argument(self.stream.argument)
    }

    /// The call begins. The callbacks may throw.
    pub fn begin(&self, argument: u64, externals: &Externals) {
        self.begun.set(match self.stream.does {
            Does::Create => stream_at(argument),
            Does::Use => id_of(argument, Ids::of),
            Does::Destroy if argument == 0 => None,
            // Before another thread makes one at its address.
            Does::Destroy => id_of(argument, Ids::take),
        });
        if self.stream.does == Does::Use
            && let Some(id) = self.begun.get()
        {
            self.tell(Phase::Enter, id, argument, externals);
        }
    }

    /// It has ended. HIP does not tell the result: a call that leaves what was there has made no stream.
    pub fn end(&self, argument: u64, externals: &Externals) {
        let begun = self.begun.get();
        if self.stream.does == Does::Create {
            let made = stream_at(argument).filter(|&stream| stream != 0 && Some(stream) != begun);
            if let Some((stream, id)) = made.and_then(|made| Some((made, id_of(made, Ids::renew)?)))
            {
                self.tell(Phase::None, id, stream, externals);
            }
        } else if let Some(id) = begun {
            let is_used = self.stream.does == Does::Use;
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
            correlation_id: 0,
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
    use capi_common::hip::Release;

    #[test]
    fn a_stream_has_an_id_until_it_is_destroyed() {
        let mut ids = Ids { last: 0, of: BTreeMap::new() };
        assert_eq!([0, 7, 8, 7].map(|stream| ids.of(stream)), [0, 1, 2, 1]);
        assert_eq!([ids.take(7), ids.of(7), ids.take(9), ids.of(9)], [1, 3, 4, 5]);
        assert_eq!([ids.renew(8), ids.of(8), ids.renew(0)], [6, 6, 0]);
    }

    /// Of each release as of AMD's: a function of the runtime's that has a stream makes, destroys or uses it.
    #[test]
    fn functions_with_streams_are_known() {
        let of = |name: &str, release: Release| {
            let all = Kind::HipRuntimeApi.operations().expect("some");
            let number = all.iter().position(|one| one.to_str() == Ok(name)).expect("a function");
            let operation = Operation { kind: Kind::HipRuntimeApi, number: number as u32 };
            let stream = Stream::of(operation, name, hip::fields(name, release))?;
            Some((stream.does, stream.argument.name))
        };
        for release in [Release::First, Release::Five, Release::Later] {
            assert_eq!(of("hipStreamCreateWithFlags", release), Some((Does::Create, "stream")));
            assert_eq!(of("hipStreamDestroy", release), Some((Does::Destroy, "stream")));
            assert_eq!(of("hipLaunchKernel", release), Some((Does::Use, "stream")));
            assert_eq!(of("hipMemcpyAsync", release), Some((Does::Use, "stream")));
            assert_eq!(of("hipMalloc", release), None);
        }
    }
}
