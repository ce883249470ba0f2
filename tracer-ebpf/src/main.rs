//! roctap's BPF programs: they record API calls, tie the shim's dispatches to them and follow
//! processes. The build script of `roctap` compiles them; on any other target this crate is empty,
//! so that a plain `cargo check` needs no BPF toolchain.
//!
//! Data flow: a probe fires → the thread's stack of open calls in `threads::NEAR` or `threads::THREADS` → one record in
//! the CPU's ring of `maps::RINGS`. Calls that cannot be recorded are counted in `maps::LOSSES`.
//!
//! Imports go downwards only: `loader`, `packets` → `api`; `api`, `life` → `threads` → `records` → `maps`.

#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch, core_intrinsics))]
#![cfg_attr(target_arch = "bpf", expect(internal_features, reason = "BPF atomic add"))]

// The crate in which the macros of aya-log look for their items.
#[cfg(all(target_arch = "bpf", feature = "bpf-log"))]
extern crate self as aya_log_ebpf;

/// Logs in builds with the feature `bpf-log`, as `aya_log_ebpf::debug!` does; nothing in others.
#[cfg(target_arch = "bpf")]
macro_rules! debug {
    ($($part:tt)*) => {
        #[cfg(feature = "bpf-log")]
        aya_log_ebpf_macros::debug!($($part)*)
    };
}

#[cfg(target_arch = "bpf")]
mod api;
#[cfg(target_arch = "bpf")]
mod life;
#[cfg(target_arch = "bpf")]
mod loader;
#[cfg(all(target_arch = "bpf", feature = "bpf-log"))]
mod macro_support;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod packets;
#[cfg(target_arch = "bpf")]
mod records;
#[cfg(target_arch = "bpf")]
mod stacks;
#[cfg(target_arch = "bpf")]
mod threads;

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// The verifier lets only GPL-compatible programs call the helpers that are used here.
#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(target_arch = "bpf"))]
fn main() {}
