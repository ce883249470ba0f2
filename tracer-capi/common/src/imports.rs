//! Functions that a loaded library imports, and the places where it has their addresses.

#![expect(unsafe_code, reason = "a library's image in memory")]

use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use core::slice;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::io;

use libc::{PROT_EXEC, PROT_READ, PROT_WRITE, PT_DYNAMIC, PT_LOAD};
use object::LittleEndian;
use object::elf::{self, Dyn64, Rela64, Sym64};
use tracer_hooks::sys::PAGE_BYTES;

use crate::loaded::Loaded;

/// The place in which a library that stays loaded has the address of a function.
#[derive(Debug)]
pub struct Import {
    address: &'static AtomicUsize,
    /// The extent of the library.
    own: Range<usize>,
}

impl Loaded {
    /// The place where it has the address of a function that it imports; none if it imports none of that name.
    pub fn import(&self, function: &CStr) -> Option<Import> {
        let mut wanted = Wanted { path: self.path(), function, found: None };
        // SAFETY: a function that takes what it is given here.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut wanted).cast()) };
        wanted.found
    }
}

/// The function that is looked for, and the import that was found.
struct Wanted<'a> {
    path: &'a CStr,
    function: &'a CStr,
    found: Option<Import>,
}

/// Looks into one library; 1 where it is the wanted one.
///
/// # Safety
///
/// The C library calls it, with a [`Wanted`] whose library stays loaded.
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, to: *mut c_void) -> c_int {
    // SAFETY: as the C library gives it, and as the caller promises.
    let (info, wanted) = unsafe { (&*info, &mut *to.cast::<Wanted<'_>>()) };
    // SAFETY: null, or a path, which is there while the library is.
    let path = unsafe { info.dlpi_name.as_ref().map(|path| CStr::from_ptr(path)) };
    if path != Some(wanted.path) {
        return 0;
    }
    // SAFETY: the headers of a library that is loaded, and stays so.
    unsafe {
        let headers = slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        wanted.found = import(info.dlpi_addr as usize, headers, wanted.function);
    }
    1
}

/// The import of a library that is loaded at `base`.
///
/// # Safety
///
/// The headers are its own, and it stays loaded.
unsafe fn import(base: usize, headers: &[libc::Elf64_Phdr], function: &CStr) -> Option<Import> {
    let range = |header: &libc::Elf64_Phdr| {
        let begin = base.wrapping_add(header.p_vaddr as usize);
        begin..begin.wrapping_add(header.p_memsz as usize)
    };
    let loaded = headers.iter().filter(|header| header.p_type == PT_LOAD).map(range);
    let own = loaded.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end))?;
    let dynamic = headers.iter().find(|header| header.p_type == PT_DYNAMIC).map(range)?;
    // SAFETY: the segment is the library's dynamic section.
    let entries = unsafe { table::<Dyn64<LittleEndian>>(dynamic.start, dynamic.len()) };
    let value = |tag: u32| {
        let mut entries =
            entries.iter().take_while(|entry| entry.d_tag.get(E) != elf::DT_NULL.into());
        let entry = entries.find(|entry| entry.d_tag.get(E) == tag.into())?;
        Some(entry.d_val.get(E) as usize)
    };
    // The C library has put addresses in the place of offsets in the file, where it can write.
    let address = |tag| value(tag).filter(|address| own.contains(address));
    let (symbols, names) = (address(elf::DT_SYMTAB)?, address(elf::DT_STRTAB)?);
    let is_meant = |relocation: &&Rela64<LittleEndian>| {
        let kind = relocation.r_type(E, false);
        if ![elf::R_X86_64_JUMP_SLOT, elf::R_X86_64_GLOB_DAT].contains(&kind) {
            return false;
        }
        let index = relocation.r_sym(E, false) as usize;
        // SAFETY: the symbol of a relocation, and its name.
        let name = unsafe {
            let symbol = &*(symbols as *const Sym64<LittleEndian>).add(index);
            CStr::from_ptr((names as *const i8).add(symbol.st_name.get(E) as usize))
        };
        name == function
    };
    let tables = [(elf::DT_JMPREL, elf::DT_PLTRELSZ), (elf::DT_RELA, elf::DT_RELASZ)];
    let place = tables.into_iter().find_map(|(begin, bytes)| {
        // SAFETY: a table of the library's relocations.
        let relocations = unsafe { table::<Rela64<LittleEndian>>(address(begin)?, value(bytes)?) };
        relocations.iter().find(is_meant).map(|one| base.wrapping_add(one.r_offset.get(E) as usize))
    })?;
    // SAFETY: an aligned word of a library that stays loaded, which is written in one step.
    let address = unsafe { AtomicUsize::from_ptr(place as *mut usize) };
    Some(Import { address, own })
}

const E: LittleEndian = LittleEndian;

/// A table of this many bytes.
///
/// # Safety
///
/// It is there, and stays.
unsafe fn table<T>(begin: usize, bytes: usize) -> &'static [T] {
    // SAFETY: as the caller promises.
    unsafe { slice::from_raw_parts(begin as *const T, bytes / size_of::<T>()) }
}

impl Import {
    /// The function; none where the dynamic linker looks for it only at its first call, or has found none.
    pub fn function(&self) -> Option<usize> {
        let address = self.address.load(Ordering::Acquire);
        (address != 0 && !self.own.contains(&address)).then_some(address)
    }

    /// Puts another function there, in one step for threads that call it meanwhile. One thread at a time does so.
    ///
    /// # Errors
    ///
    /// When the page cannot be written.
    ///
    /// # Safety
    ///
    /// The function is of the same type.
    pub unsafe fn replace(&self, function: usize) -> io::Result<()> {
        // The dynamic linker has made it read-only, or another tool has made it writable.
        let access = self.access()?;
        let is_writable = access & PROT_WRITE != 0;
        if !is_writable {
            self.protect(access | PROT_WRITE)?;
        }
        self.address.store(function, Ordering::Release);
        if !is_writable {
            // If that fails, the page stays writable.
            let _ = self.protect(access);
        }
        Ok(())
    }

    /// The access rights of its page.
    fn access(&self) -> io::Result<c_int> {
        let address = (&raw const *self.address).addr();
        let access_of = |line: &str| {
            let (range, rest) = line.split_once(' ')?;
            let (begin, end) = range.split_once('-')?;
            let number = |hex| usize::from_str_radix(hex, 16).ok();
            let range = number(begin)?..number(end)?;
            let bits = [(b'r', PROT_READ), (b'w', PROT_WRITE), (b'x', PROT_EXEC)];
            let letters = bits.into_iter().zip(rest.bytes());
            let bits = letters.filter(|&((letter, _), is)| letter == is).map(|((_, bit), _)| bit);
            range.contains(&address).then(|| bits.fold(0, |all, bit| all | bit))
        };
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        maps.lines().find_map(access_of).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn protect(&self, access: c_int) -> io::Result<()> {
        let page = (&raw const *self.address).addr() & !(PAGE_BYTES - 1);
        // SAFETY: a page of a library's data, to which only access is added, or taken that was added.
        match unsafe { libc::mprotect(page as *mut c_void, PAGE_BYTES, access) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    use libloading::{Library, Symbol};

    extern "C" fn other() -> c_int {
        42
    }

    /// Bound when it is loaded, and read-only from then on; or when the function is called.
    #[test]
    fn an_import_is_found_and_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let source = directory.path().join("imports.c");
        std::fs::write(&source, "#include <unistd.h>\nint asks(void) { return getppid(); }\n")
            .expect("written");
        for (name, options) in
            [("imports-now.so", "-Wl,-z,relro,-z,now"), ("imports-lazy.so", "-Wl,-z,lazy")]
        {
            let file = directory.path().join(name);
            let mut compiler = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
            compiler.args(["-shared", "-fPIC", options, "-o"]).args([&file, &source]);
            assert!(compiler.status().expect("a compiler").success());
            // SAFETY: a library without initializers.
            let library = unsafe { Library::new(&file) }.expect("loaded");
            let asks: Symbol<'_, extern "C" fn() -> c_int> =
                // SAFETY: a function of this type.
                unsafe { library.get(b"asks") }.expect("there");

            let loaded = Loaded::find(name.as_bytes()).expect("loaded");
            assert!(loaded.import(c"getpid").is_none(), "{name}");
            let import = loaded.import(c"getppid").expect("it is called");
            let is_bound = name == "imports-now.so";
            assert_eq!(import.function().is_some(), is_bound, "{name}");
            let access = if is_bound { PROT_READ } else { PROT_READ | PROT_WRITE };
            assert_eq!(import.access().expect("mapped"), access, "{name}");
            let before = std::os::unix::process::parent_id();
            assert_eq!(asks().cast_unsigned(), before, "{name}");
            let own =
                loaded.import(c"getppid").expect("as before").function().expect("bound by now");
            for (function, answer) in
                [(other as *const () as usize, 42), (own, before.cast_signed())]
            {
                // SAFETY: both are of its type.
                unsafe { import.replace(function) }.expect("written");
                assert_eq!(asks(), answer, "{name}");
                assert_eq!(import.access().expect("mapped"), access, "{name}");
            }
        }
    }
}
