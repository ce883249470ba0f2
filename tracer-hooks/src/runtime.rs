//! The runtime's own functions, saved from its tables before they were patched.
//!
//! Every call into the runtime goes through here. A function that the runtime implements as `void`
//! aborts the process when it is handed an invalid signal (`CATCHRET` in its `hsa.cpp`), so handles
//! that the application owns are checked before.

#![expect(unsafe_code, reason = "calls through the runtime's function pointers")]

use core::ffi::{CStr, c_void};
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use tracer_common::hsa_layout::{self, AmdExtLayout, TableVersion};

use crate::abi::{self, AmdQueue, ApiTable, Entry, Status, Times, ToolTable, Version};
use crate::originals::Patched;
use crate::stubs::{self, Library};
use crate::{sys, view};

/// The reason for which a runtime's tables are refused; nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsupported {
    /// A table is missing, or its layout is not known: see [`hsa_layout`].
    Tables,
    /// An entry that is needed is empty.
    Entry,
    /// The tables are those of a second runtime in the process; the first one is hooked.
    Second,
    /// Another tool stands in an entry of tables that were made anew, and may call us from below.
    Covered,
}

impl<F: Copy> Entry<F> {
    #[expect(clippy::declare_interior_mutable_const, reason = "only initializes statics")]
    pub(crate) const EMPTY: Self = {
        assert!(size_of::<F>() == size_of::<usize>());
        // SAFETY: an entry is an atomic word and nothing; zero is valid for it.
        unsafe { core::mem::zeroed() }
    };

    #[inline]
    pub(crate) fn address(&self) -> usize {
        // Acquire pairs with the Release in `set`: a tool's state is ready before its function.
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, address: usize) {
        // Release pairs with the Acquire in `address`.
        self.0.store(address, Ordering::Release);
    }

    /// The function, if there is one.
    #[inline]
    pub(crate) fn get(&self) -> Option<F> {
        let address = self.address();
        // SAFETY: `F` is a function pointer type (the size was asserted, the types of the tables
        // say which), and a nonzero word in such an entry is a function of that type.
        (address != 0).then(|| unsafe { core::mem::transmute_copy::<usize, F>(&address) })
    }
}

/// The runtime's tables, of a layout that this code knows.
#[derive(Clone, Copy)]
pub struct Tables {
    pub(crate) core: &'static abi::CoreTable,
    pub(crate) amd: abi::AmdExtTable,
    /// Which order the entries of `amd` have.
    pub(crate) layout: AmdExtLayout,
    /// That of images, if it is there and known.
    pub(crate) image: Option<&'static Version>,
}

impl Tables {
    /// The tables that `OnLoad` receives.
    ///
    /// # Errors
    ///
    /// [`Unsupported::Tables`].
    ///
    /// # Safety
    ///
    /// `root` is null or points at the runtime's own tables, which live as long as the process.
    pub unsafe fn of(root: *const ApiTable) -> Result<Self, Unsupported> {
        // SAFETY: by the contract; the size is read before anything behind it.
        unsafe {
            let version = root.cast::<Version>().as_ref().ok_or(Unsupported::Tables)?;
            let has = |end: usize| version.minor as usize >= end;
            if !has(offset_of!(ApiTable, amd_ext) + 8) {
                return Err(Unsupported::Tables);
            }
            let image = match has(offset_of!(ApiTable, image) + 8) {
                true => (&raw const (*root).image).read(),
                false => ptr::null(),
            };
            let core = (&raw const (*root).core).read();
            let amd = (&raw const (*root).amd_ext).read();
            Self::at(core as u64, amd as u64).map(|tables| tables.with_images(image))
        }
    }

    /// The tables that two exported functions of the runtime jump through, `hsa_agent_get_info` and
    /// `hsa_amd_coherency_get_type`, which have the same places in all releases.
    ///
    /// # Errors
    ///
    /// [`Unsupported::Tables`].
    ///
    /// # Safety
    ///
    /// They are those functions, of a library that is never unloaded.
    pub unsafe fn behind(agent_get_info: usize, coherency: usize) -> Result<Self, Unsupported> {
        let table = |function, place: usize| {
            let entry = stubs::entry_of(function).ok_or(Unsupported::Tables)?;
            Ok(entry.wrapping_sub(place) as u64)
        };
        let core = table(agent_get_info, offset_of!(abi::CoreTable, agent_get_info))?;
        let amd = table(coherency, hsa_layout::VERSION_BYTES as usize)?;
        // SAFETY: a stub jumps through the runtime's own table.
        unsafe { Self::at(core, amd) }
    }

    /// The tables at two addresses that the caller has found out.
    ///
    /// # Errors
    ///
    /// [`Unsupported::Tables`], also for what cannot be tables.
    ///
    /// # Safety
    ///
    /// Either address is wrong, or the runtime's own table is there, which lives as long as the
    /// process. That a wrong one is found out is likely, not certain: it can be read and begins
    /// with the right version and size.
    pub unsafe fn at(core: u64, amd: u64) -> Result<Self, Unsupported> {
        // SAFETY: the caller's promise. Both can be read for as long as they say to be, and are aligned
        // for words, of which the tables are made.
        unsafe {
            let core_version = readable(core as usize).ok_or(Unsupported::Tables)?;
            let amd_version = readable(amd as usize).ok_or(Unsupported::Tables)?;
            let library = Library::of(core as usize);
            let stub = |table| {
                let library = library.as_ref();
                move |name| library.and_then(|library| library.offset_in(table, name))
            };
            hsa_layout::core(known(core_version), stub(core as usize))
                .map_err(|_| Unsupported::Tables)?;
            let layout = hsa_layout::amd_ext(known(amd_version), stub(amd as usize))
                .map_err(|_| Unsupported::Tables)?;
            let amd = abi::AmdExtTable::at(amd_version, layout).ok_or(Unsupported::Tables)?;
            Ok(Self { core: &*(core as *const abi::CoreTable), amd, layout, image: None })
        }
    }

    /// The same with the table of images, if that is known.
    ///
    /// # Safety
    ///
    /// `table` is null or points at the runtime's own table, which lives as long as the process.
    unsafe fn with_images(self, table: *const Version) -> Self {
        // SAFETY: the caller's promise.
        let image = unsafe { readable(table as usize) }.filter(|version| {
            let library = Library::of(self.address());
            let stub = |name| library.as_ref()?.offset_in(table as usize, name);
            hsa_layout::image(known(version), stub).is_ok()
        });
        Self { image, ..self }
    }

    /// An address in the runtime's library.
    pub(crate) fn address(&self) -> usize {
        ptr::from_ref(self.core) as usize
    }

    /// The table of functions that the runtime calls if a tool has set them, if it has that. Its root table, which leads
    /// there, stands just in front of the core's, and says how long it is.
    pub(crate) fn tool_table(&self) -> Option<&'static ToolTable> {
        const WITH_TOOLS: usize = offset_of!(ApiTable, tools) + size_of::<usize>();
        const WITH_PC_SAMPLING: usize = WITH_TOOLS + size_of::<usize>();
        let core = ptr::from_ref(self.core);
        // SAFETY: it can be read, is of the runtime's library, which stays, and is made of words.
        let root = |bytes: &usize| unsafe {
            let root = (core as usize).wrapping_sub(*bytes);
            let version = readable(root).filter(|version| version.minor as usize == *bytes)?;
            let root = &*ptr::from_ref(version).cast::<ApiTable>();
            (root.core == core).then_some(root.tools)
        };
        let tools = [WITH_TOOLS, WITH_PC_SAMPLING].iter().find_map(root)?;
        // SAFETY: as above; it leads to what the runtime calls.
        unsafe {
            let version = readable(tools as usize)?;
            let is_known = version.major == 1 && version.minor as usize >= size_of::<ToolTable>();
            is_known.then(|| &*tools)
        }
    }

    /// Whether the runtime is initialized, or being initialized by another thread right now.
    pub fn is_open(&self) -> bool {
        is_open(self.core.agent_get_info.get())
    }

    /// Keeps an open runtime open, having waited until it is initialized.
    ///
    /// The runtime counts its users, under a lock that it also holds while it initializes.
    pub fn hold(self, patched: Patched) -> Option<Hold> {
        // The runtime's own function: our hook would take it for the application's call.
        let shut_down = match patched {
            Patched::Already => RUNTIME.shut_down.get()?,
            Patched::NotYet => self.core.shut_down.get()?,
        };
        // SAFETY: takes nothing.
        let status = unsafe { self.core.init.get()?() };
        (status == abi::SUCCESS).then_some(Hold(shut_down))
    }
}

/// No function of 5.2.3 asks for that alone; this one checks it first, then refuses the null pointer.
fn is_open(agent_get_info: Option<abi::GetInfo>) -> bool {
    // SAFETY: a null pointer is what the function checks for before it looks at the agent.
    let status = agent_get_info.map(|get| unsafe { get(0, 0, ptr::null_mut()) });
    status.is_some_and(|status| status != abi::NOT_INITIALIZED)
}

/// A use of the runtime of our own. It ends only by `closing::one_user_less`: it may be the
/// last.
#[must_use]
pub struct Hold(abi::ShutDown);

impl Hold {
    /// Ends it.
    pub fn end(self) -> Status {
        // SAFETY: takes nothing, and undoes one `hsa_init`.
        unsafe { (self.0)() }
    }
}

fn addresses(core: &abi::CoreTable, amd: &abi::AmdExtTable) -> [usize; 2] {
    [ptr::from_ref(core) as usize, ptr::from_ref(amd.version) as usize]
}

/// The table at `address`, if as much of it can be read as it says to have.
///
/// # Safety
///
/// As much as can be read there lives as long as the process.
unsafe fn readable(address: usize) -> Option<&'static Version> {
    if !sys::is_readable(address, size_of::<Version>()) {
        return None;
    }
    // SAFETY: it can be read and is aligned, as was just seen, and is integers.
    let version = unsafe { &*(address as *const Version) };
    sys::is_readable(address, version.minor as usize).then_some(version)
}

fn known(version: &Version) -> TableVersion {
    TableVersion { major: version.major, bytes: version.minor }
}

/// The saved functions.
pub struct Runtime {
    /// Addresses of the core table and of the extension's; 0 before anything was hooked.
    tables: [AtomicUsize; 2],
    pub(crate) init: Entry<abi::ShutDown>,
    pub(crate) shut_down: Entry<abi::ShutDown>,
    pub(crate) iterate_agents: Entry<abi::IterateAgents>,
    pub(crate) agent_get_info: Entry<abi::GetInfo>,
    pub(crate) queue_create: Entry<abi::QueueCreate>,
    pub(crate) queue_destroy: Entry<abi::QueueDestroy>,
    pub(crate) store_write_index_relaxed: Entry<abi::StoreWriteIndex>,
    pub(crate) store_write_index_screlease: Entry<abi::StoreWriteIndex>,
    pub(crate) cas_write_index_scacq_screl: Entry<abi::CasWriteIndex>,
    pub(crate) cas_write_index_scacquire: Entry<abi::CasWriteIndex>,
    pub(crate) cas_write_index_relaxed: Entry<abi::CasWriteIndex>,
    pub(crate) cas_write_index_screlease: Entry<abi::CasWriteIndex>,
    pub(crate) add_write_index_scacq_screl: Entry<abi::AddWriteIndex>,
    pub(crate) add_write_index_scacquire: Entry<abi::AddWriteIndex>,
    pub(crate) add_write_index_relaxed: Entry<abi::AddWriteIndex>,
    pub(crate) add_write_index_screlease: Entry<abi::AddWriteIndex>,
    pub(crate) signal_destroy: Entry<abi::SignalDestroy>,
    pub(crate) load_relaxed: Entry<abi::SignalLoad>,
    pub(crate) load_scacquire: Entry<abi::SignalLoad>,
    pub(crate) async_handler: Entry<abi::AsyncHandler>,
    pub(crate) wait_any: Entry<abi::WaitAny>,
    pub(crate) wait_all: Entry<abi::WaitAny>,
    pub(crate) store_relaxed: Entry<abi::SignalStore>,
    pub(crate) store_screlease: Entry<abi::SignalStore>,
    pub(crate) wait_relaxed: Entry<abi::SignalWait>,
    pub(crate) wait_scacquire: Entry<abi::SignalWait>,
    pub(crate) silent_store_relaxed: Entry<abi::SignalStore>,
    pub(crate) silent_store_screlease: Entry<abi::SignalStore>,
    pub(crate) subtract_screlease: Entry<abi::SignalStore>,
    pub(crate) executable_destroy: Entry<abi::ExecutableDestroy>,
    pub(crate) executable_freeze: Entry<abi::ExecutableFreeze>,
    pub(crate) executable_get_info: Entry<abi::GetInfo>,
    pub(crate) symbol_get_info: Entry<abi::GetInfo>,
    pub(crate) major_extension_table: Entry<abi::MajorExtensionTable>,
    pub(crate) iterate_agent_symbols: Entry<abi::IterateAgentSymbols>,
    pub(crate) set_profiler: Entry<abi::SetProfiler>,
    pub(crate) copy_profiling: Entry<abi::CopyProfiling>,
    pub(crate) convert_tick: Entry<abi::ConvertTick>,
    pub(crate) copy_time: Entry<abi::CopyTime>,
    pub(crate) async_copy: Entry<abi::AsyncCopy>,
    pub(crate) async_copy_on_engine: Entry<abi::AsyncCopyOnEngine>,
    pub(crate) async_copy_rect: Entry<abi::AsyncCopyRect>,
    pub(crate) signal_create: Entry<abi::SignalCreate>,
}

/// The one runtime of the process.
pub static RUNTIME: Runtime = Runtime {
    tables: [AtomicUsize::new(0), AtomicUsize::new(0)],
    init: Entry::EMPTY,
    shut_down: Entry::EMPTY,
    iterate_agents: Entry::EMPTY,
    agent_get_info: Entry::EMPTY,
    queue_create: Entry::EMPTY,
    queue_destroy: Entry::EMPTY,
    store_write_index_relaxed: Entry::EMPTY,
    store_write_index_screlease: Entry::EMPTY,
    cas_write_index_scacq_screl: Entry::EMPTY,
    cas_write_index_scacquire: Entry::EMPTY,
    cas_write_index_relaxed: Entry::EMPTY,
    cas_write_index_screlease: Entry::EMPTY,
    add_write_index_scacq_screl: Entry::EMPTY,
    add_write_index_scacquire: Entry::EMPTY,
    add_write_index_relaxed: Entry::EMPTY,
    add_write_index_screlease: Entry::EMPTY,
    signal_destroy: Entry::EMPTY,
    load_relaxed: Entry::EMPTY,
    load_scacquire: Entry::EMPTY,
    async_handler: Entry::EMPTY,
    wait_any: Entry::EMPTY,
    wait_all: Entry::EMPTY,
    store_relaxed: Entry::EMPTY,
    store_screlease: Entry::EMPTY,
    wait_relaxed: Entry::EMPTY,
    wait_scacquire: Entry::EMPTY,
    silent_store_relaxed: Entry::EMPTY,
    silent_store_screlease: Entry::EMPTY,
    subtract_screlease: Entry::EMPTY,
    executable_destroy: Entry::EMPTY,
    executable_freeze: Entry::EMPTY,
    executable_get_info: Entry::EMPTY,
    symbol_get_info: Entry::EMPTY,
    major_extension_table: Entry::EMPTY,
    iterate_agent_symbols: Entry::EMPTY,
    set_profiler: Entry::EMPTY,
    copy_profiling: Entry::EMPTY,
    convert_tick: Entry::EMPTY,
    copy_time: Entry::EMPTY,
    async_copy: Entry::EMPTY,
    async_copy_on_engine: Entry::EMPTY,
    async_copy_rect: Entry::EMPTY,
    signal_create: Entry::EMPTY,
};

impl Runtime {
    /// Whether tables are those of the runtime that was hooked, or of the first one.
    pub(crate) fn check_that_it_is_of(
        &self,
        core: &abi::CoreTable,
        amd: &abi::AmdExtTable,
    ) -> Result<(), Unsupported> {
        // Acquire pairs with the Release in `is_of`.
        let known = self.tables.each_ref().map(|table| table.load(Ordering::Acquire));
        let same = known == [0, 0] || known == addresses(core, amd);
        if same { Ok(()) } else { Err(Unsupported::Second) }
    }

    /// Whether the tables are those of the runtime that was hooked.
    pub(crate) fn has(&self, tables: &Tables) -> bool {
        // Acquire pairs with the Release in `is_of`.
        let known = self.tables.each_ref().map(|table| table.load(Ordering::Acquire));
        known == addresses(tables.core, &tables.amd)
    }

    pub(crate) fn remember_tables(&self, core: &abi::CoreTable, amd: &abi::AmdExtTable) {
        for (table, address) in self.tables.iter().zip(addresses(core, amd)) {
            // Pairs with the Acquire in `check_that_it_is_of`, and in `is_gone`.
            table.store(address, Ordering::Release);
        }
    }

    /// As [`Tables::is_open`].
    pub fn is_open(&self) -> bool {
        is_open(self.agent_get_info.get())
    }

    /// Whether the runtime was shut down for good since our hooks were put into its tables, even if
    /// it was initialized anew: it makes its tables afresh when it goes.
    pub fn is_gone(&self) -> bool {
        let core = self.tables[0].load(Ordering::Acquire) as *const abi::CoreTable;
        // SAFETY: null, or the table that was hooked; its library is never unloaded.
        let entry = unsafe { core.as_ref() }.map_or(0, |core| core.shut_down.address());
        !self.is_open() || entry == self.shut_down.address()
    }

    /// Keeps the open runtime open.
    pub fn hold(&self) -> Option<Hold> {
        let shut_down = self.shut_down.get()?;
        // SAFETY: takes nothing.
        let status = unsafe { self.init.get()?() };
        (status == abi::SUCCESS).then_some(Hold(shut_down))
    }

    /// Rings a doorbell.
    #[inline]
    pub fn ring(&self, doorbell: u64, value: i64) {
        if let Some(store) = self.store_screlease.get() {
            // SAFETY: the handle is the doorbell that the application rings, or its queue's.
            unsafe { store(doorbell, value) };
        }
    }

    /// Decrements an application's signal and wakes its waiters, through the runtime.
    pub fn decrement(&self, signal: u64) {
        if let Some(subtract) = self.subtract_screlease.get() {
            // SAFETY: the caller checked that the signal is alive.
            unsafe { subtract(signal, 1) };
        }
    }

    /// A new signal of value 1 that only the GPU and we look at.
    pub fn create_signal(&self) -> Option<u64> {
        self.create(abi::info::SIGNAL_GPU_ONLY)
    }

    /// A new signal of value 1 that raises an interrupt when it completes; `None` if the driver has no
    /// event left for it, or the runtime uses none.
    pub fn create_bell(&self) -> Option<u64> {
        let signal = self.create(0)?;
        let rings =
            view::signal(signal).is_some_and(|s| s.event_mailbox.load(Ordering::Relaxed) != 0);
        if !rings {
            self.destroy_signal(signal);
        }
        rings.then_some(signal)
    }

    fn create(&self, attributes: u64) -> Option<u64> {
        let create = self.signal_create.get()?;
        let mut signal = 0;
        // SAFETY: no consumers are named; `signal` is valid for writes.
        let status = unsafe { create(1, 0, ptr::null(), attributes, &raw mut signal) };
        (status == abi::SUCCESS && signal != 0).then_some(signal)
    }

    /// Waits until a signal made by [`Runtime::create_bell`] is done, for at most `timeout_ns`: as the
    /// runtime waits, so it spins first and sleeps then.
    pub fn wait_until_done(&self, signal: u64, timeout_ns: u64) {
        if let Some(wait) = self.wait_scacquire.get() {
            // SAFETY: the signal is ours; the runtime keeps one that somebody waits for.
            unsafe { wait(signal, abi::BELOW, 1, timeout_ns, abi::wait_state::BLOCKED) };
        }
    }

    /// Destroys a signal made by [`Runtime::create_signal`] or [`Runtime::create_bell`].
    pub fn destroy_signal(&self, signal: u64) {
        if let Some(destroy) = self.signal_destroy.get() {
            // SAFETY: the signal is ours, and its last user is gone.
            unsafe { destroy(signal) };
        }
    }

    /// The time, in ns of the runtime's own clock, to which the runtime converts a tick of `agent`'s.
    pub fn tick_ns(&self, agent: u64, tick: u64) -> Option<u64> {
        let convert = self.convert_tick.get()?;
        let mut ns = 0;
        // SAFETY: `ns` is valid for writes. The runtime checks the agent.
        let status = unsafe { convert(agent, tick, &raw mut ns) };
        (status == abi::SUCCESS).then_some(ns)
    }

    /// When the copy that completed `signal` ran, by the runtime's own clock.
    pub fn copy_times(&self, signal: u64) -> Option<Times> {
        let get = self.copy_time.get()?;
        let mut times = Times::default();
        // SAFETY: the signal is ours and alive, `times` is valid for writes.
        let status = unsafe { get(signal, &raw mut times) };
        (status == abi::SUCCESS).then_some(times)
    }

    /// Makes packets of `queue` write their times.
    pub fn profile_queue(&self, queue: &AmdQueue) {
        if let Some(set) = self.set_profiler.get() {
            // SAFETY: the queue is alive: it is being created, or its doorbell rung.
            unsafe { set(ptr::from_ref(queue), 1) };
        }
    }

    /// Makes copies write their times.
    pub fn profile_copies(&self) {
        self.set_copy_profiling(true);
    }

    /// Switches the timing of copies.
    pub fn set_copy_profiling(&self, on: bool) {
        if let Some(enable) = self.copy_profiling.get() {
            // SAFETY: takes a flag only.
            unsafe { enable(on) };
        }
    }

    /// Calls `each` with every agent.
    pub fn agents(&self, mut each: impl FnMut(u64)) {
        if let Some(iterate) = self.iterate_agents.get() {
            let (callback, data) = one_handle(&mut each);
            // SAFETY: `data` is `each`, which outlives the call.
            unsafe { iterate(callback, data) };
        }
    }

    /// A 4-byte attribute of an agent.
    pub fn agent_u32(&self, agent: u64, attribute: u32) -> Option<u32> {
        let mut value = 0u32;
        // SAFETY: the attributes that are asked for this way have 4 bytes.
        let status =
            unsafe { self.agent_get_info.get()?(agent, attribute, (&raw mut value).cast()) };
        (status == abi::SUCCESS).then_some(value)
    }

    /// The name of an agent, with NULs to its end.
    pub fn agent_name(&self, agent: u64) -> Option<[u8; 64]> {
        let mut name = [0u8; 64];
        // SAFETY: the attribute has 64 bytes.
        let status = unsafe {
            self.agent_get_info.get()?(agent, abi::info::AGENT_NAME, (&raw mut name).cast())
        };
        (status == abi::SUCCESS).then_some(name)
    }

    /// Calls `each` with every symbol of `executable` on `agent`.
    pub fn agent_symbols(&self, executable: u64, agent: u64, mut each: impl FnMut(u64)) {
        unsafe extern "C-unwind" fn call<F: FnMut(u64)>(
            _executable: u64,
            _agent: u64,
            symbol: u64,
            data: *mut c_void,
        ) -> Status {
            // SAFETY: `data` is the closure that was handed to the runtime below.
            unsafe { (*data.cast::<F>())(symbol) };
            abi::SUCCESS
        }
        fn of<F: FnMut(u64)>(_: &F) -> abi::AgentSymbolCallback {
            call::<F>
        }
        if let Some(iterate) = self.iterate_agent_symbols.get() {
            let callback = of(&each);
            // SAFETY: `each` outlives the call; the executable is alive: it was just frozen, is
            // about to be destroyed, or is being iterated over.
            unsafe { iterate(executable, agent, callback, (&raw mut each).cast()) };
        }
    }

    /// Whether an executable is frozen: what is not cannot be launched.
    pub fn is_frozen(&self, executable: u64) -> Option<bool> {
        let (attribute, mut state) = (abi::info::EXECUTABLE_STATE, 0u32);
        // SAFETY: the attribute has 4 bytes; the executable is being iterated over.
        let status = unsafe {
            self.executable_get_info.get()?(executable, attribute, (&raw mut state).cast())
        };
        (status == abi::SUCCESS).then_some(state == abi::info::FROZEN)
    }

    /// A 4-byte attribute of a symbol.
    pub fn symbol_u32(&self, symbol: u64, attribute: u32) -> Option<u32> {
        let mut value = 0u32;
        // SAFETY: the attributes that are asked for this way have 4 bytes.
        let status =
            unsafe { self.symbol_get_info.get()?(symbol, attribute, (&raw mut value).cast()) };
        (status == abi::SUCCESS).then_some(value)
    }

    /// Address of a kernel symbol's descriptor.
    pub fn symbol_kernel_object(&self, symbol: u64) -> Option<u64> {
        let mut value = 0u64;
        // SAFETY: the attribute has 8 bytes.
        let status = unsafe {
            self.symbol_get_info.get()?(
                symbol,
                abi::info::SYMBOL_KERNEL_OBJECT,
                (&raw mut value).cast(),
            )
        };
        (status == abi::SUCCESS).then_some(value)
    }

    /// Name of a symbol.
    pub fn symbol_name(&self, symbol: u64) -> Option<Vec<u8>> {
        let length = self.symbol_u32(symbol, abi::info::SYMBOL_NAME_LENGTH)?;
        // One byte more than the runtime says that it writes.
        let room = usize::try_from(length).ok()?.checked_add(1)?;
        let mut name = Vec::new();
        name.try_reserve_exact(room).ok()?;
        name.resize(room, 0u8);
        // SAFETY: the buffer holds the length that the runtime reported.
        let status = unsafe {
            self.symbol_get_info.get()?(symbol, abi::info::SYMBOL_NAME, name.as_mut_ptr().cast())
        };
        name.pop();
        (status == abi::SUCCESS).then_some(name)
    }

    /// The loader extension, or an empty table.
    pub fn loader(&self) -> abi::LoaderTable {
        let mut table = abi::LoaderTable {
            query_host_address: None,
            unused: [0; 5],
            iterate_executables: None,
        };
        if let Some(get) = self.major_extension_table.get() {
            let size = size_of::<abi::LoaderTable>();
            // SAFETY: the runtime writes at most the size that it is told.
            unsafe { get(abi::info::EXTENSION_LOADER, 1, size, (&raw mut table).cast()) };
        }
        table
    }
}

impl abi::LoaderTable {
    /// Calls `each` with every executable of the process.
    pub fn executables(&self, mut each: impl FnMut(u64)) {
        if let Some(iterate) = self.iterate_executables {
            let (callback, data) = one_handle(&mut each);
            // SAFETY: `data` is `each`, which outlives the call.
            unsafe { iterate(callback, data) };
        }
    }

    /// The 64 bytes of the kernel descriptor at `kernel_object`, if the host can read them.
    ///
    /// The descriptor is in device memory; the loader knows the host's copy of it, if any. Not to
    /// be called from one of the loader's callbacks: they hold its locks.
    pub fn kernel_descriptor(&self, kernel_object: u64, life: Life) -> Option<[u32; 16]> {
        let mut host = ptr::null();
        // SAFETY: `host` is valid for writes.
        let status =
            unsafe { self.query_host_address?(kernel_object as *const c_void, &raw mut host) };
        if status != abi::SUCCESS || host.is_null() {
            return None;
        }
        match life {
            // SAFETY: it is readable, and stays so for as long as this call lasts.
            Life::Held => sys::is_readable(host as usize, size_of::<[u32; 16]>())
                .then(|| unsafe { host.cast::<[u32; 16]>().read_volatile() }),
            Life::MayEnd => sys::read_words(host as usize),
            Life::Unknown => None,
        }
    }
}

/// The lifetime of an executable while its kernels are looked at, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// The calling thread is in a call on it, so that nobody destroys it.
    Held,
    /// Another thread may destroy it.
    MayEnd,
    /// The same, in a process that is confined: its memory cannot be read with care.
    Unknown,
}

fn one_handle<F: FnMut(u64)>(each: &mut F) -> (abi::AgentCallback, *mut c_void) {
    unsafe extern "C-unwind" fn call<F: FnMut(u64)>(handle: u64, data: *mut c_void) -> Status {
        // SAFETY: `data` is the closure that was handed to the runtime with this function.
        unsafe { (*data.cast::<F>())(handle) };
        abi::SUCCESS
    }
    (call::<F>, ptr::from_mut(each).cast())
}

/// Bytes of an agent's name up to its NUL.
pub fn c_bytes(name: &[u8]) -> &[u8] {
    CStr::from_bytes_until_nul(name).map_or(name, CStr::to_bytes)
}
