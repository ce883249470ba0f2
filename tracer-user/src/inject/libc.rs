//! Recognises the C library of a process, and finds the functions in it that the bootstrap calls.

use std::path::Path;

use memchr::memmem;

use super::error::{Refusal, Refused};
use crate::{
    discover, foreign,
    plan::{Binary, LiveProcess, Located, Mapping, ProcessMemory as _},
};

/// The releases whose thread descriptor is known: 2.n.
const GLIBC: std::ops::RangeInclusive<u32> = 28..=44;
/// The most bytes of the library that are searched for its release.
const MAX_BYTES: u64 = 8 << 20;
/// The most pieces in which the library's code may be mapped: usually there is one.
const MAX_PIECES: usize = 8;
/// The number of bytes of its code that are read at once.
const PIECE_BYTES: usize = 16 << 10;
/// The `syscall` instruction.
const SYSCALL: &[u8] = &[0x0f, 0x05];

/// A process's C library.
pub struct Libc {
    pub dlopen: u64,
    pub dlsym: u64,
    pub dlerror: u64,
    pub pthread_create: u64,
    pub pthread_detach: u64,
    /// The address of a `syscall` instruction.
    pub syscall: u64,
}

impl Libc {
    /// Recognises the C library. An unknown one is refused, not guessed.
    pub fn find(pid: u32, process: &LiveProcess) -> Result<Self, Refused> {
        let files = discover::mapped(pid, |map| part_of_libc(&map.file_name()))?;
        let open = |wanted: Part| {
            let file = files.iter().find(|(part, _)| *part == wanted).map(|(_, file)| file)?;
            Some((file.path.clone(), file.file.path()))
        };
        if open(Part::Musl).is_some() {
            return Err(Refusal::Musl.into());
        }
        let Some((shown, path)) = open(Part::C) else { return Err(Refusal::NoLibc.into()) };
        let minor = release(&path).ok_or_else(|| Refusal::UnknownLibc(shown.clone()))?;
        if !GLIBC.contains(&minor) {
            return Err(Refusal::Glibc { path: shown, minor }.into());
        }
        // Until 2.33 threads and `dlopen` were in libraries of their own.
        let parts: Vec<Located<'_>> = [Part::C, Part::Threads, Part::Loader]
            .into_iter()
            .filter_map(|part| Located::find(process, &open(part)?.1).ok())
            .collect();
        let function = |name: &'static str| {
            let found = parts.iter().find_map(|part| part.function(name));
            found.ok_or(Refusal::NoFunction { path: shown.clone(), name })
        };
        Ok(Self {
            dlopen: function("dlopen")?,
            dlsym: function("dlsym")?,
            dlerror: function("dlerror")?,
            pthread_create: function("pthread_create")?,
            pthread_detach: function("pthread_detach")?,
            syscall: syscall_instruction(process, &path)
                .ok_or_else(|| Refusal::UnknownLibc(shown.clone()))?,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    C,
    Threads,
    Loader,
    Musl,
}

/// Whether a file of this name is the C library itself.
pub fn is_libc(name: &str) -> bool {
    part_of_libc(name) == Some(Part::C)
}

fn part_of_libc(name: &str) -> Option<Part> {
    // The kernel's name for a file that was replaced since the process began.
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    // Before 2.34 the files were called libc-2.31.so and so on.
    let is = |stem: &str, soname: &str| {
        name == soname || name.strip_prefix(stem).is_some_and(|rest| rest.starts_with("-2."))
    };
    if is("libc", "libc.so.6") {
        Some(Part::C)
    } else if is("libpthread", "libpthread.so.0") {
        Some(Part::Threads)
    } else if is("libdl", "libdl.so.2") {
        Some(Part::Loader)
    // glibc's own libc.so is a script for the linker.
    } else if name.starts_with("ld-musl-") || name.starts_with("libc.musl-") || name == "libc.so" {
        Some(Part::Musl)
    } else {
        None
    }
}

/// The minor release that glibc names itself: "GNU C Library (…) stable release version 2.36."
fn release(path: &Path) -> Option<u32> {
    let bytes = foreign::File::open(path).ok()?.beginning(MAX_BYTES).ok()?;
    let at = memmem::find(&bytes, b"GNU C Library ")?;
    let banner = String::from_utf8_lossy(bytes.get(at..at + 200)?).into_owned();
    let (_, rest) = banner.split_once("version 2.")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The address of a `syscall` instruction in the mapped code of the library. There are hundreds: one that
/// lies across two pieces is passed over.
fn syscall_instruction(process: &LiveProcess, library: &Path) -> Option<u64> {
    let binary = Binary::open(library).ok()?;
    let is_code = |mapping: &&Mapping| mapping.executable && mapping.is_of(&binary);
    for mapping in process.mappings().iter().filter(is_code).take(MAX_PIECES) {
        let end = mapping.end.min(mapping.start.saturating_add(MAX_BYTES));
        for start in (mapping.start..end).step_by(PIECE_BYTES) {
            let mut piece = [0; PIECE_BYTES];
            let bytes = piece.get_mut(..(end - start).min(PIECE_BYTES as u64) as usize)?;
            process.read(start, bytes).ok()?;
            if let Some(at) = memmem::find(bytes, SYSCALL) {
                return Some(start + at as u64);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_libc_are_known_by_name() {
        for name in ["libc.so.6", "libc-2.31.so"] {
            assert!(part_of_libc(name) == Some(Part::C), "{name}");
        }
        assert!(part_of_libc("libpthread-2.28.so") == Some(Part::Threads));
        assert!(part_of_libc("ld-musl-x86_64.so.1") == Some(Part::Musl));
        for name in ["libcurl.so.4", "libc++.so.1", "libcap.so.2", "libc-client.so.2007"] {
            assert!(part_of_libc(name).is_none(), "{name}");
        }
    }

    #[test]
    fn our_own_libc_is_recognised() {
        let pid = std::process::id();
        let process = LiveProcess::open(pid).unwrap();
        let libc = Libc::find(pid, &process).unwrap();
        let mut instruction = [0; 2];
        process.read(libc.syscall, &mut instruction).unwrap();
        assert_eq!(instruction, SYSCALL);
    }
}
