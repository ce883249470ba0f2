//! The machine: one for the process, from the first call on.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::GpuClock;
use crate::config::{Arch, Config};
use crate::events::Events;
use crate::memory::Memory;
use crate::renewed::Renewed;

/// From one GPU's epoch to the next one's: 1,000 s, so that a mix-up shows.
const EPOCH_STEP_NS: u64 = 1_000_000_000_000;

/// One GPU.
#[derive(Clone, Copy, Debug)]
pub struct Gpu {
    /// Its target.
    pub arch: Arch,
    /// Its clock.
    pub clock: GpuClock,
}

/// Everything.
#[derive(Debug)]
pub struct Platform {
    /// The settings.
    pub config: Config,
    gpus: Vec<Gpu>,
    /// Known memory.
    pub memory: Memory,
    /// Driver events.
    pub events: Events,
    /// A page for registers that the program may write to.
    pub mmio_page: u64,
    /// Clock pairs of GPUs that were read.
    clock_pairs: AtomicU64,
}

impl Platform {
    fn new() -> Self {
        let config = Config::from_env();
        let gpu = |(i, &arch): (usize, &Arch)| {
            let offset_ns = config.clock_offset_ns + i as u64 * EPOCH_STEP_NS;
            let clock =
                GpuClock { frequency_hz: config.clock_hz, offset_ns, drift_ppm: config.clock_ppm };
            Gpu { arch, clock }
        };
        Platform {
            gpus: config.archs.iter().enumerate().map(gpu).collect(),
            memory: Memory::default(),
            events: Events::default(),
            mmio_page: crate::sys::map_anonymous(4096, 4096).unwrap_or(0),
            clock_pairs: AtomicU64::new(0),
            config,
        }
    }

    /// Whether the reading of a clock pair that begins now is to be interrupted.
    pub fn interrupts_clocks(&self) -> bool {
        let number = 1 + self.clock_pairs.fetch_add(1, Ordering::Relaxed);
        self.config.clock_interrupted.contains(number)
    }

    /// The GPU of a node; node 0 is the host.
    pub fn gpu(&self, node: u32) -> Option<&Gpu> {
        self.gpus.get((node as usize).checked_sub(1)?)
    }

    /// Nodes, the host's included.
    pub fn node_count(&self) -> u32 {
        1 + self.gpus.len() as u32
    }

    /// Nodes of all GPUs.
    pub fn gpu_nodes(&self) -> std::ops::Range<u32> {
        1..self.node_count()
    }
}

static PLATFORM: Renewed<Platform> = Renewed::new();

/// The machine.
pub fn platform() -> &'static Platform {
    PLATFORM.get(Platform::new)
}

/// The machine of this process, which a fork's child has anew. To be called where a program opens the
/// driver.
pub fn platform_of_this_process() -> &'static Platform {
    PLATFORM.of_this_process(Platform::new)
}
