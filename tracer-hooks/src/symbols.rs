//! Kernel symbols of code objects.
//!
//! The loader of ROCm 5.2.3 holds locks while it calls back: `iterate_executables` its own for
//! *writing*, so that `query_host_address`, which takes it for reading, never returns when it is
//! called from there; `iterate_agent_symbols` the executable's, which others take after the
//! loader's. So the callbacks only collect, and descriptors are read afterwards.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tracer_common::loss::ShimLoss;
use tracer_common::shim::{MAX_NAME_BYTES, Symbol};

use crate::abi::info;
use crate::lock::Lock;
use crate::runtime::{self, Life, RUNTIME};
use crate::state::STATE;
use crate::{agents, sys};

/// No seccomp filter that was there when somebody looked keeps this process from reading its memory with care.
static MAY_READ: AtomicBool = AtomicBool::new(false);

/// Called by code that has just looked whether seccomp filters allow `process_vm_readv`: the answer holds for one
/// recording. Without a call, `process_vm_readv` is used only where there are no filters.
pub fn may_read(allowed: bool) {
    MAY_READ.store(allowed, Ordering::Relaxed);
}

/// Everything that was loaded when recording began has been told.
static LOOKED: AtomicBool = AtomicBool::new(false);

/// A kernel as the runtime knows it, on an agent.
struct Kernel {
    record: Symbol,
    name: Vec<u8>,
    agent: u64,
}

/// When recording began, ns.
pub static BEGAN_NS: AtomicU64 = AtomicU64::new(0);

/// Executables that were frozen since, while not everything has been looked at: their kernels are told by that, and are
/// not those of before.
static FROZEN: Lock<Option<Vec<u64>>> = Lock::new(None);
const WAIT_NS: u64 = 100_000_000;

/// A recording is about to begin; [`of_everything`] follows.
pub fn begin() {
    BEGAN_NS.store(sys::now_ns(), Ordering::Relaxed);
    if let Some(mut frozen) = FROZEN.lock_for(WAIT_NS) {
        *frozen = Some(Vec::new());
    }
    LOOKED.store(false, Ordering::Release);
}

/// An executable is about to be frozen.
pub fn before_freezing(executable: u64) {
    if !LOOKED.load(Ordering::Acquire)
        && let Some(mut frozen) = FROZEN.lock_for(WAIT_NS)
        && let Some(frozen) = &mut *frozen
    {
        kept(sys::push(frozen, executable));
    }
}

/// It was, if that has succeeded: tells the sink its kernels.
pub fn after_freezing(executable: u64, has_succeeded: bool) {
    if has_succeeded && STATE.active() {
        of_executable(executable);
    } else if !LOOKED.load(Ordering::Acquire)
        && let Some(mut frozen) = FROZEN.lock_for(WAIT_NS)
        && let Some(frozen) = &mut *frozen
    {
        // It is looked at with everything else.
        frozen.retain(|&one| one != executable);
    }
}

fn of_executable(executable: u64) {
    let mut kernels = Vec::new();
    collect(executable, sys::now_ns(), &gpus(), &mut kernels);
    tell(kernels, || Life::Held, &mut || {});
}

/// Tells the sink the kernels of an executable that is about to go, if nobody else has: a kernel that ran since
/// recording began has a name even if it is gone by the time that everything is looked at.
pub fn before_destroying(executable: u64) {
    if STATE.watches_doorbells() && STATE.is_ready() && !LOOKED.load(Ordering::Acquire) {
        of_executable(executable);
    }
}

/// Every kernel that is loaded, and the agent that it is loaded on.
pub fn homes_of_everything() -> Vec<(u64, u64)> {
    let gpus = gpus();
    let mut homes = Vec::new();
    RUNTIME.loader().executables(|executable| {
        for &agent in &gpus {
            RUNTIME.agent_symbols(executable, agent, |symbol| {
                if let Some(kernel) = kernel_object(symbol) {
                    kept(sys::push(&mut homes, (kernel, agent)));
                }
            });
        }
    });
    homes
}

/// Tells the sink the kernels of everything that was loaded when recording began.
pub fn of_everything(between: &mut dyn FnMut()) {
    let gpus = gpus();
    let mut kernels = Vec::new();
    RUNTIME.loader().executables(|executable| {
        // First: one that was frozen since recording began is found below.
        let was_there = RUNTIME.is_frozen(executable) != Some(false);
        let frozen = FROZEN.lock_for(WAIT_NS);
        let is_known = frozen.is_some_and(|frozen| {
            frozen.as_ref().is_some_and(|frozen| frozen.contains(&executable))
        });
        if !is_known {
            // An executable that is not frozen has not run yet; one that was unloaded meanwhile may have, at the same
            // address.
            let since_ns = if was_there { BEGAN_NS.load(Ordering::Relaxed) } else { sys::now_ns() };
            collect(executable, since_ns, &gpus, &mut kernels);
        }
    });
    let is_allowed = MAY_READ.swap(false, Ordering::Relaxed);
    let may_read = || is_allowed || !sys::is_confined();
    let life = || if may_read() { Life::MayEnd } else { Life::Unknown };
    tell(kernels, life, between);
    // Pairs with the Acquires above: all that was loaded has been told.
    LOOKED.store(true, Ordering::Release);
    if let Some(mut frozen) = FROZEN.lock_for(WAIT_NS) {
        *frozen = None;
    }
}

fn gpus() -> Vec<u64> {
    let mut gpus = Vec::new();
    RUNTIME.agents(|agent| {
        if RUNTIME.agent_u32(agent, info::AGENT_DEVICE) == Some(1) {
            kept(sys::push(&mut gpus, agent));
        }
    });
    gpus
}

/// Adds the kernels of an executable, which are there since then.
fn collect(executable: u64, since_ns: u64, gpus: &[u64], kernels: &mut Vec<Kernel>) {
    for &agent in gpus {
        RUNTIME.agent_symbols(executable, agent, |symbol| {
            if let Some(kernel) = kernel(symbol, since_ns, agent) {
                kept(sys::push(kernels, kernel));
            }
        });
    }
}

/// Counts a loss if the process had no memory to keep something.
fn kept(kept: bool) {
    if !kept && let Some(sink) = STATE.sink.get() {
        sink.lost(ShimLoss::NO_MEMORY, 1);
    }
}

fn kernel_object(symbol: u64) -> Option<u64> {
    if RUNTIME.symbol_u32(symbol, info::SYMBOL_TYPE) != Some(info::KIND_KERNEL) {
        return None;
    }
    RUNTIME.symbol_kernel_object(symbol).filter(|&k| k != 0)
}

fn kernel(symbol: u64, since_ns: u64, agent: u64) -> Option<Kernel> {
    let kernel_object = kernel_object(symbol)?;
    let mut name = RUNTIME.symbol_name(symbol)?;
    if name.ends_with(b".kd") {
        name.truncate(name.len() - 3);
    }
    name.truncate(MAX_NAME_BYTES);
    let record = Symbol {
        kernel_object,
        since_ns,
        group_bytes: RUNTIME.symbol_u32(symbol, info::SYMBOL_GROUP_BYTES).unwrap_or(0),
        private_bytes: RUNTIME.symbol_u32(symbol, info::SYMBOL_PRIVATE_BYTES).unwrap_or(0),
        ..Symbol::default()
    };
    Some(Kernel { record, name, agent })
}

/// Kernels that are told before somebody else may do something, and before it is asked again what is known of
/// the lives of executables.
const AT_ONCE: usize = 32;

fn tell(kernels: Vec<Kernel>, look: impl Fn() -> Life, between: &mut dyn FnMut()) {
    let Some(&sink) = STATE.sink.get() else { return };
    if agents::several_gpus() {
        agents::learn_homes(kernels.iter().map(|k| (k.record.kernel_object, k.agent)));
    }
    let loader = RUNTIME.loader();
    let mut life = Life::Unknown;
    for (index, Kernel { mut record, name, agent }) in kernels.into_iter().enumerate() {
        if index % AT_ONCE == 0 {
            between();
            life = look();
        }
        let target = RUNTIME.agent_name(agent).unwrap_or([0; 64]);
        if let Some(descriptor) = loader.kernel_descriptor(record.kernel_object, life) {
            let registers = Registers::of(&descriptor, runtime::c_bytes(&target));
            record.vgpr_count = registers.vector;
            record.accum_vgpr_count = registers.accumulation;
            record.sgpr_count = registers.scalar;
            record.entry_offset = entry_offset(&descriptor);
        }
        sink.symbol(record, &name);
    }
}

/// The begin of the code, behind the descriptor.
fn entry_offset(descriptor: &[u32; 16]) -> i64 {
    (u64::from(descriptor[4]) | u64::from(descriptor[5]) << 32).cast_signed()
}

/// Register counts, decoded from a kernel descriptor (code object v3 and later).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Registers {
    vector: u32,
    accumulation: u32,
    scalar: u32,
}

impl Registers {
    /// Source: "Kernel Descriptor" in LLVM's AMDGPU usage guide. The counts are what the hardware
    /// allocates, as AMD's own tools report them, not what the compiler used.
    fn of(descriptor: &[u32; 16], target: &[u8]) -> Self {
        let [.., rsrc3, rsrc1, _rsrc2, properties, _kernarg] = descriptor;
        let vector_granules = (rsrc1 & 0x3F) + 1;
        let scalar_granules = ((rsrc1 >> 6) & 0xF) / 2 + 1;
        let wave32 = properties & (1 << 10) != 0;
        let generation = target.strip_prefix(b"gfx").unwrap_or_default();
        match generation {
            // Vector and accumulation registers share one file.
            [b'9', b'0', b'a'] | [b'9', b'4' | b'5', _] => {
                let vector = ((rsrc3 & 0x3F) + 1) * 4;
                Self {
                    vector,
                    accumulation: (vector_granules * 8).saturating_sub(vector),
                    scalar: scalar_granules * 16,
                }
            }
            [b'9', b'0', b'8'] => Self {
                vector: vector_granules * 4,
                accumulation: vector_granules * 4,
                scalar: scalar_granules * 16,
            },
            [b'9', _, _] => {
                Self { vector: vector_granules * 4, accumulation: 0, scalar: scalar_granules * 16 }
            }
            // gfx10 and later: every wave gets 128 scalar registers.
            [b'1', _, _, _] => Self {
                vector: vector_granules * if wave32 { 8 } else { 4 },
                accumulation: 0,
                scalar: 128,
            },
            _ => Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(rsrc3: u32, rsrc1: u32, properties: u32) -> [u32; 16] {
        let mut words = [0; 16];
        [words[11], words[12], words[14]] = [rsrc3, rsrc1, properties];
        words
    }

    #[test]
    fn register_counts_by_target() {
        let words = descriptor(3, 5 | 7 << 6, 0);
        let of = |target: &str, words: &[u32; 16]| {
            let r = Registers::of(words, target.as_bytes());
            (r.vector, r.accumulation, r.scalar)
        };
        assert_eq!(of("gfx900", &words), (24, 0, 64));
        assert_eq!(of("gfx908", &words), (24, 24, 64));
        assert_eq!(of("gfx90a", &words), (16, 32, 64));
        assert_eq!(of("gfx942", &words), (16, 32, 64));
        assert_eq!(of("gfx1030", &words), (24, 0, 128));
        assert_eq!(of("gfx1030", &descriptor(0, 5, 1 << 10)), (48, 0, 128));
        assert_eq!(of("something", &words), (0, 0, 0));
    }

    #[test]
    fn code_may_be_behind_its_descriptor_and_before_it() {
        let mut words = descriptor(0, 0, 0);
        words[4] = 0x1800;
        assert_eq!(entry_offset(&words), 0x1800);
        [words[4], words[5]] = [-64_i32 as u32, u32::MAX];
        assert_eq!(entry_offset(&words), -64);
    }
}
