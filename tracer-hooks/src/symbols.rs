//! Kernel symbols of code objects.
//!
//! The loader of ROCm 5.2.3 holds locks while it calls back: `iterate_executables` its own for
//! *writing*, so that `query_host_address`, which takes it for reading, never returns when it is
//! called from there; `iterate_agent_symbols` the executable's, which others take after the
//! loader's. So the callbacks only collect, and descriptors are read afterwards.

use std::collections::BTreeSet;

use tracer_common::shim::{MAX_NAME_BYTES, Symbol};

use crate::abi::info;
use crate::lock::Lock;
use crate::runtime::{self, RUNTIME};
use crate::state::STATE;
use crate::{announce, sys};

/// When, after the tables were patched live, to look for kernels again. An executable that was being
/// frozen then has no kernels at the first look, and its end is not seen. Whoever reads waits a second
/// for a kernel's name.
const LOOKS_AGAIN_NS: [u64; 4] = [200_000_000, 500_000_000, 1_200_000_000, 3_000_000_000];
const WAIT_NS: u64 = 100_000_000;

/// What is kept until the last of these looks.
struct Young {
    since_ns: u64,
    looks: usize,
    /// Kernels that were told.
    told: BTreeSet<u64>,
}

static YOUNG: Lock<Option<Young>> = Lock::new(None);

/// A kernel as the runtime knows it, on an agent.
struct Kernel {
    record: Symbol,
    name: Vec<u8>,
    agent: u64,
}

/// Tells the sink the kernels of an executable that was just frozen.
pub fn of_executable(executable: u64) {
    let mut kernels = Vec::new();
    collect(executable, &gpus(), &BTreeSet::new(), &mut kernels);
    loaded(kernels);
}

/// Takes kernels that were not there when recording began.
fn loaded(kernels: Vec<Kernel>) {
    if announce::several_gpus() {
        announce::learn_homes(kernels.iter().map(|k| (k.record.kernel_object, k.agent)));
    }
    tell(kernels);
}

/// Every kernel that is loaded, and the agent that it is loaded on.
pub fn homes_of_everything() -> Vec<(u64, u64)> {
    let gpus = gpus();
    let mut homes = Vec::new();
    RUNTIME.loader().executables(|executable| {
        for &agent in &gpus {
            RUNTIME.agent_symbols(executable, agent, |symbol| {
                homes.extend(kernel_object(symbol).map(|kernel| (kernel, agent)));
            });
        }
    });
    homes
}

/// Tells the sink the kernels of everything that is loaded.
pub fn of_everything() {
    tell(all_but(&BTreeSet::new()));
}

fn all_but(known: &BTreeSet<u64>) -> Vec<Kernel> {
    let gpus = gpus();
    let mut kernels = Vec::new();
    RUNTIME.loader().executables(|executable| collect(executable, &gpus, known, &mut kernels));
    kernels
}

/// The tables are about to be patched live: [`look_again`] has something to do.
pub fn patched_live() {
    if let Some(mut young) = YOUNG.lock_for(WAIT_NS) {
        *young = Some(Young { since_ns: sys::now_ns(), looks: 0, told: BTreeSet::new() });
    }
}

/// Tells the sink kernels that were loaded when the tables were patched. Called now and then by whoever
/// may call the runtime.
pub fn look_again(now_ns: u64) {
    let Some(mut guard) = YOUNG.try_lock() else { return };
    let Some(young) = guard.as_mut() else { return };
    let Some(after_ns) = LOOKS_AGAIN_NS.get(young.looks) else {
        *guard = None;
        return;
    };
    if now_ns < young.since_ns + after_ns {
        return;
    }
    young.looks += 1;
    let told = core::mem::take(&mut young.told);
    drop(guard);
    loaded(all_but(&told));
    remember(told);
}

/// Remembers kernels that were told, for as long as that matters.
fn remember(told: impl IntoIterator<Item = u64>) {
    if let Some(mut guard) = YOUNG.lock_for(WAIT_NS)
        && let Some(young) = guard.as_mut()
    {
        young.told.extend(told);
    }
}

fn gpus() -> Vec<u64> {
    let mut gpus = Vec::new();
    RUNTIME.agents(|agent| {
        if RUNTIME.agent_u32(agent, info::AGENT_DEVICE) == Some(1) {
            gpus.push(agent);
        }
    });
    gpus
}

fn collect(executable: u64, gpus: &[u64], known: &BTreeSet<u64>, kernels: &mut Vec<Kernel>) {
    for &agent in gpus {
        RUNTIME.agent_symbols(executable, agent, |symbol| {
            kernels.extend(kernel(symbol, agent, known));
        });
    }
}

fn kernel_object(symbol: u64) -> Option<u64> {
    if RUNTIME.symbol_u32(symbol, info::SYMBOL_TYPE) != Some(info::KIND_KERNEL) {
        return None;
    }
    RUNTIME.symbol_kernel_object(symbol).filter(|&k| k != 0)
}

fn kernel(symbol: u64, agent: u64, known: &BTreeSet<u64>) -> Option<Kernel> {
    let kernel_object = kernel_object(symbol).filter(|kernel| !known.contains(kernel))?;
    let mut name = RUNTIME.symbol_name(symbol)?;
    if name.ends_with(b".kd") {
        name.truncate(name.len() - 3);
    }
    name.truncate(MAX_NAME_BYTES);
    let record = Symbol {
        kernel_object,
        group_bytes: RUNTIME.symbol_u32(symbol, info::SYMBOL_GROUP_BYTES).unwrap_or(0),
        private_bytes: RUNTIME.symbol_u32(symbol, info::SYMBOL_PRIVATE_BYTES).unwrap_or(0),
        name_bytes: name.len() as u32,
        ..Symbol::default()
    };
    Some(Kernel { record, name, agent })
}

fn tell(kernels: Vec<Kernel>) {
    let Some(&sink) = STATE.sink.get() else { return };
    remember(kernels.iter().map(|kernel| kernel.record.kernel_object));
    let loader = RUNTIME.loader();
    let since_ns = sys::now_ns();
    for Kernel { mut record, name, agent } in kernels {
        let target = RUNTIME.agent_name(agent).unwrap_or([0; 64]);
        let registers = loader
            .kernel_descriptor(record.kernel_object)
            .map_or(Registers::default(), |d| Registers::of(&d, runtime::c_bytes(&target)));
        record.since_ns = since_ns;
        record.vgpr_count = registers.vector;
        record.accum_vgpr_count = registers.accumulation;
        record.sgpr_count = registers.scalar;
        sink.symbol(record, &name);
    }
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
}
