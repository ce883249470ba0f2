//! Contexts, their services and buffers, and when all of that may be changed.
//!
//! Tools configure while their initialize functions run; callback threads can be made earlier. Then the configuration is frozen into a
//! [`Plan`], which whoever has something to tell reads without a lock; what still changes is which contexts are active.
//!
//! When all tools of a process have been finalized, others can be configured in it, for which there is another plan. Work
//! that was under way for the former ones is nobody's then.

use std::cmp::Ordering as Cmp;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::time::Instant;

use tracer_hooks::lock::{Guard, Lock};

use crate::buffer::{Buffer, Consumer, Policy, Properties};
use crate::callback::{Ask, Callback, Calls, Event, Request};
use crate::completions::Completions;
use crate::external::ExternalIds;
use crate::kinds::Kind;
use crate::status::{Result, Status};
use crate::threads::{CallbackThread, ROCPROFILER_LIBRARY, Watchers};

/// Ids of contexts and of buffers begin here: who takes the one for the other finds none, nor who takes an index. They are
/// not given twice: what a thread of a tool that was finalized does means nobody.
const FIRST_CONTEXT: u64 = 0x1_0000;
const FIRST_BUFFER: u64 = 0x2_0000;

/// How long the configuration is waited for.
const WAIT_NS: u64 = 1_000_000_000;

/// What the kinds are counted by.
const KINDS: usize = Kind::ALL.len();

/// Not yet, while it lasts, and over: what `rocprofiler_is_initialized` and `rocprofiler_is_finalized` tell.
pub mod stage {
    /// It has not begun.
    pub const NOT_YET: i32 = 0;
    /// It goes on.
    pub const DURING: i32 = -1;
    /// It is over.
    pub const OVER: i32 = 1;
}

/// A context.
pub struct Context {
    id: u64,
    /// Whose it is.
    client: u32,
    is_active: AtomicBool,
    /// It cannot be started any more.
    is_ended: AtomicBool,
    /// It was stopped by that, and its tool has not stopped it since.
    was_stopped: AtomicBool,
    /// Callbacks of its tool.
    calls: Calls,
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

/// Where something goes.
enum Receiver {
    /// Records of it are written into a buffer.
    Buffer(&'static Buffer),
    /// The same with the arguments of calls.
    BufferOfArguments(&'static Buffer),
    /// A tool is told of it where it happens, and there of its completion, if it is work of a GPU.
    Callback(Callback, Option<&'static Completions>),
}

/// What a context wants of a kind, and where it goes.
pub struct Service {
    /// Whose it is.
    context: &'static Context,
    /// Which context of all it is.
    place: usize,
    receiver: Receiver,
    kind: Kind,
    /// A bit for each operation that is wanted; none if all are.
    operations: Vec<u64>,
}

impl Service {
    /// The number of the tool that has it.
    pub fn client(&self) -> u32 {
        self.context.client
    }

    /// Whether an operation is one of those that are meant.
    #[inline]
    pub fn means(&self, operation: usize) -> bool {
        let bits = || self.operations.get(operation / 64).copied().unwrap_or_default();
        self.operations.is_empty() || bits() >> (operation % 64) & 1 != 0
    }

    /// Where records go, if they are written.
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

    /// Whether a tool is told, and not finalized.
    #[inline]
    pub fn is_told(&self) -> bool {
        matches!(self.receiver, Receiver::Callback(..)) && !self.context.calls.are_over()
    }

    /// Tells the tool, unless it is finalized. It may throw.
    #[inline]
    pub fn tell(&self, event: &Event, kept: *mut u64) {
        if let Receiver::Callback(callback, _) = &self.receiver
            && let Some(_calling) = self.context.calls.begin()
        {
            callback(event, kept);
        }
    }

    /// Who calls it of work that is done.
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
    plan: u32,
    bits: u64,
}

impl Services {
    /// As many as there can be of a kind.
    const MOST: usize = 64;

    /// As many as there can be.
    pub fn all() -> Self {
        Self { plan: 0, bits: u64::MAX }
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// These and those. Of tools that were finalized before others were configured there are none among these.
    #[must_use]
    pub fn and(self, those: Self) -> Self {
        match self.plan.cmp(&those.plan) {
            _ if those.is_empty() => self,
            _ if self.is_empty() => those,
            Cmp::Equal => Self { bits: self.bits | those.bits, ..self },
            Cmp::Less => those,
            Cmp::Greater => self,
        }
    }

    /// Whether they mean services of a plan.
    #[inline]
    fn are_of(self, plan: &Plan) -> bool {
        self.plan == plan.number || self.plan == 0
    }
}

/// The external correlation ids of a thread at a time: one for each context, none if no context has any.
#[derive(Clone, Default, Debug)]
pub struct Externals(Vec<u64>);

impl Externals {
    /// That of a service's context; 0 if there is none.
    pub fn of(&self, service: &Service) -> u64 {
        self.0.get(service.place).copied().unwrap_or(0)
    }

    /// Those that tools have answered with take the place of others.
    #[must_use]
    pub fn with(mut self, answers: &Answers) -> Self {
        for &(place, id) in &answers.0 {
            if self.0.len() <= place {
                self.0.resize(place + 1, 0);
            }
            self.0[place] = id;
        }
        self
    }
}

/// External correlation ids that tools have answered with, and the places of their contexts.
#[derive(Default, Debug)]
pub struct Answers(Vec<(usize, u64)>);

/// A context whose tool is asked for the external ids of a kind.
struct Asked {
    context: &'static Context,
    place: usize,
    ask: Arc<Ask>,
}

struct Configuration {
    /// How many contexts and buffers there were before.
    former_contexts: u64,
    former_buffers: u64,
    contexts: Vec<&'static Context>,
    /// And the clients that have them.
    buffers: Vec<(&'static Buffer, u32)>,
    services: Vec<Service>,
    /// Who is asked for external ids, and of which kind.
    asked: Vec<(Kind, Asked)>,
    /// The first one is that of all buffers that are not assigned to another.
    threads: Vec<&'static CallbackThread>,
}

/// What was configured, once it does not change any more. It stays for ever.
struct Plan {
    /// Which plan it is, from 1 on.
    number: u32,
    services: [Vec<Service>; KINDS],
    asked: [Vec<Asked>; KINDS],
    contexts: Vec<&'static Context>,
}

/// What tools have configured in a process.
pub struct Sdk {
    initialized: AtomicI32,
    finalized: AtomicI32,
    configuration: Lock<Configuration>,
    plan: AtomicPtr<Plan>,
    /// How many active contexts there are that want something of a kind.
    active: [AtomicU32; KINDS],
    /// Who is told of threads.
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

    /// Not for ever: whoever has it may have been stopped, or be interrupted by a handler that comes here.
    fn lock(&self) -> Result<Guard<'_, Configuration>> {
        self.configuration.lock_for(WAIT_NS).ok_or(Status::Error)
    }

    /// How far tools are initialized, as [`stage`] says.
    pub fn initialized(&self) -> i32 {
        // Pairs with the Release in `end_initialization`.
        self.initialized.load(Ordering::Acquire)
    }

    /// How far they are finalized.
    pub fn finalized(&self) -> i32 {
        // Pairs with the Releases below.
        self.finalized.load(Ordering::Acquire)
    }

    /// Tools are initialized from now on; whether they were not before.
    pub fn begin_initialization(&self) -> bool {
        let (before, now) = (stage::NOT_YET, stage::DURING);
        self.initialized.compare_exchange(before, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// All tools have been finalized, or there were none: other ones are initialized from now on, as if nothing had been
    /// configured. The caller sees to it that nobody else begins meanwhile.
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

    /// All tools have been finalized: the threads that have called them end, and nobody has a service any more.
    pub fn end(&self) {
        let Ok(configuration) = self.lock() else { return };
        configuration.threads.iter().for_each(|thread| thread.end());
        self.services_of_work().filter_map(Service::completions).for_each(Completions::end);
        self.publish([const { Vec::new() }; KINDS], [const { Vec::new() }; KINDS], Vec::new());
    }

    /// What counts from now on. The caller has the lock.
    fn publish(
        &self,
        services: [Vec<Service>; KINDS],
        asked: [Vec<Asked>; KINDS],
        contexts: Vec<&'static Context>,
    ) {
        let number = self.plan().map_or(0, |plan| plan.number) + 1;
        let plan = Box::leak(Box::new(Plan { number, services, asked, contexts }));
        // Pairs with the Acquire in `plan`.
        self.plan.store(plan, Ordering::Release);
    }

    /// They are: nothing can be configured any more.
    pub fn end_initialization(&self) {
        let mut services = [const { Vec::new() }; KINDS];
        // Else nothing is ever wanted.
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
        // Under the lock: who starts a context counts from here on.
        self.initialized.store(stage::OVER, Ordering::Release);
    }

    /// Tools are finalized from now on; whether they were not before.
    pub fn begin_finalization(&self) -> bool {
        let (before, now) = (stage::NOT_YET, stage::DURING);
        self.finalized.compare_exchange(before, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// They are: nobody is called any more.
    pub fn end_finalization(&self) {
        self.finalized.store(stage::OVER, Ordering::Release);
    }

    #[inline]
    #[expect(unsafe_code, reason = "follows a pointer to a plan")]
    fn plan(&self) -> Option<&'static Plan> {
        // Acquire pairs with the Release in `end_initialization`.
        // SAFETY: null, or a plan, which stays for ever.
        unsafe { self.plan.load(Ordering::Acquire).as_ref() }
    }

    /// Only while initialize functions run.
    fn configure(&self) -> Result<Guard<'_, Configuration>> {
        match self.initialized() {
            stage::DURING => self.lock(),
            _ => Err(Status::ConfigurationLocked),
        }
    }

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

    /// A client is called no more, from here on: neither its callbacks, nor those of its buffers, nor who is told of threads.
    /// Waits for those that are being called, until a time; whether they have returned. Who is called waits for none.
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

    fn count_active(&self, kind: Kind, on: bool) {
        // Relaxed: who looks whether anything is wanted may be late.
        match on {
            true => self.active[kind as usize].fetch_add(1, Ordering::Relaxed),
            false => self.active[kind as usize].fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Makes a buffer, whose size is rounded up to pages.
    ///
    /// # Errors
    ///
    /// [`Status::ConfigurationLocked`]; [`Status::ContextNotFound`]; [`Status::InvalidArgument`] for one without a byte;
    /// [`Status::OutOfResources`]; [`Status::Error`] if there is no thread for it.
    pub fn create_buffer(
        &self,
        context: u64,
        bytes: usize,
        watermark: usize,
        policy: Policy,
        consumer: impl FnOnce(u64) -> Consumer,
    ) -> Result<u64> {
        let client = self.configure()?.context(context)?.client;
        let bytes = bytes.checked_next_multiple_of(page_bytes()).ok_or(Status::OutOfResources)?;
        let thread = self.callback_thread(0)?;
        let mut configuration = self.configure()?;
        let id = configuration.next_buffer();
        let consumer = consumer(id);
        let properties = Properties { id, bytes, watermark, policy, consumer, thread };
        configuration.buffers.push((Buffer::new(properties)?, client));
        Ok(id)
    }

    /// A buffer by its id.
    ///
    /// # Errors
    ///
    /// [`Status::BufferNotFound`].
    pub fn buffer(&self, id: u64) -> Result<&'static Buffer> {
        self.lock()?.buffer(id)
    }

    /// All buffers of a client.
    pub fn buffers(&self, client: u32) -> Vec<&'static Buffer> {
        let Ok(configuration) = self.lock() else { return Vec::new() };
        let own = configuration.buffers.iter().filter(|(_, of)| *of == client);
        own.map(|&(buffer, _)| buffer).collect()
    }

    /// Who calls the callbacks of a client of work that is done.
    pub fn completions(&self, client: u32) -> impl Iterator<Item = &'static Completions> + use<> {
        let own = self.services_of_work().filter(move |service| service.client() == client);
        own.filter_map(Service::completions)
    }

    /// The services of kernels and copies.
    fn services_of_work(&self) -> impl Iterator<Item = &'static Service> + use<> {
        let all = [Kind::KernelDispatch, Kind::MemoryCopy].map(|kind| self.services(kind));
        all.into_iter().flatten()
    }

    /// Has records of a kind, of some operations or of all, written into a buffer.
    ///
    /// # Errors
    ///
    /// [`Status::ConfigurationLocked`]; [`Status::ContextNotFound`]; [`Status::BufferNotFound`];
    /// [`Status::OperationNotFound`]; [`Status::ServiceAlreadyConfigured`] if the context has a service of this kind;
    /// [`Status::OutOfResources`] if 64 contexts have one.
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
    /// As of [`configure_service`](Self::configure_service), and [`Status::Error`] where there is no thread for callbacks of
    /// work that is done. A context may have both for a kind.
    pub fn configure_callback(
        &self,
        context: u64,
        kind: Kind,
        wanted: &[i32],
        callback: Callback,
    ) -> Result {
        self.configure()?.context(context)?;
        let is_work = matches!(kind, Kind::KernelDispatch | Kind::MemoryCopy);
        // Not under the lock: who watches threads is told.
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

    /// Has a tool asked for the external ids of these kinds.
    ///
    /// # Errors
    ///
    /// [`Status::ConfigurationLocked`]; [`Status::ContextNotFound`]; [`Status::ServiceAlreadyConfigured`] if it is asked for
    /// one of them already, or twice.
    pub fn configure_ask(&self, context: u64, kinds: &[Kind], ask: Ask) -> Result {
        let mut configuration = self.configure()?;
        let context = configuration.context(context)?;
        let (place, ask) = (configuration.place(context), Arc::new(ask));
        let is_known = |known: &[(Kind, Asked)], kind| {
            known.iter().any(|(of, asked)| (*of, asked.place) == (kind, place))
        };
        let is_twice = |(at, kind): (usize, &Kind)| kinds.iter().take(at).any(|one| one == kind);
        if kinds.iter().any(|&kind| is_known(&configuration.asked, kind))
            || kinds.iter().enumerate().any(is_twice)
        {
            return Err(Status::ServiceAlreadyConfigured);
        }
        let asked =
            kinds.iter().map(|&kind| (kind, Asked { context, place, ask: Arc::clone(&ask) }));
        configuration.asked.extend(asked);
        Ok(())
    }

    fn asked(&self, kind: Kind) -> &'static [Asked] {
        self.plan().map_or(&[], |plan| &plan.asked[kind as usize])
    }

    /// Whether the tool of any of these services of a kind is asked for external ids.
    #[inline]
    pub fn asks(&self, kind: Kind, services: Services) -> bool {
        let asked = self.asked(kind);
        !asked.is_empty()
            && self.each(kind, services).any(|s| asked.iter().any(|one| one.place == s.place))
    }

    /// Asks their tools, which may throw.
    pub fn ask(&self, kind: Kind, services: Services, request: &Request) -> Answers {
        let is_meant = |asked: &&Asked| self.each(kind, services).any(|s| s.place == asked.place);
        let answer = |asked: &Asked| {
            let _calling = asked.context.calls.begin()?;
            (asked.ask)(request).map(|id| (asked.place, id))
        };
        Answers(self.asked(kind).iter().filter(is_meant).filter_map(answer).collect())
    }

    /// Starts a thread for callbacks; its id.
    ///
    /// # Errors
    ///
    /// [`Status::ConfigurationLocked`] after the initialization; [`Status::Error`] if the system starts none.
    pub fn create_callback_thread(&self) -> Result<u64> {
        if self.initialized() == stage::OVER {
            return Err(Status::ConfigurationLocked);
        }
        self.callback_thread(0)?;
        self.start_thread()
    }

    /// Has the callback of a buffer called on a thread.
    ///
    /// # Errors
    ///
    /// [`Status::ConfigurationLocked`] after the initialization; [`Status::ThreadNotFound`];
    /// [`Status::BufferNotFound`].
    pub fn assign_callback_thread(&self, buffer: u64, thread: u64) -> Result {
        if self.initialized() == stage::OVER {
            return Err(Status::ConfigurationLocked);
        }
        let configuration = self.lock()?;
        let thread = usize::try_from(thread).ok().and_then(|at| configuration.threads.get(at));
        let thread = *thread.ok_or(Status::ThreadNotFound)?;
        configuration.buffer(buffer)?.assign(thread);
        Ok(())
    }

    /// A callback thread; the first one is started when it is asked for.
    fn callback_thread(&self, id: usize) -> Result<&'static CallbackThread> {
        let known = || -> Result<_> { Ok(self.lock()?.threads.get(id).copied()) };
        if known()?.is_none() && id == 0 {
            self.start_thread()?;
        }
        known()?.ok_or(Status::ThreadNotFound)
    }

    /// Not under the lock: who watches threads is told.
    fn start_thread(&self) -> Result<u64> {
        let started = self.watchers.around(ROCPROFILER_LIBRARY, CallbackThread::start)?;
        let mut configuration = self.lock()?;
        configuration.threads.push(started);
        Ok(configuration.threads.len() as u64 - 1)
    }

    /// Whether anybody wants anything of a kind just now.
    #[inline]
    pub fn is_wanted(&self, kind: Kind) -> bool {
        self.active[kind as usize].load(Ordering::Relaxed) != 0
    }

    /// Whether any tool has asked for a kind.
    #[inline]
    pub fn has_services(&self, kind: Kind) -> bool {
        !self.services(kind).is_empty()
    }

    fn services(&self, kind: Kind) -> &'static [Service] {
        self.plan().map_or(&[], |plan| &plan.services[kind as usize])
    }

    /// Who wants an operation of a kind just now; without an operation, who wants any.
    #[inline]
    pub fn wanting(&self, kind: Kind, operation: Option<usize>) -> Services {
        if !self.is_wanted(kind) {
            return Services::default();
        }
        self.those(kind, Services::all(), |service| {
            operation.is_none_or(|operation| service.means(operation))
                && service.context.is_active()
        })
    }

    /// The services of a kind that are wanted just now, and those of contexts that have one of these services of another
    /// kind, which were wanted a moment ago.
    #[inline]
    pub fn wanting_beside(&self, kind: Kind, other: Kind, services: Services) -> Services {
        self.those(kind, Services::all(), |service| {
            let is_beside = || self.each(other, services).any(|one| one.place == service.place);
            service.context.is_active() || is_beside()
        })
    }

    /// Those services of a kind.
    #[inline]
    pub fn each(
        &self,
        kind: Kind,
        services: Services,
    ) -> impl Iterator<Item = &'static Service> + use<> {
        self.numbered(kind, services).map(|(_, service)| service)
    }

    /// The same with their numbers among all of the kind, from 0 to 63.
    #[inline]
    pub fn numbered(
        &self,
        kind: Kind,
        services: Services,
    ) -> impl Iterator<Item = (usize, &'static Service)> + use<> {
        let is_one = move |place: usize| services.bits >> place & 1 != 0;
        let plan = self.plan().filter(|plan| services.are_of(plan));
        let all = plan.map_or(&[][..], |plan| &plan.services[kind as usize]);
        all.iter().enumerate().filter(move |&(place, _)| is_one(place))
    }

    /// How many services a kind has.
    pub fn count(&self, kind: Kind) -> usize {
        self.services(kind).len()
    }

    /// Those of these services of a kind for which something holds.
    #[inline]
    pub fn those(
        &self,
        kind: Kind,
        services: Services,
        holds: impl Fn(&Service) -> bool,
    ) -> Services {
        let Some(plan) = self.plan().filter(|plan| services.are_of(plan)) else {
            return Services::default();
        };
        let mut those = Services { plan: plan.number, bits: 0 };
        for (place, service) in plan.services[kind as usize].iter().enumerate() {
            let is_one = services.bits >> place & 1 != 0;
            those.bits |= u64::from(is_one && holds(service)) << place;
        }
        those
    }

    /// The external ids of a thread. `process` is the number of the first thread.
    #[inline]
    pub fn externals(&self, thread: u64, process: u64) -> Externals {
        let contexts = self.plan().map_or(&[][..], |plan| &plan.contexts);
        let mut ids = Vec::new();
        if contexts.iter().any(|context| context.external.any())
            && ids.try_reserve_exact(contexts.len()).is_ok()
        {
            let innermost = |context: &&Context| context.external.innermost(thread, process);
            ids.extend(contexts.iter().map(innermost));
        }
        Externals(ids)
    }
}

impl Default for Sdk {
    fn default() -> Self {
        Self::new()
    }
}

impl Configuration {
    const fn new() -> Self {
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
    fn add(
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

    /// The id of the next one.
    fn next_context(&self) -> u64 {
        FIRST_CONTEXT + self.former_contexts + self.contexts.len() as u64
    }

    /// The same of buffers.
    fn next_buffer(&self) -> u64 {
        FIRST_BUFFER + self.former_buffers + self.buffers.len() as u64
    }

    /// Which of the contexts it is.
    fn place(&self, context: &Context) -> usize {
        (context.id - FIRST_CONTEXT - self.former_contexts) as usize
    }

    fn context(&self, id: u64) -> Result<&'static Context> {
        let at = id.checked_sub(FIRST_CONTEXT + self.former_contexts);
        let at = at.and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.contexts.get(at)).copied().ok_or(Status::ContextNotFound)
    }

    fn buffer(&self, id: u64) -> Result<&'static Buffer> {
        let at = id.checked_sub(FIRST_BUFFER + self.former_buffers);
        let at = at.and_then(|at| usize::try_from(at).ok());
        let buffer = at.and_then(|at| self.buffers.get(at)).map(|&(buffer, _)| buffer);
        buffer.filter(|buffer| !buffer.is_destroyed()).ok_or(Status::BufferNotFound)
    }
}

#[expect(unsafe_code, reason = "asks the system")]
fn page_bytes() -> usize {
    // SAFETY: it takes a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests;
