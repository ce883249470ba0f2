//! The device files: descriptors of one sparse file in memory.
//!
//! GPU addresses are host addresses, so the offset of a buffer in the file is its address. Each process has
//! a file of its own: a fork's child gets a new one when it opens the driver.
#![expect(unsafe_code, reason = "system calls")]

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use emulated_gpu_core::engine::shared_of_this_process;
use emulated_gpu_core::platform::{Platform, platform_of_this_process};

use crate::buffers::Buffers;
use crate::file::{DOORBELLS_BYTES, FILE_BYTES, NO_ADDRESS_AT, doorbells_at, map};

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
