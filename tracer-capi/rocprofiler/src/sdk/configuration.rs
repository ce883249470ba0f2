//! The configuration of tools, and the plan that comes of it.

use std::sync::Arc;

use super::service::{Context, Receiver, Service, Services};
use crate::buffer::Buffer;
use crate::callback::ExternalIdRequest;
use crate::kinds::Kind;
use crate::status::{Result, Status};
use crate::threads::CallbackThread;

/// Ids of contexts and of buffers begin here: a tool that takes the one for the other finds none, nor does one that
/// takes an index. No id is given twice: a call by a thread of a tool that was finalized finds nothing.
pub(super) const FIRST_CONTEXT: u64 = 0x1_0000;
pub(super) const FIRST_BUFFER: u64 = 0x2_0000;

/// The number of kinds.
pub(super) const KINDS: usize = Kind::ALL.len();

/// A context whose tool is asked for the external ids of a kind.
pub(super) struct ExternalIdRequester {
    pub(super) context: &'static Context,
    pub(super) place: usize,
    pub(super) ask: Arc<ExternalIdRequest>,
}

pub(super) struct Configuration {
    /// The numbers of contexts and buffers of former tools.
    pub(super) former_contexts: u64,
    pub(super) former_buffers: u64,
    pub(super) contexts: Vec<&'static Context>,
    /// The buffers, and the clients that have them.
    pub(super) buffers: Vec<(&'static Buffer, u32)>,
    pub(super) services: Vec<Service>,
    /// The contexts that are asked for external ids, and the kinds.
    pub(super) asked: Vec<(Kind, ExternalIdRequester)>,
    /// The first one is that of all buffers that are not assigned to another.
    pub(super) threads: Vec<&'static CallbackThread>,
}

impl Configuration {
    pub(super) const fn new() -> Self {
        Self {
            former_contexts: 0,
            former_buffers: 0,
            contexts: Vec::new(),
            buffers: Vec::new(),
            services: Vec::new(),
            asked: Vec::new(),
            threads: Vec::new(),
        }
    }

    /// Adds a service of a context.
    pub(super) fn add(
        &mut self,
        context: &'static Context,
        kind: Kind,
        wanted: &[i32],
        receiver: Receiver,
    ) -> Result {
        let form = std::mem::discriminant(&receiver);
        let is_same = |s: &Service| {
            (s.context.id, s.kind) == (context.id, kind)
                && std::mem::discriminant(&s.receiver) == form
        };
        if self.services.iter().any(is_same) {
            return Err(Status::ServiceAlreadyConfigured);
        }
        if self.services.iter().filter(|s| s.kind == kind).count() == Services::MOST {
            return Err(Status::OutOfResources);
        }
        let mut operations = Vec::new();
        if !wanted.is_empty() {
            let all = kind.operations()?.len();
            operations.resize(all.div_ceil(64), 0);
            for &operation in wanted {
                let place = usize::try_from(operation).ok().filter(|&place| place < all);
                let place = place.ok_or(Status::OperationNotFound)?;
                operations[place / 64] |= 1 << (place % 64);
            }
        }
        let place = self.place(context);
        self.services.push(Service { context, place, receiver, kind, operations });
        Ok(())
    }

    /// The id of the next context.
    pub(super) fn next_context(&self) -> u64 {
        FIRST_CONTEXT + self.former_contexts + self.contexts.len() as u64
    }

    /// The id of the next buffer.
    pub(super) fn next_buffer(&self) -> u64 {
        FIRST_BUFFER + self.former_buffers + self.buffers.len() as u64
    }

    /// The place of a context among all.
    pub(super) fn place(&self, context: &Context) -> usize {
        (context.id - FIRST_CONTEXT - self.former_contexts) as usize
    }

    pub(super) fn context(&self, id: u64) -> Result<&'static Context> {
        let at = id.checked_sub(FIRST_CONTEXT + self.former_contexts);
        let at = at.and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.contexts.get(at)).copied().ok_or(Status::ContextNotFound)
    }

    pub(super) fn buffer(&self, id: u64) -> Result<&'static Buffer> {
        let at = id.checked_sub(FIRST_BUFFER + self.former_buffers);
        let at = at.and_then(|at| usize::try_from(at).ok());
        let buffer = at.and_then(|at| self.buffers.get(at)).map(|&(buffer, _)| buffer);
        buffer.filter(|buffer| !buffer.is_destroyed()).ok_or(Status::BufferNotFound)
    }
}

/// The configuration, once it does not change any more. It stays for ever.
pub(super) struct Plan {
    /// The number of the plan, from 1 on.
    pub(super) number: u32,
    pub(super) services: [Vec<Service>; KINDS],
    pub(super) asked: [Vec<ExternalIdRequester>; KINDS],
    pub(super) contexts: Vec<&'static Context>,
}

impl Services {
    /// Whether they mean services of a plan.
    #[inline]
    pub(super) fn are_of(self, plan: &Plan) -> bool {
        self.plan == plan.number || self.plan == 0
    }
}
