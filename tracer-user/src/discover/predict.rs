//! Guesses which runtime libraries a command will map, so that its first call can be probed.
//!
//! A uprobe belongs to a file, so it can be placed before any process maps that file. The places are those where the
//! dynamic linker would look: `LD_LIBRARY_PATH`, the executable's run path, the linker's cache, and ROCm's own
//! directory. A wrong guess costs a few milliseconds; a library that was not guessed is found in the process's maps a
//! little after it was mapped.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use object::{elf, read::elf::Dyn as _, read::elf::ElfFile64};

use super::{FileId, Library, Runtime};
use crate::foreign::{Contents, File};

/// The runtime libraries that `command` is likely to map.
pub fn candidates(command: &OsStr) -> Vec<Library> {
    let mut directories = Vec::new();
    if let Some(list) = std::env::var_os("LD_LIBRARY_PATH") {
        directories.extend(std::env::split_paths(&list).filter(|p| !p.as_os_str().is_empty()));
    }
    if let Some(executable) = find_executable(command) {
        directories.extend(run_path(&executable));
    }
    directories.extend(rocm_directories());
    let in_directories = directories.iter().flat_map(|d| list(d));
    let mut seen = BTreeSet::new();
    in_directories
        .chain(linker_cache())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            let runtime = Runtime::of_file_name(name)?;
            let id = FileId::from(File::open(&path).ok()?.attributes());
            let open_path = path.clone();
            seen.insert(id).then_some(Library { runtime, open_path, path, id, held: None })
        })
        .collect()
}

/// Finds `command` as `execvp` does.
pub fn find_executable(command: &OsStr) -> Option<PathBuf> {
    let path = Path::new(command);
    if path.components().count() > 1 {
        return path.canonicalize().ok();
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(path))
        .find(|candidate| candidate.is_file())?
        .canonicalize()
        .ok()
}

fn list(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| {
            entry.file_name().to_str().is_some_and(|name| Runtime::of_file_name(name).is_some())
        })
        .map(|entry| entry.path())
        .collect()
}

/// `/opt/rocm/lib`, `/opt/rocm-6.4.3/lib` and so on.
fn rocm_directories() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/opt") else { return Vec::new() };
    entries
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with("rocm"))
        .map(|e| e.path().join("lib"))
        .collect()
}

/// Run paths of the executable, `$ORIGIN` replaced.
fn run_path(executable: &Path) -> Vec<PathBuf> {
    read_run_path(executable).unwrap_or_default()
}

fn read_run_path(executable: &Path) -> Option<Vec<PathBuf>> {
    let contents = Contents::of(File::open(executable).ok()?);
    let elf = ElfFile64::<object::Endianness, _>::parse(contents.view()).ok()?;
    let (endian, data) = (elf.endian(), elf.data());
    let sections = elf.elf_section_table();
    let (entries, strings_index) = sections.dynamic(endian, data).ok().flatten()?;
    let strings = sections.strings(endian, data, strings_index).ok()?;
    let origin = executable.parent()?;
    let mut directories = Vec::new();
    for entry in entries {
        let tag = entry.tag32(endian);
        if tag != Some(elf::DT_RPATH) && tag != Some(elf::DT_RUNPATH) {
            continue;
        }
        let value = entry.val32(endian).and_then(|at| strings.get(at).ok()).unwrap_or_default();
        let parts = value.split(|&byte| byte == b':').filter(|part| !part.is_empty());
        directories.extend(parts.map(|part| replace_origin(part, origin)));
    }
    Some(directories)
}

/// A directory of a run path, with that of the executable in the place of `$ORIGIN`.
fn replace_origin(mut part: &[u8], origin: &Path) -> PathBuf {
    let mut path = Vec::new();
    while let Some((&first, rest)) = part.split_first() {
        let names: [&[u8]; 2] = [b"${ORIGIN}", b"$ORIGIN"];
        match names.into_iter().find_map(|name| part.strip_prefix(name)) {
            Some(behind) => {
                path.extend_from_slice(origin.as_os_str().as_bytes());
                part = behind;
            }
            None => {
                path.push(first);
                part = rest;
            }
        }
    }
    OsString::from_vec(path).into()
}

/// The paths in the dynamic linker's cache, as `ldconfig -p` prints it: the system's own `ldconfig`, whatever the
/// environment says, since roctap has rights that others have not.
fn linker_cache() -> Vec<PathBuf> {
    let run = |program: &str| Command::new(program).arg("-p").env_clear().output().ok();
    let Some(output) = ["/sbin/ldconfig", "/usr/sbin/ldconfig"].into_iter().find_map(run) else {
        return Vec::new();
    };
    let lines = output.stdout.split(|&byte| byte == b'\n');
    let paths = lines.filter_map(|line| {
        let at = line.windows(4).rposition(|window| window == b" => ")?;
        Some(PathBuf::from(OsStr::from_bytes(line[at + 4..].trim_ascii())))
    });
    paths
        .filter(|path| {
            path.file_name()
                .and_then(OsStr::to_str)
                .is_some_and(|n| Runtime::of_file_name(n).is_some())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_be_in_a_directory_of_any_name() {
        let origin = Path::new(OsStr::from_bytes(b"/opt/caf\xe9"));
        for (part, wanted) in [
            (&b"$ORIGIN/../lib"[..], &b"/opt/caf\xe9/../lib"[..]),
            (b"${ORIGIN}", b"/opt/caf\xe9"),
            (b"/lib\xff/$ORIGI", b"/lib\xff/$ORIGI"),
        ] {
            assert_eq!(replace_origin(part, origin).as_os_str().as_bytes(), wanted);
        }
    }
}
