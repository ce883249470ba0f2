//! Contexts are made, started and stopped, and end with their tools.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::configuration::{Configuration, FIRST_CONTEXT};
use super::service::Context;
use super::{Sdk, stage};
use crate::callback::Calls;
use crate::external::ExternalIds;
use crate::kinds::Kind;
use crate::status::{Result, Status};
use crate::threads::CallbackThread;

impl Sdk {
    /// Makes a context for a client.
    ///
    /// # Errors
    ///
    /// [`Status::ConfigurationLocked`].
    pub fn create_context(&self, client: u32) -> Result<u64> {
        let mut configuration = self.configure()?;
        let id = configuration.next_context();
        configuration.contexts.push(Box::leak(Box::new(Context {
            id,
            client,
            is_active: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            was_stopped: AtomicBool::new(false),
            calls: Calls::default(),
            external: ExternalIds::default(),
        })));
        Ok(id)
    }

    /// A context by its id.
    ///
    /// # Errors
    ///
    /// [`Status::ContextNotFound`].
    pub fn context(&self, id: u64) -> Result<&'static Context> {
        match self.plan() {
            // Without the lock: what is configured changes no more, and tools ask for every operation.
            Some(plan) if self.initialized() == stage::OVER => {
                let found = plan.contexts.iter().find(|context| context.id == id);
                found.copied().ok_or(Status::ContextNotFound)
            }
            _ => self.lock()?.context(id),
        }
    }

    /// Whether it is the id of a context that has ended with its tool.
    pub fn is_former_context(&self, id: u64) -> bool {
        let former = |one: &Configuration| FIRST_CONTEXT..FIRST_CONTEXT + one.former_contexts;
        self.lock().is_ok_and(|configuration| former(&configuration).contains(&id))
    }

    /// Starts a context; one that is started already stays so.
    ///
    /// # Errors
    ///
    /// [`Status::ContextNotFound`]; [`Status::ConfigurationLocked`] once the finalization has begun, or that of its client.
    pub fn start_context(&self, id: u64) -> Result {
        let configuration = self.lock()?;
        let context = configuration.context(id)?;
        if !self.can_start(context) {
            return Err(Status::ConfigurationLocked);
        }
        self.switch(context, true);
        Ok(())
    }

    /// Whether a context can be started, or is.
    pub fn can_start(&self, context: &Context) -> bool {
        self.finalized() == stage::NOT_YET && !context.is_ended.load(Ordering::Relaxed)
    }

    /// Stops a context. One that has been stopped since its client [ends](Self::end_contexts) is stopped so once more: its
    /// finalize function may do that, before which AMD's library stops nothing.
    ///
    /// # Errors
    ///
    /// [`Status::ContextNotFound`], also of one that is not started.
    pub fn stop_context(&self, id: u64) -> Result {
        let configuration = self.lock()?;
        let context = configuration.context(id)?;
        let stops =
            self.switch(context, false) || context.was_stopped.swap(false, Ordering::Relaxed);
        if stops { Ok(()) } else { Err(Status::ContextNotFound) }
    }

    /// Stops all contexts of a client, which cannot start them any more.
    pub fn end_contexts(&self, client: u32) {
        let Ok(configuration) = self.lock() else { return };
        let own = configuration.contexts.iter().filter(|context| context.client == client);
        own.for_each(|context| {
            context.is_ended.store(true, Ordering::Relaxed);
            if self.switch(context, false) {
                context.was_stopped.store(true, Ordering::Relaxed);
            }
        });
    }

    /// A client is called no more, from here on: neither its callbacks, nor those of its buffers, nor its watchers of
    /// threads. Waits, until a time, for calls that are under way. Returns whether they have returned. A thread that is
    /// in such a call waits for none.
    pub fn silence(&self, client: u32, until: Instant) -> bool {
        let contexts = self.lock().map(|configuration| configuration.contexts.clone());
        let mut own = contexts.unwrap_or_default();
        own.retain(|context| context.client == client);
        own.iter().for_each(|context| context.calls.silence());
        // Before callbacks are waited for: one may wait for room in a buffer.
        let buffers = self.buffers(client);
        for buffer in &buffers {
            buffer.end(Instant::now());
        }
        let has_returned =
            |context: &&Context| CallbackThread::is_any_current() || context.calls.wait(until);
        let are_over = own.iter().filter(|context| !has_returned(context)).count() == 0;
        let are_delivered = buffers.iter().filter(|buffer| !buffer.end(until)).count() == 0;
        self.watchers.end(client, until) && are_over && are_delivered
    }

    /// Starts or stops a context; whether it was otherwise before. The caller has the lock.
    fn switch(&self, context: &'static Context, on: bool) -> bool {
        let changes = context.is_active() != on;
        if changes {
            let services = self.plan().into_iter().flat_map(|plan| plan.services.iter().flatten());
            let own = services.filter(|service| service.context.id == context.id);
            let count = || own.for_each(|service| self.count_active(service.kind, on));
            // Its services are counted while it is active: it begins and ends for all kinds at once.
            if on {
                count();
                context.is_active.store(true, Ordering::Release);
            } else {
                context.is_active.store(false, Ordering::Relaxed);
                count();
            }
        }
        changes
    }

    pub(super) fn count_active(&self, kind: Kind, on: bool) {
        // Relaxed: who looks whether anything is wanted may be late.
        match on {
            true => self.active[kind as usize].fetch_add(1, Ordering::Relaxed),
            false => self.active[kind as usize].fetch_sub(1, Ordering::Relaxed),
        };
    }
}
