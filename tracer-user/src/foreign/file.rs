//! Opening files.

use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::fs::{FileExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags, open, openat2, statx},
    io::Errno,
};

use super::{Source, lossy};

/// The most attempts to look up a path whose directories are renamed meanwhile.
const ATTEMPTS: usize = 8;

/// A regular file, open for reading.
#[derive(Debug)]
pub struct File {
    file: fs::File,
    attributes: fs::Metadata,
}

impl File {
    /// Opens a file by a path of this process, or one of the kernel's own links to a process's files
    /// (`/proc/PID/map_files/…`, `/proc/PID/exe`).
    ///
    /// # Errors
    ///
    /// When the file does not exist, is no regular file, or another process would have to give it up first (a lease).
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of_name(&open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Opens the file that process `pid` calls `path`: no link leads out of the process's root, and a file that the
    /// process may not read itself is not read for it.
    ///
    /// # Errors
    ///
    /// As of [`File::open`], and when the process may not read the file.
    pub fn of_process(pid: u32, path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = open(format!("/proc/{pid}/root"), flags | OFlags::DIRECTORY, Mode::empty())?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let look_up = || openat2(&root, path, flags, Mode::empty(), resolve);
        let mut found = look_up();
        for _ in 1..ATTEMPTS {
            if !matches!(found, Err(Errno::AGAIN)) {
                break;
            }
            found = look_up();
        }
        let file = Self::of_name(&found?)?;
        let status = super::text(format!("/proc/{pid}/status").as_ref())?;
        let attributes = &file.attributes;
        let [user, group, mode] = [attributes.uid(), attributes.gid(), attributes.mode()];
        if !may_read(&lossy(&status), [user, group, mode]) {
            return Err(io::Error::other("the process may not read it"));
        }
        Ok(file)
    }

    /// Opens a file that was looked up with `O_PATH`, which had no effect on it.
    fn of_name(name: &OwnedFd) -> io::Result<Self> {
        // Only what the kernel knows already: no server is asked.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let kind = statx(name, c"", flags, StatxFlags::TYPE)?.stx_mode;
        if FileType::from_raw_mode(kind.into()) != FileType::RegularFile {
            return Err(io::Error::other("not a regular file"));
        }
        // With O_NONBLOCK, since opening would else wait for a process that has a lease on the file.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = open(format!("/proc/self/fd/{}", name.as_raw_fd()), flags, Mode::empty());
        let file = fs::File::from(file.map_err(|error| match error {
            Errno::AGAIN => io::Error::other("another process has a lease on it"),
            other => other.into(),
        })?);
        Ok(Self { attributes: file.metadata()?, file })
    }

    /// The file's attributes when it was opened.
    pub fn attributes(&self) -> &fs::Metadata {
        &self.attributes
    }

    /// The file's own path, whatever links led to it.
    pub fn real_path(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd())).ok()
    }

    /// The file's first bytes, at most `limit`.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn beginning(&self, limit: u64) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.attributes.len().min(limit)).unwrap_or(0);
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Source for &File {
    fn length(&self) -> u64 {
        (**self).length()
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read(bytes, offset)
    }
}

impl Source for File {
    fn length(&self) -> u64 {
        self.attributes.len()
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }
}

/// Whether a process of this `status` may read a file of this owner, group and mode. Access lists are not considered.
pub fn may_read(status: &str, [owner, owners, mode]: [u32; 3]) -> bool {
    let ids = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().map_while(|id| id.parse::<u32>().ok())
    };
    // The ids are the real, effective and saved one, and the one for file systems.
    let (Some(user), Some(group)) = (ids("Uid:").nth(3), ids("Gid:").nth(3)) else { return false };
    let bit = if user == 0 {
        return true;
    } else if user == owner {
        0o400
    } else if group == owners || ids("Groups:").any(|id| id == owners) {
        0o040
    } else {
        0o004
    };
    mode & bit != 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn error(opened: io::Result<File>) -> String {
        opened.unwrap_err().to_string()
    }

    #[test]
    fn only_regular_files_are_opened() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let regular = directory.path().join("file");
        fs::write(&regular, "text").unwrap();
        for other in [fifo.as_path(), directory.path(), Path::new("/dev/null")] {
            assert_eq!(error(File::open(other)), "not a regular file", "{}", other.display());
            assert_eq!(error(File::of_process(std::process::id(), other)), "not a regular file");
        }
        let opened = File::open(&regular).unwrap();
        assert_eq!(opened.beginning(3).unwrap(), b"tex");
        assert_eq!(opened.beginning(30).unwrap(), b"text");
        assert_eq!(opened.real_path().unwrap(), regular);
        // The file shrinks.
        fs::write(&regular, "").unwrap();
        opened.beginning(30).unwrap_err();
    }

    /// A lease delays a process that opens the file and waits by 45 s.
    #[test]
    fn a_leased_file_is_not_waited_for() {
        let leased = tempfile::NamedTempFile::new().unwrap();
        lease(leased.as_file()).unwrap();
        assert_eq!(error(File::open(leased.path())), "another process has a lease on it");
    }

    #[expect(unsafe_code, reason = "a system call that no crate at hand wraps")]
    fn lease(file: &fs::File) -> io::Result<()> {
        // The signal that reports the opening must not end the test.
        let ignored = signal_hook::consts::SIGIO;
        let heard = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        signal_hook::flag::register(ignored, heard)?;
        // SAFETY: it takes numbers.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    #[test]
    fn links_are_followed_inside_the_root_alone() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        fs::write(&target, "x").unwrap();
        let link = directory.path().join("link");
        symlink(&target, &link).unwrap();
        let own = std::process::id();
        let opened = File::of_process(own, &link).unwrap();
        assert_eq!(opened.real_path().unwrap(), target);
        // A magic link of the kernel could lead anywhere.
        symlink(format!("/proc/{own}/exe"), directory.path().join("magic")).unwrap();
        File::of_process(own, &directory.path().join("magic")).unwrap_err();
    }

    #[test]
    fn what_a_process_may_read() {
        let status = |user: u32, group: u32, groups: &str| {
            let ids = |id: u32| format!("0\t0\t0\t{id}");
            format!("Name:\tx\nUid:\t{}\nGid:\t{}\nGroups:\t{groups}\n", ids(user), ids(group))
        };
        let reads = |status: &str, mode| may_read(status, [7, 8, mode]);
        let (owner, other) = (status(7, 8, ""), status(9, 9, "3 4"));
        assert!(reads(&owner, 0o400) && !reads(&owner, 0o044));
        for member in [status(9, 8, ""), status(9, 9, "3 8 4")] {
            assert!(reads(&member, 0o040) && !reads(&member, 0o404));
        }
        assert!(reads(&other, 0o004) && !reads(&other, 0o440));
        assert!(reads(&status(0, 5, ""), 0), "root");
        assert!(!reads("Uid:\t0\n", 0o666), "a status that is none");
    }
}
