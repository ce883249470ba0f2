//! The identity of a planned file, and whether the file is still the same.

use std::{
    cmp::Ordering,
    fs::Metadata,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, Stat, fstat, open};

use crate::foreign;

/// The identity of a file at one moment: device and inode, and what the kernel changes whenever somebody writes to the
/// file, whatever else they do: size and time of the last change (ctime). An inode alone belongs to another file soon
/// after the first one's end, and a file that is copied over has other contents under the same inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId {
    device: u64,
    inode: u64,
    size: i64,
    changed: (i64, i64),
}

impl FileId {
    /// Identity of the file at `path`.
    ///
    /// # Errors
    ///
    /// Those of `stat`.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::from(&rustix::fs::stat(path)?))
    }

    /// The number of the inode.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Whether both have the same inode, whatever its contents.
    pub fn has_inode_of(&self, other: Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl From<&Stat> for FileId {
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

impl From<&Metadata> for FileId {
    fn from(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size().cast_signed(),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

/// A file has changed since it was planned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it was replaced or written to while it was looked at")]
pub struct Changed;

/// A file that is planned, whatever becomes of its name: in another file, the planned places would be in the middle of
/// instructions.
#[derive(Debug)]
pub struct PlannedFile {
    file: OwnedFd,
    id: FileId,
}

impl PlannedFile {
    /// Opens the file with `O_PATH`, which has no effect on it, whatever it is.
    ///
    /// # Errors
    ///
    /// Those of `open`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let id = FileId::from(&fstat(&file)?);
        Ok(Self { file, id })
    }

    /// The same file as one that is open already.
    ///
    /// # Errors
    ///
    /// When the process has too many descriptors.
    pub fn of(file: &foreign::File) -> io::Result<Self> {
        let file = file.as_fd().try_clone_to_owned()?;
        let id = FileId::from(&fstat(&file)?);
        Ok(Self { file, id })
    }

    /// The identity of the file when it was opened.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// The path by which this process opens the file again.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// Checks that the file is as it was when it was opened. Data that was read before this, and probes that were
    /// placed before this, then belong to the planned file.
    ///
    /// # Errors
    ///
    /// [`Changed`] when it has changed.
    pub fn check(&self) -> Result<(), Changed> {
        let now = fstat(&self.file).map(|stat| FileId::from(&stat));
        if now == Ok(self.id) { Ok(()) } else { Err(Changed) }
    }
}

impl PartialEq for PlannedFile {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for PlannedFile {}

impl Ord for PlannedFile {
    fn cmp(&self, other: &Self) -> Ordering {
        self.id.cmp(&other.id)
    }
}

impl PartialOrd for PlannedFile {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_written_to_in_place_is_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("library");
        std::fs::write(&path, "old contents").unwrap();
        let planned = PlannedFile::open(&path).unwrap();
        assert_eq!((planned.id(), planned.check()), (FileId::of(&path).unwrap(), Ok(())));
        // The kernel's time for files advances in steps.
        while FileId::of(&path).unwrap() == planned.id() {
            std::fs::write(&path, "new contents").unwrap();
        }
        assert_eq!(planned.check(), Err(Changed));
        let now = FileId::of(&path).unwrap();
        assert!(now.has_inode_of(planned.id()));
        // Whatever modification time it claims, and under another name.
        let past = std::time::SystemTime::UNIX_EPOCH;
        std::fs::File::open(&path).unwrap().set_modified(past).unwrap();
        assert_eq!(planned.check(), Err(Changed));
        assert_eq!(std::fs::read_to_string(planned.path()).unwrap(), "new contents");
    }
}
