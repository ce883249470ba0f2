//! What a dispatch does besides taking time.
//!
//! The runtimes move bytes with kernels of their own on compute queues: HIP's `__amd_rocclr_*`
//! (arguments as in ROCclr's blit kernels, device/blitcl.cpp) and the HSA runtime's three shaders
//! (amd_blit_kernel.cpp), which are not in the link map and have no names. Those are carried out on
//! the host from their kernel arguments. Any other kernel is timed, and calls the function
//! `emugpu_<kernel symbol>` if the program exports one.

use std::collections::HashMap;

use crate::config::{Config, Durations};
use crate::memory::Memory;
use crate::names::Names;
use crate::sys::{self, HostKernel};
use crate::work::{Work, transfer_ns};

/// A kernel that was dispatched at least once.
#[derive(Debug)]
pub struct Kernel {
    /// Symbol name.
    pub name: String,
    duration_ns: u64,
    action: Action,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Timed,
    Host(HostKernel),
    CopyBuffer,
    CopyBufferAligned,
    CopyRect,
    Fill,
    Fill2d,
    StreamWrite,
    StreamWait,
    ShaderCopyAligned,
    ShaderCopyMisaligned,
    ShaderFill,
}

impl Kernel {
    fn new(name: String, durations: &Durations) -> Self {
        let action = match name.as_str() {
            "__amd_rocclr_copyBuffer" => Action::CopyBuffer,
            "__amd_rocclr_copyBufferAligned" => Action::CopyBufferAligned,
            "__amd_rocclr_copyBufferRect" | "__amd_rocclr_copyBufferRectAligned" => {
                Action::CopyRect
            }
            "__amd_rocclr_fillBufferAligned" => Action::Fill,
            "__amd_rocclr_fillBufferAligned2D" => Action::Fill2d,
            "__amd_rocclr_streamOpsWrite" => Action::StreamWrite,
            "__amd_rocclr_streamOpsWait" => Action::StreamWait,
            "CopyAligned" => Action::ShaderCopyAligned,
            "CopyMisaligned" => Action::ShaderCopyMisaligned,
            "Fill" => Action::ShaderFill,
            other => {
                if other.starts_with("__amd_rocclr_") && other != "__amd_rocclr_gwsInit" {
                    eprintln!(
                        "emulated-gpu: kernel {other} is not emulated: it runs without effect"
                    );
                }
                sys::host_function(&format!("emugpu_{other}")).map_or(Action::Timed, Action::Host)
            }
        };
        Kernel { duration_ns: durations.of(&name), name, action }
    }

    /// Reads the kernel arguments and says what there is to move and how long it takes.
    pub fn plan(&self, kernarg: u64, config: &Config, memory: &Memory) -> (Work, u64) {
        let work = self.work(kernarg, memory);
        let bytes = work.bytes();
        let ns = if bytes > 0 { transfer_ns(config, bytes) } else { self.duration_ns };
        (work, ns)
    }

    /// Whether the kernel, once started, would not just wait for memory to change: (u32*, u64*: one is
    /// set; value, condition, mask), all as wide as the word.
    pub fn is_ready(&self, kernarg: u64) -> bool {
        if !matches!(self.action, Action::StreamWait) {
            return true;
        }
        let wide = sys::load_u64(kernarg) == 0;
        let arg = |i: u64| {
            let at = kernarg + 8 * i;
            if wide { sys::load_u64(at) } else { u64::from(sys::load_u32(at)) }
        };
        let word = if wide {
            sys::load_u64(sys::load_u64(kernarg + 8))
        } else {
            u64::from(sys::load_u32(sys::load_u64(kernarg)))
        };
        let (value, masked) = (arg(2), word & arg(4));
        match sys::load_u32(kernarg + 24) {
            0 => masked >= value,
            1 => masked == value,
            2 => masked & value != 0,
            _ => !(masked | value) & if wide { u64::MAX } else { u64::from(u32::MAX) } != 0,
        }
    }

    /// Calls the program's host function, if there is one.
    pub fn call_host(&self, kernarg: u64, grid: [u32; 3], workgroup: [u32; 3]) {
        if let Action::Host(f) = self.action {
            sys::call_host(f, kernarg, grid, workgroup);
        }
    }

    fn work(&self, kernarg: u64, memory: &Memory) -> Work {
        let q = |offset: u64| sys::load_u64(kernarg + offset);
        let d = |offset: u64| u64::from(sys::load_u32(kernarg + offset));
        let copy = |src: u64, dst: u64, bytes: u64| Work::Copy { src, dst, bytes };
        match self.action {
            Action::Timed | Action::Host(_) | Action::StreamWait => Work::None,
            Action::CopyBuffer => {
                // From HIP 6.3 on: (src, dst, size, remainder, unit, end of the units, …). From 6.1 on the
                // same with srcOrigin, dstOrigin before size. The end says which it is.
                if q(32) == (q(8) + q(16)).wrapping_sub(d(24)) {
                    return copy(q(0), q(8), q(16));
                }
                if q(48) == (q(8) + q(24) + q(32)).wrapping_sub(d(40)) {
                    return copy(q(0) + q(16), q(8) + q(24), q(32));
                }
                // (src, dst, srcOrigin, dstOrigin, size in dwords + 1, remaining bytes)
                copy(q(0) + q(16), q(8) + q(24), q(32).saturating_sub(1) * 4 + d(40))
            }
            // (src, dst, srcOrigin, dstOrigin, size, all in units of the alignment; alignment)
            Action::CopyBufferAligned => {
                copy(q(0) + q(16) * d(40), q(8) + q(24) * d(40), q(32) * d(40))
            }
            // (src, dst, ulong4 {row pitch, slice pitch, start} of each, ulong4 {x, y, z, unit})
            Action::CopyRect => {
                let unit = q(120).max(1);
                Work::CopyRect {
                    src: q(0) + q(48) * unit,
                    src_pitch: [q(32) * unit, q(40) * unit],
                    dst: q(8) + q(80) * unit,
                    dst_pitch: [q(64) * unit, q(72) * unit],
                    size: [q(96) * unit, q(104), q(112)],
                }
            }
            Action::Fill | Action::Fill2d => {
                let read = |at: u64, bytes: u64| -> Vec<u8> {
                    let from = memory.host_address(at);
                    (0..bytes).map(|i| sys::read_bytes::<1>(from + i)[0]).collect()
                };
                let until = |dst: u64, end: u64, pattern: Vec<u8>| {
                    let count = end.saturating_sub(dst) / (pattern.len() as u64).max(1);
                    Work::Fill { dst, pattern, count, rows: 1, pitch: 0 }
                };
                let pointers = (0..4).filter(|i| q(i * 8) != 0).count();
                if matches!(self.action, Action::Fill) {
                    // From HIP 6.3 on: (dst, pattern*, pattern size in units, unit, end, …).
                    if q(0) != 0 && q(8) != 0 {
                        return until(q(0), q(24), read(q(8), d(16) * d(20)));
                    }
                    // From 6.1 on: (u8*, u16*, u32*, u64*, u128*: one is set; pattern*, pattern size,
                    // offset, in its units; end, …).
                    if pointers == 0 || q(32) == 0 {
                        let Some(log2) = (0..5).find(|i| q(i * 8) != 0) else { return Work::None };
                        let dst = q(log2 * 8) + (q(56) << log2);
                        return until(dst, q(64), read(q(40), d(48) << log2));
                    }
                }
                // (u8*, u16*, u32*, u64*: one is set; pattern*, pattern size, offset, count, in its units)
                let Some(log2) = (0..4).find(|i| q(i * 8) != 0) else { return Work::None };
                let pattern = read(q(32), d(40) << log2);
                let dst = q(log2 * 8) + (q(48) << log2);
                if matches!(self.action, Action::Fill) {
                    Work::Fill { dst, pattern, count: q(56), rows: 1, pitch: 0 }
                } else {
                    Work::Fill { dst, pattern, count: q(56), rows: q(64), pitch: q(72) << log2 }
                }
            }
            // (u32*, u64*: one is set; value, size)
            Action::StreamWrite => {
                let (dst, bytes) = if q(0) != 0 { (q(0), 4) } else { (q(8), 8) };
                let pattern = q(16).to_le_bytes()[..bytes].to_vec();
                Work::Fill { dst, pattern, count: 1, rows: 1, pitch: 0 }
            }
            // Phases follow on one another: from the first start to the last end.
            Action::ShaderCopyAligned => copy(q(0), q(8), q(64).wrapping_sub(q(0))),
            Action::ShaderCopyMisaligned => copy(q(0), q(8), q(32).wrapping_sub(q(0))),
            Action::ShaderFill => {
                let pattern = sys::read_bytes::<4>(kernarg + 24).to_vec();
                let count = q(16).wrapping_sub(q(0)) / 4;
                Work::Fill { dst: q(0), pattern, count, rows: 1, pitch: 0 }
            }
        }
    }
}

/// Recognises the HSA runtime's shaders by the header that it writes in front of them
/// (`amd_kernel_code_t`): the entry follows the 256-byte header, and the register counts differ.
fn shader_name(kernel_object: u64) -> Option<&'static str> {
    let header = sys::read_fallible(kernel_object, 64)?;
    let entry = i64::from_le_bytes(header[16..24].try_into().ok()?);
    let rsrc1 = u32::from_le_bytes(header[48..52].try_into().ok()?);
    let (vgpr_blocks, sgpr_blocks) = (rsrc1 & 0x3f, rsrc1 >> 6 & 0xf);
    match (entry, sgpr_blocks, vgpr_blocks) {
        (256, 3, 2) => Some("CopyAligned"),
        (256, 2, 2) => Some("CopyMisaligned"),
        (256, 2, 1) => Some("Fill"),
        _ => None,
    }
}

/// The kernels seen so far.
#[derive(Debug, Default)]
pub struct Kernels {
    // The loaded code objects.
    names: Names,
    known: Vec<Kernel>,
    by_object: HashMap<u64, usize>,
}

impl Kernels {
    /// Sets the address of the runtime's `r_debug`, which leads to the loaded code objects; 0 for none.
    pub fn set_r_debug(&mut self, addr: u64) {
        self.names.set_r_debug(addr);
    }

    /// Number of a kernel, for `get`.
    pub fn find(&mut self, kernel_object: u64, durations: &Durations) -> usize {
        if let Some(&i) = self.by_object.get(&kernel_object) {
            return i;
        }
        let shader = shader_name(kernel_object).map(str::to_owned);
        let name = shader.or_else(|| self.names.resolve(kernel_object)).unwrap_or_else(|| {
            let among = self.names.uris();
            eprintln!("emulated-gpu: no code object of {among:?} holds kernel {kernel_object:#x}");
            format!("unknown_{kernel_object:x}")
        });
        let i = self.known.iter().position(|k| k.name == name).unwrap_or_else(|| {
            self.known.push(Kernel::new(name, durations));
            self.known.len() - 1
        });
        self.by_object.insert(kernel_object, i);
        i
    }

    /// A kernel that `find` found.
    pub fn get(&self, i: usize) -> &Kernel {
        &self.known[i]
    }

    /// Forgets all addresses. The runtime invalidates the instruction caches after it has loaded code,
    /// possibly to where other code was; names are cached just as long.
    pub fn invalidate(&mut self) {
        self.by_object.clear();
        self.names.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::{Kernel, Work};
    use crate::config::Durations;
    use crate::memory::Memory;

    fn work(name: &str, args: &[u64]) -> Work {
        Kernel::new(name.to_owned(), &Durations::default())
            .work(args.as_ptr() as u64, &Memory::default())
    }

    #[test]
    fn hip_copies_count_dwords_and_a_rest() {
        let expected = Work::Copy { src: 0x1008, dst: 0x2010, bytes: 4 * 10 + 3 };
        assert_eq!(work("__amd_rocclr_copyBuffer", &[0x1000, 0x2000, 8, 16, 11, 3]), expected);
    }

    #[test]
    fn hip_fills_move_real_bytes() {
        let mut target = [0_u8; 32];
        let pattern = [0xabcd_u16];
        let args = [0, target.as_mut_ptr() as u64, 0, 0, pattern.as_ptr() as u64, 1, 2, 5];
        let fill = work("__amd_rocclr_fillBufferAligned", &args);
        assert_eq!(fill.bytes(), 10);
        fill.run(&Memory::default());
        assert_eq!(target[..4], [0; 4]);
        assert_eq!(target[4..14], [0xcd, 0xab, 0xcd, 0xab, 0xcd, 0xab, 0xcd, 0xab, 0xcd, 0xab]);
        assert_eq!(target[14..], [0; 18]);
    }

    #[test]
    fn later_releases_say_where_a_copy_or_fill_ends() {
        let copied = |dst, bytes| Work::Copy { src: 0x1000, dst, bytes };
        let of_6_1 = [0x1000, 0x2000, 0, 8, 43, 3 | 16 << 32, 0x2008 + 40, 64];
        assert_eq!(work("__amd_rocclr_copyBuffer", &of_6_1), copied(0x2008, 43));
        let of_6_3 = [0x1000, 0x2000, 43, 3 | 16 << 32, 0x2000 + 40, 64];
        assert_eq!(work("__amd_rocclr_copyBuffer", &of_6_3), copied(0x2000, 43));
        let pattern = [0xabcd_u16];
        let pattern = pattern.as_ptr() as u64;
        let filled =
            |dst, count| Work::Fill { dst, pattern: vec![0xcd, 0xab], count, rows: 1, pitch: 0 };
        let of_6_1 = [0, 0x2000, 0, 0, 0, pattern, 1, 4, 0x2008 + 10, 64];
        assert_eq!(work("__amd_rocclr_fillBufferAligned", &of_6_1), filled(0x2008, 5));
        let of_6_3 = [0x2000, pattern, 1 | 2 << 32, 0x2000 + 10, 64];
        assert_eq!(work("__amd_rocclr_fillBufferAligned", &of_6_3), filled(0x2000, 5));
    }

    #[test]
    fn rectangles_skip_the_pitch() {
        let src: Vec<u8> = (0..64).collect();
        let mut dst = [0_u8; 16];
        let args = [
            src.as_ptr() as u64,
            dst.as_mut_ptr() as u64,
            0,
            0,
            8,
            64,
            9,
            0,
            4,
            16,
            0,
            0,
            3,
            2,
            1,
            1,
        ];
        let rect = work("__amd_rocclr_copyBufferRect", &args);
        assert_eq!(rect.bytes(), 6);
        rect.run(&Memory::default());
        assert_eq!(dst[..8], [9, 10, 11, 0, 17, 18, 19, 0]);
    }

    #[test]
    fn runtime_shaders_span_all_their_phases() {
        let args = [0x1000, 0x2000, 0, 0, 0, 0, 0, 0, 0x1123, 0x2123, 64];
        assert_eq!(
            work("CopyAligned", &args),
            Work::Copy { src: 0x1000, dst: 0x2000, bytes: 0x123 }
        );
        let args = [0x4000, 0x4100, 0x4140, 0xdead_beef | 64 << 32];
        let expected = Work::Fill {
            dst: 0x4000,
            pattern: vec![0xef, 0xbe, 0xad, 0xde],
            count: 0x50,
            rows: 1,
            pitch: 0,
        };
        assert_eq!(work("Fill", &args), expected);
    }

    #[test]
    fn a_stream_wait_looks_at_its_word() {
        let ready = |word: u64, value: u64, condition: u64, mask: u64| {
            let args = [&raw const word as u64, 0, value, condition, mask];
            Kernel::new("__amd_rocclr_streamOpsWait".to_owned(), &Durations::default())
                .is_ready(args.as_ptr() as u64)
        };
        assert!(ready(7, 7, 0, !0) && ready(8, 7, 0, !0) && !ready(6, 7, 0, !0));
        assert!(ready(0xf7, 7, 1, 0xf) && !ready(0xf7, 7, 1, !0));
        assert!(ready(4, 6, 2, !0) && !ready(8, 6, 2, !0));
        assert!(ready(4, 6, 3, !0) && !ready(0xffff_fff0, 0xf, 3, !0));
    }
}
