//! Files that roctap makes for its user.
//!
//! Such files are nobody else's business: they have mode 0600, and belong to the user behind `sudo`. Nor must they
//! open a way to other files: the owner of the directory can put anything there, at any moment. So a file is always a
//! new one (`O_EXCL`), no symbolic link is followed at its name, an old file is removed or renamed over and not
//! written to, and all of this goes by one descriptor of the directory.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid},
    io::Errno,
    process::{getegid, geteuid, getgid, getuid},
};

/// A name in a directory.
pub struct DirectoryEntry {
    directory: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl DirectoryEntry {
    /// The place of a file in a directory that exists.
    ///
    /// # Errors
    ///
    /// When the path names no file, or its directory cannot be opened.
    pub fn of(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| io::Error::other("this names no file"))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            rustix::fs::openat(CWD, parent.unwrap_or(Path::new(".")), flags, Mode::empty());
        let directory = directory.map_err(explained)?;
        Ok(Self { directory, name: name.to_owned(), path: path.to_owned() })
    }

    /// Creates the file.
    ///
    /// # Errors
    ///
    /// When something is there already, even a link to nowhere, or the file cannot be created.
    pub fn create(&self) -> io::Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.directory, &self.name, flags, mode);
        let file = file.map_err(explained)?;
        give_to_caller(&file, &self.path);
        Ok(file.into())
    }

    /// Opens the regular file at this place for reading; none if something else is there.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn open(&self) -> io::Result<Option<File>> {
        // Checked first, since opening a device can have effects.
        if !is_regular(&self.stat()?) {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty()) {
            Ok(file) => Ok(is_regular(&rustix::fs::fstat(&file)?).then(|| file.into())),
            // It has become a link since.
            Err(Errno::LOOP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes `file`, which was opened at this place; false if another file is there now.
    ///
    /// # Errors
    ///
    /// When it cannot be removed.
    pub fn remove(&self, file: &File) -> io::Result<bool> {
        let same = self.is(file)?;
        if same {
            rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty())?;
        }
        Ok(same)
    }

    /// The place of `name` in the same directory; messages call it by the name of this one.
    ///
    /// # Errors
    ///
    /// When no descriptor is left.
    pub fn beside(&self, name: OsString) -> io::Result<Self> {
        Ok(Self { directory: self.directory.try_clone()?, name, path: self.path.clone() })
    }

    /// Puts the file that is at `new` to this place, over `old`, which was opened at this place; false if another file
    /// is there now. At every moment one of both files is there.
    ///
    /// # Errors
    ///
    /// When it cannot be put there.
    pub fn replace(&self, old: &File, new: &Self) -> io::Result<bool> {
        let same = self.is(old)?;
        if same {
            rustix::fs::renameat(&new.directory, &new.name, &self.directory, &self.name)?;
        }
        Ok(same)
    }

    /// Whether `file` is the file at this place.
    fn is(&self, file: &File) -> io::Result<bool> {
        let (opened, there) = (rustix::fs::fstat(file)?, self.stat()?);
        Ok((opened.st_dev, opened.st_ino) == (there.st_dev, there.st_ino))
    }

    fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Creates a directory, and the missing ones above it.
///
/// # Errors
///
/// When one cannot be created.
pub fn create_directory(path: &Path) -> io::Result<()> {
    directory(path).map(drop)
}

/// Opens a directory, and creates it if it is missing: each directory is opened by a descriptor of the one above it, so
/// that none can be exchanged for a link on the way.
fn directory(path: &Path) -> io::Result<OwnedFd> {
    let known = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(path, known, Mode::empty()) {
        Err(Errno::NOENT) => {}
        opened => return opened.map_err(explained),
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = directory(parent.unwrap_or(Path::new(".")))?;
    // A path like `…/missing/..` has no name; its directory exists by now.
    let Some(name) = path.file_name() else {
        return Ok(rustix::fs::open(path, known, Mode::empty())?);
    };
    match rustix::fs::mkdirat(&parent, name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
        Ok(()) => {
            let made = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = rustix::fs::openat(&parent, name, made, Mode::empty())?;
            // If the owner is another, the directory was exchanged meanwhile.
            if rustix::fs::fstat(&made)?.st_uid == geteuid().as_raw() {
                give_to_caller(&made, path);
            }
            Ok(made)
        }
        // Another process was faster.
        Err(Errno::EXIST) => Ok(rustix::fs::openat(&parent, name, known, Mode::empty())?),
        Err(error) => Err(explained(error)),
    }
}

/// The error for root if root may not write somewhere: root expects to be allowed everything.
fn explained(error: Errno) -> io::Error {
    let refused = matches!(error, Errno::ACCESS | Errno::PERM);
    if !refused || !geteuid().is_root() {
        return error.into();
    }
    let text = format!(
        "{error}, for root too: the file system keeps root out (NFS with root_squash, FUSE of another user), \
         or nothing may be changed there (chattr +i); write it elsewhere, and copy it as its user"
    );
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// The user behind `sudo`. A user who only has some of root's rights, by a bit or capabilities of the program's file,
/// has chosen that environment himself.
pub fn behind_sudo() -> Option<(Uid, Gid)> {
    let root = getuid().is_root() && geteuid().is_root() && getgid() == getegid();
    let id = |name| std::env::var(name).ok()?.parse().ok().filter(|&id: &u32| id != u32::MAX);
    let (user, group) = (id("SUDO_UID")?, id("SUDO_GID")?);
    root.then_some((Uid::from_raw(user), Gid::from_raw(group)))
}

fn give_to_caller(file: impl AsFd, path: &Path) {
    if let Some((user, group)) = behind_sudo()
        && let Err(error) = rustix::fs::fchown(file, Some(user), Some(group))
    {
        let path = path.display();
        tracing::warn!("{path}: it stays root's, though it is for user {}: {error}", user.as_raw());
    }
}

/// The reason why the file at `path`, which has no links in it, should not be run by the caller's programs: another
/// user can write to it, or put another file in its place. None if it can be trusted.
pub fn distrust(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    const STICKY: u32 = 0o1000;
    let caller = [Some(getuid()), behind_sudo().map(|(user, _)| user)];
    let trusted =
        |user: u32| user == 0 || caller.into_iter().flatten().any(|own| own.as_raw() == user);
    path.ancestors().find_map(|part| {
        let shown = part.display();
        let meta = match part.symlink_metadata() {
            Ok(meta) => meta,
            Err(error) => return Some(format!("{shown} cannot be looked at: {error}")),
        };
        if !trusted(meta.uid()) {
            return Some(format!("{shown} belongs to user {}, who is not you", meta.uid()));
        }
        // In a sticky directory only the owner of an entry can replace it.
        let others = meta.mode() & 0o022 != 0 && !(meta.is_dir() && meta.mode() & STICKY != 0);
        others.then(|| format!("others can write to {shown} (chmod go-w)"))
    })
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    };

    use super::*;

    #[test]
    fn a_file_is_new_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let file = DirectoryEntry::of(&path).unwrap().create().unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        let again = DirectoryEntry::of(&path).unwrap().create().unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (elsewhere, link) = (directory.path().join("elsewhere"), directory.path().join("link"));
        symlink(&elsewhere, &link).unwrap();
        let place = DirectoryEntry::of(&link).unwrap();
        assert!(place.create().is_err() && place.open().unwrap().is_none());
        assert!(!elsewhere.exists());
        fs::write(&elsewhere, "mine").unwrap();
        assert!(place.open().unwrap().is_none());
    }

    #[test]
    fn directories_are_created_where_they_are_missing() {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path().join("a");
        symlink(directory.path(), &there).unwrap();
        for new in ["a/b/c", "a/b/c", "d/../e/", "a/b/c/../f"] {
            create_directory(&directory.path().join(new)).unwrap();
            assert!(directory.path().join(new).is_dir(), "{new}");
        }
        assert!(directory.path().join("b/c").is_dir());
        // A link to nowhere, and a file.
        symlink(directory.path().join("nowhere"), directory.path().join("link")).unwrap();
        fs::write(directory.path().join("file"), "").unwrap();
        for other in ["link", "link/g", "file", "file/g"] {
            create_directory(&directory.path().join(other)).unwrap_err();
        }
        assert!(!directory.path().join("nowhere").exists());
    }

    #[test]
    fn only_what_was_opened_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::write(&path, "old").unwrap();
        let place = DirectoryEntry::of(&path).unwrap();
        let old = place.open().unwrap().unwrap();
        fs::rename(&path, directory.path().join("b")).unwrap();
        fs::write(&path, "another").unwrap();
        assert!(!place.remove(&old).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "another");
        let new = place.beside("new".into()).unwrap();
        drop(new.create().unwrap());
        assert!(!place.replace(&old, &new).unwrap() && directory.path().join("new").exists());
        let another = place.open().unwrap().unwrap();
        assert!(place.replace(&another, &new).unwrap() && !directory.path().join("new").exists());
        assert!(!place.remove(&another).unwrap() && fs::read_to_string(&path).unwrap().is_empty());
        let another = place.open().unwrap().unwrap();
        assert!(place.remove(&another).unwrap() && !path.exists());
    }

    #[test]
    fn what_others_can_write_to_is_not_trusted() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        let path = directory.join("a");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(distrust(&path), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(distrust(&path).unwrap().contains("others can write to"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(distrust(&path).unwrap().contains("others can write to"));
    }
}
