//! A runtime and a packet processor for tests: tables of functions, queues in plain memory, and a
//! thread for each queue that runs packets in whatever order the barrier bits allow.

#![allow(unsafe_code, reason = "plays the runtime's part")]

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::backtrace::Backtrace;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};

use tracer_common::hsa_layout::AmdExtLayout;

use crate::abi::{
    self, AmdExtTable, AmdQueue, AmdSignal, ApiTable, CoreTable, Packet, Status, Times,
};
use crate::testing::Random;

/// The GPU's ticks are ns of CLOCK_BOOTTIME plus this.
pub const TICKS: u64 = 1 << 40;
/// Handle of the only agent.
pub const AGENT: u64 = 0x1000;

/// Handle of the only executable, of one kernel.
pub const EXECUTABLE: u64 = 0x2000;
/// Name of that kernel.
pub const KERNEL: &[u8] = b"fake";

/// Signals of ours that exist.
pub static SIGNALS: AtomicI64 = AtomicI64::new(0);
/// Signals of ours that went with the runtime.
pub static LEAKED: AtomicI64 = AtomicI64::new(0);
/// Calls of `hsa_init` that `hsa_shut_down` did not undo; one is the program's.
pub static USERS: AtomicI64 = AtomicI64::new(1);
/// Whether the runtime says that it is initialized.
pub static OPEN: AtomicBool = AtomicBool::new(true);
/// Calls into a runtime that was gone, signals that were destroyed twice or completed once too often:
/// there must be none.
pub static WRONG: AtomicU64 = AtomicU64::new(0);
/// The tables, which the runtime makes anew when it goes.
static TABLES: OnceLock<&'static Fake> = OnceLock::new();
/// The signals that the runtime has created and not destroyed.
static OURS: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
/// Signals that went with the runtime.
static WENT: Mutex<Vec<u64>> = Mutex::new(Vec::new());
/// Packets that were completed.
pub static COMPLETED: AtomicU64 = AtomicU64::new(0);
/// Signals decremented through the runtime.
pub static DECREMENTED: AtomicU64 = AtomicU64::new(0);
/// Ticks that were converted.
pub static CONVERTED: AtomicU64 = AtomicU64::new(0);
static NEXT_QUEUE: AtomicUsize = AtomicUsize::new(0);
/// Where the next queue is to be, if not at a place of its own: that of one that was destroyed.
pub static PLACE: AtomicUsize = AtomicUsize::new(0);

/// Functions of the runtime in which a thread can be stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopPoint {
    /// A doorbell was rung.
    Ring,
    /// A signal is to be created.
    Create,
    /// A copy is asked for.
    CopyAsked,
    /// The copy is done, and its caller has not been told.
    Copy,
    /// The copy's times are asked for.
    CopyTime,
    /// The runtime loses a user.
    ShutDown,
    /// A table is to be changed; the test itself has it stop there.
    Patch,
}

/// A thread that stops in [`StopPoint`], and goes on when it is told to.
#[derive(Debug)]
pub struct Stop {
    place: StopPoint,
    /// Where it stops next.
    next: Option<&'static Stop>,
    stopped: AtomicBool,
    goes_on: AtomicBool,
}

thread_local! {
    static STOP: Cell<Option<&'static Stop>> = const { Cell::new(None) };
    static CONVERTED_HERE: Cell<u64> = const { Cell::new(0) };
}

/// Ticks that the calling thread had converted.
pub fn converted_here() -> u64 {
    CONVERTED_HERE.get()
}

impl Stop {
    /// One that has not come there yet.
    pub fn new(place: StopPoint) -> &'static Self {
        let (stopped, goes_on) = (AtomicBool::new(false), AtomicBool::new(false));
        forever(Self { place, next: None, stopped, goes_on })
    }

    /// One that passes `place` once before it stops at `next`.
    pub fn after(place: StopPoint, next: &'static Self) -> &'static Self {
        let (stopped, goes_on) = (AtomicBool::new(false), AtomicBool::new(true));
        forever(Self { place, next: Some(next), stopped, goes_on })
    }

    /// The calling thread is the one: the next time that it is there.
    pub fn arm(&'static self) {
        STOP.set(Some(self));
    }

    /// Whether the thread is there.
    pub fn reached(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Lets it go on.
    pub fn release(&self) {
        self.goes_on.store(true, Ordering::Release);
    }

    /// Stops here.
    pub fn wait(&self) {
        self.stopped.store(true, Ordering::Release);
        while !self.goes_on.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    fn at(place: StopPoint) {
        if let Some(stop) = STOP.get().filter(|stop| stop.place == place) {
            STOP.set(stop.next);
            stop.wait();
        }
    }
}

/// While set, no signal is created but by a thread that is about to stop there.
pub static DRY: AtomicBool = AtomicBool::new(false);

/// A value that lives for ever.
pub fn forever<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn zeroed<T>() -> &'static mut T {
    let layout = std::alloc::Layout::new::<T>();
    // SAFETY: used for tables, queues and signals only: atomics and integers.
    unsafe { &mut *std::alloc::alloc_zeroed(layout).cast::<T>() }
}

/// A signal of the application.
pub fn signal(value: i64, mailbox: bool) -> &'static AmdSignal {
    let signal: &'static AmdSignal = zeroed();
    signal.kind.store(abi::signal_kind::USER, Ordering::Relaxed);
    signal.value.store(value, Ordering::Relaxed);
    signal.event_mailbox.store(u64::from(mailbox), Ordering::Relaxed);
    signal
}

/// Handle of a signal.
pub fn handle(signal: &AmdSignal) -> u64 {
    core::ptr::from_ref(signal) as u64
}

fn at<T>(handle: u64) -> &'static T {
    // SAFETY: tests hand over their own leaked objects.
    unsafe { &*(handle as *const T) }
}

/// A function of the runtime is called that needs it to be there.
fn entered() {
    wrong_if(!OPEN.load(Ordering::Acquire));
}

fn wrong_if(condition: bool) {
    if condition {
        WRONG.fetch_add(1, Ordering::AcqRel);
        // Shown when the test fails.
        eprintln!("wrong: {}", Backtrace::force_capture());
    }
}

unsafe extern "C-unwind" fn store(signal: u64, value: i64) {
    entered();
    let signal = at::<AmdSignal>(signal);
    if crate::view::is_doorbell(signal) {
        // Hardware sees every write; of producers that ring out of order the largest counts.
        signal.value.fetch_max(value, Ordering::AcqRel);
        Stop::at(StopPoint::Ring);
    } else {
        signal.value.store(value, Ordering::Release);
    }
}
unsafe extern "C-unwind" fn wait(
    signal: u64,
    condition: u32,
    compare: i64,
    timeout: u64,
    _: u32,
) -> i64 {
    let signal = at::<AmdSignal>(signal);
    let deadline = crate::sys::now_ns().saturating_add(timeout);
    loop {
        let value = signal.value.load(Ordering::Acquire);
        if abi::is_satisfied(condition, value, compare) || crate::sys::now_ns() > deadline {
            return value;
        }
        std::thread::yield_now();
    }
}
unsafe extern "C-unwind" fn load(signal: u64) -> i64 {
    at::<AmdSignal>(signal).value.load(Ordering::Acquire)
}
unsafe extern "C-unwind" fn handler(
    _: u64,
    _: u32,
    _: i64,
    _: *const c_void,
    _: *mut c_void,
) -> Status {
    abi::SUCCESS
}
unsafe extern "C-unwind" fn wait_any(
    count: u32,
    signals: *const u64,
    conditions: *const u32,
    compare: *const i64,
    timeout: u64,
    state: u32,
    satisfying: *mut i64,
) -> u32 {
    assert_eq!(count, 1, "what the tests need");
    // SAFETY: valid for one element each.
    unsafe { *satisfying = wait(*signals, *conditions, *compare, timeout, state) };
    0
}
unsafe extern "C-unwind" fn subtract(signal: u64, value: i64) {
    entered();
    DECREMENTED.fetch_add(1, Ordering::Relaxed);
    at::<AmdSignal>(signal).value.fetch_sub(value, Ordering::AcqRel);
}
unsafe extern "C-unwind" fn create(
    value: i64,
    _: u32,
    _: *const u64,
    attributes: u64,
    out: *mut u64,
) -> Status {
    if DRY.load(Ordering::Acquire) && STOP.get().is_none_or(|stop| stop.place != StopPoint::Create)
    {
        return abi::ERROR;
    }
    entered();
    Stop::at(StopPoint::Create);
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    let made = handle(signal(value, attributes & abi::info::SIGNAL_GPU_ONLY == 0));
    OURS.lock().expect("whole").insert(made);
    // SAFETY: valid for writes.
    unsafe { *out = made };
    abi::SUCCESS
}
unsafe extern "C-unwind" fn destroy(signal: u64) -> Status {
    entered();
    SIGNALS.fetch_sub(1, Ordering::Relaxed);
    wrong_if(!OURS.lock().expect("whole").remove(&signal));
    at::<AmdSignal>(signal).kind.store(0, Ordering::Relaxed);
    abi::SUCCESS
}
unsafe extern "C-unwind" fn agents(each: abi::AgentCallback, data: *mut c_void) -> Status {
    entered();
    // SAFETY: as the caller promises.
    unsafe { each(AGENT, data) }
}
unsafe extern "C-unwind" fn info(_: u64, attribute: u32, value: *mut c_void) -> Status {
    if !OPEN.load(Ordering::Relaxed) {
        return abi::NOT_INITIALIZED;
    }
    if attribute == abi::info::AGENT_DEVICE {
        // SAFETY: valid for 4 bytes.
        unsafe { *value.cast::<u32>() = 1 };
    }
    abi::SUCCESS
}
unsafe extern "C-unwind" fn symbol_info(
    executable: u64,
    attribute: u32,
    value: *mut c_void,
) -> Status {
    use abi::info;
    assert_eq!(executable, EXECUTABLE, "its only symbol has the same handle");
    // SAFETY: valid for what the attribute has.
    unsafe {
        match attribute {
            info::SYMBOL_TYPE => *value.cast::<u32>() = info::KIND_KERNEL,
            info::SYMBOL_NAME_LENGTH => *value.cast::<u32>() = KERNEL.len() as u32,
            info::SYMBOL_NAME => value.copy_from(KERNEL.as_ptr().cast(), KERNEL.len()),
            info::SYMBOL_KERNEL_OBJECT => *value.cast::<u64>() = EXECUTABLE + 64,
            _ => *value.cast::<u32>() = 0,
        }
    }
    abi::SUCCESS
}
unsafe extern "C-unwind" fn executable_info(_: u64, attribute: u32, value: *mut c_void) -> Status {
    assert_eq!(attribute, abi::info::EXECUTABLE_STATE);
    // SAFETY: valid for 4 bytes.
    unsafe { *value.cast::<u32>() = u32::from(IS_FROZEN.load(Ordering::Acquire)) };
    abi::SUCCESS
}
/// Whether the executables are frozen.
pub static IS_FROZEN: AtomicBool = AtomicBool::new(true);
/// Executables that are loaded.
pub static LOADED: AtomicU64 = AtomicU64::new(0);
/// Kernels whose descriptor was asked for.
pub static DESCRIBED: AtomicU64 = AtomicU64::new(0);
/// Called when a kernel's descriptor is asked for.
pub static ON_DESCRIBE: Mutex<Option<fn(u64)>> = Mutex::new(None);

unsafe extern "C-unwind" fn loader(_: u16, _: u16, _: usize, table: *mut c_void) -> Status {
    let known = abi::LoaderTable {
        query_host_address: Some(describe),
        unused: [0; 5],
        iterate_executables: Some(executables),
    };
    // SAFETY: of that size.
    unsafe { table.cast::<abi::LoaderTable>().write(known) };
    abi::SUCCESS
}
unsafe extern "C-unwind" fn describe(_: *const c_void, _: *mut *const c_void) -> Status {
    let number = DESCRIBED.fetch_add(1, Ordering::AcqRel);
    let hook = *ON_DESCRIBE.lock().expect("whole");
    if let Some(hook) = hook {
        hook(number);
    }
    abi::ERROR
}
unsafe extern "C-unwind" fn executables(each: abi::AgentCallback, data: *mut c_void) -> Status {
    for _ in 0..LOADED.load(Ordering::Acquire) {
        // SAFETY: as the caller promises.
        unsafe { each(EXECUTABLE, data) };
    }
    abi::SUCCESS
}
unsafe extern "C-unwind" fn symbols(
    executable: u64,
    agent: u64,
    each: abi::AgentSymbolCallback,
    data: *mut c_void,
) -> Status {
    // SAFETY: as the caller promises.
    unsafe { each(executable, agent, executable, data) }
}
unsafe extern "C-unwind" fn profile(queue: *const AmdQueue, on: c_int) -> Status {
    entered();
    let bit = if on == 0 { 0 } else { abi::QUEUE_PROFILING };
    at::<AmdQueue>(queue as u64).queue_properties.store(bit, Ordering::Relaxed);
    abi::SUCCESS
}
unsafe extern "C-unwind" fn profile_copies(_: bool) -> Status {
    abi::SUCCESS
}
unsafe extern "C-unwind" fn copy_time(signal: u64, out: *mut Times) -> Status {
    entered();
    Stop::at(StopPoint::CopyTime);
    let signal = at::<AmdSignal>(signal);
    let ns = |ticks: &AtomicU64| ticks.load(Ordering::Relaxed) - TICKS;
    // SAFETY: valid for writes.
    unsafe { *out = Times { start: ns(&signal.start_ts), end: ns(&signal.end_ts) } };
    abi::SUCCESS
}
unsafe extern "C-unwind" fn convert_tick(agent: u64, tick: u64, out: *mut u64) -> Status {
    entered();
    assert_eq!(agent, AGENT);
    CONVERTED.fetch_add(1, Ordering::Relaxed);
    CONVERTED_HERE.set(CONVERTED_HERE.get() + 1);
    // SAFETY: valid for writes.
    unsafe { *out = tick.wrapping_sub(TICKS) };
    abi::SUCCESS
}
unsafe extern "C-unwind" fn init() -> Status {
    USERS.fetch_add(1, Ordering::AcqRel);
    OPEN.store(true, Ordering::Release);
    abi::SUCCESS
}
unsafe extern "C-unwind" fn shut_down() -> Status {
    entered();
    Stop::at(StopPoint::ShutDown);
    if USERS.fetch_sub(1, Ordering::AcqRel) == 1 {
        TABLES.get().expect("there").make_anew();
        OPEN.store(false, Ordering::Release);
        let left = TABLES.get().expect("there").gone();
        LEAKED.fetch_add(left, Ordering::Relaxed);
    }
    abi::SUCCESS
}

/// Value of a signal whose memory is gone.
const GONE: i64 = i64::MIN / 2;

/// Whether nobody has touched the memory of signals that is gone.
pub fn the_dead_rest() -> bool {
    let went = WENT.lock().expect("whole");
    went.iter().all(|&signal| at::<AmdSignal>(signal).value.load(Ordering::Relaxed) == GONE)
}

/// Another tool: it counts what it passes on to whatever stood in the entry.
pub mod tool {
    use super::{AmdSignal, Fake, Ordering, Status, at};
    use crate::abi::{self, Entry};

    static STORE: Entry<abi::SignalStore> = Entry::EMPTY;
    static SHUT_DOWN: Entry<abi::ShutDown> = Entry::EMPTY;
    static DESTROY: Entry<abi::SignalDestroy> = Entry::EMPTY;

    unsafe extern "C-unwind" fn store(signal: u64, value: i64) {
        at::<AmdSignal>(signal).kind.load(Ordering::Relaxed);
        // SAFETY: the application's call, passed on.
        unsafe { STORE.get().expect("saved")(signal, value) };
    }
    unsafe extern "C-unwind" fn shut_down() -> Status {
        // SAFETY: the application's call, passed on.
        unsafe { SHUT_DOWN.get().expect("saved")() }
    }
    unsafe extern "C-unwind" fn destroy(signal: u64) -> Status {
        // SAFETY: the application's call, passed on.
        unsafe { DESTROY.get().expect("saved")(signal) }
    }

    /// Puts its functions into the tables, once after they were made.
    pub fn cover(fake: &Fake) {
        macro_rules! cover {
            ($($entry:ident => $saved:ident, $own:path;)*) => {$({
                let (entry, own) = (&fake.core.$entry.0, $own as *const () as usize);
                let current = entry.load(Ordering::Relaxed);
                if current != own {
                    $saved.0.store(current, Ordering::Relaxed);
                    entry.store(own, Ordering::Release);
                }
            })*};
        }
        cover! {
            signal_store_relaxed => STORE, store;
            shut_down => SHUT_DOWN, shut_down;
            signal_destroy => DESTROY, destroy;
        }
    }
}
unsafe extern "C-unwind" fn executable_destroy(_: u64) -> Status {
    abi::SUCCESS
}
unsafe extern "C-unwind" fn freeze(_: u64, _: *const c_char) -> Status {
    abi::SUCCESS
}
/// A queue or a table on a page of its own, so that a thread that touches it is found out.
fn fresh_page<T>() -> &'static mut T {
    const { assert!(size_of::<T>() <= 4096) };
    // SAFETY: a fresh mapping of a page of zeros, which are valid for both.
    unsafe {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let flags = flags | libc::MAP_ANONYMOUS;
        let page = libc::mmap(core::ptr::null_mut(), 4096, access, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        &mut *page.cast::<T>()
    }
}

/// A queue where a destroyed one was.
fn again(place: usize) -> &'static AmdQueue {
    protect(place, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a page of ours that nobody uses.
    unsafe { (place as *mut u8).write_bytes(0, 4096) };
    at(place as u64)
}

pub fn protect(page: usize, access: c_int) {
    // SAFETY: a page that `fresh_page` made.
    assert_eq!(unsafe { libc::mprotect(page as *mut c_void, 4096, access) }, 0);
}

unsafe extern "C-unwind" fn queue_create(
    _: u64,
    size: u32,
    _: u32,
    _: *const c_void,
    _: *mut c_void,
    _: u32,
    _: u32,
    out: *mut *const AmdQueue,
) -> Status {
    let queue = match PLACE.swap(0, Ordering::Relaxed) {
        0 => fresh_page(),
        place => again(place),
    };
    let packets: Vec<Packet> = (0..size)
        .map(|_| {
            let packet = Packet([const { AtomicU64::new(0) }; 8]);
            packet.0[0].store(u64::from(abi::packet_type::INVALID), Ordering::Relaxed);
            packet
        })
        .collect();
    queue.base_address.store(packets.leak().as_ptr() as usize, Ordering::Relaxed);
    queue.size.store(size, Ordering::Relaxed);
    queue.id.store(NEXT_QUEUE.fetch_add(1, Ordering::Relaxed) as u64, Ordering::Relaxed);
    let doorbell = signal(-1, false);
    doorbell.kind.store(abi::signal_kind::DOORBELL, Ordering::Relaxed);
    doorbell.queue.store(core::ptr::from_ref(queue) as usize, Ordering::Relaxed);
    queue.doorbell_signal.store(handle(doorbell), Ordering::Relaxed);
    // SAFETY: valid for writes.
    unsafe { *out = queue };
    abi::SUCCESS
}
unsafe extern "C-unwind" fn queue_destroy(queue: *const AmdQueue) -> Status {
    protect(queue as usize, libc::PROT_NONE);
    abi::SUCCESS
}
fn write_index(queue: *const AmdQueue) -> &'static AtomicU64 {
    let queue: &AmdQueue = at(queue as u64);
    &queue.write_dispatch_id
}
unsafe extern "C-unwind" fn add_write_index(queue: *const AmdQueue, value: u64) -> u64 {
    write_index(queue).fetch_add(value, Ordering::AcqRel)
}
unsafe extern "C-unwind" fn cas_write_index(queue: *const AmdQueue, old: u64, new: u64) -> u64 {
    let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
    let seen = write_index(queue).compare_exchange(old, new, order, failed);
    seen.unwrap_or_else(|seen| seen)
}
unsafe extern "C-unwind" fn store_write_index(queue: *const AmdQueue, value: u64) {
    write_index(queue).store(value, Ordering::Release);
}
unsafe extern "C-unwind" fn copy(
    _: *mut c_void,
    _: u64,
    _: *const c_void,
    _: u64,
    size: usize,
    _: u32,
    _: *const u64,
    completion: u64,
) -> Status {
    if size == 13 {
        return abi::ERROR;
    }
    Stop::at(StopPoint::CopyAsked);
    complete(at(completion), 5, 6);
    Stop::at(StopPoint::Copy);
    abi::SUCCESS
}

/// The runtime's tables.
pub struct Fake {
    /// The table that `OnLoad` receives.
    pub root: &'static ApiTable,
    /// The core table.
    pub core: &'static CoreTable,
    /// The extension's.
    pub amd: AmdExtTable,
}

// SAFETY: tables of atomics that live for ever.
unsafe impl Sync for Fake {}

impl Fake {
    /// The tables of the one runtime.
    pub fn the() -> &'static Self {
        TABLES.get_or_init(Self::new)
    }

    /// The runtime goes and comes again: its tables are fresh. Packets in flight go on, as far as the test lets them.
    pub fn renewed(&self) -> &Self {
        self.make_anew();
        self
    }

    /// The memory of signals goes, with those that were not destroyed, which are counted: a thread that looks at them
    /// finds nonsense.
    pub fn gone(&self) -> i64 {
        let left = core::mem::take(&mut *OURS.lock().expect("whole"));
        SIGNALS.store(0, Ordering::Relaxed);
        for &signal in &left {
            at::<AmdSignal>(signal).value.store(GONE, Ordering::Relaxed);
        }
        let count = left.len() as i64;
        WENT.lock().expect("whole").extend(left);
        count
    }

    /// Fresh tables, of a runtime of their own.
    pub fn new() -> &'static Self {
        let core: &'static mut CoreTable = fresh_page();
        // As long as its version says: that of ROCm 7.2.
        let table: &'static mut [u64; 78] = zeroed();
        let version = |major, minor| abi::Version { major, minor, step: 0, reserved: 0 };
        core.version = version(2, size_of::<CoreTable>() as u32);
        // SAFETY: the beginning of 624 bytes of zeros, of which the table is made.
        let amd = unsafe {
            let at = table.as_mut_ptr().cast::<abi::Version>();
            at.write(version(2, size_of_val(table) as u32));
            AmdExtTable::at(&*at, AmdExtLayout::Since5_6)
        };
        let amd = amd.expect("all of its entries");
        let root: &'static mut ApiTable = zeroed();
        root.version = version(3, 32);
        let core: &'static CoreTable = core;
        (root.core, root.amd_ext) = (core, amd.version);
        let fake = forever(Self { root, core, amd });
        fake.make_anew();
        fake
    }

    fn make_anew(&self) {
        let Self { core, amd, .. } = self;
        macro_rules! set {
            ($($entry:expr => $function:expr),* $(,)?) => {
                $($entry.0.store($function as *const () as usize, Ordering::Relaxed);)*
            };
        }
        set! {
            core.init => init, core.shut_down => shut_down, core.iterate_agents => agents,
            core.agent_get_info => info, core.queue_create => queue_create,
            core.queue_destroy => queue_destroy, core.signal_destroy => destroy,
            core.queue_store_write_index_relaxed => store_write_index,
            core.queue_store_write_index_screlease => store_write_index,
            core.queue_cas_write_index_scacq_screl => cas_write_index,
            core.queue_cas_write_index_scacquire => cas_write_index,
            core.queue_cas_write_index_relaxed => cas_write_index,
            core.queue_cas_write_index_screlease => cas_write_index,
            core.queue_add_write_index_scacq_screl => add_write_index,
            core.queue_add_write_index_scacquire => add_write_index,
            core.queue_add_write_index_relaxed => add_write_index,
            core.queue_add_write_index_screlease => add_write_index,
            core.signal_load_relaxed => load, core.signal_load_scacquire => load,
            amd.signal_async_handler => handler, amd.signal_wait_any => wait_any,
            core.signal_store_relaxed => store, core.signal_store_screlease => store,
            core.signal_subtract_screlease => subtract, core.executable_freeze => freeze,
            core.executable_destroy => executable_destroy,
            core.executable_get_info => executable_info,
            core.executable_symbol_get_info => symbol_info,
            core.system_get_major_extension_table => loader,
            core.signal_wait_relaxed => wait, core.signal_wait_scacquire => wait,
            core.signal_silent_store_relaxed => store,
            core.signal_silent_store_screlease => store,
            core.executable_iterate_agent_symbols => symbols,
            amd.profiling_set_profiler_enabled => profile,
            amd.profiling_async_copy_enable => profile_copies,
            amd.profiling_get_async_copy_time => copy_time,
            amd.profiling_convert_tick_to_system_domain => convert_tick,
            amd.memory_async_copy => copy, amd.signal_create => create,
            amd.memory_async_copy_rect => copy,
            amd.memory_async_copy_on_engine.expect("there") => copy,
            amd.signal_wait_all.expect("there") => wait_any,
        }
    }

    /// Waits through the tables until `signal` is below `compare`.
    pub fn wait(&self, signal: &AmdSignal, compare: i64) -> i64 {
        let wait = self.core.signal_wait_scacquire.get().expect("there");
        // SAFETY: a signal of the test's.
        unsafe { wait(handle(signal), 2, compare, 30_000_000_000, 0) }
    }

    /// A new queue, through the tables, with a packet processor.
    pub fn queue(&self, size: u32) -> FakeQueue {
        let mut out = core::ptr::null();
        let create = self.core.queue_create.get().expect("there");
        // SAFETY: the arguments are as the runtime wants them.
        let status = unsafe {
            create(AGENT, size, 0, core::ptr::null(), core::ptr::null_mut(), 0, 0, &raw mut out)
        };
        assert_eq!(status, abi::SUCCESS);
        FakeQueue { amd: at(out as u64), core: self.core, processor: None, stop: Arc::default() }
    }
}

/// A queue and its packet processor.
pub struct FakeQueue {
    /// The queue.
    pub amd: &'static AmdQueue,
    core: &'static CoreTable,
    processor: Option<std::thread::JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

/// The gate that a packet's kernel needs to begin, by packet index; a packet that is not listed needs none.
pub type Gates = Arc<Mutex<BTreeMap<u64, &'static AtomicBool>>>;

impl FakeQueue {
    /// The table that it is used through.
    pub fn core(&self) -> &'static CoreTable {
        self.core
    }

    /// Reserves a packet, through the tables.
    pub fn reserve(&self) -> u64 {
        let add = self.core.queue_add_write_index_screlease.get().expect("there");
        // SAFETY: its own queue.
        let index = unsafe { add(self.amd, 1) };
        let size = u64::from(self.amd.size.load(Ordering::Relaxed));
        while index >= self.amd.read_dispatch_id.load(Ordering::Acquire) + size {
            std::thread::yield_now();
        }
        index
    }

    /// Publishes a reserved packet.
    pub fn publish(&self, index: u64, kind: u8, barrier: bool, kernel: u64, completion: u64) {
        let packet = &packets(self.amd)[index as usize % packets(self.amd).len()];
        packet.0[4].store(kernel, Ordering::Relaxed);
        packet.0[7].store(completion, Ordering::Relaxed);
        let header = u64::from(kind) | if barrier { u64::from(abi::HEADER_BARRIER) } else { 0 };
        packet.0[0].store(header, Ordering::Release);
    }

    /// Rings the doorbell through the tables.
    pub fn ring(&self, index: u64) {
        let store = self.core.signal_store_screlease.get().expect("there");
        // SAFETY: the queue's own doorbell.
        unsafe { store(self.amd.doorbell_signal.load(Ordering::Relaxed), index as i64) };
    }

    /// Reserves, publishes and rings a dispatch.
    pub fn dispatch(&self, barrier: bool, completion: u64) -> u64 {
        let index = self.reserve();
        self.publish(index, abi::packet_type::DISPATCH, barrier, index + 1, completion);
        self.ring(index);
        index
    }

    /// Starts the packet processor.
    pub fn start(&mut self, seed: u64, gates: &Gates) {
        let (amd, stop, gates) = (self.amd, Arc::clone(&self.stop), Arc::clone(gates));
        self.processor = Some(std::thread::spawn(move || process(amd, &stop, seed, &gates)));
    }

    /// Destroys the queue through the tables and stops its processor.
    pub fn destroy(mut self) {
        self.halt();
        let destroy = self.core.queue_destroy.get().expect("there");
        // SAFETY: its own queue.
        assert_eq!(unsafe { destroy(self.amd) }, abi::SUCCESS);
    }

    /// Stops its processor.
    pub fn halt(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(processor) = self.processor.take() {
            processor.join().expect("the processor ends well");
        }
    }
}

fn packets(amd: &'static AmdQueue) -> &'static [Packet] {
    crate::view::packets(amd).expect("valid")
}

/// Completes a packet's signal as the hardware does.
fn complete(signal: &AmdSignal, start: u64, end: u64) {
    signal.start_ts.store(start + TICKS, Ordering::Relaxed);
    signal.end_ts.store(end + TICKS, Ordering::Relaxed);
    // Before the decrement: afterwards it may be destroyed at any time.
    let there = signal.kind.load(Ordering::Acquire) == abi::signal_kind::USER;
    let before = signal.value.fetch_sub(1, Ordering::AcqRel);
    COMPLETED.fetch_add(1, Ordering::AcqRel);
    // Neither completed before, nor destroyed while a packet had it. The memory of one that went with
    // the runtime is the hardware's problem.
    wrong_if(before > GONE / 2 && (before < 1 || !there));
}

/// Runs packets up to the doorbell, some at once, until told to stop.
fn process(amd: &'static AmdQueue, stop: &AtomicBool, seed: u64, gates: &Gates) {
    let mut random = Random::new(seed);
    let ring = packets(amd);
    let doorbell: &AmdSignal = at(amd.doorbell_signal.load(Ordering::Relaxed));
    let mut running: Vec<(u64, u64)> = Vec::new();
    let mut next = 0;
    while !stop.load(Ordering::Acquire) {
        let rung = doorbell.value.load(Ordering::Acquire);
        let mut idle = true;
        while (next as i64) <= rung && running.len() < 16 {
            let packet = &ring[next as usize % ring.len()];
            let header = packet.0[0].load(Ordering::Acquire) as u16;
            let barrier = header & abi::HEADER_BARRIER != 0 && !running.is_empty();
            if header as u8 == abi::packet_type::INVALID || barrier {
                break;
            }
            running.push((next, packet.0[7].load(Ordering::Acquire)));
            packet.0[0].store(u64::from(abi::packet_type::INVALID), Ordering::Release);
            next += 1;
            amd.read_dispatch_id.store(next, Ordering::Release);
            idle = false;
        }
        if !running.is_empty() {
            let at_random = random.below(running.len() as u64) as usize;
            let (index, completion) = running[at_random];
            let gate = gates.lock().expect("whole").get(&index).copied();
            if gate.is_none_or(|gate| gate.load(Ordering::Acquire)) {
                running.swap_remove(at_random);
                if completion != 0 {
                    // Times by which a test knows the packet.
                    complete(at(completion), 2 * index + 1, 2 * index + 2);
                }
                idle = false;
            }
        }
        if idle {
            std::thread::yield_now();
        }
    }
}
