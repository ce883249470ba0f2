//! Libraries that are loaded: where they are, and the functions that they export.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::{CStr, c_int, c_void};
use core::ptr;

/// Where the library that holds `address` begins; `None` if no library does.
pub fn library_of(address: usize) -> Option<usize> {
    // SAFETY: `info` is valid for writes; the address is compared, not read.
    let info = unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        (libc::dladdr(address as *const c_void, &raw mut info) != 0).then_some(info)?
    };
    Some(info.dli_fbase as usize)
}

/// Has the library that holds `address` stay for as long as the process; false if no library does.
///
/// None of its functions is called, and the order in which its and others' destructors run at the
/// end of the process stays as it is. One that would have run when the library was unloaded runs then.
pub fn pin(address: usize) -> bool {
    open(address, libc::RTLD_NODELETE).is_some()
}

/// Opens the library that holds `address`, which is in use, once more: its handle and where it begins.
fn open(address: usize, flags: c_int) -> Option<(*mut c_void, usize)> {
    // SAFETY: `info` and `map` are valid for writes. The call finds a link map, whose name lives as long as it, which
    // is until `dlclose`: the caller makes sure that the library is in use.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let mut map = ptr::null_mut();
        let found =
            libc::dladdr1(address as *const c_void, &raw mut info, &raw mut map, RTLD_DL_LINKMAP);
        if found == 0 || map.is_null() {
            return None;
        }
        // Of another namespace, if the library was loaded by `dlmopen`.
        let mut namespace: libc::Lmid_t = 0;
        if libc::dlinfo(map, libc::RTLD_DI_LMID, (&raw mut namespace).cast()) != 0 {
            return None;
        }
        let name = (*map.cast::<LinkMap>()).name;
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | flags;
        let handle = libc::dlmopen(namespace, name, flags);
        if handle.is_null() {
            // The message that it has left for `dlerror` is not the program's.
            libc::dlerror();
        }
        (handle == map).then_some((handle, info.dli_fbase as usize))
    }
}

/// Where a library is.
#[derive(Clone, Copy)]
pub struct Extent {
    /// Its first address.
    pub begin: usize,
    /// The one behind its last.
    pub end: usize,
    /// An address among its data.
    pub data: usize,
}

impl Extent {
    /// Of a library at `address` with these program headers; none of one without data.
    fn of(address: usize, headers: &[libc::Elf64_Phdr]) -> Option<Self> {
        let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let from = |header: &libc::Elf64_Phdr| address.wrapping_add(header.p_vaddr as usize);
        Some(Self {
            begin: loaded().map(from).min()?,
            end: loaded().map(|header| from(header).wrapping_add(header.p_memsz as usize)).max()?,
            data: loaded().filter(|header| header.p_flags & libc::PF_W != 0).map(from).max()?,
        })
    }
}

/// The library's own name (`DT_SONAME`), with what follows it in its table of names; none if it has none.
///
/// # Safety
///
/// A library with these program headers is loaded at `address`, and stays while the name is used.
unsafe fn soname<'l>(address: usize, headers: &[libc::Elf64_Phdr]) -> Option<&'l [u8]> {
    let extent = Extent::of(address, headers)?;
    let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
    let at = address.wrapping_add(dynamic.p_vaddr as usize);
    let is_inside = at >= extent.begin && at < extent.end;
    if !is_inside || !at.is_multiple_of(align_of::<Dynamic>()) {
        return None;
    }
    // SAFETY: the section is a part of the library.
    let entries = unsafe {
        let count = dynamic.p_memsz as usize / size_of::<Dynamic>();
        core::slice::from_raw_parts(at as *const Dynamic, count)
    };
    let entries = entries.split(|entry| entry.tag == DT_NULL).next()?;
    let value = |tag| entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.value);
    let (names, size, offset) = (value(DT_STRTAB)?, value(DT_STRSZ)?, value(DT_SONAME)?);
    // The dynamic linker adds the library's address where it can write.
    let names = if names < extent.begin { names.wrapping_add(address) } else { names };
    let is_inside = names >= extent.begin && names.checked_add(size)? <= extent.end;
    // SAFETY: the table is a part of the library.
    let names = is_inside.then(|| unsafe { core::slice::from_raw_parts(names as *const u8, size) });
    names?.get(offset..)
}

/// The extent of the one library whose name begins like this, and goes on with a version (`.so.6`) or with what makes it
/// unique (`-0a1b2c3d.so.6`); none if none is loaded, or several are. The name is that of its file or its own.
pub fn the_only_library(beginning: &[u8]) -> Option<Extent> {
    struct Found<'a> {
        beginning: &'a [u8],
        extent: Option<Extent>,
        count: usize,
    }
    /// # Safety
    ///
    /// `found` is the value of below.
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: what the C library gives, and the value of below.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Found<'_>>()) };
        if info.dlpi_name.is_null() || info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: a path, and as many program headers as there are, which stay while the library does.
        let (path, headers) = unsafe {
            let headers = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            (CStr::from_ptr(info.dlpi_name).to_bytes(), headers)
        };
        let file = path.rsplit(|&byte| byte == b'/').next();
        // SAFETY: as above.
        let own = || unsafe { soname(info.dlpi_addr as usize, headers) };
        let is_it = |name: &[u8]| {
            let rest = name.strip_prefix(found.beginning).unwrap_or_default();
            matches!(rest.first(), Some(b'.' | b'-'))
        };
        if file.is_some_and(is_it) || own().is_some_and(is_it) {
            found.extent = Extent::of(info.dlpi_addr as usize, headers);
            found.count += 1;
        }
        0
    }
    let mut found = Found { beginning, extent: None, count: 0 };
    // SAFETY: a function that takes what it is given here.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found.extent.filter(|_| found.count == 1)
}

/// Longest name of a function that is looked up, with its NUL.
const MAX_NAME: usize = 80;

/// A library whose functions are looked up. It must be in use as long as this exists.
pub struct Library {
    handle: *mut c_void,
    begin: usize,
    /// An address in its data, which follow its code.
    data: usize,
}

impl Library {
    /// The library that has `data` among its data; none if no library does.
    pub fn of(data: usize) -> Option<Self> {
        let (handle, begin) = open(data, 0)?;
        Some(Self { handle, begin, data })
    }

    /// The address of an exported function of its own.
    pub fn function(&self, name: &str) -> Option<usize> {
        // Nothing is allocated here.
        let mut with_nul = [0u8; MAX_NAME];
        with_nul.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        let name = CStr::from_bytes_until_nul(&with_nul).ok()?;
        // SAFETY: the handle is open, the name ends in NUL.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) } as usize;
        if found == 0 {
            // As in `open`.
            // SAFETY: takes nothing.
            unsafe { libc::dlerror() };
        }
        // Else it is of a library that this one depends on.
        (self.begin..self.data).contains(&found).then_some(found)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: opened in `of`. The library is in use, so this only counts.
        unsafe { libc::dlclose(self.handle) };
    }
}

/// An entry of a library's dynamic section: `Elf64_Dyn`.
#[repr(C)]
struct Dynamic {
    tag: usize,
    value: usize,
}

/// Of `elf.h`.
const DT_NULL: usize = 0;
const DT_STRTAB: usize = 5;
const DT_STRSZ: usize = 10;
const DT_SONAME: usize = 14;

/// Of `dlfcn.h`.
const RTLD_DL_LINKMAP: core::ffi::c_int = 2;

/// The beginning of `struct link_map`.
#[repr(C)]
struct LinkMap {
    _address: usize,
    name: *const core::ffi::c_char,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_whose_name_goes_on_otherwise_is_another() {
        assert!(the_only_library(b"libgcc_s").is_some());
        assert!(the_only_library(b"libgcc").is_none());
    }

    #[test]
    fn a_library_is_known_by_its_own_name() {
        // SAFETY: takes an address, and fills in what it is given.
        let libc = unsafe {
            let mut info: libc::Dl_info = core::mem::zeroed();
            assert_ne!(libc::dladdr(libc::getpid as *const c_void, &raw mut info), 0);
            CStr::from_ptr(info.dli_fname).to_str().unwrap()
        };
        let copy = std::env::temp_dir().join(format!("roctap-renamed-{}", std::process::id()));
        std::fs::copy(libc.replace("libc.so.6", "libresolv.so.2"), &copy).unwrap();
        let path = std::ffi::CString::new(copy.to_str().unwrap()).unwrap();
        assert!(the_only_library(b"libresolv").is_none());
        // SAFETY: a library of the C library's own.
        assert!(!unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) }.is_null());
        std::fs::remove_file(copy).unwrap();
        assert!(the_only_library(b"libresolv").is_some());
    }

    #[test]
    fn libraries_are_known_by_what_is_in_them() {
        static OURS: u8 = 0;
        let ours = &raw const OURS as usize;
        let of_libc = libc::getpid as *const () as usize;
        let heap = Box::new(0u8);
        assert_eq!(library_of(ours), library_of(pin as *const () as usize));
        assert_ne!(library_of(ours), library_of(of_libc));
        assert_eq!(library_of(&raw const *heap as usize), None);
        assert!(pin(of_libc) && !pin(&raw const *heap as usize));
    }
}
