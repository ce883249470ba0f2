//! The device files: descriptors of one sparse file in memory.
//!
//! GPU addresses are host addresses, so the offset of a buffer in the file is its address. Each process has
//! a file of its own: a fork's child gets a new one when it opens the driver.
#![expect(unsafe_code, reason = "system calls, and doorbells that are mapped twice")]

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use emulated_gpu_core::engine::{DOORBELL_BYTES, DOORBELLS, shared_of_this_process};
use emulated_gpu_core::platform::{Platform, platform_of_this_process};

use crate::buffers::Buffers;

/// Size of the file: buffers below 2^47, doorbells, and buffers without an address above.
const FILE_BYTES: i64 = 1 << 50;
/// Where the doorbells of node 0 would be in the file, and from one node to the next.
const DOORBELLS_AT: u64 = 1 << 48;
const DOORBELLS_STEP: u64 = 1 << 24;
/// Where buffers without an address begin in the file.
const NO_ADDRESS_AT: u64 = 1 << 49;
/// Size of a node's doorbells.
pub const DOORBELLS_BYTES: u64 = DOORBELLS * DOORBELL_BYTES;

/// Which device a descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// `/dev/kfd`.
    Kfd,
    /// The render node of a GPU's node.
    Render(u32),
}

/// What this process has open.
pub struct State {
    pid: u32,
    /// The file.
    pub file: i32,
    open: HashMap<i32, Device>,
    /// The memory that was asked for.
    pub buffers: Buffers,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// The process's state, if it has opened the driver.
pub struct Locked(MutexGuard<'static, Option<State>>);

impl Locked {
    /// The state.
    pub fn get(&mut self) -> Option<&mut State> {
        self.0.as_mut().filter(|state| state.pid == std::process::id())
    }
}

/// Takes the lock.
pub fn state() -> Locked {
    Locked(STATE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Where the doorbells of a node are in the file.
pub fn doorbells_at(node: u32) -> u64 {
    DOORBELLS_AT + u64::from(node) * DOORBELLS_STEP
}

/// A new descriptor of a device; -1, with errno, when there can be none.
pub fn open(device: Device) -> i32 {
    let mut locked = state();
    if locked.get().is_none() {
        let Some(new) = State::new(platform_of_this_process()) else { return -1 };
        *locked.0 = Some(new);
    }
    let Some(state) = locked.get() else { return -1 };
    // SAFETY: a descriptor of ours is duplicated.
    let fd = unsafe { libc::fcntl(state.file, libc::F_DUPFD_CLOEXEC, 0) };
    if fd >= 0 {
        state.open.insert(fd, device);
    }
    fd
}

/// Which device a descriptor stands for; none if the program has closed it and opened something else, as
/// far as can be told: closing is not watched.
pub fn of(fd: i32) -> Option<Device> {
    state().get()?.open.get(&fd).copied()
}

impl State {
    fn new(platform: &Platform) -> Option<Self> {
        // SAFETY: the name is a C string; the length is that of a sparse file.
        let file = unsafe {
            let file = libc::memfd_create(c"emulated-gpu".as_ptr(), libc::MFD_CLOEXEC);
            if file < 0 || libc::ftruncate(file, FILE_BYTES) != 0 {
                return None;
            }
            file
        };
        for node in platform.gpu_nodes() {
            let page = map(None, DOORBELLS_BYTES, file, doorbells_at(node))?;
            shared_of_this_process().with(|engine| engine.place_doorbells(node, page));
        }
        let (open, buffers) = (HashMap::new(), Buffers::new(NO_ADDRESS_AT));
        Some(State { pid: std::process::id(), file, open, buffers })
    }
}

/// Maps a part of the file, at `at` if the runtime has reserved that.
pub fn map(at: Option<u64>, bytes: u64, file: i32, offset: u64) -> Option<u64> {
    let fixed = if at.is_some() { libc::MAP_FIXED } else { 0 };
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | fixed);
    let wanted = at.unwrap_or(0) as *mut libc::c_void;
    // SAFETY: a new mapping where the kernel picks, or one over addresses that the runtime reserved for
    // this buffer.
    let p = unsafe { libc::mmap(wanted, bytes as usize, prot, flags, file, offset as i64) };
    (p != libc::MAP_FAILED).then_some(p as u64)
}

/// Gives the pages of a part of the file back.
pub fn drop_pages(file: i32, offset: u64, bytes: u64) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a descriptor of ours; what is there belonged to a buffer that is gone.
    unsafe { libc::fallocate(file, mode, offset as i64, bytes as i64) };
}
