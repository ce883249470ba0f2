//! Bodies of fuzz targets: the readers of the data that is read of a process before anything is put into it.

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

/// Reads arbitrary `bytes` as the memory of a process, which begins with the program's ELF header: its libraries, and
/// their thread-local storage.
///
/// # Panics
///
/// When the result exceeds a limit.
pub fn fuzz_link_map(bytes: &[u8]) {
    const AT_PHDR: u64 = 3;
    const AT_PHNUM: u64 = 5;
    Storage::fuzz(&Echo::new(bytes), &BTreeMap::from([(AT_PHDR, 64), (AT_PHNUM, 8)]));
}

/// Runs arbitrary `bytes` as a seccomp filter.
pub fn fuzz_seccomp(bytes: &[u8]) {
    let instruction = |&[a, b, if_true, if_false, k @ ..]: &[u8; 8]| Instruction {
        code: u16::from_le_bytes([a, b]),
        if_true,
        if_false,
        k: u32::from_le_bytes(k),
    };
    // As many instructions as the kernel accepts.
    let filter = bytes.as_chunks::<8>().0.iter().take(4096).map(instruction).collect();
    let _ = seccomp::refused(&[filter], seccomp::OF_TOOLS);
}

/// Reads arbitrary `bytes` as each of the kernel's texts about a process.
///
/// # Panics
///
/// When the result makes no sense.
pub fn fuzz_process_texts(bytes: &[u8]) {
    let maps = Maps::from_text(bytes);
    for map in maps.iter() {
        assert!(map.range.start < map.range.end);
        let _ = Runtime::of_file_name(&map.file_name());
        assert!(map.plain_path().is_none_or(|path| path.is_absolute() && path != Path::new("")));
    }
    let text = foreign::lossy(bytes);
    candidates::fuzz(&text);
    let _ = (stack_pointer(&text), foreign::may_read(&text, [1, 2, 0o640]));
}
