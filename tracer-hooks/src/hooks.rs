//! The functions that stand in the runtime's tables.
//!
//! Each one asks first whether anything is to be done at all, contains whatever our own code might
//! do wrong, and calls the runtime's own function exactly as often as the application called it
//! (a copy that the runtime refuses is asked for a second time, as the application meant it).

#![expect(unsafe_code, reason = "called by the application, calls the runtime")]

use core::ffi::{c_char, c_void};
use core::ops::Range;
use core::sync::atomic::Ordering;

use tracer_common::loss::ShimLoss;
use tracer_common::shim::Copy;

use crate::abi::{self, AmdQueue, Dim3, PitchedPtr, Status, Times};
use crate::closing;
use crate::contained::contained;
use crate::copies::Ticket;
use crate::harvest::{self, IfTaken, WORK};
use crate::queue::{Context, Queue, Stage};
use crate::relay::{self, Step, TrackKind, Wait};
use crate::runtime::RUNTIME;
use crate::sink::Enqueuer;
use crate::state::{STATE, sleep};
use crate::track::Track;
use crate::{agents, announce, calls, reserved, symbols, sys, view};

/// The time that a queue that is being destroyed is given to complete its packets.
const DESTROY_WAIT_NS: u64 = 20_000_000;

macro_rules! signal_store {
    ($($name:ident)*) => {$(
        pub unsafe extern "C-unwind" fn $name(signal: u64, value: i64) {
            if STATE.watches_doorbells() && doorbell(signal, value) {
                return;
            }
            if let Some(store) = RUNTIME.$name.get() {
                // SAFETY: the application's own call.
                unsafe { store(signal, value) };
            }
        }
    )*};
}
signal_store!(store_relaxed store_screlease silent_store_relaxed silent_store_screlease);

/// The calling thread has reserved packets of a queue.
#[inline]
fn has_reserved(queue: *const AmdQueue, packets: Range<u64>) {
    // Before the phase: what is reserved between two recordings belongs to the first of them.
    let epoch = STATE.epoch.load(Ordering::Acquire);
    if STATE.watches_doorbells() && !packets.is_empty() {
        reserved::note(queue.addr(), packets, epoch);
    }
}

macro_rules! add_write_index {
    ($($name:ident)*) => {$(
        pub unsafe extern "C-unwind" fn $name(queue: *const AmdQueue, value: u64) -> u64 {
            let Some(add) = RUNTIME.$name.get() else { return 0 };
            // SAFETY: the application's own call.
            let before = unsafe { add(queue, value) };
            has_reserved(queue, before..before.saturating_add(value));
            before
        }
    )*};
}
add_write_index! {
    add_write_index_scacq_screl add_write_index_scacquire add_write_index_relaxed
    add_write_index_screlease
}

macro_rules! cas_write_index {
    ($($name:ident)*) => {$(
        pub unsafe extern "C-unwind" fn $name(
            queue: *const AmdQueue,
            expected: u64,
            value: u64,
        ) -> u64 {
            let Some(cas) = RUNTIME.$name.get() else { return 0 };
            // SAFETY: the application's own call.
            let before = unsafe { cas(queue, expected, value) };
            if before == expected {
                has_reserved(queue, before..value);
            }
            before
        }
    )*};
}
cas_write_index! {
    cas_write_index_scacq_screl cas_write_index_scacquire cas_write_index_relaxed
    cas_write_index_screlease
}

macro_rules! store_write_index {
    ($($name:ident)*) => {$(
        pub unsafe extern "C-unwind" fn $name(queue: *const AmdQueue, value: u64) {
            let Some(store) = RUNTIME.$name.get() else { return };
            // Who stores it is the queue's only producer.
            let known = STATE.watches_doorbells().then(|| view::queue(queue.addr())).flatten();
            let before = known.map(|amd| amd.write_dispatch_id.load(Ordering::Relaxed));
            // SAFETY: the application's own call.
            unsafe { store(queue, value) };
            has_reserved(queue, before.unwrap_or(value)..value);
        }
    )*};
}
store_write_index!(store_write_index_relaxed store_write_index_screlease);

macro_rules! signal_wait {
    ($($name:ident)*) => {$(
        pub unsafe extern "C-unwind" fn $name(
            signal: u64,
            condition: u32,
            compare: i64,
            timeout: u64,
            wait_state: u32,
        ) -> i64 {
            let Some(wait) = RUNTIME.$name.get() else { return 0 };
            // SAFETY: the application's own call, for as long as it has not waited yet.
            let itself = |left| unsafe { wait(signal, condition, compare, left, wait_state) };
            if !STATE.relays() {
                return itself(timeout);
            }
            relay_while(Wait { signal, condition, compare, timeout, state: wait_state }, itself)
        }
    )*};
}
signal_wait!(wait_relaxed wait_scacquire);

/// Waits for what is in flight, relaying it, and by `itself`, the runtime's own function. The value that
/// the wait ended with.
fn relay_while(wait: Wait, itself: impl Fn(u64) -> i64) -> i64 {
    let mut waiter = None;
    contained(|| waiter = wait.begin(&STATE));
    let Some(mut waiter) = waiter else { return itself(wait.timeout) };
    let value = loop {
        match contained(|| waiter.step()) {
            Some(Step::Sleep(signal, ns)) => {
                RUNTIME.wait_until_done(signal, ns);
                waiter.woke();
            }
            Some(Step::Nap(ns)) => sys::sleep_ns(ns),
            Some(Step::Itself(ns)) => {
                let value = itself(ns);
                if abi::is_satisfied(wait.condition, value, wait.compare) {
                    break value;
                }
            }
            Some(Step::Over(left)) => break itself(left),
            None => return itself(wait.timeout),
        }
    };
    // Where nothing was found, the holder of the lock may have relayed it and not recorded it yet.
    if (waiter.has_found() || WORK.is_taken())
        && abi::is_satisfied(wait.condition, value, wait.compare)
    {
        contained(|| collect(IfTaken::Wait));
    }
    value
}

/// Collects completions for a thread that has waited for the GPU, if the sink wants that.
fn collect(if_taken: IfTaken) {
    if STATE.sink.get().is_some_and(|sink| sink.waiters_collect()) {
        harvest::collect_now(&STATE, if_taken);
    }
}

macro_rules! signal_load {
    ($($name:ident)*) => {$(
        pub unsafe extern "C-unwind" fn $name(signal: u64) -> i64 {
            if STATE.relays() {
                contained(|| {
                    if relay::before_load(&STATE, signal) {
                        // A look is not to take long.
                        collect(IfTaken::Leave);
                    }
                });
            }
            // SAFETY: the application's own call.
            RUNTIME.$name.get().map_or(0, |load| unsafe { load(signal) })
        }
    )*};
}
signal_load!(load_relaxed load_scacquire);

pub unsafe extern "C-unwind" fn async_handler(
    signal: u64,
    condition: u32,
    compare: i64,
    handler: *const c_void,
    data: *mut c_void,
) -> Status {
    if STATE.relays() {
        // Its packet may be yet to come.
        STATE.needed.mark(signal);
    }
    needs(&[signal]);
    let Some(set) = RUNTIME.async_handler.get() else { return abi::ERROR };
    // SAFETY: the application's own call.
    unsafe { set(signal, condition, compare, handler, data) }
}

macro_rules! signals_wait {
    ($($name:ident)*) => {$(
        pub unsafe extern "C-unwind" fn $name(
            count: u32,
            signals: *const u64,
            conditions: *const u32,
            compare: *const i64,
            timeout: u64,
            wait_state: u32,
            satisfying: *mut i64,
        ) -> u32 {
            if STATE.relays() {
                // SAFETY: the application's pointer and the number of what is there.
                let signals = unsafe { depends_on(count, signals) };
                // Packets may be yet to come.
                signals.iter().for_each(|&signal| STATE.needed.mark(signal));
                needs(signals);
            }
            let Some(wait) = RUNTIME.$name.get() else { return u32::MAX };
            // SAFETY: the application's own call.
            unsafe { wait(count, signals, conditions, compare, timeout, wait_state, satisfying) }
        }
    )*};
}
signals_wait!(wait_any wait_all);

/// The GPU or a thread of the runtime is going to wait for these.
fn needs(signals: &[u64]) {
    if STATE.relays() && !signals.is_empty() {
        contained(|| relay::need(&STATE, signals));
    }
}

/// Handles the store if it rings the doorbell of a queue; false: it is still to be done.
#[inline]
fn doorbell(signal: u64, value: i64) -> bool {
    let Some(amd) = view::signal(signal).filter(|amd| view::is_doorbell(amd)) else {
        return false;
    };
    let address = amd.queue.load(Ordering::Relaxed);
    let (is_rung, is_recorded) = contained(|| {
        let known = STATE.registry.find(address);
        let Some(queue) = known.or_else(|| STATE.active().then(|| meet(address)).flatten()) else {
            if STATE.active()
                && let Some(sink) = STATE.sink.get()
            {
                sink.lost(ShimLoss::LEFT_ALONE, 1);
            }
            return (false, false);
        };
        let Some(context) = STATE.context() else { return (false, false) };
        help_if_short(&context, &queue.track);
        let rung = queue.ring(&context, signal, value);
        let is_recorded = rung.recorded;
        STATE.has_rung(rung, context.sink);
        if queue.held.load(Ordering::Relaxed) {
            STATE.wake_beyond(sleep::SLOW);
        }
        (true, is_recorded)
    })
    .unwrap_or_default();
    if is_recorded && let Some(sink) = STATE.sink.get() {
        sink.has_enqueued();
    }
    is_rung
}

/// Something is about to be enqueued: collects what has completed, if signals or the list's places may run out.
#[inline]
fn help_if_short(context: &Context<'_>, track: &Track) {
    if context.pool.is_short() || track.is_short() {
        harvest::help(&STATE);
    }
}

/// Makes a queue known whose creation was not seen.
#[cold]
fn meet(address: usize) -> Option<&'static Queue> {
    sys::uninterrupted(|| announce::unknown_queue(address))
}

pub unsafe extern "C-unwind" fn queue_create(
    agent: u64,
    size: u32,
    queue_type: u32,
    callback: *const c_void,
    data: *mut c_void,
    private_segment_size: u32,
    group_segment_size: u32,
    queue: *mut *const AmdQueue,
) -> Status {
    contained(announce::first_use);
    contained(calls::follow_hip);
    let Some(create) = RUNTIME.queue_create.get() else { return abi::ERROR };
    // SAFETY: the application's own call.
    let status = unsafe {
        create(
            agent,
            size,
            queue_type,
            callback,
            data,
            private_segment_size,
            group_segment_size,
            queue,
        )
    };
    if status == abi::SUCCESS && !queue.is_null() {
        // SAFETY: the runtime has just written it.
        let address = unsafe { *queue } as usize;
        contained(|| announce::created(address, agent));
        // The worker reads the agent's clock before much runs on it, if it comes in time.
        contained(|| STATE.active().then(|| STATE.urge()));
    }
    status
}

pub unsafe extern "C-unwind" fn queue_destroy(queue: *const AmdQueue) -> Status {
    let address = queue as usize;
    let find = || STATE.registry.find(address).filter(|_| STATE.is_installed());
    let ours = contained(find).flatten();
    if let Some(ours) = ours {
        contained(|| {
            settle(ours);
            ours.close();
        });
    }
    let Some(destroy) = RUNTIME.queue_destroy.get() else { return abi::ERROR };
    // SAFETY: the application's own call.
    let status = unsafe { destroy(queue) };
    if let Some(ours) = ours {
        contained(|| {
            if status == abi::SUCCESS {
                announce::destroyed(ours, address);
            } else {
                ours.becomes(Stage::Live);
            }
        });
    }
    status
}

/// Collects the completions of a queue, waiting a little for those that are missing. Relays them, too: that the worker
/// comes is likely, not certain.
fn settle(queue: &'static Queue) {
    let deadline = sys::now_ns() + DESTROY_WAIT_NS;
    while !queue.track.is_empty() && STATE.is_installed() {
        relay::everything_of(&STATE, TrackKind::Queue, &queue.track);
        if sys::now_ns() > deadline {
            break;
        }
        STATE.urge();
        sys::sleep_ns(50_000);
    }
}

pub unsafe extern "C-unwind" fn executable_freeze(
    executable: u64,
    options: *const c_char,
) -> Status {
    contained(announce::first_use);
    contained(calls::follow_hip);
    let Some(freeze) = RUNTIME.executable_freeze.get() else { return abi::ERROR };
    contained(|| symbols::before_freezing(executable));
    // SAFETY: the application's own call.
    let status = unsafe { freeze(executable, options) };
    contained(|| symbols::after_freezing(executable, status == abi::SUCCESS));
    status
}

pub unsafe extern "C-unwind" fn executable_destroy(executable: u64) -> Status {
    contained(|| symbols::before_destroying(executable));
    // SAFETY: the application's own call.
    RUNTIME.executable_destroy.get().map_or(abi::ERROR, |destroy| unsafe { destroy(executable) })
}

macro_rules! linear_copy {
    ($($name:ident ($($further:ident: $of:ty),*))*) => {$(
        pub unsafe extern "C-unwind" fn $name(
            dst: *mut c_void,
            dst_agent: u64,
            src: *const c_void,
            src_agent: u64,
            size: usize,
            dependencies: u32,
            dependency: *const u64,
            completion: u64,
            $($further: $of),*
        ) -> Status {
            let Some(copy) = RUNTIME.$name.get() else { return abi::ERROR };
            // SAFETY: the application's pointer and the number of what is there.
            needs(unsafe { depends_on(dependencies, dependency) });
            let record = || Copy {
                sequence: 0,
                enqueue_ns: sys::now_ns(),
                dst: dst as u64,
                src: src as u64,
                dst_agent,
                src_agent,
                size_bytes: size as u64,
            };
            observed_copy(record, size == 0, completion, |completion| {
                // SAFETY: the application's own call; the completion signal is its own or one of ours.
                unsafe {
                    copy(
                        dst,
                        dst_agent,
                        src,
                        src_agent,
                        size,
                        dependencies,
                        dependency,
                        completion,
                        $($further),*
                    )
                }
            })
        }
    )*};
}
linear_copy!(async_copy() async_copy_on_engine(engine: u32, force: bool));

pub unsafe extern "C-unwind" fn async_copy_rect(
    dst: *const PitchedPtr,
    dst_offset: *const Dim3,
    src: *const PitchedPtr,
    src_offset: *const Dim3,
    range: *const Dim3,
    copy_agent: u64,
    direction: u32,
    dependencies: u32,
    dependency: *const u64,
    completion: u64,
) -> Status {
    let Some(copy) = RUNTIME.async_copy_rect.get() else { return abi::ERROR };
    // SAFETY: the application's pointer and the number of what is there.
    needs(unsafe { depends_on(dependencies, dependency) });
    // SAFETY: the application's pointers; the runtime refuses null ones, as we do.
    let parts = unsafe {
        (dst.as_ref(), dst_offset.as_ref(), src.as_ref(), src_offset.as_ref(), range.as_ref())
    };
    let (bytes, record) = match parts {
        (Some(to), Some(to_at), Some(from), Some(from_at), Some(range)) => {
            let bytes = u64::from(range.x) * u64::from(range.y) * u64::from(range.z);
            let at = |p: &PitchedPtr, o: &Dim3| {
                let rows = p.pitch.wrapping_mul(u64::from(o.y));
                let slices = p.slice.wrapping_mul(u64::from(o.z));
                p.base.wrapping_add(u64::from(o.x)).wrapping_add(rows).wrapping_add(slices)
            };
            let (dst_agent, src_agent) = agents::ends(copy_agent, direction);
            let record = Copy {
                sequence: 0,
                enqueue_ns: sys::now_ns(),
                dst: at(to, to_at),
                src: at(from, from_at),
                dst_agent,
                src_agent,
                size_bytes: bytes,
            };
            (bytes, record)
        }
        _ => (0, Copy::default()),
    };
    observed_copy(
        || record,
        bytes == 0,
        completion,
        |completion| {
            // SAFETY: the application's own call; the completion signal is its own or one of ours.
            unsafe {
                copy(
                    dst,
                    dst_offset,
                    src,
                    src_offset,
                    range,
                    copy_agent,
                    direction,
                    dependencies,
                    dependency,
                    completion,
                )
            }
        },
    )
}

/// The signals that a copy or a call waits for; none where the runtime refuses the pointer.
///
/// # Safety
///
/// `first` is null, or `count` handles are there.
unsafe fn depends_on<'a>(count: u32, first: *const u64) -> &'a [u64] {
    if first.is_null() || !first.is_aligned() {
        return &[];
    }
    // SAFETY: the caller's promise; not null.
    unsafe { core::slice::from_raw_parts(first, count as usize) }
}

/// Requests a copy with `request`, with a signal of ours if it is to be observed.
fn observed_copy(
    record: impl FnOnce() -> Copy,
    empty: bool,
    original: u64,
    request: impl Fn(u64) -> Status,
) -> Status {
    let ticket: Option<Ticket> = if STATE.active() && !empty && original != 0 {
        contained(|| {
            announce::first_use();
            let context = STATE.context()?;
            help_if_short(&context, &STATE.copies.track);
            STATE.copies.begin(&context, record(), original)
        })
        .flatten()
    } else {
        None
    };
    let Some(ticket) = ticket else {
        contained(|| STATE.copies.forget(original));
        return request(original);
    };
    let status = request(ticket.signal);
    if status != abi::SUCCESS {
        contained(|| {
            STATE.copies.cancelled(&ticket);
            STATE.copies.forget(original);
        });
        return request(original);
    }
    let recorded = contained(|| {
        let &sink = STATE.sink.get()?;
        let sequence = STATE.copies.started(sink, ticket);
        STATE.enqueued(true, STATE.needed.is_marked(original));
        sink.enqueued(sequence?, Enqueuer::Caller);
        Some(sink)
    });
    if let Some(sink) = recorded.flatten() {
        sink.has_enqueued();
    }
    status
}

pub unsafe extern "C-unwind" fn get_async_copy_time(signal: u64, times: *mut Times) -> Status {
    if !times.is_null()
        && let Some(known) = contained(|| STATE.copies.times_of(signal)).flatten()
    {
        // SAFETY: the application's pointer, as the runtime would write through it; not null.
        unsafe { times.write(known) };
        return abi::SUCCESS;
    }
    let Some(get) = RUNTIME.copy_time.get() else { return abi::ERROR };
    // SAFETY: the application's own call.
    unsafe { get(signal, times) }
}

pub unsafe extern "C-unwind" fn async_copy_enable(enable: bool) -> Status {
    if contained(|| STATE.copies.wishes(enable) && STATE.active()).unwrap_or(false) {
        return abi::SUCCESS;
    }
    let Some(set) = RUNTIME.copy_profiling.get() else { return abi::ERROR };
    // SAFETY: the application's own call.
    unsafe { set(enable) }
}

pub unsafe extern "C-unwind" fn shut_down() -> Status {
    let Some(shut_down) = RUNTIME.shut_down.get() else { return abi::ERROR };
    // SAFETY: the application's own call.
    closing::one_user_less(|| unsafe { shut_down() })
}
