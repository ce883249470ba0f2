//! Correlation ids are retired: tools are told when nothing of an id is under way any more.
//!
//! An id is in use by its call, until that has returned, and by each operation of a GPU that the call has enqueued,
//! until its record is in the buffers of all services that wanted it, and their callbacks have been called. Each of
//! these has a share of an object that writes the record of the retirement, one object for each service that wants it,
//! and the thread that gives the last share back writes it. That waits for nobody.
//!
//! The services to be told are chosen when an id is used. A tool that takes no records of an operation, because it is
//! stuck, keeps the id in use for itself alone.

use std::ptr;
use std::sync::Arc;

use capi_sources::client_thread::next_id;
use rocprofiler::callback::CorrelationIds;
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::{Service, Services};
use roctracer::timestamp_ns;

use crate::layout::number;
use crate::{SDK, records};

const KIND: Kind = Kind::CorrelationIdRetirement;

/// The services that want to be told of an id that `services` have. Their contexts may have been stopped since.
#[inline]
pub fn wanting(kind: Kind, services: Services) -> Services {
    SDK.wanting_beside(KIND, kind, services)
}

/// Nothing of an id is under way for a tool.
fn retire(id: u64, service: &'static Service) {
    if let Some(buffer) = service.buffer() {
        buffer.write_at_once(&records::retirement(number(KIND), timestamp_ns(), id));
    }
}

/// Retires an id for a service when it is dropped.
struct Retirement {
    id: u64,
    service: &'static Service,
}

impl Drop for Retirement {
    fn drop(&mut self) {
        retire(self.id, self.service);
    }
}

/// The use of an id by an operation of a GPU.
#[derive(Default)]
pub struct Use(Vec<Arc<Retirement>>);

impl Use {
    /// An operation that belongs to no call has an id of its own, which nothing else uses.
    pub fn alone(services: Services) -> (CorrelationIds, Self) {
        let id = next_id();
        let retirement = |service| Arc::new(Retirement { id, service });
        let id_use = Self(SDK.each(KIND, services).map(retirement).collect());
        (CorrelationIds { internal: id, ancestor: 0 }, id_use)
    }

    /// The part of the use that belongs to one tool.
    pub fn of(&self, client: u32) -> Self {
        let own = self.0.iter().filter(|retirement| retirement.service.client() == client);
        Self(own.cloned().collect())
    }

    /// The use ends for all tools but those for which `is_kept` holds.
    pub fn end_but_for(&mut self, is_kept: impl Fn(&Service) -> bool) {
        self.0.retain(|retirement| is_kept(retirement.service));
    }
}

/// The use of an id by its call.
pub struct CallUse {
    services: Services,
    /// The retirements of which operations have shares.
    shared: Vec<Arc<Retirement>>,
}

impl CallUse {
    /// The call begins, which these services have.
    #[inline]
    pub fn begin(kind: Kind, services: Services) -> Self {
        Self { services: wanting(kind, services), shared: Vec::new() }
    }

    /// The call enqueues an operation. Services that have begun to want the id meanwhile are told, too.
    pub fn share(&mut self, id: u64) -> Use {
        self.services = self.services.union(SDK.wanting(KIND, None));
        for service in SDK.each(KIND, self.services) {
            if !self.is_shared(service) {
                self.shared.push(Arc::new(Retirement { id, service }));
            }
        }
        Use(self.shared.clone())
    }

    /// The call has returned, and its records are written.
    pub fn end(self, id: u64) {
        let alone = SDK.each(KIND, self.services).filter(|service| !self.is_shared(service));
        alone.for_each(|service| retire(id, service));
    }

    fn is_shared(&self, service: &Service) -> bool {
        self.shared.iter().any(|retirement| ptr::eq(retirement.service, service))
    }
}
