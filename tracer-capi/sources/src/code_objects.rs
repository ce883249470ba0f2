//! Code objects that the HSA runtime has loaded, and their kernels, as the runtime tells of them.
//!
//! Its functions are called behind the thunks in its tables ([`tracer_hooks::calls`]), so that nobody is told of that: they
//! are known once thunks are there.

#![expect(unsafe_code, reason = "functions of the runtime")]

use core::ffi::c_void;

use tracer_common::hsa_functions::slot;

use crate::hsa::function;

const SUCCESS: u32 = 0;

type GetInfo = unsafe extern "C" fn(u64, u32, *mut c_void) -> u32;
type Extension = unsafe extern "C" fn(u16, u16, usize, *mut c_void) -> u32;
type EachExecutable = unsafe extern "C" fn(u64, *mut c_void) -> u32;
type IterateExecutables = unsafe extern "C" fn(EachExecutable, *mut c_void) -> u32;
type EachObject = unsafe extern "C" fn(u64, u64, *mut c_void) -> u32;
type IterateObjects = unsafe extern "C" fn(u64, EachObject, *mut c_void) -> u32;
type EachSymbol = unsafe extern "C" fn(u64, u64, u64, *mut c_void) -> u32;
type IterateSymbols = unsafe extern "C" fn(u64, u64, EachSymbol, *mut c_void) -> u32;

/// A code object that is loaded on an agent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CodeObject {
    /// `hsa_loaded_code_object_t`.
    pub handle: u64,
    /// `hsa_agent_t`.
    pub agent: u64,
    /// The place that it was loaded from: [`IN_FILE`], or [`IN_MEMORY`].
    pub storage_type: u32,
    /// A file descriptor; -1 if it was in memory.
    pub storage_file: i32,
    /// Its address in memory; zeros if it was in a file.
    pub memory_base: u64,
    /// Its size there, bytes.
    pub memory_size: u64,
    /// The address at which it is loaded.
    pub load_base: u64,
    /// Its size there, bytes.
    pub load_size: u64,
    /// The difference to the addresses in it.
    pub load_delta: u64,
    /// The name of where it was loaded from, which ends in NUL.
    pub uri: Vec<u8>,
}

/// `HSA_VEN_AMD_LOADER_CODE_OBJECT_STORAGE_TYPE_FILE`.
pub const IN_FILE: u32 = 1;
/// The same of memory.
pub const IN_MEMORY: u32 = 2;

/// A kernel of a code object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Symbol {
    /// Its name, as the runtime has it, which ends in NUL.
    pub name: Vec<u8>,
    /// The address of its descriptor.
    pub kernel_object: u64,
    /// Bytes of its arguments.
    pub kernarg_bytes: u32,
    /// And how they are aligned.
    pub kernarg_alignment: u32,
    /// Bytes of a workgroup's memory.
    pub group_bytes: u32,
    /// Bytes of a work-item's memory.
    pub private_bytes: u32,
}

/// The functions of the loader's extension that are called here.
#[repr(C)]
#[derive(Default)]
struct Loader {
    before: [usize; 3],
    objects: Option<IterateObjects>,
    object_info: Option<GetInfo>,
    between: usize,
    executables: Option<IterateExecutables>,
}

fn loader() -> Option<Loader> {
    const LOADER: u16 = 0x201;
    const EXTENSION: usize = slot("hsa_system_get_major_extension_table");
    let mut loader = Loader::default();
    // SAFETY: the runtime's function of that name fills as much as it is told.
    let status = unsafe {
        let (size, table) = (size_of::<Loader>(), (&raw mut loader).cast());
        function::<Extension>(EXTENSION)?(LOADER, 1, size, table)
    };
    (status == SUCCESS).then_some(loader)
}

/// Calls `each` with every executable of the process, while the loader holds a lock: of the runtime only [`of_executable`]
/// and [`kernels`] may be called there.
pub fn executables(mut each: impl FnMut(u64)) {
    unsafe extern "C" fn next<F: FnMut(u64)>(executable: u64, each: *mut c_void) -> u32 {
        // SAFETY: what is given to the runtime below.
        unsafe { (*each.cast::<F>())(executable) };
        SUCCESS
    }
    fn of<F: FnMut(u64)>(_: &F) -> EachExecutable {
        next::<F>
    }
    let next = of(&each);
    if let Some(Loader { executables: Some(iterate), .. }) = loader() {
        // SAFETY: the loader's function; it calls back before it returns.
        unsafe { iterate(next, (&raw mut each).cast()) };
    }
}

/// The code objects of an executable, which nobody destroys meanwhile. Not those that are in no file and no memory.
pub fn of_executable(executable: u64) -> Vec<CodeObject> {
    unsafe extern "C" fn next(_executable: u64, object: u64, objects: *mut c_void) -> u32 {
        // SAFETY: what is given to the runtime below.
        unsafe { (*objects.cast::<Vec<u64>>()).push(object) };
        SUCCESS
    }
    let Some(Loader { objects: Some(iterate), object_info: Some(get), .. }) = loader() else {
        return Vec::new();
    };
    let mut objects: Vec<u64> = Vec::new();
    // SAFETY: the loader's function; it calls back before it returns.
    unsafe { iterate(executable, next, (&raw mut objects).cast()) };
    // SAFETY: the loader's function, for objects of the executable.
    objects.into_iter().filter_map(|object| unsafe { describe(get, object) }).collect()
}

/// An attribute of at most 8 bytes; 0 if the runtime does not tell it.
///
/// # Safety
///
/// The runtime's function, and an object that is there, whose attribute has at most 8 bytes.
unsafe fn word(get: GetInfo, object: u64, attribute: u32) -> u64 {
    let mut value = 0_u64;
    // SAFETY: as the caller promises. The lower bytes are the value of an attribute with less.
    let status = unsafe { get(object, attribute, (&raw mut value).cast()) };
    if status == SUCCESS { value } else { 0 }
}

/// # Safety
///
/// The loader's function, and an object that is loaded.
unsafe fn describe(get: GetInfo, handle: u64) -> Option<CodeObject> {
    const AGENT: u32 = 3;
    const STORAGE_TYPE: u32 = 4;
    const MEMORY_BASE: u32 = 5;
    const MEMORY_SIZE: u32 = 6;
    const FILE: u32 = 7;
    const LOAD_DELTA: u32 = 8;
    const LOAD_BASE: u32 = 9;
    const LOAD_SIZE: u32 = 10;
    const URI_LENGTH: u32 = 11;
    const URI: u32 = 12;
    // SAFETY: as the caller promises.
    let word = |attribute| unsafe { word(get, handle, attribute) };
    let mut object = CodeObject {
        handle,
        agent: word(AGENT),
        storage_type: word(STORAGE_TYPE) as u32,
        storage_file: -1,
        load_base: word(LOAD_BASE),
        load_size: word(LOAD_SIZE),
        load_delta: word(LOAD_DELTA),
        uri: vec![0; word(URI_LENGTH) as usize + 1],
        ..CodeObject::default()
    };
    match object.storage_type {
        IN_FILE => object.storage_file = word(FILE) as i32,
        IN_MEMORY => {
            (object.memory_base, object.memory_size) = (word(MEMORY_BASE), word(MEMORY_SIZE));
        }
        _ => return None,
    }
    // SAFETY: as many bytes as it has, and one more.
    unsafe { get(handle, URI, object.uri.as_mut_ptr().cast()) };
    Some(object)
}

/// The kernels of an executable on an agent; nobody destroys it meanwhile.
pub fn kernels(executable: u64, agent: u64) -> Vec<Symbol> {
    unsafe extern "C" fn next(_: u64, _: u64, symbol: u64, symbols: *mut c_void) -> u32 {
        // SAFETY: what is given to the runtime below.
        unsafe { (*symbols.cast::<Vec<u64>>()).push(symbol) };
        SUCCESS
    }
    const ITERATE: usize = slot("hsa_executable_iterate_agent_symbols");
    const GET_INFO: usize = slot("hsa_executable_symbol_get_info");
    // SAFETY: the runtime's functions of these names.
    let functions = unsafe { (function::<IterateSymbols>(ITERATE), function::<GetInfo>(GET_INFO)) };
    let (Some(iterate), Some(get)) = functions else { return Vec::new() };
    let mut symbols: Vec<u64> = Vec::new();
    // SAFETY: the runtime's function; it calls back before it returns.
    unsafe { iterate(executable, agent, next, (&raw mut symbols).cast()) };
    // SAFETY: the runtime's function, for symbols of the executable.
    symbols.into_iter().filter_map(|symbol| unsafe { kernel(get, symbol) }).collect()
}

/// # Safety
///
/// The runtime's function, and a symbol of what is loaded.
unsafe fn kernel(get: GetInfo, symbol: u64) -> Option<Symbol> {
    const TYPE: u32 = 0;
    const NAME_LENGTH: u32 = 1;
    const NAME: u32 = 2;
    const KERNARG_BYTES: u32 = 11;
    const KERNARG_ALIGNMENT: u32 = 12;
    const GROUP_BYTES: u32 = 13;
    const PRIVATE_BYTES: u32 = 14;
    const KERNEL_OBJECT: u32 = 22;
    const KERNEL: u64 = 1;
    // SAFETY: as the caller promises.
    let word = |attribute| unsafe { word(get, symbol, attribute) };
    if word(TYPE) != KERNEL {
        return None;
    }
    let mut name = vec![0_u8; word(NAME_LENGTH) as usize + 1];
    // SAFETY: as many bytes as it has, and one more.
    unsafe { get(symbol, NAME, name.as_mut_ptr().cast()) };
    Some(Symbol {
        name,
        kernel_object: word(KERNEL_OBJECT),
        kernarg_bytes: word(KERNARG_BYTES) as u32,
        kernarg_alignment: word(KERNARG_ALIGNMENT) as u32,
        group_bytes: word(GROUP_BYTES) as u32,
        private_bytes: word(PRIVATE_BYTES) as u32,
    })
}
