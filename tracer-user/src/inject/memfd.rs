//! The memfds that the process makes for roctap.
//!
//! The process is not trusted: its descriptor with the number that it gives may be any file. roctap takes the open file
//! itself, not a path: so it can do to the file only what the process may do too. Only an empty memfd that nobody has
//! sealed is used, and it is sealed before anything relies on it.

use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt as _},
};

use rustix::{
    fs::{SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs},
    io::Errno,
};

use crate::discover::Subject;

/// The magic number of tmpfs, the file system of memfds. Memfds of huge pages are on another one.
const TMPFS: u64 = 0x0102_1994;
/// The most attempts to seal a file that somebody uses.
const SEAL_ATTEMPTS: usize = 10;
/// F_SEAL_EXEC: the kernel sets it if `vm.memfd_noexec` says so.
const NOT_EXECUTABLE: SealFlags = SealFlags::from_bits_retain(0x20);

/// Takes descriptor `number` of the process: a memfd, empty, that allows sealing.
pub fn take(process: &Subject, number: u64) -> io::Result<OwnedFd> {
    let file = process.descriptor(number)?;
    // Files on a tmpfs have F_SEAL_SEAL from the start, and files elsewhere have no seals at all.
    let sealed = fcntl_get_seals(&file).map_err(|_| other("it is no memfd"))?;
    let on_tmpfs = fstatfs(&file)?.f_type as u64 == TMPFS;
    if !on_tmpfs || !sealed.difference(NOT_EXECUTABLE).is_empty() || fstat(&file)?.st_size != 0 {
        return Err(other("it is no empty memfd that allows sealing"));
    }
    Ok(file)
}

/// Fills a memfd with `bytes`, and seals it.
pub fn fill(file: OwnedFd, bytes: &[u8]) -> io::Result<File> {
    let file = File::from(file);
    file.write_all_at(bytes, 0)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    // The kernel waits 150 ms for other users of its pages, such as its own lists of pages, which hold one for a
    // moment.
    let mut attempts = (0..SEAL_ATTEMPTS).map(|_| fcntl_add_seals(&file, seals));
    attempts.find(|sealed| *sealed != Err(Errno::BUSY)).unwrap_or(Err(Errno::BUSY))?;
    match fstat(&file)?.st_size as u64 == bytes.len() as u64 {
        true => Ok(file),
        false => Err(other("the process has changed its size")),
    }
}

fn other(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    fn own(file: &impl std::os::fd::AsRawFd) -> io::Result<OwnedFd> {
        take(&Subject::open(std::process::id()).unwrap(), file.as_raw_fd() as u64)
    }

    #[test]
    fn only_an_empty_memfd_that_allows_sealing_is_taken() {
        let sealable = || memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        own(&sealable()).unwrap();
        let refused = |file: &OwnedFd| own(file).unwrap_err().to_string();
        let plain = memfd_create("test", MemfdFlags::empty()).unwrap();
        assert_eq!(refused(&plain), "it is no empty memfd that allows sealing");
        let sealed = sealable();
        fcntl_add_seals(&sealed, SealFlags::GROW).unwrap();
        assert_eq!(refused(&sealed), "it is no empty memfd that allows sealing");
        let filled = sealable();
        ftruncate(&filled, 1).unwrap();
        assert_eq!(refused(&filled), "it is no empty memfd that allows sealing");
        let directory = tempfile::tempdir().unwrap();
        for place in [directory.path(), "/dev/shm".as_ref()] {
            let file: OwnedFd = tempfile::tempfile_in(place).unwrap().into();
            assert!(refused(&file).starts_with("it is no"), "{}", place.display());
        }
        assert!(take(&Subject::open(std::process::id()).unwrap(), u64::MAX).is_err());
    }

    #[test]
    fn what_is_filled_stays_as_it_is() {
        let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        let filled = fill(own(&file).unwrap(), b"library").unwrap();
        assert!(ftruncate(&file, 0).is_err());
        assert!(rustix::io::pwrite(&file, b"x", 0).is_err());
        let mut bytes = [0; 7];
        filled.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"library");
    }
}
