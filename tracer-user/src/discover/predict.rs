//! Guesses which runtime libraries a command will map, so that its first call can be probed.
//!
//! A uprobe belongs to a file, so it can be placed before anybody maps that file. The places are
//! those where the dynamic linker would look: `LD_LIBRARY_PATH`, the executable's run path, the
//! linker's cache, and ROCm's own directory. A guess too many costs a few milliseconds; a library
//! that was not guessed is found in the process's maps a little after it was mapped.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
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
        for part in String::from_utf8_lossy(value).split(':').filter(|p| !p.is_empty()) {
            let origin = origin.to_string_lossy();
            directories.push(PathBuf::from(
                part.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin),
            ));
        }
    }
    Some(directories)
}

/// What the dynamic linker's cache holds, as `ldconfig -p` prints it: the system's own, whatever the
/// environment says, since roctap has rights that others have not.
fn linker_cache() -> Vec<PathBuf> {
    let run = |program: &str| Command::new(program).arg("-p").env_clear().output().ok();
    let Some(output) = ["/sbin/ldconfig", "/usr/sbin/ldconfig"].into_iter().find_map(run) else {
        return Vec::new();
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.rsplit_once(" => ").map(|(_, path)| PathBuf::from(path.trim())))
        .filter(|path| {
            path.file_name()
                .and_then(OsStr::to_str)
                .is_some_and(|n| Runtime::of_file_name(n).is_some())
        })
        .collect()
}
