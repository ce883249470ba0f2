//! A context, and its services: the events of a kind that it wants, and their receivers.

use std::cmp::Ordering as Cmp;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::buffer::Buffer;
use crate::callback::{Callback, Calls, Event};
use crate::completions::Completions;
use crate::external::ExternalIds;
use crate::kinds::Kind;

/// A context.
pub struct Context {
    pub(super) id: u64,
    /// The client that has it.
    pub(super) client: u32,
    pub(super) is_active: AtomicBool,
    /// It cannot be started any more.
    pub(super) is_ended: AtomicBool,
    /// It was stopped when it was ended, and its tool has not stopped it since.
    pub(super) was_stopped: AtomicBool,
    /// Callbacks of its tool.
    pub(super) calls: Calls,
    /// Ids that the program gives.
    pub external: ExternalIds,
}

impl Context {
    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether it is started.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }
}

/// The receiver of events.
pub(super) enum Receiver {
    /// Records of the events are written into a buffer.
    Buffer(&'static Buffer),
    /// The same with the arguments of calls.
    BufferOfArguments(&'static Buffer),
    /// A tool is told of an event where it happens, and there of its completion, if it is work of a GPU.
    Callback(Callback, Option<&'static Completions>),
}

/// The events of a kind that a context wants, and their receiver.
pub struct Service {
    /// The context that has it.
    pub(super) context: &'static Context,
    /// The place of the context among all.
    pub(super) place: usize,
    pub(super) receiver: Receiver,
    pub(super) kind: Kind,
    /// A bit for each operation that is wanted; none if all are.
    pub(super) operations: Vec<u64>,
}

impl Service {
    /// The number of the tool that has it.
    pub fn client(&self) -> u32 {
        self.context.client
    }

    /// Whether the service wants an operation.
    #[inline]
    pub fn means(&self, operation: usize) -> bool {
        let bits = || self.operations.get(operation / 64).copied().unwrap_or_default();
        self.operations.is_empty() || bits() >> (operation % 64) & 1 != 0
    }

    /// The buffer of the records, if they are written.
    #[inline]
    pub fn buffer(&self) -> Option<&'static Buffer> {
        match self.receiver {
            Receiver::Buffer(buffer) | Receiver::BufferOfArguments(buffer) => Some(buffer),
            Receiver::Callback(..) => None,
        }
    }

    /// Whether the records that are written have the arguments of calls.
    #[inline]
    pub fn has_arguments(&self) -> bool {
        matches!(self.receiver, Receiver::BufferOfArguments(_))
    }

    /// Whether a tool is told of events, and is not finalized.
    #[inline]
    pub fn has_callback(&self) -> bool {
        matches!(self.receiver, Receiver::Callback(..)) && !self.context.calls.are_over()
    }

    /// Tells the tool of an event, unless the tool is finalized. It may throw.
    #[inline]
    pub fn tell(&self, event: &Event, kept: *mut u64) {
        if let Receiver::Callback(callback, _) = &self.receiver
            && let Some(_calling) = self.context.calls.begin()
        {
            callback(event, kept);
        }
    }

    /// The thread that calls the tool for work that is done.
    #[inline]
    pub fn completions(&self) -> Option<&'static Completions> {
        match self.receiver {
            Receiver::Callback(_, completions) => completions,
            Receiver::Buffer(_) | Receiver::BufferOfArguments(_) => None,
        }
    }
}

/// Some of the services of a kind, as they were wanted at a time: a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Services {
    /// The number of their plan; 0 for whichever there is.
    pub(super) plan: u32,
    pub(super) bits: u64,
}

impl Services {
    /// As many as there can be of a kind.
    pub(super) const MOST: usize = 64;

    /// As many services as there can be.
    pub fn all() -> Self {
        Self { plan: 0, bits: u64::MAX }
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// The union. If tools were finalized and others configured in between, only the services of the later plan count.
    #[must_use]
    pub fn union(self, those: Self) -> Self {
        match self.plan.cmp(&those.plan) {
            _ if those.is_empty() => self,
            _ if self.is_empty() => those,
            Cmp::Equal => Self { bits: self.bits | those.bits, ..self },
            Cmp::Less => those,
            Cmp::Greater => self,
        }
    }
}
