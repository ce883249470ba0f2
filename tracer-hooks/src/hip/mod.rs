//! GPU times from HIP's activity interface, switched on in a process that runs already.
//!
//! It is the second way, for where the HSA runtime's tables are not known; both are never used at once.
//!
//! # Protocol (ROCm 5.2.3; its code was read)
//!
//! * `hipInitActivityCallback(id callback, operation callback, argument)` writes one table;
//!   `hipEnableActivityCallback(op, on)` a flag beside it. A command that is created while the flag
//!   of its kind is set gets a number, with which the *id callback* is called on the creating thread,
//!   inside of the HIP call; when it has completed, the *operation callback* gets a record with that
//!   number, the kind, the device and the times, on whatever thread notices: at a synchronisation.
//! * The record has no kernel name, and a command's times are those of the GPU only if its packet
//!   carries a signal. A callback that is registered for any function of HIP
//!   (`hipRegisterActivityCallback`) gives every packet a signal. Ours are registered for the
//!   functions that launch one kernel: called on entry, they return a place for the call's arguments,
//!   of which the callback of the call (`hipRegisterApiCallback`) takes the kernel and the grid.
//!   The names that belong to them are asked for there, as AMD's tracer does.
//! * Registering waits only for threads that read the entry, not for those inside of the function;
//!   what is inside calls the callback that it read once more on its way out.
//!
//! Begin: write the table, register, and a little later set the flags. End: clear the flags; when what was created has
//! been reported, or nothing is any more, unregister. The table stays as it is: a thread may have looked
//! at the flag before and at the table afterwards, and commands are still reported that nobody waits
//! for. What belongs to no recording any more is dropped.
//!
//! # Limits
//!
//! * HIP 5.2.3 hangs, by itself, when it is to call the program back on a stream
//!   (`hipStreamAddCallback`) while any callback is registered, or with commands that were created
//!   meanwhile. A process in which anything but HIP names such a function is refused. One that finds
//!   the function in another way, or loads what names it later, is not recognized.
//! * What is never synchronised is never reported, and counted as unfinished. Whoever records sees
//!   operations late.
//! * Commands that existed before are not reported, nor can they be counted. A kernel whose launch had
//!   been entered before has no name but HIP's for any kernel, or no times.
//! * One slot in the process; who has it is read from the library's tables.
//! * Nor have kernels of graphs and of launches on several devices;
//!   registers, group and private bytes are not known, nor are addresses and sizes of copies.
//! * Markers (events that are recorded, waits between streams) are left out: HIP gives them times of the
//!   host's clock, which are not those of any packet.
//! * A copy by an engine that waits for a queue begins, as HIP counts, with the barrier that it waits by.
//! * The queue is HIP's number of it, and handles of agents are numbers of ours.

#![expect(unsafe_code, reason = "called by HIP, calls HIP")]

mod agents;
mod interface;
mod names;
mod pending;

use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use tracer_common::shim::{Complete, Copy, Dispatch, Loss, RUNTIME_CLOCK_ERROR_NS, state};
use tracer_common::waited::Waited;

pub use interface::Addresses;
use interface::{Interface, LAUNCHES, Launch};
use names::Names;
use pending::{Command, Pending};

use crate::hooks::contained;
use crate::lifecycle::{self, InstallError};
use crate::lock::{Guard, Lock};
use crate::sink::{Sink, Wish};
use crate::state::STATE;
use crate::{sys, worker};

/// Why HIP's activity was not switched on. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The library is not the one that is known.
    Unsupported,
    /// Somebody else uses the interface, or may.
    Taken,
    /// The tables' recording has not ended.
    Busy,
    /// As for the tables.
    Install(InstallError),
}

/// Where a recording is.
mod phase {
    /// There is none, and no interest in one.
    pub const OFF: u32 = 0;
    /// One is about to begin.
    pub const STARTING: u32 = 1;
    /// Commands are recorded.
    pub const ON: u32 = 2;
    /// Commands that were created are still reported.
    pub const ENDING: u32 = 3;
    /// Nobody reads, but somebody may again.
    pub const RESTING: u32 = 4;
}

/// How long a recording that has ended waits for the next report.
const PATIENCE_NS: u64 = 300_000_000;
/// How long threads that are inside of HIP when something is switched are given to come to its end.
const GRACE_NS: u64 = 2_000_000;
/// How often the sink is asked whether to record.
const ASK_EVERY_NS: u64 = 50_000_000;
/// How long anybody waits for another thread that switches.
const SWITCH_WAIT_NS: u64 = 1_000_000_000;
/// Largest error of the runtime's times, generously.
const CLOCK_ERROR_NS: u64 = 2 * RUNTIME_CLOCK_ERROR_NS;
/// Operations that can be switched on: dispatches, copies, barriers.
const OPERATIONS: u32 = 3;
/// Bytes of `hip_api_data_t`: 832 in 5.2.3.
const API_DATA_WORDS: usize = 128;
/// Kinds of commands.
mod kind {
    pub const KERNEL: u32 = 0x11F0;
    pub const TASK: u32 = 0x11F1;
    pub const READ_BUFFER: u32 = 0x11F3;
    pub const WRITE_BUFFER: u32 = 0x11F4;
    pub const COPY_BUFFER: u32 = 0x11F5;
    pub const READ_IMAGE: u32 = 0x11F6;
    pub const WRITE_IMAGE: u32 = 0x11F7;
    pub const COPY_IMAGE: u32 = 0x11F8;
    pub const COPY_BUFFER_TO_IMAGE: u32 = 0x11FA;
    pub const MARKER: u32 = 0x11FE;
    pub const READ_RECT: u32 = 0x1201;
    pub const WRITE_RECT: u32 = 0x1202;
    pub const COPY_RECT: u32 = 0x1203;
    pub const BARRIER: u32 = 0x1205;
    pub const FILL_BUFFER: u32 = 0x1207;
    pub const FILL_IMAGE: u32 = 0x1208;
}

/// `activity_record_t` of an operation.
#[repr(C)]
struct Record {
    domain: u32,
    kind: u32,
    op: u32,
    correlation_id: u64,
    begin_ns: u64,
    end_ns: u64,
    device: i32,
    queue: u64,
    bytes: u64,
}

/// The beginning of `hip_api_data_t`, for the functions in [`LAUNCHES`].
#[repr(C)]
struct ApiData {
    correlation_id: u64,
    phase: u32,
    kernel: u64,
    grid: [u32; 3],
    workgroup: [u32; 3],
    arguments: [u64; 2],
    shared_bytes: u64,
    stream: u64,
}

const _: () = {
    assert!(core::mem::offset_of!(Record, device) == 40 && size_of::<Record>() == 64);
    assert!(core::mem::offset_of!(ApiData, kernel) == 16);
    assert!(core::mem::offset_of!(ApiData, stream) == 72);
};

/// What the calling thread launches.
#[derive(Clone, Copy)]
struct Launching {
    /// `hipFunction_t`, or 0.
    function: u64,
    /// The kernel as the trace knows it, or 0.
    kernel: u64,
    grid: [u32; 3],
    workgroup: [u16; 3],
}

const NOTHING: Launching = Launching { function: 0, kernel: 0, grid: [0; 3], workgroup: [0; 3] };

thread_local! {
    static LAUNCHING: Cell<Launching> = const { Cell::new(NOTHING) };
    /// Where HIP writes the arguments of the call that the thread is in.
    static ARGUMENTS: UnsafeCell<[u64; API_DATA_WORDS]> =
        const { UnsafeCell::new([0; API_DATA_WORDS]) };
}

struct Hip {
    phase: AtomicU32,
    /// Counts recordings.
    epoch: AtomicU32,
    interface: OnceLock<Interface>,
    pending: Pending,
    names: Names,
    /// Commands of this recording that were created, and that are accounted for.
    created: AtomicU64,
    settled: AtomicU64,
    agents_told: AtomicBool,
    /// Held by whoever begins or ends.
    switch: Lock<Switch>,
}

struct Switch {
    next_ask_ns: u64,
    ending_since_ns: u64,
    /// What was settled at the last look of a recording that ends, and how long it waits for more.
    settled: u64,
    waited: Waited,
}

static HIP: Hip = Hip {
    phase: AtomicU32::new(phase::OFF),
    epoch: AtomicU32::new(0),
    interface: OnceLock::new(),
    pending: Pending::new(),
    names: Names::new(),
    created: AtomicU64::new(0),
    settled: AtomicU64::new(0),
    agents_told: AtomicBool::new(false),
    switch: Lock::new(Switch {
        next_ask_ns: 0,
        ending_since_ns: 0,
        settled: 0,
        waited: Waited::since(0),
    }),
};

/// Whether the recording is one of this way, so that the tables stay out of it.
pub fn in_charge() -> bool {
    HIP.phase.load(Ordering::Acquire) != phase::OFF
}

/// As if it were.
#[cfg(test)]
pub(crate) fn pretend_in_charge(charge: bool) {
    let phase = if charge { phase::STARTING } else { phase::OFF };
    HIP.phase.store(phase, Ordering::Release);
}

/// Takes the charge, if HIP is what is known here and nobody else uses it; nothing is recorded yet.
/// Either [`begin`] or [`cancel`] follows.
///
/// # Errors
///
/// [`Refusal`].
pub fn prepare(addresses: Addresses, sink: &'static dyn Sink) -> Result<(), Refusal> {
    let interface = match HIP.interface.get() {
        Some(interface) => interface,
        None => {
            let found = Interface::find(addresses).ok_or(Refusal::Unsupported)?;
            HIP.interface.get_or_init(|| found)
        }
    };
    if !interface.is_at(addresses) || !interface.is_harmless() || !HIP.pending.is_ready() {
        return Err(Refusal::Unsupported);
    }
    let _switch = HIP.switch.lock_for(SWITCH_WAIT_NS).ok_or(Refusal::Busy)?;
    if interface.is_taken(OURS.operations()) {
        return Err(Refusal::Taken);
    }
    lifecycle::prepare_process(sink).map_err(Refusal::Install)?;
    let taken = lifecycle::hand_over(|| HIP.phase.store(phase::STARTING, Ordering::Release));
    if taken { Ok(()) } else { Err(Refusal::Busy) }
}

/// Gives the charge back that [`prepare`] took.
pub fn cancel() {
    let _ = HIP.phase.compare_exchange(
        phase::STARTING,
        phase::OFF,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
}

/// Begins to record after [`prepare`].
pub fn begin() {
    if let Some(mut switch) = HIP.switch.lock_for(SWITCH_WAIT_NS) {
        switch_on(&mut switch);
    }
    STATE.call_worker();
}

/// Ends whatever is recorded this way, at once; false if that is not possible. Whatever was recorded
/// into is gone already.
pub fn end_now() -> bool {
    if !in_charge() {
        return true;
    }
    let Some(_switch) = HIP.switch.lock_for(SWITCH_WAIT_NS) else { return false };
    disable();
    forget();
    HIP.phase.store(phase::OFF, Ordering::Release);
    true
}

/// Our callbacks as HIP knows them.
struct Callbacks {
    id: extern "C" fn(u64),
    operation: extern "C" fn(u32, *const Record, *mut c_void),
    activity: extern "C" fn(u32, *const c_void, *const c_void, *mut c_void) -> *mut c_void,
    api: extern "C" fn(u32, u32, *const ApiData, *mut c_void),
}

const OURS: Callbacks =
    Callbacks { id: on_id, operation: on_operation, activity: on_activity, api: on_api };

impl Callbacks {
    fn operations(&self) -> [usize; 2] {
        [self.id as usize, self.operation as usize]
    }

    fn calls(&self) -> [usize; 2] {
        [self.activity as usize, self.api as usize]
    }
}

/// Tells an exit from an entry, which has none.
const ARGUMENT: *mut c_void = core::ptr::without_provenance_mut(1);

fn switch_on(switch: &mut Guard<'_, Switch>) {
    let (Some(&sink), Some(hip)) = (STATE.sink.get(), HIP.interface.get()) else { return };
    HIP.epoch.fetch_add(1, Ordering::AcqRel);
    HIP.names.clear();
    HIP.created.store(0, Ordering::Relaxed);
    HIP.settled.store(0, Ordering::Relaxed);
    HIP.agents_told.store(false, Ordering::Relaxed);
    switch.next_ask_ns = 0;
    let [id, operation] = [OURS.id as *const c_void, OURS.operation as *const c_void];
    let [activity, api] = [OURS.activity as *const c_void, OURS.api as *const c_void];
    // What is told from now on belongs to the recording.
    sink.state(state::ACTIVE);
    HIP.phase.store(phase::ON, Ordering::Release);
    // SAFETY: HIP's own functions; the callbacks live for ever, as this library does.
    unsafe {
        (hip.init)(id, operation, core::ptr::null_mut());
        for (function, _, _) in LAUNCHES {
            (hip.register_activity)(function, activity, ARGUMENT);
            (hip.register_api)(function, api, ARGUMENT);
        }
    }
    // Who entered a function before that has created its command by then, which would have no name.
    sys::sleep_ns(GRACE_NS);
    for operation in 0..OPERATIONS {
        // SAFETY: as above.
        unsafe { (hip.enable)(operation, true) };
    }
}

/// No command that is created from now on is reported, if nobody else has taken the slot meanwhile.
fn disable() {
    if let Some(hip) = HIP.interface.get()
        && hip.of_operations() == OURS.operations()
    {
        for operation in 0..OPERATIONS {
            // SAFETY: HIP's own function.
            unsafe { (hip.enable)(operation, false) };
        }
    }
}

/// Nothing that is still reported belongs to a recording. What was created and not reported.
fn forget() -> u64 {
    HIP.epoch.fetch_add(1, Ordering::AcqRel);
    unregister();
    outstanding()
}

/// No call tells us of itself any more.
fn unregister() {
    let Some(hip) = HIP.interface.get() else { return };
    let [our_activity, our_api] = OURS.calls();
    for (function, _, _) in LAUNCHES {
        let [activity, api] = hip.of_api(function as usize);
        // SAFETY: HIP's own functions.
        unsafe {
            if api == our_api {
                (hip.remove_api)(function);
            }
            if activity == our_activity {
                (hip.remove_activity)(function);
            }
        }
    }
}

fn outstanding() -> u64 {
    let settled = HIP.settled.load(Ordering::Acquire);
    HIP.created.load(Ordering::Acquire).saturating_sub(settled)
}

/// The worker's part; none when the recording is not of this way, else whether to be called again soon.
pub fn round(now: u64) -> Option<bool> {
    if !in_charge() {
        return None;
    }
    let Some(mut switch) = HIP.switch.try_lock() else { return Some(true) };
    let Some(&sink) = STATE.sink.get() else { return Some(false) };
    let phase = HIP.phase.load(Ordering::Acquire);
    // Also of a recording that ends: its first command may have been created just before.
    if matches!(phase, phase::ON | phase::ENDING)
        && HIP.created.load(Ordering::Relaxed) > 0
        && !HIP.agents_told.swap(true, Ordering::Relaxed)
        && let Some(hip) = HIP.interface.get()
    {
        agents::tell(hip, sink);
    }
    match phase {
        phase::ON if now >= switch.next_ask_ns => {
            switch.next_ask_ns = now + ASK_EVERY_NS;
            if worker::gave_up() || sink.wanted(now) != Wish::Record {
                disable();
                switch.ending_since_ns = now;
                switch.waited = Waited::since(now);
                HIP.phase.store(phase::ENDING, Ordering::Release);
            }
        }
        phase::ENDING => {
            let settled = HIP.settled.load(Ordering::Acquire);
            if core::mem::replace(&mut switch.settled, settled) != settled {
                switch.waited = Waited::since(now);
            }
            let ending_ns = now.saturating_sub(switch.ending_since_ns);
            let quiet = outstanding() == 0 && ending_ns >= GRACE_NS;
            // Whoever reads stops when it sees the new state.
            if (quiet || switch.waited.look(now) >= PATIENCE_NS) && !sink.housekeeping(now) {
                sink.lost(Loss::UNFINISHED, forget());
                sink.state(state::DORMANT);
                HIP.phase.store(phase::RESTING, Ordering::Release);
                switch.next_ask_ns = 0;
            }
        }
        phase::RESTING if now >= switch.next_ask_ns => {
            switch.next_ask_ns = now + ASK_EVERY_NS;
            match sink.wanted(now) {
                Wish::Record if worker::gave_up() => {}
                Wish::Record => {
                    let free = |hip: &Interface| !hip.is_taken(OURS.operations());
                    if HIP.interface.get().is_some_and(free) {
                        switch_on(&mut switch);
                    }
                }
                Wish::Later => {}
                _ => {
                    if sink.let_go(true) {
                        HIP.phase.store(phase::OFF, Ordering::Release);
                    }
                }
            }
        }
        _ => {}
    }
    let more = sink.housekeeping(now);
    Some(more || HIP.phase.load(Ordering::Relaxed) == phase::ENDING)
}

/// The process ends: what was not reported never will be.
pub fn finish() {
    if matches!(HIP.phase.swap(phase::OFF, Ordering::AcqRel), phase::ON | phase::ENDING)
        && let Some(&sink) = STATE.sink.get()
    {
        HIP.epoch.fetch_add(1, Ordering::AcqRel);
        sink.lost(Loss::UNFINISHED, outstanding());
    }
}

/// Whether commands are recorded; not in a forked child.
fn is_on() -> bool {
    HIP.phase.load(Ordering::Acquire) == phase::ON && !STATE.phase.is_inert()
}

/// HIP's `activity_id_callback_t`: the calling thread created a command.
extern "C" fn on_id(number: u64) {
    if is_on() {
        contained(|| created(number));
    }
}

fn created(number: u64) {
    let (Some(&sink), Some(hip)) = (STATE.sink.get(), HIP.interface.get()) else { return };
    let epoch = HIP.epoch.load(Ordering::Acquire);
    let enqueue_ns = sys::now_ns();
    let Some(sequence) = sink.reserve(enqueue_ns) else {
        sink.lost(Loss::NO_RING, 1);
        return;
    };
    let Launching { function, mut kernel, grid, workgroup } = LAUNCHING.get();
    if function != 0 {
        // SAFETY: HIP has just made a command of it.
        let name = unsafe { (hip.name_of_function)(function) };
        kernel = named(name, sink);
    }
    let command = Command { epoch, sequence, enqueue_ns, kernel, grid, workgroup };
    match HIP.pending.put(number, command) {
        Ok(before) => {
            if before.is_some_and(|before| before.epoch == epoch) {
                HIP.settled.fetch_add(1, Ordering::AcqRel);
                sink.lost(Loss::UNFINISHED, 1);
            }
            if HIP.created.fetch_add(1, Ordering::AcqRel) == 0 {
                // It looks for the agents now: HIP has been initialized.
                STATE.call_worker();
            }
            sink.enqueued(sequence, true);
        }
        Err(()) => sink.lost(Loss::UNFINISHED, 1),
    }
}

/// The kernel of a name that HIP gave; 0 for none.
fn named(name: *const c_char, sink: &dyn Sink) -> u64 {
    if name.is_null() {
        return 0;
    }
    // SAFETY: a text that HIP keeps as long as the kernel, which is being launched.
    match unsafe { CStr::from_ptr(name) }.to_bytes() {
        [] => 0,
        name => HIP.names.kernel(name, sink),
    }
}

/// HIP's `activity_async_callback_t`: a command completed.
extern "C" fn on_operation(_op: u32, record: *const Record, _: *mut c_void) {
    let phase = HIP.phase.load(Ordering::Acquire);
    // Later runtimes pass small numbers for other things.
    let is_record = record.addr() > 4096 && record.is_aligned();
    if is_record && matches!(phase, phase::ON | phase::ENDING) && !STATE.phase.is_inert() {
        // SAFETY: HIP's own record, valid for the call.
        contained(|| completed(unsafe { &*record }));
    }
}

fn completed(record: &Record) {
    let (Some(&sink), Some(hip)) = (STATE.sink.get(), HIP.interface.get()) else { return };
    let Some(command) = HIP.pending.take(record.correlation_id) else { return };
    if command.epoch != HIP.epoch.load(Ordering::Acquire) {
        return;
    }
    report(record, command, hip, sink);
    HIP.settled.fetch_add(1, Ordering::AcqRel);
}

fn report(record: &Record, command: Command, hip: &Interface, sink: &dyn Sink) {
    let &Record { kind, begin_ns, end_ns, queue, .. } = record;
    if matches!(kind, kind::MARKER | kind::BARRIER) {
        return;
    }
    // A kernel whose packet got no signal has the times of another one, before it was created.
    if begin_ns + CLOCK_ERROR_NS < command.enqueue_ns || end_ns < begin_ns {
        sink.lost(Loss::NO_TIMES, 1);
        return;
    }
    let Command { sequence, enqueue_ns, .. } = command;
    let device = agents::of_device(record.device);
    let copy = |dst_agent, src_agent| {
        let ends = Copy { sequence, enqueue_ns, dst_agent, src_agent, ..Copy::default() };
        sink.copy(&mut Copy { size_bytes: record.bytes, ..ends })
    };
    let taken = match kind {
        kind::KERNEL | kind::TASK | kind::FILL_BUFFER | kind::FILL_IMAGE => {
            let own = matches!(kind, kind::KERNEL | kind::TASK);
            let known = if own { command.kernel } else { 0 };
            let kernel_object = match known {
                // SAFETY: it takes any number and returns a constant text.
                0 => named(unsafe { (hip.name_of_kind)(kind) }, sink),
                known => known,
            };
            let Command { grid, workgroup, .. } = if own { command } else { Command::default() };
            sink.dispatch(&mut Dispatch {
                sequence,
                enqueue_ns,
                kernel_object,
                queue_id: queue,
                agent: device,
                grid,
                workgroup,
                ..Dispatch::default()
            })
        }
        kind::READ_BUFFER | kind::READ_RECT | kind::READ_IMAGE => copy(agents::HOST, device),
        kind::WRITE_BUFFER | kind::WRITE_RECT | kind::WRITE_IMAGE => copy(device, agents::HOST),
        kind::COPY_BUFFER | kind::COPY_RECT | kind::COPY_IMAGE..=kind::COPY_BUFFER_TO_IMAGE => {
            copy(device, device)
        }
        _ => {
            sink.lost(Loss::PACKET_KIND, 1);
            false
        }
    };
    if taken {
        sink.complete(Complete { sequence, start_ns: begin_ns, end_ns });
    }
}

/// HIP's `activity_sync_callback_t`: the calling thread enters one of [`LAUNCHES`], for which it wants a
/// place to write the arguments to, or leaves it.
extern "C" fn on_activity(
    _api: u32,
    _: *const c_void,
    _: *const c_void,
    argument: *mut c_void,
) -> *mut c_void {
    LAUNCHING.set(NOTHING);
    if !argument.is_null() || !is_on() {
        return core::ptr::null_mut();
    }
    ARGUMENTS.with(|arguments| {
        let data = arguments.get();
        // SAFETY: the thread's own; HIP uses it until the call returns, and calls are not nested.
        unsafe { (*data.cast::<ApiData>()).phase = 0 };
        data.cast()
    })
}

/// HIP's `activity_rtapi_callback_t`: the arguments are there, or the call returns.
extern "C" fn on_api(_domain: u32, api: u32, data: *const ApiData, _: *mut c_void) {
    if data.is_null() || !is_on() {
        return;
    }
    // SAFETY: what `on_activity` returned, which HIP has filled.
    let data = unsafe { &*data };
    if data.phase == 0 {
        contained(|| launching(api, data));
    }
}

fn launching(api: u32, data: &ApiData) {
    let (Some(&sink), Some(hip)) = (STATE.sink.get(), HIP.interface.get()) else { return };
    let Some(&(_, _, how)) = LAUNCHES.iter().find(|(id, _, _)| *id == api) else { return };
    let items = |blocks: u32, items: u32| {
        if how == Launch::FunctionByItems { blocks } else { blocks.wrapping_mul(items) }
    };
    let [gx, gy, gz] = data.grid;
    let [wx, wy, wz] = data.workgroup;
    let (function, kernel) = match how {
        // SAFETY: a function that AMD's tracer calls here too, with the program's arguments; HIP checks
        // them.
        Launch::Stub => (0, named(unsafe { (hip.name_of_stub)(data.kernel, data.stream) }, sink)),
        // The program may have made it up; HIP finds out before it creates the command.
        Launch::Function | Launch::FunctionByItems => (data.kernel, 0),
    };
    LAUNCHING.set(Launching {
        function,
        kernel,
        grid: [items(gx, wx), items(gy, wy), items(gz, wz)],
        workgroup: [wx, wy, wz].map(|w| u16::try_from(w).unwrap_or(u16::MAX)),
    });
}
