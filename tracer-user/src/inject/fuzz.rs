//! Bodies of fuzz targets: what is read of a process before anything is put into it.

use std::{collections::BTreeMap, path::Path};

use super::{
    candidates,
    seccomp::{self, Instruction},
    threads::Storage,
};
use crate::{
    discover::{Runtime, stack_pointer},
    foreign::{self, Maps},
    plan::Echo,
};

/// Reads whatever `bytes` are as the memory of a process, which begins with the program's ELF header: its
/// libraries, and their thread-local storage.
///
/// # Panics
///
/// When more comes of it than is allowed.
pub fn fuzz_link_map(bytes: &[u8]) {
    const AT_PHDR: u64 = 3;
    const AT_PHNUM: u64 = 5;
    Storage::fuzz(&Echo::new(bytes), &BTreeMap::from([(AT_PHDR, 64), (AT_PHNUM, 8)]));
}

/// Runs whatever `bytes` are as a seccomp filter.
pub fn fuzz_seccomp(bytes: &[u8]) {
    let instruction = |&[a, b, if_true, if_false, k @ ..]: &[u8; 8]| Instruction {
        code: u16::from_le_bytes([a, b]),
        if_true,
        if_false,
        k: u32::from_le_bytes(k),
    };
    // As many as the kernel accepts.
    let filter = bytes.as_chunks::<8>().0.iter().take(4096).map(instruction).collect();
    let _ = seccomp::refused(&[filter], seccomp::OF_TOOLS);
}

/// Reads whatever `bytes` are as each of the texts that the kernel has on a process.
///
/// # Panics
///
/// When what comes of it makes no sense.
pub fn fuzz_process_texts(bytes: &[u8]) {
    let maps = Maps::from_text(bytes);
    for map in maps.iter() {
        assert!(map.range.start < map.range.end);
        let name = map.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let _ = Runtime::of_file_name(&name);
        assert!(map.plain_path().is_none_or(|path| path.is_absolute() && path != Path::new("")));
    }
    let text = foreign::lossy(bytes);
    candidates::fuzz(&text);
    let _ = (stack_pointer(&text), foreign::may_read(&text, [1, 2, 0o640]));
}
