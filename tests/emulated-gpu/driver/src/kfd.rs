//! The requests of `/dev/kfd`, by number alone: the sizes of their arguments differ between releases.
//!
//! Layouts are those of kfd_ioctl.h, given as offsets.
#![expect(unsafe_code, reason = "arguments are structures of the runtime's")]

use emulated_gpu_core::engine;
use emulated_gpu_core::events::{Awaited, Waited, Want};
use emulated_gpu_core::platform::{Platform, platform};
use emulated_gpu_core::{sys, topology};

use crate::buffers::Request;
use crate::tree::{gpu_id, node_of};
use crate::{device, file};

/// `_IOC_TYPE` of the driver's requests.
pub const TYPE: u64 = b'K' as u64;
/// 1.15 is the first with what `hipMallocAsync` looks for.
const VERSION: (u32, u32) = (1, 17);
const EVENT_BYTES: u64 = 48;
/// Any but 0: the runtime takes it as "there is a page".
const EVENT_PAGE: u64 = 4096;
/// No wait takes longer: the runtime looks at its signals after every wait, however that ended, and a
/// wake-up that two threads compete for is not lost then.
const LONGEST_WAIT_MS: u32 = 100;

/// The argument of a request.
#[derive(Clone, Copy)]
struct Args(u64);

impl Args {
    fn u32(self, offset: u64) -> u32 {
        // SAFETY: the runtime passes a structure that has the field.
        unsafe { ((self.0 + offset) as *const u32).read_unaligned() }
    }

    fn u64(self, offset: u64) -> u64 {
        // SAFETY: the runtime passes a structure that has the field.
        unsafe { ((self.0 + offset) as *const u64).read_unaligned() }
    }

    fn set_u32(self, offset: u64, value: u32) {
        // SAFETY: the runtime passes a structure to fill.
        unsafe { ((self.0 + offset) as *mut u32).write_unaligned(value) }
    }

    fn set_u64(self, offset: u64, value: u64) {
        // SAFETY: the runtime passes a structure to fill.
        unsafe { ((self.0 + offset) as *mut u64).write_unaligned(value) }
    }
}

/// The error that a request ends with.
type Errno = i32;

/// Answers a request.
pub fn request(number: u64, argument: u64) -> Result<(), Errno> {
    let (p, args) = (platform(), Args(argument));
    match number {
        0x01 => {
            args.set_u32(0, VERSION.0);
            args.set_u32(4, VERSION.1);
            Ok(())
        }
        0x02 => create_queue(p, args),
        0x03 => found(engine::shared().with(|e| e.destroy(u64::from(args.u32(0))))),
        0x05 => clock_counters(p, args),
        // A percentage of 0 suspends the queue.
        0x07 => {
            found(engine::shared().with(|e| e.set_active(u64::from(args.u32(8)), args.u32(16) > 0)))
        }
        0x08 => create_event(p, args),
        0x09 => found(p.events.destroy(args.u32(0))),
        0x0a => {
            p.events.raise(args.u32(0));
            Ok(())
        }
        0x0c => wait_events(p, args),
        0x12 => tile_config(p, args),
        0x14 => apertures(p, args),
        0x16 => allocate(p, args),
        0x17 => with_buffers(|state| state.buffers.free(p, args.u64(0), state.file)),
        0x18 => {
            args.set_u32(20, args.u32(16));
            with_buffers(|state| state.buffers.map(args.u64(0), state.file))
        }
        0x19 => {
            args.set_u32(20, args.u32(16));
            Ok(())
        }
        0x1e => {
            args.set_u32(8, 0);
            Ok(())
        }
        0x20 => shared_virtual_memory(args),
        0x21 => match args.u32(0) {
            // Asked: off. Switched off: it is.
            u32::MAX | 0 => {
                args.set_u32(0, 0);
                Ok(())
            }
            _ => Err(libc::EPERM),
        },
        0x23 => {
            let node = node(p, args.u32(8))?;
            args.set_u64(0, p.config.vram_bytes.saturating_sub(p.memory.used(node)));
            Ok(())
        }
        0x24 => export(args),
        0x25 => {
            engine::shared().with(|e| {
                e.kernels.set_r_debug(if args.u32(8) & 1 != 0 { args.u64(0) } else { 0 })
            });
            engine::start();
            Ok(())
        }
        // Memory policy, scratch, trap handler, the GPU's address space, masks of compute units.
        0x04 | 0x11 | 0x13 | 0x15 | 0x1a => Ok(()),
        other => {
            eprintln!("emulated-gpu: unsupported: request {other:#x} of /dev/kfd");
            Err(libc::EINVAL)
        }
    }
}

fn found(yes: bool) -> Result<(), Errno> {
    if yes { Ok(()) } else { Err(libc::EINVAL) }
}

fn with_buffers(f: impl FnOnce(&mut device::State) -> bool) -> Result<(), Errno> {
    found(device::state().get().is_some_and(f))
}

/// The node of a GPU that the runtime names.
fn node(p: &Platform, gpu_id: u32) -> Result<u32, Errno> {
    node_of(p, gpu_id).ok_or(libc::EINVAL)
}

fn create_queue(p: &Platform, args: Args) -> Result<(), Errno> {
    let node = node(p, args.u32(36))?;
    let gpu = p.gpu(node).ok_or(libc::EINVAL)?;
    let (ring, ring_bytes, read_index) = (args.u64(0), u64::from(args.u32(32)), args.u64(16));
    if ring_bytes < 256 || !ring_bytes.is_power_of_two() {
        return Err(libc::EINVAL);
    }
    engine::start();
    let created = match args.u32(40) {
        2 => engine::shared().with(|e| e.create_aql(node, ring, ring_bytes, read_index)),
        // SDMA, by XGMI, by the engine's number.
        1 | 3 | 4 => engine::shared().with(|e| {
            e.create_sdma(node, ring, ring_bytes, gpu.arch.sdma_count_bits(), Some(read_index))
        }),
        other => {
            eprintln!("emulated-gpu: unsupported: queue type {other}");
            return Err(libc::EINVAL);
        }
    };
    let created = created.ok_or(libc::ENOMEM)?;
    // The page of the doorbell is found by the offset, and its place in the page by the low bits.
    args.set_u64(24, file::doorbells_at(node) | created.doorbell_offset);
    args.set_u32(52, created.id as u32);
    Ok(())
}

fn clock_counters(p: &Platform, args: Args) -> Result<(), Errno> {
    let gpu = p.gpu(node(p, args.u32(32))?).ok_or(libc::EINVAL)?;
    let system = sys::boot_ns();
    args.set_u64(0, gpu.clock.ticks(system));
    args.set_u64(8, sys::raw_ns());
    args.set_u64(16, system);
    args.set_u64(24, 1_000_000_000);
    Ok(())
}

fn create_event(p: &Platform, args: Args) -> Result<(), Errno> {
    let auto_reset = args.u32(16) != 0;
    let (id, _) = p.events.create(!auto_reset, false).ok_or(libc::ENOMEM)?;
    args.set_u64(0, EVENT_PAGE);
    args.set_u32(8, id);
    args.set_u32(24, id);
    args.set_u32(28, id);
    Ok(())
}

fn wait_events(p: &Platform, args: Args) -> Result<(), Errno> {
    let events = Args(args.u64(0));
    let count = u64::from(args.u32(8));
    let at = |i: u64| i * EVENT_BYTES;
    let mut awaited: Vec<Awaited> = (0..count)
        .map(|i| Awaited { id: events.u32(at(i) + 40), seen_age: events.u64(at(i)) })
        .collect();
    let want = if args.u32(12) != 0 { Want::All } else { Want::Any };
    let waited = p.events.wait(&mut awaited, want, args.u32(16).min(LONGEST_WAIT_MS));
    for (i, awaited) in awaited.iter().enumerate() {
        if awaited.seen_age != 0 {
            events.set_u64(at(i as u64), awaited.seen_age);
        }
    }
    args.set_u32(
        20,
        match waited {
            Waited::Signalled => 0,
            Waited::TimedOut => 1,
            Waited::BadEvent => 2,
        },
    );
    if waited == Waited::BadEvent { Err(libc::EINVAL) } else { Ok(()) }
}

fn tile_config(p: &Platform, args: Args) -> Result<(), Errno> {
    let gpu = p.gpu(node(p, args.u32(24))?).ok_or(libc::EINVAL)?;
    args.set_u32(16, 0);
    args.set_u32(20, 0);
    args.set_u32(28, topology::gb_addr_config(gpu.arch));
    args.set_u32(32, 2);
    args.set_u32(36, 1);
    Ok(())
}

fn apertures(p: &Platform, args: Args) -> Result<(), Errno> {
    const BYTES: u64 = 56;
    let room = args.u32(8);
    let list = Args(args.u64(0));
    let nodes = p.gpu_nodes();
    if list.0 != 0 {
        for (i, node) in nodes.clone().take(room as usize).enumerate() {
            let at = i as u64 * BYTES;
            let each = [
                (0, topology::LDS_BASE),
                (8, topology::LDS_BASE + u64::from(u32::MAX)),
                (16, topology::SCRATCH_BASE),
                (24, topology::SCRATCH_BASE + u64::from(u32::MAX)),
                (32, 1 << 20),
                (40, (1 << 47) - 1),
            ];
            for (offset, value) in each {
                list.set_u64(at + offset, value);
            }
            list.set_u32(at + 48, gpu_id(node));
            list.set_u32(at + 52, 0);
        }
    }
    args.set_u32(8, nodes.len() as u32);
    Ok(())
}

fn allocate(p: &Platform, args: Args) -> Result<(), Errno> {
    let request = Request {
        node: node(p, args.u32(32))?,
        address: args.u64(0),
        bytes: args.u64(8),
        flags: args.u32(36),
        program: args.u64(24),
    };
    let mut state = device::state();
    let buffers = &mut state.get().ok_or(libc::EBADF)?.buffers;
    let (handle, offset) = buffers.allocate(p, request).ok_or(libc::ENOMEM)?;
    args.set_u64(16, handle);
    args.set_u64(24, offset);
    Ok(())
}

/// All memory is the host's, and everybody reaches it.
fn shared_virtual_memory(args: Args) -> Result<(), Errno> {
    const GET: u32 = 1;
    const UNDEFINED: u32 = u32::MAX;
    const ACCESS_IN_PLACE: u32 = 3;
    const HOST_ACCESS_COHERENT: u32 = 3;
    if args.u32(16) != GET {
        return Ok(());
    }
    for i in 0..u64::from(args.u32(20)) {
        let at = 24 + 8 * i;
        match args.u32(at) {
            0 | 1 => args.set_u32(at + 4, UNDEFINED),
            2..=4 => args.set_u32(at, ACCESS_IN_PLACE),
            5 => args.set_u32(at + 4, HOST_ACCESS_COHERENT),
            _ => args.set_u32(at + 4, 0),
        }
    }
    Ok(())
}

/// The descriptor says which part of the device's file the buffer is.
fn export(args: Args) -> Result<(), Errno> {
    let mut state = device::state();
    let state = state.get().ok_or(libc::EBADF)?;
    let buffer = state.buffers.get(args.u64(0)).ok_or(libc::EINVAL)?;
    let offset = buffer.offset().ok_or(libc::EINVAL)?;
    let fd = crate::drm::share(offset, buffer.bytes).ok_or(libc::EMFILE)?;
    args.set_u32(12, fd as u32);
    Ok(())
}
