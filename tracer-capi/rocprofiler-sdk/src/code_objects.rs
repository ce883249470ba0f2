//! Code objects: tools are told when one is loaded, of its kernels, and when it is unloaded.
//!
//! Each context is told once of each code object, with its kernels: by the thread that has loaded it, or by the one that
//! starts the context, also in a callback. Of an unloaded one is told who was told that it was loaded, also if his context
//! has been stopped since. What a tool is told stays in memory.

use core::ffi::{c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use capi_sources::client_thread::InCallback;
use capi_sources::code_objects::{self, CodeObject, IN_FILE, Symbol};
use rocprofiler::callback::{Event, Phase};
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::{Service, Services};
use rocprofiler::threads::CallbackThread;
use roctracer::thread::own_ids;
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

/// How long a thread waits for another one that adds a code object or removes one.
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

/// What later interfaces have: where the code begins, behind the descriptor, and its address, which are not told.
#[cfg(feature = "v1")]
#[derive(Default)]
#[repr(C)]
struct LaterKernelData {
    entry_offset: i64,
    entry: u64,
}

const _: () = assert!(size_of::<LoadData>() == 88);
const _: () = assert!(size_of::<KernelData>() == if cfg!(feature = "v1") { 88 } else { 72 });

/// A code object, as tools are told of it, for ever.
struct Description {
    executable: u64,
    object: CodeObject,
    symbols: Vec<Symbol>,
    data: LoadData,
    kernels: Vec<KernelData>,
}

// SAFETY: what it points at stays, and is not changed.
#[expect(unsafe_code, reason = "strings that stay")]
unsafe impl Send for Description {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "strings that stay")]
unsafe impl Sync for Description {}

/// One that is loaded and known.
struct Loaded {
    description: &'static Description,
    /// Who is being told of it, or was: a bit for each service.
    claimed: AtomicU64,
    /// Who was told.
    told: AtomicU64,
    /// What tools keep: for each service one of the code object, and one of each kernel.
    kept: Vec<AtomicU64>,
}

struct Known {
    loaded: Vec<Arc<Loaded>>,
    /// Those that are unloaded, until that is told.
    unloaded: Vec<Arc<Loaded>>,
    /// What tools were told before that had ended when others began.
    former: Vec<&'static Description>,
}

static KNOWN: Lock<Known> =
    Lock::new(Known { loaded: Vec::new(), unloaded: Vec::new(), former: Vec::new() });

impl Description {
    fn new(executable: u64, object: CodeObject, symbols: Vec<Symbol>) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let id = IDS.fetch_add(1, Ordering::Relaxed) + 1;
        let is_in_file = object.storage_type == IN_FILE;
        // The other half of the first word is not told.
        let file = u64::from(object.storage_file.cast_unsigned());
        let data = LoadData {
            size: size_of::<LoadData>() as u64,
            id,
            agent: agent_id(tracer_hooks::device(object.agent).map_or(0, |(_, node)| node)),
            hsa_agent: object.agent,
            uri: object.uri.as_ptr().cast(),
            load_base: object.load_base,
            load_size: object.load_size,
            load_delta: object.load_delta,
            storage_type: object.storage_type,
            storage: if is_in_file { [file, 0] } else { [object.memory_base, object.memory_size] },
        };
        let kernels = symbols.iter().map(|symbol| kernel_data(id, symbol)).collect();
        Self { executable, object, symbols, data, kernels }
    }

    /// Whether it says the same, but for its own id.
    fn is_same(&self, other: &Self) -> bool {
        (self.executable, &self.object, &self.symbols)
            == (other.executable, &other.object, &other.symbols)
            && self.kernels.iter().map(|one| one.kernel).eq(other.kernels.iter().map(|k| k.kernel))
    }
}

impl Loaded {
    fn new(description: &'static Description) -> Self {
        let places = SDK.count(KIND) * (1 + description.kernels.len());
        Self {
            description,
            claimed: AtomicU64::new(0),
            told: AtomicU64::new(0),
            kept: (0..places).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Tells those of the services that have not been told.
    fn tell_load(&self, services: Services) {
        for (place, service) in SDK.numbered(KIND, services) {
            let bit = 1 << place;
            // Relaxed: whoever has set a bit first tells.
            if self.claimed.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
                self.tell(place, service, Phase::Enter);
                self.told.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Tells those of the services that were told that it was loaded.
    fn tell_unload(&self, is_meant: impl Fn(&Service) -> bool) {
        for (place, service) in SDK.numbered(KIND, Services::all()) {
            let bit = 1 << place;
            if is_meant(service) && self.told.fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
                self.tell(place, service, Phase::Exit);
            }
        }
    }

    fn tell(&self, place: usize, service: &Service, phase: Phase) {
        let Description { data, kernels, .. } = self.description;
        let mut kept = self.kept.iter().skip(place * (1 + kernels.len()));
        let mut call = |operation: u32, payload: *mut c_void| {
            let own = kept.next().map_or(ptr::null_mut(), AtomicU64::as_ptr);
            let event = Event {
                thread: own_ids().thread.into(),
                correlation_id: 0,
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

fn kernel_data(code_object: u64, symbol: &Symbol) -> KernelData {
    let kernel = KERNELS.number(symbol.kernel_object, &symbol.name);
    let registers = kernel.as_ref().and_then(|kernel| kernel.registers.get().copied());
    let registers = registers.unwrap_or_default();
    KernelData {
        size: size_of::<KernelData>() as u64,
        kernel: kernel.map_or(0, |kernel| kernel.number),
        code_object,
        name: symbol.name.as_ptr().cast(),
        kernel_object: symbol.kernel_object,
        kernarg_bytes: symbol.kernarg_bytes,
        kernarg_alignment: symbol.kernarg_alignment,
        group_bytes: symbol.group_bytes,
        private_bytes: symbol.private_bytes,
        scalar_registers: registers.scalar,
        vector_registers: registers.vector,
        accumulation_registers: registers.accumulation,
        #[cfg(feature = "v1")]
        later: LaterKernelData::default(),
    }
}

/// Whether a function of HSA loads code objects, and tools want to know; or unloads them, whoever is told of them.
pub fn need(slot: usize) -> bool {
    match slot {
        FREEZE => SDK.is_wanted(KIND),
        DESTROY => SDK.has_services(KIND),
        _ => false,
    }
}

/// Nobody is told meanwhile of what tools do in callbacks, and ever of what a forked child does.
fn may_tell() -> bool {
    !CallbackThread::is_any_current() && !process::is_forked()
}

/// A call of HSA's has begun, whose frame is there: what it takes away is told.
pub fn entered(slot: usize, executable: u64, at: usize) {
    if slot != DESTROY || process::is_forked() {
        return;
    }
    let Some(mut known) = KNOWN.lock_for(WAIT_NS) else { return };
    let Known { loaded, unloaded, .. } = &mut *known;
    for object in loaded.extract_if(.., |object| object.description.executable == executable) {
        object.description.kernels.iter().for_each(|kernel| KERNELS.forget(kernel.kernel_object));
        unloaded.push(object);
    }
    drop(known);
    if may_tell()
        && let Some(_inside) = InCallback::enter(at)
    {
        tell_unloads();
    }
}

/// One has succeeded: what it has loaded is told.
pub fn left(slot: usize, executable: u64, at: usize) {
    if slot == FREEZE
        && may_tell()
        && let Some(_inside) = InCallback::enter(at)
    {
        add(found(executable));
        tell_unloads();
        tell_loads();
    }
}

/// A context may have been started: it is told of what is loaded, also in a callback that starts it.
pub fn tell_all() {
    let here = 0_u8;
    if SDK.is_wanted(KIND) && !process::is_forked() {
        let _inside = InCallback::enter(ptr::from_ref(&here) as usize);
        let mut all = Vec::new();
        code_objects::executables(|executable| all.extend(found(executable)));
        add(all);
        tell_unloads();
        tell_loads();
    }
}

/// Tools end, which are told that everything is unloaded: what was loaded last comes first.
pub fn end(is_meant: impl Fn(&Service) -> bool) {
    let Some(known) = KNOWN.lock_for(WAIT_NS) else { return };
    let all: Vec<_> = known.unloaded.iter().chain(&known.loaded).cloned().collect();
    drop(known);
    for object in all.iter().rev() {
        object.tell_unload(&is_meant);
    }
}

/// Other tools begin, when all of them have ended: they are told of what is found to be loaded then.
pub fn forget() {
    let Some(mut known) = KNOWN.lock_for(WAIT_NS) else { return };
    known.unloaded.clear();
    if !known.loaded.is_empty() {
        known.former = known.loaded.drain(..).map(|object| object.description).collect();
    }
}

/// The code objects of an executable, with their kernels: those whose descriptors are in them.
fn found(executable: u64) -> Vec<(u64, CodeObject, Vec<Symbol>)> {
    let objects = code_objects::of_executable(executable);
    let of = |object: &CodeObject| {
        let end = object.load_base.saturating_add(object.load_size);
        let mut kernels = code_objects::kernels(executable, object.agent);
        kernels.retain(|kernel| (object.load_base..end).contains(&kernel.kernel_object));
        kernels
    };
    let with_kernels = |object: CodeObject| {
        let kernels = of(&object);
        (executable, object, kernels)
    };
    objects.into_iter().map(with_kernels).collect()
}

/// Adds those that are not known.
fn add(all: Vec<(u64, CodeObject, Vec<Symbol>)>) {
    let Some(mut known) = KNOWN.lock_for(WAIT_NS) else { return };
    let Known { loaded, former, .. } = &mut *known;
    for (executable, object, symbols) in all {
        let key = (executable, object.handle, object.load_base);
        let is_known = |one: &Arc<Loaded>| {
            let Description { executable, object, .. } = one.description;
            key == (*executable, object.handle, object.load_base)
        };
        if loaded.iter().any(is_known) {
            continue;
        }
        let new = Description::new(executable, object, symbols);
        // What former tools were told stays in memory.
        let same = former.iter().find(|one| one.is_same(&new)).copied();
        let description = same.unwrap_or_else(|| Box::leak(Box::new(new)));
        loaded.push(Arc::new(Loaded::new(description)));
    }
}

/// Without the lock: tools may load something.
fn tell_loads() {
    let loaded = KNOWN.lock_for(WAIT_NS).map(|known| known.loaded.clone()).unwrap_or_default();
    let services = SDK.wanting(KIND, None);
    loaded.iter().for_each(|object| object.tell_load(services));
}

/// As above.
fn tell_unloads() {
    let unloaded = KNOWN.lock_for(WAIT_NS).map(|mut known| core::mem::take(&mut known.unloaded));
    for object in unloaded.unwrap_or_default() {
        object.tell_unload(|_| true);
    }
}
