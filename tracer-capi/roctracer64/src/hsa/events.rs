//! Events of HSA (`HSA_EVT`): what some of its functions have done is told once, to a callback without phases.
//!
//! Those that AMD's library tells, too: memory that is allocated and given back, devices that may use memory, copies of
//! memory, code objects that are loaded and unloaded. It tells none of packets and of kernel symbols.

#![expect(
    unsafe_code,
    reason = "the runtime's functions, the program's arguments, functions of the client's"
)]

use core::ffi::{c_char, c_void};
use core::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use roctracer::tracer::{Callback, Source, Wanted};
use tracer_common::activity::Domain;
use tracer_common::calls::Call;
use tracer_common::hsa_functions::slot;

use crate::enabled::TRACER;
use capi_sources::client_thread::InCallback;
use capi_sources::code_objects;
use capi_sources::hsa::{agents, function};

/// Operations of the domain.
mod evt {
    pub const ALLOCATE: u32 = 0;
    pub const DEVICE: u32 = 1;
    pub const MEMCOPY: u32 = 2;
    pub const CODEOBJ: u32 = 5;
}

/// Events.
pub struct Events {
    /// A bit for each operation that has a callback.
    wanted: AtomicU32,
    /// Something of them is wanted from now on, or nothing any more.
    changed: fn(),
    /// And is to be found out.
    begin: fn(),
}

impl Events {
    /// None is wanted.
    pub const fn new(changed: fn(), begin: fn()) -> Self {
        Self { wanted: AtomicU32::new(0), changed, begin }
    }

    /// Whether any is.
    pub fn any(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// Whether a function is to be seen for one that is.
    pub fn need(&self, slot: usize) -> bool {
        let wanted = self.wanted.load(Ordering::Relaxed);
        wanted != 0
            && FUNCTIONS
                .iter()
                .any(|(of, ops)| *of == slot && ops.iter().any(|op| wanted & 1 << op != 0))
    }
}

impl Source for Events {
    fn follow(&self, op: u32, wanted: Wanted) {
        match wanted.callback {
            true => self.wanted.fetch_or(1 << op, Ordering::SeqCst),
            false => self.wanted.fetch_and(!(1 << op), Ordering::SeqCst),
        };
        (self.changed)();
    }

    fn begin(&self) {
        (self.begin)();
    }
}

const MEMORY_ALLOCATE: usize = slot("hsa_memory_allocate");
const MEMORY_ASSIGN_AGENT: usize = slot("hsa_memory_assign_agent");
const MEMORY_COPY: usize = slot("hsa_memory_copy");
const POOL_ALLOCATE: usize = slot("hsa_amd_memory_pool_allocate");
const POOL_FREE: usize = slot("hsa_amd_memory_pool_free");
const ALLOW_ACCESS: usize = slot("hsa_amd_agents_allow_access");
const FREEZE: usize = slot("hsa_executable_freeze");
const DESTROY: usize = slot("hsa_executable_destroy");
const REGION_INFO: usize = slot("hsa_region_get_info");
const POOL_INFO: usize = slot("hsa_amd_memory_pool_get_info");

/// The functions that tell of something, and of what.
const FUNCTIONS: [(usize, &[u32]); 8] = [
    (MEMORY_ALLOCATE, &[evt::ALLOCATE]),
    (MEMORY_ASSIGN_AGENT, &[evt::DEVICE]),
    (MEMORY_COPY, &[evt::MEMCOPY]),
    (POOL_ALLOCATE, &[evt::ALLOCATE, evt::DEVICE]),
    (POOL_FREE, &[evt::ALLOCATE]),
    (ALLOW_ACCESS, &[evt::DEVICE]),
    (FREEZE, &[evt::CODEOBJ]),
    (DESTROY, &[evt::CODEOBJ]),
];

/// `hsa_evt_data_t`.
#[repr(C)]
union Data {
    allocate: Allocate,
    device: Device,
    memcopy: Memcopy,
    code_object: CodeObject,
    /// No field is larger.
    bytes: [u64; 9],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Allocate {
    ptr: u64,
    size: u64,
    segment: u32,
    global_flag: u32,
    is_code: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: u32,
    id: u32,
    agent: u64,
    ptr: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Memcopy {
    dst: u64,
    src: u64,
    size: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CodeObject {
    storage_type: u32,
    storage_file: i32,
    memory_base: u64,
    memory_size: u64,
    load_base: u64,
    load_size: u64,
    load_delta: u64,
    uri_length: u32,
    uri: u64,
    unload: i32,
}

const _: () = {
    assert!(size_of::<Data>() == 72 && size_of::<CodeObject>() == 72);
    assert!(core::mem::offset_of!(CodeObject, uri) == 56);
    assert!(core::mem::offset_of!(Device, agent) == 8);
};

const SUCCESS: u32 = 0;
type Info = unsafe extern "C" fn(u64, u32, *mut c_void) -> u32;
type PoolInfo = unsafe extern "C" fn(u64, u64, u32, *mut c_void) -> u32;

/// A 4-byte attribute; 0 if the runtime does not tell it.
///
/// # Safety
///
/// The slot's function is an [`Info`], and the attribute has 4 bytes.
unsafe fn info(slot: usize, of: u64, attribute: u32) -> u32 {
    let mut value = 0u32;
    // SAFETY: as the caller promises; the value is valid for a write.
    let status =
        unsafe { function::<Info>(slot).map(|get| get(of, attribute, (&raw mut value).cast())) };
    if status == Some(SUCCESS) { value } else { 0 }
}

/// A call begins: tells callbacks of the objects that it takes away.
pub fn entered(slot: usize, call: &Call, at: usize) {
    match slot {
        POOL_FREE => tell_allocation(call.args[0], 0, (0, 0), at),
        DESTROY => tell_code_objects(call.args[0], true, at),
        _ => {}
    }
}

/// A call has succeeded: tells callbacks of its effect.
pub fn left(slot: usize, call: &Call, at: usize) {
    const SEGMENT: u32 = 0;
    const GLOBAL_FLAGS: u32 = 1;
    if call.ret as u32 != SUCCESS {
        return;
    }
    let [first, second, third, fourth, ..] = call.args;
    // SAFETY: an output of the function, which has succeeded.
    let output = |pointer: u64| unsafe { (pointer as *const u64).read_unaligned() };
    // SAFETY: of these functions, whose attributes have 4 bytes.
    let of = |get: usize, what: u64| unsafe {
        (info(get, what, SEGMENT), info(get, what, GLOBAL_FLAGS))
    };
    match slot {
        MEMORY_ALLOCATE => {
            tell_allocation(output(third), second, of(REGION_INFO, first), at);
        }
        POOL_ALLOCATE if second != 0 => {
            let memory = output(fourth);
            tell_allocation(memory, second, of(POOL_INFO, first), at);
            each_agent(|agent| {
                if may_use(agent, first) {
                    tell_device(agent, memory, at);
                }
            });
        }
        MEMORY_ASSIGN_AGENT => tell_device(second, first, at),
        MEMORY_COPY => {
            let memcopy = Memcopy { dst: first, src: second, size: third };
            tell(evt::MEMCOPY, &Data { memcopy }, at);
        }
        ALLOW_ACCESS => {
            for nth in 0..u64::from(first as u32) {
                tell_device(output(second + nth * 8), fourth, at);
            }
        }
        FREEZE => tell_code_objects(first, false, at),
        _ => {}
    }
}

/// Calls the client's callback, unless the thread is in one.
fn tell(op: u32, data: &Data, at: usize) {
    if let Some(Callback { function, argument }) = TRACER.callback(Domain::HSA_EVT, op)
        && let Some(_inside) = InCallback::enter(at)
    {
        // SAFETY: the client's function, with the data of its domain.
        unsafe { function(Domain::HSA_EVT.0, op, ptr::from_ref(data).cast(), argument) };
    }
}

fn is_wanted(op: u32) -> bool {
    TRACER.callback(Domain::HSA_EVT, op).is_some()
}

fn tell_allocation(ptr: u64, size: u64, (segment, global_flag): (u32, u32), at: usize) {
    let allocate = Allocate { ptr, size, segment, global_flag, is_code: 0 };
    let mut data = Data { bytes: [0; 9] };
    data.allocate = allocate;
    tell(evt::ALLOCATE, &data, at);
}

fn each_agent(each: impl FnMut(u64)) {
    if is_wanted(evt::DEVICE) {
        agents().into_iter().for_each(each);
    }
}

/// Whether an agent may use the memory of a pool without being allowed to.
fn may_use(agent: u64, pool: u64) -> bool {
    const ACCESS: u32 = 0;
    const ALLOWED_BY_DEFAULT: u32 = 1;
    let mut access = 0u32;
    // SAFETY: the runtime's function of that name, and an attribute of 4 bytes.
    unsafe {
        function::<PoolInfo>(slot("hsa_amd_agent_memory_pool_get_info")).is_some_and(|get| {
            get(agent, pool, ACCESS, (&raw mut access).cast()) == SUCCESS
                && access == ALLOWED_BY_DEFAULT
        })
    }
}

fn tell_device(agent: u64, ptr: u64, at: usize) {
    const AGENT_INFO: usize = slot("hsa_agent_get_info");
    const DEVICE: u32 = 17;
    const DRIVER_NODE: u32 = 0xA004;
    if !is_wanted(evt::DEVICE) {
        return;
    }
    // SAFETY: an agent's attributes of 4 bytes.
    let (kind, id) =
        unsafe { (info(AGENT_INFO, agent, DEVICE), info(AGENT_INFO, agent, DRIVER_NODE)) };
    let mut data = Data { bytes: [0; 9] };
    data.device = Device { kind, id, agent, ptr };
    tell(evt::DEVICE, &data, at);
}

/// Code objects of an executable.
fn tell_code_objects(executable: u64, unload: bool, at: usize) {
    if !is_wanted(evt::CODEOBJ) {
        return;
    }
    for object in code_objects::of_executable(executable) {
        let mut data = Data { bytes: [0; 9] };
        data.code_object = CodeObject {
            storage_type: object.storage_type,
            storage_file: object.storage_file,
            memory_base: object.memory_base,
            memory_size: object.memory_size,
            load_base: object.load_base,
            load_size: object.load_size,
            load_delta: object.load_delta,
            uri_length: object.uri.len() as u32 - 1,
            uri: object.uri.as_ptr().cast::<c_char>().expose_provenance() as u64,
            unload: i32::from(unload),
        };
        tell(evt::CODEOBJ, &data, at);
    }
}
