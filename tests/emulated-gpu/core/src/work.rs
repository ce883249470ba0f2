//! Bytes to move, for a kernel or a copy engine.

use crate::config::Config;
use crate::memory::Memory;
use crate::sys;

/// The bytes of one dispatch or SDMA packet, ready to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    None,
    /// A run of bytes.
    Copy {
        /// From.
        src: u64,
        /// To.
        dst: u64,
        /// Length.
        bytes: u64,
    },
    /// A box of bytes; pitches in bytes.
    CopyRect {
        /// First byte read.
        src: u64,
        /// From one row, and one slice, to the next.
        src_pitch: [u64; 2],
        /// First byte written.
        dst: u64,
        /// Likewise.
        dst_pitch: [u64; 2],
        /// Bytes in a row, rows, slices.
        size: [u64; 3],
    },
    /// A repeated pattern, in rows.
    Fill {
        /// First byte.
        dst: u64,
        /// What is repeated.
        pattern: Vec<u8>,
        /// Patterns in a row.
        count: u64,
        /// Rows.
        rows: u64,
        /// Bytes from one row to the next.
        pitch: u64,
    },
}

impl Work {
    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        match self {
            Work::None => 0,
            Work::Copy { bytes, .. } => *bytes,
            Work::CopyRect { size, .. } => size.iter().product(),
            Work::Fill { pattern, count, rows, .. } => pattern.len() as u64 * count * rows,
        }
    }

    /// Carries it out.
    pub fn run(&self, memory: &Memory) {
        match self {
            Work::None => {}
            Work::Copy { src, dst, bytes } => {
                sys::copy(memory.host_address(*src), memory.host_address(*dst), *bytes);
            }
            Work::CopyRect { src, src_pitch, dst, dst_pitch, size: [x, y, z] } => {
                let (src, dst) = (memory.host_address(*src), memory.host_address(*dst));
                for slice in 0..*z {
                    for row in 0..*y {
                        let at =
                            |base: u64, pitch: &[u64; 2]| base + row * pitch[0] + slice * pitch[1];
                        sys::copy(at(src, src_pitch), at(dst, dst_pitch), *x);
                    }
                }
            }
            Work::Fill { dst, pattern, count, rows, pitch } => {
                let dst = memory.host_address(*dst);
                for row in 0..*rows {
                    sys::fill(dst + row * pitch, pattern, *count);
                }
            }
        }
    }
}

/// How long moving that many bytes takes.
pub fn transfer_ns(config: &Config, bytes: u64) -> u64 {
    config.copy_ns + bytes * 1_000 / config.copy_bytes_per_us
}
