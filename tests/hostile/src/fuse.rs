//! A file system that a program serves itself, spoken to by the kernel's own protocol
//! (`linux/fuse.h`): one directory with one file, which can be opened and mapped, and whose contents are
//! never told.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, unmount},
};

/// The file.
pub const SILENT: &str = "silent";
/// Its size.
const BYTES: u64 = 1 << 20;
/// Longest request: the head, and what is written.
const REQUEST_BYTES: usize = 1 << 20;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const RELEASEDIR: u32 = 29;
const BATCH_FORGET: u32 = 42;

/// How long it is there at most: less than what a test waits for. Whoever waits for the file system cannot
/// be ended, so that a test that failed would itself wait for him without an end.
const LIFETIME: Duration = Duration::from_secs(150);

/// A mounted file system. Dropping it answers with an error whoever waits for it, and removes it. If nobody
/// does, that comes to pass after [`LIFETIME`].
pub struct Silent {
    directory: PathBuf,
    reads: Arc<AtomicUsize>,
    server: Option<JoinHandle<()>>,
}

impl Silent {
    /// Mounts it, as `user` would by `fusermount`: nobody else may look into it, root neither.
    ///
    /// # Panics
    ///
    /// When the kernel has no FUSE, or does not allow it: the tests need it.
    pub fn mount(directory: &Path, user: u32) -> Self {
        let device = File::options().read(true).write(true).open("/dev/fuse").unwrap_or_else(|e| {
            panic!("/dev/fuse: {e}: the tests of hostile file systems need it (modprobe fuse)")
        });
        let options =
            format!("fd={},rootmode=40000,user_id={user},group_id={user}", device.as_raw_fd());
        let options = std::ffi::CString::new(options).expect("no zero");
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("silent", directory, "fuse", flags, Some(options.as_c_str()))
            .expect("FUSE is mounted");
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reads);
        let server = std::thread::spawn(move || serve(device, &counted, user));
        Self { directory: directory.to_owned(), reads, server: Some(server) }
    }

    /// How often its contents were asked for.
    pub fn reads(&self) -> usize {
        self.reads.load(Relaxed)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Forced: the kernel ends all requests, and whoever waits for one goes on.
        let _ = unmount(&self.directory, UnmountFlags::FORCE | UnmountFlags::DETACH);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// Answers until the file system is gone, or ends it by ending.
fn serve(mut device: File, reads: &AtomicUsize, user: u32) {
    let mut request = vec![0; REQUEST_BYTES];
    let began = Instant::now();
    while began.elapsed() < LIFETIME {
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&device, PollFlags::IN)], Some(&second)) == Ok(0) {
            continue;
        }
        let length = match device.read(&mut request) {
            Ok(length) => length,
            // Whoever asked has been interrupted.
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => continue,
            Err(_) => return,
        };
        // struct fuse_in_header: length, what, number, inode, user, group, process, padding.
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().expect("4 bytes"));
        let (what, inode) = (word(4), u64::from(word(16)));
        let (number, body) = (request[8..16].to_vec(), &request[40..length]);
        let answer = match what {
            // Version 7.31, nothing that is optional, and room for what is written.
            INIT => Ok([words(&[7, 31, 0, 0, 0, 4096]), vec![0; 40]].concat()),
            LOOKUP if body.strip_suffix(b"\0") == Some(SILENT.as_bytes()) => {
                Ok([words(&[2, 0, 0, 0, 3600, 0, 3600, 0, 0, 0]), attributes(2, user)].concat())
            }
            GETATTR => Ok([words(&[3600, 0, 0, 0]), attributes(inode, user)].concat()),
            OPEN | OPENDIR => Ok(words(&[1, 0, 0, 0])),
            RELEASE | RELEASEDIR | FLUSH => Ok(Vec::new()),
            READ => {
                reads.fetch_add(1, Relaxed);
                continue;
            }
            // There is nothing to answer.
            FORGET | BATCH_FORGET => continue,
            LOOKUP => Err(Errno::NOENT),
            _ => Err(Errno::NOSYS),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(error) => (-error.raw_os_error(), Vec::new()),
        };
        let length = (16 + body.len()) as u32;
        let head = [&length.to_le_bytes()[..], &error.to_le_bytes(), &number].concat();
        // It fails for whoever does not wait any more.
        let _ = device.write(&[head, body].concat());
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// struct fuse_attr, of the directory (1) or the file.
fn attributes(inode: u64, user: u32) -> Vec<u8> {
    let directory = inode == 1;
    let (mode, bytes) = if directory { (0o40_700, 0) } else { (0o100_700, BYTES as u32) };
    let inode = inode as u32;
    // inode, size, blocks, three times in s and then in ns, mode, links, owner, group, device, block size.
    words(&[inode, 0, bytes, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, user, user, 0, 4096, 0])
}
