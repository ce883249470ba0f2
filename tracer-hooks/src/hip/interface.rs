//! What of libamdhip64 and the HSA runtime is used, found by name in the library that roctap named,
//! and whether it is what this code knows: ROCm 5.2.3.
//!
//! Whether another tool has the one slot is written in two tables of the library that nothing exports.
//! They are found in the code of the functions that write them, which therefore must be the very code
//! that is known. Where it is not, the tier is unsupported: to take the slot from another tool is worse.

#![expect(unsafe_code, reason = "the library's functions and tables")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Addresses of the four functions, as roctap found them.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// `hipInitActivityCallback`.
    pub init: u64,
    /// `hipRegisterActivityCallback`.
    pub register: u64,
    /// `hipRemoveActivityCallback`.
    pub remove: u64,
    /// `hipEnableActivityCallback`.
    pub enable: u64,
}

/// `bool f(callback of a function)` for one function.
type Register = unsafe extern "C" fn(u32, *const c_void, *mut c_void) -> c_int;
type Remove = unsafe extern "C" fn(u32) -> c_int;

/// Functions of libamdhip64, and where its tables of callbacks are.
pub struct Interface {
    pub(super) init: unsafe extern "C" fn(*const c_void, *const c_void, *mut c_void),
    pub(super) enable: unsafe extern "C" fn(u32, bool) -> bool,
    pub(super) register_activity: Register,
    pub(super) remove_activity: Remove,
    pub(super) register_api: Register,
    pub(super) remove_api: Remove,
    /// Name of a `hipFunction_t`; takes no lock.
    pub(super) name_of_function: unsafe extern "C" fn(u64) -> *const c_char,
    /// Name of the kernel behind a host function, for a stream's device.
    pub(super) name_of_stub: unsafe extern "C" fn(u64, u64) -> *const c_char,
    /// Name of a command kind.
    pub(super) name_of_kind: unsafe extern "C" fn(u32) -> *const c_char,
    pub(super) device_count: unsafe extern "C" fn(*mut c_int) -> c_int,
    pub(super) device_bus_id: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int,
    pub(super) agents: unsafe extern "C" fn(AgentCallback, *mut c_void) -> u32,
    pub(super) agent_info: unsafe extern "C" fn(u64, u32, *mut c_void) -> u32,
    init_address: u64,
    /// `{id callback, operation callback, argument, enabled: u8 × 3}`.
    activity: usize,
    /// One entry of [`ENTRY_BYTES`] for each function of HIP.
    apis: usize,
}

/// What `hsa_iterate_agents` calls.
pub(super) type AgentCallback = unsafe extern "C" fn(u64, *mut c_void) -> u32;

/// Last id of a function of HIP.
const LAST_API: usize = 333;
const ENTRY_BYTES: usize = 0x28;
/// Of the first entry, which is not used.
const ENTRIES: usize = 0x28;
/// In an entry.
const ACTIVITY_CALLBACK: usize = 8;
const API_CALLBACK: usize = 0x18;

/// How a function names the kernel that it launches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Launch {
    /// By the host function; the grid is in workgroups.
    Stub,
    /// By a `hipFunction_t`; the grid is in workgroups.
    Function,
    /// The same; the grid is in work-items.
    FunctionByItems,
}

/// Functions that launch one kernel.
pub(super) const LAUNCHES: [(u32, &CStr, Launch); 5] = [
    (62, c"hipExtLaunchKernel", Launch::Stub),
    (65, c"hipExtModuleLaunchKernel", Launch::FunctionByItems),
    (88, c"hipHccModuleLaunchKernel", Launch::FunctionByItems),
    (107, c"hipLaunchKernel", Launch::Stub),
    (169, c"hipModuleLaunchKernel", Launch::Function),
];

/// Functions that have HIP call the program when a stream comes to a place.
const CALLS_BACK: [&[u8]; 2] = [b"\0hipStreamAddCallback\0", b"\0hipLaunchHostFunc\0"];

impl Interface {
    /// The interface, if all of it is there and known.
    pub fn find(addresses: Addresses) -> Option<Self> {
        let library = library_of(addresses.init)?;
        for (name, told) in [
            (c"hipInitActivityCallback", addresses.init),
            (c"hipRegisterActivityCallback", addresses.register),
            (c"hipRemoveActivityCallback", addresses.remove),
            (c"hipEnableActivityCallback", addresses.enable),
        ] {
            if address_of(library, name) != usize::try_from(told).ok() {
                return None;
            }
        }
        // SAFETY: the function's type in `hip_runtime_api.h`.
        let name_of_api: unsafe extern "C" fn(u32) -> *const c_char =
            unsafe { function(library, c"hipApiName") }?;
        for (id, name, _) in LAUNCHES {
            // SAFETY: it takes any number and returns a constant text.
            if unsafe { CStr::from_ptr(name_of_api(id)) } != name {
                return None;
            }
        }
        // SAFETY: both functions are longer than what is read.
        let (init, register) = unsafe {
            (
                core::slice::from_raw_parts(addresses.init as *const u8, INIT_BYTES),
                core::slice::from_raw_parts(addresses.register as *const u8, REGISTER_BYTES),
            )
        };
        let activity = table_of_init(init, addresses.init)?;
        let apis = table_of_register(register, addresses.register)?;
        // The HSA runtime's are found through HIP's dependencies: it is the one that HIP uses.
        // SAFETY: the types are those of ROCm's headers (`hip_prof_api.h` of 5.2.3 for the names).
        unsafe {
            Some(Self {
                init: function(library, c"hipInitActivityCallback")?,
                enable: function(library, c"hipEnableActivityCallback")?,
                register_activity: function(library, c"hipRegisterActivityCallback")?,
                remove_activity: function(library, c"hipRemoveActivityCallback")?,
                register_api: function(library, c"hipRegisterApiCallback")?,
                remove_api: function(library, c"hipRemoveApiCallback")?,
                name_of_function: function(library, c"hipKernelNameRef")?,
                name_of_stub: function(library, c"hipKernelNameRefByPtr")?,
                name_of_kind: function(library, c"hipGetCmdName")?,
                device_count: function(library, c"hipGetDeviceCount")?,
                device_bus_id: function(library, c"hipDeviceGetPCIBusId")?,
                agents: function(library, c"hsa_iterate_agents")?,
                agent_info: function(library, c"hsa_agent_get_info")?,
                init_address: addresses.init,
                activity,
                apis,
            })
        }
    }

    /// Whether HIP can be watched in this process; see the limits.
    pub fn is_harmless(&self) -> bool {
        !is_called_back(self.init_address)
    }

    /// Whether it is the one at these addresses.
    pub fn is_at(&self, addresses: Addresses) -> bool {
        self.init_address == addresses.init
    }

    fn word(address: usize) -> usize {
        // SAFETY: within the tables of a library that `find` keeps loaded.
        unsafe { AtomicUsize::from_ptr(address as *mut usize) }.load(Ordering::Acquire)
    }

    /// The callbacks of an API: those of activity, and of the call.
    pub(super) fn of_api(&self, api: usize) -> [usize; 2] {
        let entry = self.apis + ENTRIES + api * ENTRY_BYTES;
        [Self::word(entry + ACTIVITY_CALLBACK), Self::word(entry + API_CALLBACK)]
    }

    /// The two callbacks of operations.
    pub(super) fn of_operations(&self) -> [usize; 2] {
        [Self::word(self.activity), Self::word(self.activity + 8)]
    }

    fn enabled(&self) -> bool {
        (0..3).any(|op| {
            let at = (self.activity + 0x18 + op) as *mut u8;
            // SAFETY: as in `word`.
            unsafe { AtomicU8::from_ptr(at) }.load(Ordering::Acquire) != 0
        })
    }

    /// Whether somebody else uses any of it; `ours` are the callbacks that we leave behind.
    pub(super) fn is_taken(&self, ours: [usize; 2]) -> bool {
        let operations = self.of_operations();
        let free = operations == [0, 0] || operations == ours;
        !free
            || self.enabled()
            || (1..=LAST_API).any(|api| self.of_api(api) != [0, 0])
            || is_tracer_loaded()
    }
}

fn address_of(library: *mut c_void, name: &CStr) -> Option<usize> {
    // SAFETY: a handle of `dlopen`.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) } as usize;
    (address != 0).then_some(address)
}

/// # Safety
///
/// `F` is the function's type.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    let address = address_of(library, name)?;
    // SAFETY: the caller's promise.
    Some(unsafe { core::mem::transmute_copy::<usize, F>(&address) })
}

/// A handle of the library that holds the code at `address`; never closed, so that it stays.
fn library_of(address: u64) -> Option<*mut c_void> {
    // SAFETY: it takes any address; the structure is filled when it succeeds, and the name lives as
    // long as the library.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        if libc::dladdr(address as *const c_void, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let library = libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        (!library.is_null()).then_some(library)
    }
}

/// Whether AMD's tracer is in the process: it takes the slot when it is asked to, and asks nobody.
fn is_tracer_loaded() -> bool {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's structure, with a name or none; `found` is the bool below.
        unsafe {
            let name = (*info).dlpi_name;
            if !name.is_null() {
                let name = CStr::from_ptr(name).to_bytes();
                let file = name.rsplit(|&b| b == b'/').next().unwrap_or(name);
                *found.cast::<bool>() |= file.starts_with(b"libroctracer64.so");
            }
        }
        0
    }
    let mut found = false;
    // SAFETY: the callback keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

/// Whether something in the process, other than the library at `hip`, names a function of
/// [`CALLS_BACK`] in its table of symbols.
pub(super) fn is_called_back(hip: u64) -> bool {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        looking: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's structure and our own, valid for the call.
        let (info, looking) = unsafe { (&*info, &mut *looking.cast::<Looking>()) };
        // SAFETY: the loader's structure.
        looking.found |= unsafe { names_of(info, looking.hip) }
            .is_some_and(|names| CALLS_BACK.iter().any(|name| contains(names, name)));
        0
    }
    let mut looking = Looking { hip, found: false };
    // SAFETY: the callback keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut looking).cast()) };
    looking.found
}

struct Looking {
    hip: u64,
    found: bool,
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The names of the symbols of a loaded object, unless it is the kernel's or the one at `hip`.
///
/// # Safety
///
/// `info` is the loader's.
unsafe fn names_of(info: &libc::dl_phdr_info, hip: u64) -> Option<&[u8]> {
    const STRINGS: u64 = 5;
    const STRINGS_BYTES: u64 = 10;
    // SAFETY: the loader's array, and mapped segments, which the loader has read itself.
    unsafe {
        let base = info.dlpi_addr;
        let headers = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let load = |h: &&libc::Elf64_Phdr| h.p_type == libc::PT_LOAD;
        let of_hip =
            |h: &libc::Elf64_Phdr| (base + h.p_vaddr..base + h.p_vaddr + h.p_memsz).contains(&hip);
        let is_kernels = !info.dlpi_name.is_null()
            && CStr::from_ptr(info.dlpi_name).to_bytes().starts_with(b"linux-");
        if is_kernels || headers.iter().filter(load).any(of_hip) {
            return None;
        }
        let dynamic = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC)?;
        let mut entry = (base + dynamic.p_vaddr) as *const [u64; 2];
        let (mut strings, mut bytes) = (0, 0);
        while (*entry)[0] != 0 {
            match *entry {
                [STRINGS, value] => strings = value,
                [STRINGS_BYTES, value] => bytes = value,
                _ => {}
            }
            entry = entry.add(1);
        }
        // Some loaders leave the address relative.
        let strings = if strings < base { base + strings } else { strings };
        (strings != 0 && bytes != 0)
            .then(|| core::slice::from_raw_parts(strings as *const u8, bytes as usize))
    }
}

const INIT_BYTES: usize = 19;
const REGISTER_BYTES: usize = 0x85;

/// The address that a `lea DISPLACEMENT(%rip)` of 7 bytes at `offset` loads.
fn loaded(code: &[u8], offset: usize, address: u64) -> Option<usize> {
    let displacement = code.get(offset + 3..offset + 7)?.try_into().ok()?;
    let next = address.checked_add(offset as u64 + 7)?;
    let table = next.checked_add_signed(i32::from_le_bytes(displacement).into())?;
    usize::try_from(table).ok()
}

/// The table that `hipInitActivityCallback` fills.
fn table_of_init(code: &[u8], address: u64) -> Option<usize> {
    // lea TABLE(%rip),%rax; mov %rdi,(%rax); mov %rsi,8(%rax); mov %rdx,0x10(%rax); ret
    let stores = [0x48, 0x89, 0x38, 0x48, 0x89, 0x70, 8, 0x48, 0x89, 0x50, 0x10, 0xC3];
    (code.get(..3)? == [0x48, 0x8D, 0x05] && code.get(7..19)? == stores)
        .then(|| loaded(code, 0, address))?
}

/// The table that `hipRegisterActivityCallback` writes an entry of.
fn table_of_register(code: &[u8], address: u64) -> Option<usize> {
    // lea TABLE(%rip),%rbp … lea -1(%rbx),%eax; cmp $332,%eax …
    // mov 0x30(%rbp,%rax,8),%rcx; mov 0x3458(%rbp),%eax
    let last = [0x8D, 0x43, 0xFF, 0x3D, 0x4C, 1, 0, 0];
    let entry = [0x48, 0x8B, 0x4C, 0xC5, 0x30, 0x8B, 0x85, 0x58, 0x34, 0, 0];
    (code.get(0x12..0x15)? == [0x48, 0x8D, 0x2D]
        && code.get(0x29..0x31)? == last
        && code.get(0x7A..0x85)? == entry)
        .then(|| loaded(code, 0x12, address))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_found_in_the_known_code_only() {
        let mut init = vec![0x48, 0x8D, 0x05, 0x99, 0x93, 0xCE, 0x00];
        init.extend([0x48, 0x89, 0x38, 0x48, 0x89, 0x70, 8, 0x48, 0x89, 0x50, 0x10, 0xC3]);
        assert_eq!(table_of_init(&init, 0xB_BCE0), Some(0xDA_5080));
        for at in (0..3).chain(7..19) {
            let mut other = init.clone();
            other[at] ^= 1;
            assert_eq!(table_of_init(&other, 0xB_BCE0), None, "{at}");
        }
        assert_eq!(table_of_init(&init[..18], 0xB_BCE0), None);
        let mut register = vec![0x90; REGISTER_BYTES];
        register[0x12..0x19].copy_from_slice(&[0x48, 0x8D, 0x2D, 0xA7, 0x64, 0xC1, 0x00]);
        register[0x29..0x31].copy_from_slice(&[0x8D, 0x43, 0xFF, 0x3D, 0x4C, 1, 0, 0]);
        register[0x7A..]
            .copy_from_slice(&[0x48, 0x8B, 0x4C, 0xC5, 0x30, 0x8B, 0x85, 0x58, 0x34, 0, 0]);
        assert_eq!(table_of_register(&register, 0x18_4D00), Some(0xD9_B1C0));
        // One function more than in 5.2.3.
        register[0x2D] += 1;
        assert_eq!(table_of_register(&register, 0x18_4D00), None);
    }

    #[test]
    fn a_name_is_a_whole_one() {
        let names = b"\0hipStreamAddCallback_spt\0xhipLaunchHostFunc\0puts\0";
        assert!(!CALLS_BACK.iter().any(|name| contains(names, name)));
        assert!(contains(b"\0puts\0hipLaunchHostFunc\0", CALLS_BACK[1]));
        assert!(!is_called_back(0), "this program does not");
    }

    #[test]
    fn an_address_of_something_else_is_no_interface() {
        let something = tables_are_found_in_the_known_code_only as *const () as u64;
        for init in [0, 4096, something, u64::MAX] {
            let addresses = Addresses { init, register: init, remove: init, enable: init };
            assert!(Interface::find(addresses).is_none(), "{init:#x}");
        }
    }
}
