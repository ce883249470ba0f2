//! Code objects: tools are told when one is loaded, of its kernels, and when it is unloaded.
//!
//! Each context is told once of each code object, with its kernels: by the thread that has loaded it, or by the one
//! that starts the context, also in a callback. A context that was told that a code object was loaded is told that it
//! is unloaded, also if the context has been stopped since. The data that a tool is told stays in memory until then,
//! names for good.

use core::ffi::{c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use capi_sources::client_thread::InCallback;
use capi_sources::code_objects::{self, CodeObject, IN_FILE, Symbol};
use rocprofiler::callback::{CorrelationIds, Event, Phase};
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::{Service, Services};
use rocprofiler::threads::CallbackThread;
use roctracer::thread::own_ids;
use roctracer::timestamp_ns;
use tracer_common::hsa_functions::slot;
use tracer_hooks::lock::Lock;

use crate::kernels::KERNELS;
use crate::layout::agent_id;
use crate::{SDK, process};

const KIND: Kind = Kind::CodeObject;
/// `ROCPROFILER_CODE_OBJECT_LOAD`.
const LOAD: u32 = 1;
/// `ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER`.
const KERNEL: u32 = 2;

const FREEZE: usize = slot("hsa_executable_freeze");
const DESTROY: usize = slot("hsa_executable_destroy");

/// The time that a thread waits for another one that adds a code object or removes one, or tells tools of one that it
/// removes.
const WAIT_NS: u64 = 1_000_000_000;

/// `rocprofiler_callback_tracing_code_object_load_data_t`.
#[repr(C)]
struct LoadData {
    size: u64,
    id: u64,
    agent: u64,
    hsa_agent: u64,
    uri: *const c_char,
    load_base: u64,
    load_size: u64,
    load_delta: u64,
    storage_type: u32,
    /// A file, or base and size of memory.
    storage: [u64; 2],
}

/// `rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t`.
#[repr(C)]
struct KernelData {
    size: u64,
    kernel: u64,
    code_object: u64,
    name: *const c_char,
    kernel_object: u64,
    kernarg_bytes: u32,
    kernarg_alignment: u32,
    group_bytes: u32,
    private_bytes: u32,
    scalar_registers: u32,
    vector_registers: u32,
    accumulation_registers: u32,
    #[cfg(feature = "v1")]
    later: LaterKernelData,
}

/// Fields of later interfaces: the begin of the code, behind the descriptor, and its address; 0 if they are not known.
#[cfg(feature = "v1")]
#[repr(C)]
struct LaterKernelData {
    entry_offset: i64,
    entry: u64,
}

#[cfg(feature = "v1")]
impl LaterKernelData {
    fn of(descriptor: u64, entry_offset: i64) -> Self {
        let entry = descriptor.wrapping_add_signed(entry_offset);
        Self { entry_offset, entry: if entry_offset == 0 { 0 } else { entry } }
    }
}

const _: () = assert!(size_of::<LoadData>() == 88);
const _: () = assert!(size_of::<KernelData>() == if cfg!(feature = "v1") { 88 } else { 72 });

/// A code object that is loaded and known.
struct Loaded {
    executable: u64,
    /// `hsa_loaded_code_object_t`.
    handle: u64,
    data: LoadData,
    kernels: Vec<KernelData>,
    /// The services that are being told of it, or were: a bit for each.
    claimed: AtomicU64,
    /// The services that were told.
    notified: AtomicU64,
    /// The number of threads that are telling tools of it.
    telling: AtomicU32,
    is_unloaded: AtomicBool,
    /// The data that tools keep: for each service one word of the code object, and one of each kernel.
    kept: Vec<AtomicU64>,
}

// SAFETY: it points at strings that stay, and are not changed.
#[expect(unsafe_code, reason = "strings that stay")]
unsafe impl Send for Loaded {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "strings that stay")]
unsafe impl Sync for Loaded {}

struct KnownCodeObjects {
    loaded: Vec<Arc<Loaded>>,
    /// The number of threads that are looking for loaded code objects, without the lock.
    looking: u32,
    /// Executables that are being destroyed, or were while somebody looked.
    going: Vec<DestroyedExecutable>,
    /// Code objects that are unloaded, until tools are told.
    unloaded: Vec<Arc<Loaded>>,
    /// Strings that tools were told. Tools may have kept their addresses.
    strings: BTreeSet<&'static [u8]>,
}

/// An executable that is being destroyed, and the code objects of it that were known.
struct DestroyedExecutable {
    executable: u64,
    objects: Vec<Arc<Loaded>>,
    is_over: bool,
}

static KNOWN: Lock<KnownCodeObjects> = Lock::new(KnownCodeObjects {
    loaded: Vec::new(),
    looking: 0,
    going: Vec::new(),
    unloaded: Vec::new(),
    strings: BTreeSet::new(),
});

impl KnownCodeObjects {
    /// Adds the code objects that are not known.
    fn add(&mut self, executable: u64, all: Vec<(CodeObject, Vec<Symbol>)>) {
        for (object, symbols) in all {
            let key = (executable, object.handle, object.load_base);
            let is_it = |one: &Arc<Loaded>| (one.executable, one.handle, one.data.load_base) == key;
            if !self.loaded.iter().any(is_it) {
                let new = Loaded::new(executable, object, symbols, |text| self.string(text));
                self.loaded.push(Arc::new(new));
            }
        }
    }

    /// A thread that looks from now on finds none of those that are gone.
    fn forget_over(&mut self) {
        if self.looking == 0 {
            self.going.retain(|one| !one.is_over);
        }
    }

    /// A string that ends in NUL, for good.
    fn string(&mut self, text: Vec<u8>) -> *const c_char {
        let known = self.strings.get(&*text).copied();
        let string = known.unwrap_or_else(|| {
            let kept: &'static [u8] = text.leak();
            self.strings.insert(kept);
            kept
        });
        string.as_ptr().cast()
    }
}

impl Loaded {
    fn new(
        executable: u64,
        object: CodeObject,
        symbols: Vec<Symbol>,
        mut string: impl FnMut(Vec<u8>) -> *const c_char,
    ) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let id = IDS.fetch_add(1, Ordering::Relaxed) + 1;
        let is_in_file = object.storage_type == IN_FILE;
        // Tools are not told the other half of the first word.
        let file = u64::from(object.storage_file.cast_unsigned());
        let data = LoadData {
            size: size_of::<LoadData>() as u64,
            id,
            agent: agent_id(tracer_hooks::device(object.agent).map_or(0, |(_, node)| node)),
            hsa_agent: object.agent,
            uri: string(object.uri),
            load_base: object.load_base,
            load_size: object.load_size,
            load_delta: object.load_delta,
            storage_type: object.storage_type,
            storage: if is_in_file { [file, 0] } else { [object.memory_base, object.memory_size] },
        };
        let kernels: Vec<_> =
            symbols.into_iter().map(|symbol| kernel_data(id, symbol, &mut string)).collect();
        let places = SDK.count(KIND) * (1 + kernels.len());
        Self {
            executable,
            handle: object.handle,
            data,
            kernels,
            claimed: AtomicU64::new(0),
            notified: AtomicU64::new(0),
            telling: AtomicU32::new(0),
            is_unloaded: AtomicBool::new(false),
            kept: (0..places).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Tells those of the services that have not been told.
    fn tell_load(&self, services: Services) {
        let telling = Notification::begin(self);
        for (place, service) in SDK.numbered(KIND, services) {
            let bit = 1 << place;
            // Relaxed: the thread that has set a bit first tells.
            if !self.is_unloaded() && self.claimed.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
                self.tell(place, service, Phase::Enter);
                self.notified.fetch_or(bit, Ordering::Relaxed);
            }
        }
        drop(telling);
        // The thread that unloads it may not have waited for this one.
        if self.is_unloaded() {
            self.tell_unload(|_| true);
        }
    }

    /// SeqCst, as all about `telling`: a thread that tells sees that it is unloaded, or the thread that unloads it
    /// waits.
    fn is_unloaded(&self) -> bool {
        self.is_unloaded.load(Ordering::SeqCst)
    }

    /// Waits for threads that tell tools of it: a tool may look at it meanwhile.
    fn wait_for_tellers(&self) {
        let until = Instant::now() + Duration::from_nanos(WAIT_NS);
        while self.telling.load(Ordering::SeqCst) != 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Tells those of the services that were told that it was loaded.
    fn tell_unload(&self, is_meant: impl Fn(&Service) -> bool) {
        let _telling = Notification::begin(self);
        for (place, service) in SDK.numbered(KIND, Services::all()) {
            let bit = 1 << place;
            if is_meant(service) && self.notified.fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
                self.tell(place, service, Phase::Exit);
            }
        }
    }

    fn tell(&self, place: usize, service: &Service, phase: Phase) {
        let Self { data, kernels, .. } = self;
        let mut kept = self.kept.iter().skip(place * (1 + kernels.len()));
        let mut call = |operation: u32, payload: *mut c_void| {
            let own = kept.next().map_or(ptr::null_mut(), AtomicU64::as_ptr);
            let event = Event {
                thread: own_ids().thread.into(),
                ids: CorrelationIds::default(),
                external_id: 0,
                kind: KIND,
                operation,
                phase,
                payload,
            };
            if service.means(operation as usize) {
                service.tell(&event, own);
            }
        };
        call(LOAD, ptr::from_ref(data).cast_mut().cast());
        for kernel in kernels {
            call(KERNEL, ptr::from_ref(kernel).cast_mut().cast());
        }
    }
}

/// A thread tells tools of a code object until this is dropped, also by an exception.
struct Notification<'a>(&'a Loaded);

impl<'a> Notification<'a> {
    fn begin(object: &'a Loaded) -> Self {
        object.telling.fetch_add(1, Ordering::SeqCst);
        Self(object)
    }
}

impl Drop for Notification<'_> {
    fn drop(&mut self) {
        self.0.telling.fetch_sub(1, Ordering::SeqCst);
    }
}

fn kernel_data(
    code_object: u64,
    symbol: Symbol,
    string: impl FnOnce(Vec<u8>) -> *const c_char,
) -> KernelData {
    let kernel = KERNELS.number(symbol.kernel_object, &symbol.name, timestamp_ns());
    let descriptor = kernel.as_ref().and_then(|kernel| kernel.descriptor.get().copied());
    let descriptor = descriptor.unwrap_or_default();
    KernelData {
        size: size_of::<KernelData>() as u64,
        kernel: kernel.map_or(0, |kernel| kernel.number),
        code_object,
        name: string(symbol.name),
        kernel_object: symbol.kernel_object,
        kernarg_bytes: symbol.kernarg_bytes,
        kernarg_alignment: symbol.kernarg_alignment,
        group_bytes: symbol.group_bytes,
        private_bytes: symbol.private_bytes,
        scalar_registers: descriptor.scalar_registers,
        vector_registers: descriptor.vector_registers,
        accumulation_registers: descriptor.accumulation_registers,
        #[cfg(feature = "v1")]
        later: LaterKernelData::of(symbol.kernel_object, descriptor.entry_offset),
    }
}

/// Whether a function of HSA loads code objects or unloads them, and tools may want to know: also while no context is
/// active, since a call may last until one is.
pub fn need(slot: usize) -> bool {
    matches!(slot, FREEZE | DESTROY) && SDK.has_services(KIND)
}

/// Whether tools may be told: not of calls that tools make in callbacks of buffers, and never of calls of a forked
/// child.
fn may_tell() -> bool {
    !CallbackThread::is_any_current() && !process::is_forked()
}

/// A call of HSA's has begun, whose frame is at `at`: tells tools of the code objects that it unloads.
pub fn entered(slot: usize, executable: u64, at: usize) {
    if slot != DESTROY || process::is_forked() {
        return;
    }
    // A context that starts just now may have recorded kernels of the executable, and not been told of it.
    tell_loaded(executable, at);
    let Some(mut known) = KNOWN.lock_or_lose(WAIT_NS) else { return };
    let is_one = |object: &mut Arc<Loaded>| object.executable == executable;
    let gone: Vec<_> = known.loaded.extract_if(.., is_one).collect();
    known.unloaded.extend(gone.iter().cloned());
    known.going.push(DestroyedExecutable { executable, objects: gone.clone(), is_over: false });
    drop(known);
    gone.iter().for_each(|object| object.is_unloaded.store(true, Ordering::SeqCst));
    // In a callback this thread may be the one that tells.
    if may_tell()
        && let Some(_inside) = InCallback::enter(at)
    {
        for object in gone {
            object.wait_for_tellers();
            object.tell_unload(|_| true);
            // Another thread may have been first.
            object.wait_for_tellers();
        }
        tell_unloads();
    }
}

/// A call is over: tells tools of the code objects that it has loaded, if it has succeeded.
pub fn left(slot: usize, executable: u64, has_succeeded: bool, at: usize) {
    if slot == DESTROY
        && !process::is_forked()
        && let Some(mut known) = KNOWN.lock_or_lose(WAIT_NS)
        && let Some(going) =
            known.going.iter_mut().find(|one| one.executable == executable && !one.is_over)
    {
        going.is_over = true;
        let gone = core::mem::take(&mut going.objects);
        known.forget_over();
        drop(known);
        // An executable that is there still is found when a context is started.
        for kernel in gone.iter().filter(|_| has_succeeded).flat_map(|object| &object.kernels) {
            KERNELS.forget(kernel.kernel_object, kernel.kernel);
        }
    }
    if slot == FREEZE && has_succeeded {
        tell_loaded(executable, at);
    }
}

/// Tells tools of the code objects that an executable has loaded, unless they are known.
fn tell_loaded(executable: u64, at: usize) {
    if SDK.is_wanted(KIND)
        && may_tell()
        && let Some(_inside) = InCallback::enter(at)
    {
        let found = found(executable);
        if let Some(mut known) = KNOWN.lock_or_lose(WAIT_NS) {
            known.add(executable, found);
        }
        tell_unloads();
        tell_loads();
    }
}

/// A context may have been started: tells it of the loaded code objects. Also in a callback that starts a context, but
/// not in callbacks of calls of HSA: the runtime may hold locks there, which looking for code objects takes.
pub fn tell_all(is_in_hsa: impl FnOnce() -> bool) {
    let here = 0_u8;
    let inside = InCallback::enter(ptr::from_ref(&here) as usize);
    if !SDK.is_wanted(KIND) || process::is_forked() || inside.is_none() && is_in_hsa() {
        return;
    }
    let Some(mut known) = KNOWN.lock_or_lose(WAIT_NS) else { return };
    known.looking += 1;
    drop(known);
    // The runtime may load something meanwhile, and takes long.
    let mut all = Vec::new();
    code_objects::executables(|executable| all.push((executable, found(executable))));
    let Some(mut known) = KNOWN.lock_or_lose(WAIT_NS) else { return };
    for (executable, objects) in all {
        if !known.going.iter().any(|one| one.executable == executable) {
            known.add(executable, objects);
        }
    }
    known.looking -= 1;
    known.forget_over();
    drop(known);
    tell_unloads();
    tell_loads();
}

/// Tools end: tells them that everything is unloaded, beginning with the code object that was loaded last.
pub fn end(is_meant: impl Fn(&Service) -> bool) {
    let Some(known) = KNOWN.lock_or_lose(WAIT_NS) else { return };
    let all: Vec<_> = known.unloaded.iter().chain(&known.loaded).cloned().collect();
    drop(known);
    for object in all.iter().rev() {
        object.tell_unload(&is_meant);
    }
}

/// Other tools begin, when all of them have ended: they are told of the code objects that are found to be loaded then.
pub fn forget() {
    if let Some(mut known) = KNOWN.lock_or_lose(WAIT_NS) {
        known.unloaded.clear();
        known.loaded.clear();
    }
}

/// The code objects of an executable, with their kernels: those whose descriptors are in them.
fn found(executable: u64) -> Vec<(CodeObject, Vec<Symbol>)> {
    let objects = code_objects::of_executable(executable);
    let with_kernels = |object: CodeObject| {
        let end = object.load_base.saturating_add(object.load_size);
        let mut kernels = code_objects::kernels(executable, object.agent);
        kernels.retain(|kernel| (object.load_base..end).contains(&kernel.kernel_object));
        (object, kernels)
    };
    objects.into_iter().map(with_kernels).collect()
}

/// Without the lock: tools may load something.
fn tell_loads() {
    let loaded = KNOWN.lock_or_lose(WAIT_NS).map(|known| known.loaded.clone()).unwrap_or_default();
    let services = SDK.wanting(KIND, None);
    loaded.iter().for_each(|object| object.tell_load(services));
}

/// Without the lock, as above.
fn tell_unloads() {
    let unloaded =
        KNOWN.lock_or_lose(WAIT_NS).map(|mut known| core::mem::take(&mut known.unloaded));
    for object in unloaded.unwrap_or_default() {
        object.tell_unload(|_| true);
    }
}
