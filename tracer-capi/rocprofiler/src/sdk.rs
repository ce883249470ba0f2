//! Contexts, their services and buffers, and when all of that may be changed.
//!
//! Tools configure while their initialize functions run; callback threads can be made earlier. Then the configuration
//! is frozen into a [`Plan`], which a thread that reports an event reads without a lock; only the set of active
//! contexts still changes.
//!
//! When all tools of a process have been finalized, others can be configured in it, for which there is another plan.
//! Work that was under way for the former tools then belongs to no tool.
//!
//! [`Sdk`] holds all of it. This file moves it through its stages and configures services. The other files, from below:
//!
//! * [`service`]: a context, and its services.
//! * [`configuration`]: the configuration of tools, and the plan that comes of it.
//! * [`contexts`]: contexts are made, started and stopped.
//! * [`buffers`]: buffers are made, and the threads that call their callbacks.
//! * [`wanting`]: the services that want an event, by kind and operation.
//! * [`externals`]: external correlation ids.

mod buffers;
mod configuration;
mod contexts;
mod externals;
mod service;
#[cfg(test)]
mod tests;
mod wanting;

use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

use tracer_hooks::lock::{Guard, Lock};

use self::configuration::{
    Configuration, ExternalIdRequester, FIRST_BUFFER, FIRST_CONTEXT, KINDS, Plan,
};
use self::service::Receiver;
use crate::callback::Callback;
use crate::completions::Completions;
use crate::kinds::Kind;
use crate::status::{Result, Status};
use crate::threads::{ROCPROFILER_LIBRARY, Watchers};

pub use externals::{Answers, Externals};
pub use service::{Context, Service, Services};

/// Longest wait for the lock of the configuration.
const WAIT_NS: u64 = 1_000_000_000;

/// The stages of initialization and of finalization: not yet, during and over, as `rocprofiler_is_initialized` and
/// `rocprofiler_is_finalized` return them.
pub mod stage {
    /// It has not begun.
    pub const NOT_YET: i32 = 0;
    /// It goes on.
    pub const DURING: i32 = -1;
    /// It is over.
    pub const OVER: i32 = 1;
}

/// The configuration of the tools of a process.
pub struct Sdk {
    initialized: AtomicI32,
    finalized: AtomicI32,
    configuration: Lock<Configuration>,
    plan: AtomicPtr<Plan>,
    /// The number of active contexts that want something of a kind.
    active: [AtomicU32; KINDS],
    /// The tools that are told of threads.
    pub watchers: Watchers,
}

impl Sdk {
    /// Nothing is configured.
    pub const fn new() -> Self {
        Self {
            initialized: AtomicI32::new(stage::NOT_YET),
            finalized: AtomicI32::new(stage::NOT_YET),
            configuration: Lock::new(Configuration::new()),
            plan: AtomicPtr::new(ptr::null_mut()),
            active: [const { AtomicU32::new(0) }; KINDS],
            watchers: Watchers::new(),
        }
    }

    /// Takes the lock, but does not wait for ever: its owner may have been stopped, or be interrupted by a handler that
    /// comes here.
    fn lock(&self) -> Result<Guard<'_, Configuration>> {
        self.configuration.lock_for(WAIT_NS).ok_or(Status::Error)
    }

    /// The stage of the tools' initialization, as [`stage`] says.
    pub fn initialized(&self) -> i32 {
        // Pairs with the Release in `end_initialization`.
        self.initialized.load(Ordering::Acquire)
    }

    /// The stage of their finalization.
    pub fn finalized(&self) -> i32 {
        // Pairs with the Releases below.
        self.finalized.load(Ordering::Acquire)
    }

    /// Tools are initialized from now on. Returns whether they were not before.
    pub fn begin_initialization(&self) -> bool {
        let (before, now) = (stage::NOT_YET, stage::DURING);
        self.initialized.compare_exchange(before, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// All tools have been finalized, or there were none: other tools are initialized from now on, as if nothing had
    /// been configured. The caller makes sure that nobody else begins meanwhile.
    ///
    /// # Errors
    ///
    /// [`Status::ConfigurationLocked`] while there are tools; [`Status::Error`].
    pub fn begin_anew(&self) -> Result {
        let mut configuration = self.lock()?;
        let has_tools = !configuration.contexts.is_empty() && self.finalized() != stage::OVER;
        if has_tools || self.initialized() == stage::DURING {
            return Err(Status::ConfigurationLocked);
        }
        *configuration = Configuration {
            former_contexts: configuration.next_context() - FIRST_CONTEXT,
            former_buffers: configuration.next_buffer() - FIRST_BUFFER,
            ..Configuration::new()
        };
        self.finalized.store(stage::NOT_YET, Ordering::Release);
        self.initialized.store(stage::DURING, Ordering::Release);
        Ok(())
    }

    /// All tools have been finalized: the threads that have called them end, and no context has a service any more.
    pub fn end(&self) {
        let Ok(configuration) = self.lock() else { return };
        configuration.threads.iter().for_each(|thread| thread.end());
        self.services_of_work().filter_map(Service::completions).for_each(Completions::end);
        self.publish([const { Vec::new() }; KINDS], [const { Vec::new() }; KINDS], Vec::new());
    }

    /// Publishes the plan that counts from now on. The caller has the lock.
    fn publish(
        &self,
        services: [Vec<Service>; KINDS],
        asked: [Vec<ExternalIdRequester>; KINDS],
        contexts: Vec<&'static Context>,
    ) {
        let number = self.plan().map_or(0, |plan| plan.number) + 1;
        let plan = Box::leak(Box::new(Plan { number, services, asked, contexts }));
        // Pairs with the Acquire in `plan`.
        self.plan.store(plan, Ordering::Release);
    }

    /// Tools have been initialized: nothing can be configured any more.
    pub fn end_initialization(&self) {
        let mut services = [const { Vec::new() }; KINDS];
        // Without the lock there is no plan, and no service ever wants anything.
        let Ok(mut configuration) = self.lock() else { return };
        for service in std::mem::take(&mut configuration.services) {
            if service.context.is_active() {
                self.count_active(service.kind, true);
            }
            services[service.kind as usize].push(service);
        }
        let mut asked = [const { Vec::new() }; KINDS];
        for (kind, one) in std::mem::take(&mut configuration.asked) {
            asked[kind as usize].push(one);
        }
        self.publish(services, asked, configuration.contexts.clone());
        // Under the lock: a thread that starts a context counts from here on.
        self.initialized.store(stage::OVER, Ordering::Release);
    }

    /// Tools are finalized from now on. Returns whether they were not before.
    pub fn begin_finalization(&self) -> bool {
        let (before, now) = (stage::NOT_YET, stage::DURING);
        self.finalized.compare_exchange(before, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Tools have been finalized: nobody is called any more.
    pub fn end_finalization(&self) {
        self.finalized.store(stage::OVER, Ordering::Release);
    }

    #[inline]
    #[expect(unsafe_code, reason = "follows a pointer to a plan")]
    fn plan(&self) -> Option<&'static Plan> {
        // Acquire pairs with the Release in `publish`.
        // SAFETY: null, or a plan, which stays for ever.
        unsafe { self.plan.load(Ordering::Acquire).as_ref() }
    }

    /// The lock of the configuration, only while initialize functions run.
    fn configure(&self) -> Result<Guard<'_, Configuration>> {
        match self.initialized() {
            stage::DURING => self.lock(),
            _ => Err(Status::ConfigurationLocked),
        }
    }

    /// Has records of a kind, of some operations or of all, written into a buffer.
    ///
    /// # Errors
    ///
    /// [`Status::ConfigurationLocked`]; [`Status::ContextNotFound`]; [`Status::BufferNotFound`];
    /// [`Status::OperationNotFound`]; [`Status::NotImplemented`] if operations are named of a kind that has none;
    /// [`Status::ServiceAlreadyConfigured`] if the context has such a service of this kind; [`Status::OutOfResources`]
    /// if there are 64 services of this kind.
    pub fn configure_service(
        &self,
        context: u64,
        kind: Kind,
        wanted: &[i32],
        buffer: u64,
    ) -> Result {
        let mut configuration = self.configure()?;
        let context = configuration.context(context)?;
        let buffer = configuration.buffer(buffer)?;
        let calls = kind.without_arguments();
        let receiver = match calls == kind {
            true => Receiver::Buffer(buffer),
            false => Receiver::BufferOfArguments(buffer),
        };
        configuration.add(context, calls, wanted, receiver)
    }

    /// Has a tool's function called for a kind, for some operations or for all.
    ///
    /// # Errors
    ///
    /// As of [`configure_service`](Self::configure_service), and [`Status::Error`] where there is no thread for
    /// callbacks for work that is done. A context may have both services for a kind.
    pub fn configure_callback(
        &self,
        context: u64,
        kind: Kind,
        wanted: &[i32],
        callback: Callback,
    ) -> Result {
        self.configure()?.context(context)?;
        let is_work = matches!(kind, Kind::KernelDispatch | Kind::MemoryCopy);
        // Not under the lock: the tools that watch threads are told.
        let start = || self.watchers.around(ROCPROFILER_LIBRARY, Completions::start);
        let completions = is_work.then(start).transpose()?;
        let receiver = Receiver::Callback(callback, completions);
        let added = self.configure().and_then(|mut configuration| {
            let context = configuration.context(context)?;
            configuration.add(context, kind, wanted, receiver)
        });
        if added.is_err() {
            completions.into_iter().for_each(Completions::end);
        }
        added
    }
}

impl Default for Sdk {
    fn default() -> Self {
        Self::new()
    }
}
