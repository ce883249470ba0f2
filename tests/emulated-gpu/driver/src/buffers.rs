//! The memory that the driver was asked for, by handle.

use std::collections::HashMap;

use emulated_gpu_core::memory::flags as core_flags;
use emulated_gpu_core::platform::Platform;

use crate::file;

/// `KFD_IOC_ALLOC_MEM_FLAGS_*` (kfd_ioctl.h).
mod flags {
    pub const VRAM: u32 = 1;
    pub const USERPTR: u32 = 1 << 2;
    pub const DOORBELL: u32 = 1 << 3;
}

/// What backs a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// The file, from this offset on.
    File(u64),
    /// Memory of the program, from this address on.
    Program(u64),
    /// A node's doorbells.
    Doorbells,
}

/// A buffer.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Where the GPU has it, and the host too unless it is the program's; 0 for nowhere.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    backing: Backing,
}

impl Buffer {
    /// Where it is in the file, if that backs it.
    pub fn offset(&self) -> Option<u64> {
        match self.backing {
            Backing::File(offset) => Some(offset),
            Backing::Program(_) | Backing::Doorbells => None,
        }
    }
}

/// A request for memory, as the runtime makes it.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Node whose memory it shall be.
    pub node: u32,
    /// See [`Buffer::address`].
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// What kind of memory.
    pub flags: u32,
    /// For the program's own memory: where that is.
    pub program: u64,
}

/// All buffers of the process.
#[derive(Debug)]
pub struct Buffers {
    known: HashMap<u64, Buffer>,
    next_handle: u64,
    next_offset: u64,
}

impl Buffers {
    /// None yet. Those without an address are in the file from `no_address_at` on.
    pub fn new(no_address_at: u64) -> Self {
        Buffers { known: HashMap::new(), next_handle: 1, next_offset: no_address_at }
    }

    /// A buffer by its handle.
    pub fn get(&self, handle: u64) -> Option<Buffer> {
        self.known.get(&handle).copied()
    }

    /// Grants a request: the handle, and the offset to map it at. None when the GPU has too little memory.
    pub fn allocate(&mut self, platform: &Platform, request: Request) -> Option<(u64, u64)> {
        let Request { node, address, bytes, flags, program } = request;
        let (backing, offset) = if flags & flags::USERPTR != 0 {
            if program != address {
                platform.memory.add_alias(address, bytes, program);
            }
            (Backing::Program(program), program)
        } else if flags & flags::DOORBELL != 0 {
            (Backing::Doorbells, file::doorbells_at(node))
        } else {
            let of_gpu = flags & flags::VRAM != 0;
            let (owner, limit) =
                if of_gpu { (node, Some(platform.config.vram_bytes)) } else { (0, None) };
            let offset = match address {
                0 => self.next_offset,
                _ => address,
            };
            if !platform.memory.adopt(offset, owner, bytes, core_flags::HOST_ACCESS, limit) {
                return None;
            }
            if address == 0 {
                self.next_offset += bytes.next_multiple_of(2 << 20);
            }
            (Backing::File(offset), offset)
        };
        let handle = self.next_handle;
        self.next_handle += 1;
        self.known.insert(handle, Buffer { address, bytes, backing });
        Some((handle, offset))
    }

    /// Makes a buffer reachable where the GPU has it: the runtime reserves the addresses of device memory,
    /// but maps only what the host may touch. False for an unknown handle.
    pub fn map(&self, handle: u64, file: i32) -> bool {
        let Some(buffer) = self.known.get(&handle) else { return false };
        match buffer.backing {
            Backing::File(offset) if buffer.address != 0 => {
                file::map(Some(buffer.address), buffer.bytes, file, offset).is_some()
            }
            Backing::File(_) | Backing::Program(_) | Backing::Doorbells => true,
        }
    }

    /// Forgets a buffer; whether there was one.
    pub fn free(&mut self, platform: &Platform, handle: u64, file: i32) -> bool {
        let Some(Buffer { address, bytes, backing }) = self.known.remove(&handle) else {
            return false;
        };
        match backing {
            Backing::File(offset) => {
                platform.memory.forget(offset);
                file::drop_pages(file, offset, bytes);
            }
            Backing::Program(program) if program != address => {
                platform.memory.remove_alias(address)
            }
            Backing::Program(_) | Backing::Doorbells => {}
        }
        true
    }
}
