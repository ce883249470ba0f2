//! The enabled callbacks and pools by operation, the default pool, start and stop.

#![expect(unsafe_code, reason = "functions of the client's, kept as words")]

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tracer_common::activity::Domain;

use crate::domains::{all_operations, operations};
use crate::error::Error;
use crate::pair::Pair;
use crate::pool::{Pool, Properties};
use crate::thread::Process;

/// `activity_rtapi_callback_t`: domain, operation, data of the domain's, argument. It may throw.
pub type CallbackFunction = unsafe extern "C-unwind" fn(u32, u32, *const c_void, *mut c_void);

/// A callback, and its argument.
#[derive(Clone, Copy, Debug)]
pub struct Callback {
    /// The client's function.
    pub function: CallbackFunction,
    /// Its last argument.
    pub argument: *mut c_void,
}

/// Called when tracing starts or stops. It may throw.
pub type TransitionFunction = unsafe extern "C-unwind" fn();

/// `ACTIVITY_DOMAIN_NUMBER`.
const DOMAINS: usize = 8;

/// Operations of a domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ops {
    /// One.
    One(u32),
    /// As many as there are.
    All,
}

impl From<u32> for Ops {
    fn from(op: u32) -> Self {
        Self::One(op)
    }
}

impl Ops {
    fn of(self, domain: Domain) -> Result<Range<u32>, Error> {
        let known = operations(domain)?;
        match self {
            // The runtime may be loaded later, and have more. For HIP this is asked again then.
            Self::All if domain == Domain::HSA_API => all_operations(domain),
            Self::All => Ok(known),
            Self::One(op) if op < known.end => Ok(op..op + 1),
            Self::One(_) => Err(Error::InvalidArgument),
        }
    }
}

/// Whether an operation has a callback, and whether its activities are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// A callback is enabled.
    pub callback: bool,
    /// Activities are recorded.
    pub activity: bool,
}

/// A source that observes the operations of a domain, as long as something wants them.
pub trait Source: Sync {
    /// The wanted parts of an operation have changed, or were asked for again; not called where nothing was wanted, and
    /// nothing is. One thread at a time calls this; it calls no function of the client's, and not the tracer.
    fn follow(&self, op: u32, wanted: Wanted);

    /// Something will be wanted: looks for everything that is needed for it. Called without a lock of the tracer's,
    /// since it may wait for those of the dynamic linker.
    ///
    /// # Errors
    ///
    /// If the runtime that was found cannot be traced.
    fn prepare(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The wishes that [`Source::follow`] was told count from now on: calls and work after this are to be observed.
    /// Called without a lock of the tracer's.
    fn begin(&self) {}

    /// Waits until everything that was under way when this was called is recorded in a pool, or long enough. Called
    /// without a lock of the tracer's.
    fn drain(&self, _pool: &'static Pool) {}
}

impl Wanted {
    fn anything(self) -> bool {
        self.callback || self.activity
    }
}

/// The callbacks and pools that a client has enabled.
///
/// A look-up takes no lock and waits for nobody. A callback or pool that was looked up before a change may still be
/// called, or written into, after it: a pool refuses that when it is closed.
pub struct Tracer {
    /// By domain and operation.
    callbacks: [Vec<Pair>; DOMAINS],
    activities: [Vec<AtomicPtr<Pool>>; DOMAINS],
    /// The thread that has it may change the callbacks and activities.
    registration: Mutex<()>,
    /// The process in which that lock may be waited for.
    process: Process,
    default_pool: AtomicPtr<Pool>,
    is_stopped: AtomicBool,
    /// The functions to call when tracing starts and when it stops.
    transitions: Pair,
    sources: [OnceLock<&'static dyn Source>; DOMAINS],
}

impl Default for Tracer {
    fn default() -> Self {
        Self::new()
    }
}

impl Tracer {
    /// Nothing is enabled, and nothing stopped.
    pub fn new() -> Self {
        let length =
            |domain| all_operations(Domain(domain as u32)).map_or(0, |ops| ops.end as usize);
        Self {
            callbacks: std::array::from_fn(|domain| {
                (0..length(domain)).map(|_| Pair::zero()).collect()
            }),
            activities: std::array::from_fn(|domain| {
                (0..length(domain)).map(|_| AtomicPtr::default()).collect()
            }),
            registration: Mutex::new(()),
            process: Process::this(),
            default_pool: AtomicPtr::default(),
            is_stopped: AtomicBool::new(false),
            transitions: Pair::zero(),
            sources: [const { OnceLock::new() }; DOMAINS],
        }
    }

    /// From now on `source` follows what is enabled of a domain; once, and before anything is enabled.
    pub fn set_source(&self, domain: Domain, source: &'static dyn Source) {
        if let Some(place) = self.sources.get(domain.0 as usize) {
            let _ = place.set(source);
        }
    }

    fn source(&self, domain: Domain) -> Option<&'static dyn Source> {
        self.sources.get(domain.0 as usize)?.get().copied()
    }

    /// The callback of an operation: the last one that was enabled, with the argument of that.
    #[inline]
    pub fn callback(&self, domain: Domain, op: u32) -> Option<Callback> {
        let [function, argument] = self.slot(&self.callbacks, domain, op)?.read();
        if function == 0 || self.is_stopped_for(domain) {
            return None;
        }
        let function = ptr::with_exposed_provenance::<c_void>(function);
        // SAFETY: the words of a `Callback`, or zeros, are all that is ever written.
        let function = unsafe { std::mem::transmute::<*const c_void, CallbackFunction>(function) };
        Some(Callback { function, argument: ptr::with_exposed_provenance_mut(argument) })
    }

    /// The pool that activities of an operation are recorded in.
    #[inline]
    pub fn activity(&self, domain: Domain, op: u32) -> Option<&'static Pool> {
        // Acquire pairs with the Release of the thread that enabled it: the pool is there.
        let pool = self.slot(&self.activities, domain, op)?.load(Ordering::Acquire);
        // SAFETY: null, or a pool, which lives for ever.
        unsafe { pool.as_ref() }.filter(|_| !self.is_stopped_for(domain))
    }

    /// Has a callback called for operations, in the place of the one before, if any.
    ///
    /// Of the work of a GPU there are no callbacks: for `HSA_OPS` and `HIP_OPS` this does nothing. A domain without
    /// operations is no error.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidDomain`], [`Error::InvalidArgument`], [`Error::UnknownRuntime`].
    pub fn enable_callback(
        &self,
        domain: Domain,
        ops: impl Into<Ops>,
        callback: Option<Callback>,
    ) -> Result<(), Error> {
        self.prepare(domain)?;
        let ops = ops.into().of(domain)?;
        if ops.is_empty() {
            return Ok(());
        }
        let Callback { function, argument } = callback.ok_or(Error::InvalidArgument)?;
        let function = (function as *const c_void).expose_provenance();
        self.set_callbacks(domain, ops, [function, argument.expose_provenance()]);
        self.begin(domain);
        Ok(())
    }

    /// Has no callback called for operations any more.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidDomain`], [`Error::InvalidArgument`].
    pub fn disable_callback(&self, domain: Domain, ops: impl Into<Ops>) -> Result<(), Error> {
        self.set_callbacks(domain, ops.into().of(domain)?, [0, 0]);
        Ok(())
    }

    fn set_callbacks(&self, domain: Domain, ops: Range<u32>, words: [usize; 2]) {
        if matches!(domain, Domain::HSA_OPS | Domain::HIP_OPS) {
            return;
        }
        let Some(_registration) = self.registration() else { return };
        for op in ops {
            if let Some(slot) = self.slot(&self.callbacks, domain, op) {
                let before = self.wanted(domain, op);
                slot.write(words);
                self.follow(domain, op, before);
            }
        }
    }

    /// The wanted parts of an operation.
    fn wanted(&self, domain: Domain, op: u32) -> Wanted {
        let callback = self.slot(&self.callbacks, domain, op);
        let activity = self.slot(&self.activities, domain, op);
        Wanted {
            callback: callback.is_some_and(|slot| slot.read()[0] != 0),
            activity: activity.is_some_and(|slot| !slot.load(Ordering::Relaxed).is_null()),
        }
    }

    /// Tells the source of a domain the wanted parts of an operation, of which others were wanted before. With the lock
    /// of the registration.
    fn follow(&self, domain: Domain, op: u32, before: Wanted) {
        let wanted = self.wanted(domain, op);
        if let Some(source) = self.source(domain)
            && (before.anything() || wanted.anything())
        {
            source.follow(op, wanted);
        }
    }

    /// Has activities of operations recorded in a pool, the default pool if none is given, and no more in the
    /// one before, if any.
    ///
    /// Events of HSA and marks have callbacks alone: for `HSA_EVT` and `ROCTX` this does nothing. A domain without
    /// operations is no error.
    ///
    /// # Errors
    ///
    /// [`Error::NoDefaultPool`], [`Error::PoolClosed`], [`Error::InvalidDomain`], [`Error::InvalidArgument`],
    /// [`Error::UnknownRuntime`].
    pub fn enable_activity(
        &self,
        domain: Domain,
        ops: impl Into<Ops>,
        pool: Option<&'static Pool>,
    ) -> Result<(), Error> {
        let ops = ops.into();
        // Of one operation the pool is looked at first.
        if ops == Ops::All && operations(domain)?.is_empty() {
            return Ok(());
        }
        let pool = pool.or(self.default_pool()).ok_or(Error::NoDefaultPool)?;
        self.prepare(domain)?;
        let ops = ops.of(domain)?;
        let Some(registration) = self.registration() else { return Ok(()) };
        // With the lock: a thread that closes the pool first disables, with the lock, every operation that uses it.
        if pool.is_closed() {
            return Err(Error::PoolClosed);
        }
        self.set_activities(domain, ops, pool);
        drop(registration);
        self.begin(domain);
        Ok(())
    }

    /// Has no activities of operations recorded any more.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidDomain`], [`Error::InvalidArgument`].
    pub fn disable_activity(&self, domain: Domain, ops: impl Into<Ops>) -> Result<(), Error> {
        let ops = ops.into().of(domain)?;
        let Some(_registration) = self.registration() else { return Ok(()) };
        self.set_activities(domain, ops, ptr::null());
        Ok(())
    }

    /// With the lock of the registration.
    fn set_activities(&self, domain: Domain, ops: Range<u32>, pool: *const Pool) {
        if matches!(domain, Domain::HSA_EVT | Domain::ROCTX) {
            return;
        }
        for op in ops {
            if let Some(slot) = self.slot(&self.activities, domain, op) {
                let before = self.wanted(domain, op);
                // Pairs with the Acquire in `activity`.
                slot.store(pool.cast_mut(), Ordering::Release);
                self.follow(domain, op, before);
            }
        }
    }

    /// Opens a pool that becomes the default pool.
    ///
    /// # Errors
    ///
    /// [`Error::DefaultPoolDefined`], without a pool being made, and the errors of [`Pool::open`].
    pub fn open_default_pool(&self, properties: Properties) -> Result<(), Error> {
        if self.default_pool().is_some() {
            return Err(Error::DefaultPoolDefined);
        }
        let pool = Pool::open(properties)?;
        let none = ptr::null_mut();
        let new = ptr::from_ref(pool).cast_mut();
        // Release pairs with the Acquire in `default_pool`.
        if self
            .default_pool
            .compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // Somebody has opened another one meanwhile.
            pool.close();
            return Err(Error::DefaultPoolDefined);
        }
        Ok(())
    }

    /// The default pool, if there is one.
    pub fn default_pool(&self) -> Option<&'static Pool> {
        // SAFETY: null, or a pool, which lives for ever.
        unsafe { self.default_pool.load(Ordering::Acquire).as_ref() }
    }

    /// Makes a pool the default pool, and returns the one before.
    pub fn exchange_default_pool(&self, pool: &'static Pool) -> Option<&'static Pool> {
        let before = self.default_pool.swap(ptr::from_ref(pool).cast_mut(), Ordering::AcqRel);
        // SAFETY: null, or a pool, which lives for ever.
        unsafe { before.as_ref() }
    }

    /// Closes a pool, the default pool if none is given; a closed pool is the default pool no more. The operations that
    /// are recorded in the pool are disabled first. Without a pool to close nothing happens.
    pub fn close_pool(&self, pool: Option<&'static Pool>) {
        let Some(pool) = pool.or(self.default_pool()) else {
            return;
        };
        let closed = ptr::from_ref(pool).cast_mut();
        let none = ptr::null_mut();
        // Relaxed on failure: another pool is the default pool, and stays it.
        let _ =
            self.default_pool.compare_exchange(closed, none, Ordering::AcqRel, Ordering::Relaxed);
        let Some(registration) = self.registration() else { return };
        self.disable_activities_of(pool);
        drop(registration);
        self.drain(pool);
        let Some(registration) = self.registration() else { return };
        // Again: meanwhile somebody may have enabled others.
        self.disable_activities_of(pool);
        pool.begin_to_close();
        drop(registration);
        pool.close();
    }

    /// With the lock of the registration.
    fn disable_activities_of(&self, pool: &'static Pool) {
        for (domain, slots) in self.activities.iter().enumerate() {
            for (op, slot) in slots.iter().enumerate() {
                if ptr::eq(slot.load(Ordering::Relaxed), pool) {
                    let op = op as u32;
                    self.set_activities(Domain(domain as u32), op..op + 1, ptr::null());
                }
            }
        }
    }

    /// Delivers the records of a pool, the default pool if none is given, and those of operations under way, as far as
    /// their source waits for these. Without a pool nothing happens.
    pub fn flush(&self, pool: Option<&'static Pool>) {
        if let Some(pool) = pool.or(self.default_pool()) {
            self.drain(pool);
            pool.flush();
        }
    }

    /// Waits for operations under way. Not on a pool's thread, for which others may wait.
    fn drain(&self, pool: &'static Pool) {
        if self.process.is_this() && !Pool::is_any_of_their_threads() {
            self.sources.iter().filter_map(OnceLock::get).for_each(|source| source.drain(pool));
        }
    }

    /// The functions that [`Tracer::start`] and [`Tracer::stop`] call.
    pub fn set_transitions(
        &self,
        start: Option<TransitionFunction>,
        stop: Option<TransitionFunction>,
    ) {
        let word = |function: Option<TransitionFunction>| {
            function.map_or(0, |function| (function as *const c_void).expose_provenance())
        };
        if let Some(_registration) = self.registration() {
            self.transitions.write([word(start), word(stop)]);
        }
    }

    /// Goes on tracing after [`Tracer::stop`], and calls the function for the start. Nothing happens if tracing was not
    /// stopped.
    pub fn start(&self) {
        if self.is_stopped.swap(false, Ordering::Relaxed) {
            let [start, _] = self.transitions.read();
            call(start);
        }
    }

    /// Stops callbacks and records, but for marks and ranges, which go on, and calls the function for the stop. Nothing
    /// happens if tracing is stopped already.
    pub fn stop(&self) {
        if !self.is_stopped.swap(true, Ordering::Relaxed) {
            let [_, stop] = self.transitions.read();
            call(stop);
        }
    }

    fn is_stopped_for(&self, domain: Domain) -> bool {
        // Relaxed: calls that are under way on other threads may go either way.
        self.is_stopped.load(Ordering::Relaxed) && domain != Domain::ROCTX
    }

    fn slot<'a, T>(&self, slots: &'a [Vec<T>; DOMAINS], domain: Domain, op: u32) -> Option<&'a T> {
        slots.get(domain.0 as usize)?.get(op as usize)
    }

    /// The right to change the enabled operations. In a forked child there is none where another thread had it at the
    /// fork, which the child does not have: the enabled operations stay as they were.
    fn registration(&self) -> Option<MutexGuard<'_, ()>> {
        if self.process.is_this() {
            Some(self.registration.lock().unwrap_or_else(PoisonError::into_inner))
        } else {
            self.registration.try_lock().ok()
        }
    }

    /// Prepares the source of a domain, which may have other operations after this.
    fn prepare(&self, domain: Domain) -> Result<(), Error> {
        self.source(domain).map_or(Ok(()), Source::prepare)
    }

    fn begin(&self, domain: Domain) {
        if let Some(source) = self.source(domain) {
            source.begin();
        }
    }
}

/// Calls a function of [`Tracer::set_transitions`], or none.
fn call(function: usize) {
    let function = ptr::with_exposed_provenance::<c_void>(function);
    // SAFETY: the word of a `TransitionFunction`, or 0.
    let function =
        unsafe { std::mem::transmute::<*const c_void, Option<TransitionFunction>>(function) };
    if let Some(function) = function {
        // SAFETY: the client's function, which takes nothing.
        unsafe { function() };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pool::system_allocator;
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use tracer_common::activity::ActivityRecord;

    fn properties(seen: &Arc<AtomicUsize>) -> Properties {
        let seen = Arc::clone(seen);
        Properties {
            buffer_bytes: 640,
            allocator: system_allocator(),
            consumer: Box::new(move |records| {
                seen.fetch_add(records.len(), Ordering::SeqCst);
            }),
        }
    }

    fn pool() -> &'static Pool {
        Pool::open(properties(&Arc::default())).expect("a pool")
    }

    unsafe extern "C-unwind" fn nothing(_: u32, _: u32, _: *const c_void, _: *mut c_void) {}

    const NOTHING: Option<Callback> =
        Some(Callback { function: nothing, argument: ptr::null_mut() });

    #[test]
    fn errors_and_their_order() {
        let tracer = Tracer::new();
        let invalid = |domain| Err(Error::InvalidDomain { domain });
        for domain in [4, 8, 1000] {
            assert_eq!(tracer.enable_callback(Domain(domain), 0, None), invalid(domain));
            assert_eq!(tracer.disable_callback(Domain(domain), 0), invalid(domain));
            assert_eq!(tracer.disable_activity(Domain(domain), 0), invalid(domain));
            // The pool comes first.
            let enabled = tracer.enable_activity(Domain(domain), 0, None);
            assert_eq!(enabled, Err(Error::NoDefaultPool));
            assert_eq!(tracer.enable_activity(Domain(domain), 0, Some(pool())), invalid(domain));
            assert_eq!(tracer.disable_activity(Domain(domain), Ops::All), invalid(domain));
        }
        let argument = Err(Error::InvalidArgument);
        for (domain, end) in [(0, 187), (1, 4), (2, 3), (3, 334), (5, 0), (6, 5), (7, 6)] {
            let domain = Domain(domain);
            assert_eq!(tracer.enable_callback(domain, end, NOTHING), argument);
            assert_eq!(tracer.disable_callback(domain, end), argument);
            assert_eq!(tracer.enable_activity(domain, end, Some(pool())), argument);
            assert_eq!(tracer.disable_activity(domain, end), argument);
            if end > 0 {
                assert_eq!(tracer.enable_callback(domain, end - 1, None), argument);
                assert_eq!(tracer.enable_callback(domain, end - 1, NOTHING), Ok(()));
                assert_eq!(tracer.enable_activity(domain, end - 1, Some(pool())), Ok(()));
            }
            let first = u32::from(domain == Domain::HIP_API);
            // Of HSA, a runtime that comes later may have more.
            let last = if domain == Domain::HSA_API { 256 } else { end };
            assert_eq!(Ops::All.of(domain), Ok(first..last));
            // Without operations nothing is needed, and nothing happens.
            let without = if end == 0 { Ok(()) } else { Err(Error::NoDefaultPool) };
            assert_eq!(tracer.enable_activity(domain, Ops::All, None), without);
            let without = if end == 0 { Ok(()) } else { argument.clone() };
            assert_eq!(tracer.enable_callback(domain, Ops::All, None), without);
            // Callbacks of calls, events and marks; activities of calls and of what the GPU does.
            let calls = matches!(domain, Domain::HSA_API | Domain::HIP_API);
            let gpu = matches!(domain, Domain::HSA_OPS | Domain::HIP_OPS);
            let has_callbacks = calls || matches!(domain, Domain::HSA_EVT | Domain::ROCTX);
            let last = end.saturating_sub(1);
            assert_eq!(tracer.callback(domain, last).is_some(), has_callbacks, "{domain:?}");
            assert_eq!(tracer.activity(domain, last).is_some(), calls || gpu, "{domain:?}");
        }
        assert!(tracer.callback(Domain(8), 0).is_none());
        assert!(tracer.activity(Domain(8), 0).is_none());
    }

    #[test]
    fn default_pool_comes_and_goes() {
        let tracer = Tracer::new();
        tracer.close_pool(None);
        tracer.flush(None);
        assert_eq!(tracer.enable_activity(Domain::HIP_OPS, 0, None), Err(Error::NoDefaultPool));
        let seen = Arc::default();
        assert_eq!(tracer.open_default_pool(properties(&seen)), Ok(()));
        let first = tracer.default_pool().expect("it was opened");
        assert_eq!(tracer.open_default_pool(properties(&seen)), Err(Error::DefaultPoolDefined));
        assert_eq!(tracer.enable_activity(Domain::HIP_OPS, 0, None), Ok(()));
        let used = tracer.activity(Domain::HIP_OPS, 0).expect("it is enabled");
        assert!(ptr::eq(used, first));
        used.write(&ActivityRecord::default()).expect("open");
        tracer.flush(None);
        assert_eq!(seen.load(Ordering::SeqCst), 1);
        // Another one takes its place; activities stay where they are.
        let second = pool();
        assert!(ptr::eq(tracer.exchange_default_pool(second).expect("the first"), first));
        assert!(ptr::eq(tracer.activity(Domain::HIP_OPS, 0).expect("enabled"), first));
        used.write(&ActivityRecord::default()).expect("open");
        tracer.close_pool(Some(first));
        assert_eq!(seen.load(Ordering::SeqCst), 2, "closing delivers");
        assert!(tracer.activity(Domain::HIP_OPS, 0).is_none(), "closing disables");
        assert_eq!(tracer.enable_activity(Domain::HIP_OPS, 0, Some(first)), Err(Error::PoolClosed));
        assert!(ptr::eq(tracer.default_pool().expect("the second"), second));
        tracer.close_pool(None);
        assert!(tracer.default_pool().is_none() && second.is_closed());
        assert_eq!(tracer.open_default_pool(properties(&seen)), Ok(()));
        tracer.close_pool(None);
    }

    /// The calls that a source has received.
    struct FollowLog(Mutex<Vec<(u32, Wanted)>>);

    impl Source for FollowLog {
        fn follow(&self, op: u32, wanted: Wanted) {
            self.0.lock().expect("no panic").push((op, wanted));
        }
    }

    #[test]
    fn a_source_is_told_what_is_wanted() {
        static LOG: FollowLog = FollowLog(Mutex::new(Vec::new()));
        let followed = || std::mem::take(&mut *LOG.0.lock().expect("no panic"));
        let tracer = Tracer::new();
        tracer.set_source(Domain::HIP_API, &LOG);
        let wanted = |callback, activity| Wanted { callback, activity };
        // Nothing is wanted, and nothing was: the source is not told, since another tracer may be there.
        tracer.disable_callback(Domain::HIP_API, 7).expect("valid");
        tracer.disable_activity(Domain::HIP_API, 7).expect("valid");
        tracer.enable_callback(Domain::HSA_API, 7, NOTHING).expect("valid");
        assert_eq!(followed(), []);
        let pool = pool();
        tracer.enable_callback(Domain::HIP_API, 7, NOTHING).expect("valid");
        tracer.enable_activity(Domain::HIP_API, 7, Some(pool)).expect("valid");
        tracer.enable_activity(Domain::HIP_API, 8, Some(pool)).expect("valid");
        tracer.disable_callback(Domain::HIP_API, 7).expect("valid");
        let expected =
            [(7, [true, false]), (7, [true, true]), (8, [false, true]), (7, [false, true])];
        assert_eq!(followed(), expected.map(|(op, [c, a])| (op, wanted(c, a))));
        tracer.enable_callback(Domain::HIP_API, 8, NOTHING).expect("valid");
        followed();
        tracer.close_pool(Some(pool));
        assert_eq!(followed(), [(7, wanted(false, false)), (8, wanted(true, false))]);
        tracer.disable_callback(Domain::HIP_API, 7).expect("valid");
        assert_eq!(followed(), []);
    }

    #[test]
    fn stop_and_start() {
        thread_local! {
            static CALLED: Cell<[u32; 2]> = const { Cell::new([0, 0]) };
        }
        unsafe extern "C-unwind" fn started() {
            CALLED.set([CALLED.get()[0] + 1, CALLED.get()[1]]);
        }
        unsafe extern "C-unwind" fn stopped() {
            CALLED.set([CALLED.get()[0], CALLED.get()[1] + 1]);
        }
        let tracer = Tracer::new();
        for domain in [Domain::HIP_API, Domain::HSA_EVT, Domain::ROCTX] {
            tracer.enable_callback(domain, 1, NOTHING).expect("valid");
        }
        tracer.enable_activity(Domain::HIP_API, 1, Some(pool())).expect("valid");
        tracer.enable_activity(Domain::HIP_OPS, 1, Some(pool())).expect("valid");
        let enabled = || {
            let callbacks = [Domain::HIP_API, Domain::HSA_EVT, Domain::ROCTX]
                .map(|domain| tracer.callback(domain, 1).is_some());
            let activities = [Domain::HIP_API, Domain::HIP_OPS]
                .map(|domain| tracer.activity(domain, 1).is_some());
            (callbacks, activities)
        };
        tracer.set_transitions(Some(started), Some(stopped));
        tracer.start();
        assert_eq!(CALLED.get(), [0, 0], "it was not stopped");
        assert_eq!(enabled(), ([true; 3], [true; 2]));
        tracer.stop();
        tracer.stop();
        assert_eq!(CALLED.get(), [0, 1]);
        assert_eq!(enabled(), ([false, false, true], [false; 2]));
        tracer.start();
        tracer.start();
        assert_eq!(CALLED.get(), [1, 1]);
        assert_eq!(enabled(), ([true; 3], [true; 2]));
        tracer.set_transitions(None, None);
        tracer.stop();
        tracer.start();
        assert_eq!(CALLED.get(), [1, 1]);
    }

    /// Each is registered with its own numbers alone.
    unsafe extern "C-unwind" fn numbered<const N: usize>(
        domain: u32,
        op: u32,
        _: *const c_void,
        argument: *mut c_void,
    ) {
        assert_eq!((domain, op), (Domain::HIP_API.0, 7));
        assert_eq!(argument.addr() % 4, N, "an argument of another's");
        CALLS[N].fetch_add(1, Ordering::Relaxed);
    }

    static CALLS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

    /// Four threads call the enabled callbacks and write into the enabled pools, while four others exchange callbacks
    /// and arguments, and open and close pools.
    #[test]
    fn eight_threads_change_and_use_what_is_enabled() {
        const FUNCTIONS: [CallbackFunction; 4] =
            [numbered::<0>, numbered::<1>, numbered::<2>, numbered::<3>];
        let (tracer, delivered) = (Tracer::new(), Arc::new(AtomicUsize::new(0)));
        let (tracer, delivered) = (&tracer, &delivered);
        let done = &AtomicBool::new(false);
        let written: usize = std::thread::scope(|scope| {
            let user = || {
                let mut written = 0;
                while !done.load(Ordering::Relaxed) {
                    if let Some(Callback { function, argument }) =
                        tracer.callback(Domain::HIP_API, 7)
                    {
                        // SAFETY: one of `FUNCTIONS`, which takes anything.
                        unsafe { function(Domain::HIP_API.0, 7, ptr::null(), argument) };
                    }
                    if let Some(pool) = tracer.activity(Domain::HIP_API, 7) {
                        written += usize::from(pool.write(&ActivityRecord::default()).is_ok());
                    }
                }
                written
            };
            let users: Vec<_> = (0..4).map(|_| scope.spawn(user)).collect();
            let changers: Vec<_> = (0..4)
                .map(|number: usize| {
                    scope.spawn(move || {
                        let mut pool = None;
                        // Until each has been called, and records have been written, often.
                        for round in 0.. {
                            let called = CALLS[number].load(Ordering::Relaxed);
                            if called >= 1000 && delivered.load(Ordering::Relaxed) >= 1000 {
                                break;
                            }
                            let argument = ptr::without_provenance_mut(round * 4 + number);
                            let callback = Callback { function: FUNCTIONS[number], argument };
                            tracer.enable_callback(Domain::HIP_API, 7, Some(callback)).expect("7");
                            if round % 16 == 0 {
                                tracer.disable_callback(Domain::HIP_API, 7).expect("7");
                                pool.into_iter().for_each(|old| tracer.close_pool(Some(old)));
                                let new = Pool::open(properties(delivered)).expect("a pool");
                                tracer.enable_activity(Domain::HIP_API, 7, Some(new)).expect("7");
                                pool = Some(new);
                            }
                        }
                        pool.into_iter().for_each(|last| tracer.close_pool(Some(last)));
                    })
                })
                .collect();
            for changer in changers {
                changer.join().expect("no panic");
            }
            done.store(true, Ordering::Relaxed);
            users.into_iter().map(|user| user.join().expect("no panic")).sum()
        });
        assert!(tracer.activity(Domain::HIP_API, 7).is_none());
        assert_eq!(delivered.load(Ordering::SeqCst), written);
    }
}
