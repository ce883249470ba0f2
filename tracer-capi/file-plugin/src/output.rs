//! The output of lines: into files of a directory, or to standard output.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use capi_common::messages;
use capi_common::quiet::quiet;
use tracer_text::File;

/// Size of the memory in which lines are collected before they are written.
const BUFFER: usize = 64 << 10;

/// A line that was not written. The error was said when it happened.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{} cannot be written", .0.name())]
pub struct NotWritten(pub File);

/// All files of a process.
pub struct Output {
    process_id: u32,
    place: Destination,
}

enum Destination {
    Directory(PathBuf, BTreeMap<File, Target>),
    /// One for all files: lines come in the order in which they were made.
    Stdout(Target),
}

/// The destination of the lines of a file; none once something went wrong.
type Target = Option<BufWriter<Box<dyn Write + Send>>>;

impl Output {
    /// Lines of a process; to standard output where no directory is named.
    pub fn new(process_id: u32, directory: Option<PathBuf>) -> Self {
        let place = match directory {
            Some(directory) => Destination::Directory(directory, BTreeMap::new()),
            None => Destination::Stdout(Some(buffered(Stdout))),
        };
        Self { process_id, place }
    }

    /// Writes a line, and makes the file if it is the first. It may stay in memory until [`Output::flush`].
    pub fn line(&mut self, file: File, line: impl Display) -> Result<(), NotWritten> {
        let (target, path) = match &mut self.place {
            Destination::Stdout(target) => (target, None),
            Destination::Directory(directory, files) => {
                let path = directory.join(file.of_process(self.process_id));
                let target = files.entry(file).or_insert_with(|| create(&path));
                (target, Some(path))
            }
        };
        // Whole: so a full buffer ends with the end of a line.
        let line = format!("{line}\n");
        write(target, path.as_deref(), |out| out.write_all(line.as_bytes())).ok_or(NotWritten(file))
    }

    /// Writes the lines that are in memory. Returns whether all of them were written.
    pub fn flush(&mut self) -> bool {
        match &mut self.place {
            Destination::Stdout(target) => write(target, None, Write::flush).is_some(),
            Destination::Directory(directory, files) => {
                // All of them, also behind one that cannot be written.
                let mut all = true;
                for (file, target) in files {
                    let path = directory.join(file.of_process(self.process_id));
                    all &= write(target, Some(&path), Write::flush).is_some();
                }
                all
            }
        }
    }
}

fn buffered(to: impl Write + Send + 'static) -> BufWriter<Box<dyn Write + Send>> {
    BufWriter::with_capacity(BUFFER, Box::new(to))
}

fn create(path: &Path) -> Target {
    match Own::create(path) {
        Ok(file) => Some(buffered(file)),
        Err(error) => {
            messages::warn(format_args!("cannot create {}: {error}", path.display()));
            None
        }
    }
}

/// Does something with a target, unless something went wrong before. An error is said, and ends the target.
fn write(
    target: &mut Target,
    path: Option<&Path>,
    act: impl FnOnce(&mut BufWriter<Box<dyn Write + Send>>) -> io::Result<()>,
) -> Option<()> {
    let error = act(target.as_mut()?).err();
    if let Some(error) = &error {
        let name = path.unwrap_or_else(|| Path::new("standard output")).display();
        messages::warn(format_args!(
            "cannot write to {name}: {error}; what follows is missing there"
        ));
        // The lines in its memory are not tried again when it is dropped.
        let _ = target.take().map(BufWriter::into_parts);
    }
    error.is_none().then_some(())
}

/// Standard output, as it is when something is written: the program may have given it another meaning.
struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        quiet(|| {
            let mut out = io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file of ours. Programs close descriptors that they have not opened, and the next file that they open
/// has the same number: nothing is written to that, and it is not closed.
struct Own {
    file: Option<fs::File>,
    identity: (u64, u64),
}

impl Own {
    fn create(path: &Path) -> io::Result<Self> {
        // Others may be allowed to write to the directory. No link of theirs is followed, and no pipe waited at.
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("there is something that is no regular file"));
        }
        file.set_len(0)?;
        Self::of(file)
    }

    fn of(file: fs::File) -> io::Result<Self> {
        let identity = identity(&file)?;
        Ok(Self { file: Some(file), identity })
    }

    /// The file, if it still is there.
    fn file(&mut self) -> io::Result<&mut fs::File> {
        let known = self.identity;
        let is_own = |file: &fs::File| identity(file).is_ok_and(|now| now == known);
        if let Some(other) = self.file.take_if(|file| !is_own(file)) {
            let _ = OwnedFd::from(other).into_raw_fd();
        }
        self.file.as_mut().ok_or_else(|| {
            io::Error::new(ErrorKind::NotFound, "the program has closed the descriptor")
        })
    }
}

fn identity(file: &fs::File) -> io::Result<(u64, u64)> {
    file.metadata().map(|of| (of.dev(), of.ino()))
}

impl Write for Own {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = self.file()?;
        quiet(|| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // Closes it, if it is ours.
        let _ = self.file();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(directory: &Path, file: File) -> String {
        fs::read_to_string(directory.join(file.of_process(7))).unwrap_or_default()
    }

    #[test]
    fn files_are_made_for_their_first_line() {
        let directory = tempfile::tempdir().unwrap();
        let mut output = Output::new(7, Some(directory.path().into()));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        output.line(File::HipApi, "one").unwrap();
        output.line(File::Roctx, "mark").unwrap();
        output.line(File::HipApi, "two").unwrap();
        assert!(output.flush());
        assert_eq!(read(directory.path(), File::HipApi), "one\ntwo\n");
        assert_eq!(read(directory.path(), File::Roctx), "mark\n");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_directory_that_there_is_not_is_an_error_of_each_line() {
        let directory = tempfile::tempdir().unwrap();
        let mut output = Output::new(7, Some(directory.path().join("nowhere")));
        for _ in 0..2 {
            let error = output.line(File::HipApi, "one").unwrap_err();
            assert_eq!(error.to_string(), "hip_api_trace.txt cannot be written");
        }
        assert!(!output.flush());
    }

    #[test]
    fn a_full_disk_is_an_error_and_not_a_signal() {
        let directory = tempfile::tempdir().unwrap();
        let mut output = Output::new(7, Some(directory.path().into()));
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let Destination::Directory(_, files) = &mut output.place else { unreachable!() };
        files.insert(File::HccOps, Some(buffered(Own::of(full).unwrap())));
        output.line(File::HccOps, "one").unwrap();
        output.line(File::HipApi, "one").unwrap();
        assert!(!output.flush());
        assert!(output.line(File::HccOps, "two").is_err());
        assert!(output.line(File::HipApi, "two").is_ok() && !output.flush());
        assert_eq!(read(directory.path(), File::HipApi), "one\ntwo\n");
    }

    #[test]
    #[expect(unsafe_code, reason = "a pipe with a name")]
    fn what_lies_in_the_way_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = |file: File| directory.path().join(file.of_process(7));
        let others = directory.path().join("others");
        fs::write(&others, "theirs").unwrap();
        std::os::unix::fs::symlink(&others, path(File::HipApi)).unwrap();
        let pipe = std::ffi::CString::new(path(File::HsaApi).to_str().unwrap()).unwrap();
        // SAFETY: a path.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        // With and without a reader.
        for _ in 0..2 {
            let mut output = Output::new(7, Some(directory.path().into()));
            assert!(output.line(File::HipApi, "one").is_err());
            assert!(output.line(File::HsaApi, "one").is_err());
            std::mem::forget(
                fs::OpenOptions::new().read(true).write(true).open(path(File::HsaApi)),
            );
        }
        assert_eq!(fs::read_to_string(&others).unwrap(), "theirs");
        // A file of before is replaced.
        fs::write(path(File::Roctx), "much longer").unwrap();
        let mut output = Output::new(7, Some(directory.path().into()));
        output.line(File::Roctx, "one").unwrap();
        assert!(output.flush());
        assert_eq!(read(directory.path(), File::Roctx), "one\n");
    }

    /// As a daemon does: it closes all descriptors, and opens files of its own.
    #[test]
    #[expect(unsafe_code, reason = "a descriptor that is given another meaning")]
    fn nothing_is_written_to_files_of_the_program() {
        let directory = tempfile::tempdir().unwrap();
        let mut output = Output::new(7, Some(directory.path().into()));
        output.line(File::HipApi, "one").unwrap();
        assert!(output.flush());
        let path = directory.path().join(File::HipApi.of_process(7));
        let mut descriptors =
            fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
        let own = descriptors.find(|fd| fs::read_link(fd).is_ok_and(|to| to == path));
        let own: i32 = own.unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap();
        let others = directory.path().join("others");
        let other = fs::File::create(&others).unwrap();
        // SAFETY: two descriptors that are open; the first one's owner finds out.
        assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&other), own) }, own);
        output.line(File::HipApi, "two").unwrap();
        assert!(!output.flush());
        drop(output);
        assert_eq!(read(directory.path(), File::HipApi), "one\n");
        assert_eq!(fs::read_to_string(&others).unwrap(), "");
        // SAFETY: it was left as it is, and is closed here.
        assert_eq!(unsafe { libc::close(own) }, 0);
    }

    #[test]
    fn a_line_stays_whole_where_the_buffer_ends() {
        let directory = tempfile::tempdir().unwrap();
        let mut output = Output::new(7, Some(directory.path().into()));
        let line = "x".repeat(1000);
        while read(directory.path(), File::HipApi).is_empty() {
            output.line(File::HipApi, &line).unwrap();
        }
        assert!(read(directory.path(), File::HipApi).lines().all(|written| written == line));
    }
}
