//! AQL packets (hsa.h, hsa_ext_amd.h): 64 bytes, a 16-bit header first.

use crate::effects::signal;
use crate::sys;

/// Bytes of a packet.
pub const PACKET_BYTES: u64 = 64;
/// The header of a slot that holds no packet.
pub const INVALID_HEADER: u16 = 1;

/// The packet type in a header.
pub fn is_invalid(header: u16) -> bool {
    header & 0xff == INVALID_HEADER
}

/// Whether the packet waits until all before it are done.
pub fn has_barrier_bit(header: u16) -> bool {
    header & 1 << 8 != 0
}

/// A packet, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Run a kernel.
    Dispatch {
        /// Address of the kernel descriptor.
        kernel_object: u64,
        /// Address of its arguments.
        kernarg: u64,
        /// Work-items in each dimension.
        grid: [u32; 3],
        /// Work-items of a group.
        workgroup: [u32; 3],
        /// Bytes of scratch memory of each work-item.
        scratch: u32,
    },
    /// Wait for all of the signals to be 0.
    BarrierAnd([u64; 5]),
    /// Wait for any of the signals to be 0.
    BarrierOr([u64; 5]),
    /// Wait for a condition on the signal's value.
    BarrierValue {
        /// The signal.
        signal: u64,
        /// Compared with.
        value: i64,
        /// Bits of the signal's value that count.
        mask: i64,
        /// An `hsa_signal_condition_t`.
        condition: u32,
    },
    /// PM4 commands; the runtime sends cache invalidations this way.
    Pm4,
}

/// A packet and its completion signal, 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// What to do.
    pub packet: Packet,
    /// Signal to decrement afterwards.
    pub completion: u64,
}

/// Decodes a packet; the error names what it is.
pub fn decode(bytes: &[u8; PACKET_BYTES as usize]) -> Result<Slot, String> {
    let byte = |i: usize| u64::from(bytes[i]);
    let int = |at: usize, n: usize| (0..n).rev().fold(0_u64, |v, i| v << 8 | byte(at + i));
    let quads = |at: usize| std::array::from_fn(|i| int(at + 8 * i, 8));
    let packet = match (bytes[0], bytes[2]) {
        (0, 1) => Packet::Pm4,
        (0, 2) => Packet::BarrierValue {
            signal: int(8, 8),
            value: int(16, 8) as i64,
            mask: int(24, 8) as i64,
            condition: int(32, 4) as u32,
        },
        (0, format) => return Err(format!("vendor AQL packet of format {format}")),
        (2, _) => Packet::Dispatch {
            kernel_object: int(32, 8),
            kernarg: int(40, 8),
            grid: std::array::from_fn(|i| int(12 + 4 * i, 4) as u32),
            workgroup: std::array::from_fn(|i| int(4 + 2 * i, 2) as u32),
            scratch: int(24, 4) as u32,
        },
        (3, _) => Packet::BarrierAnd(quads(8)),
        (4, _) => return Err("AQL agent dispatch packet".to_owned()),
        (5, _) => Packet::BarrierOr(quads(8)),
        (other, _) => return Err(format!("AQL packet of type {other}")),
    };
    Ok(Slot { packet, completion: int(56, 8) })
}

impl Packet {
    /// Whether all that the packet waits for has happened.
    pub fn is_satisfied(&self) -> bool {
        let value = |s: u64| sys::load_u64(s + signal::VALUE) as i64;
        match self {
            Packet::Dispatch { .. } | Packet::Pm4 => true,
            Packet::BarrierAnd(deps) => deps.iter().all(|&s| s == 0 || value(s) == 0),
            Packet::BarrierOr(deps) => {
                deps.iter().all(|&s| s == 0) || deps.iter().any(|&s| s != 0 && value(s) == 0)
            }
            Packet::BarrierValue { signal: 0, .. } => true,
            Packet::BarrierValue { signal, value: reference, mask, condition } => {
                let v = value(*signal) & mask;
                match condition {
                    0 => v == *reference,
                    1 => v != *reference,
                    2 => v < *reference,
                    _ => v >= *reference,
                }
            }
        }
    }

    /// The signals that the packet waits for.
    pub fn dependencies(&self) -> impl Iterator<Item = u64> {
        let list = match *self {
            Packet::BarrierAnd(deps) | Packet::BarrierOr(deps) => deps,
            Packet::BarrierValue { signal, .. } => [signal, 0, 0, 0, 0],
            Packet::Dispatch { .. } | Packet::Pm4 => [0; 5],
        };
        list.into_iter().filter(|&s| s != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Packet, decode, has_barrier_bit, is_invalid};

    fn bytes(words: [u64; 8]) -> [u8; 64] {
        let mut out = [0; 64];
        for (chunk, w) in out.chunks_mut(8).zip(words) {
            chunk.copy_from_slice(&w.to_le_bytes());
        }
        out
    }

    #[test]
    fn headers_as_hip_writes_them() {
        assert!(has_barrier_bit(0x0d02) && !has_barrier_bit(0x0003));
        assert!(is_invalid(1) && is_invalid(0x0d01) && !is_invalid(0x1503));
    }

    #[test]
    fn a_dispatch_is_read() {
        let words = [
            64 | 0x0d02 | 3 << 16 | 64 << 32 | 2 << 48,
            1 | 1024 << 32,
            4 | 5 << 32,
            96 | 32 << 32,
            0xabc0,
            0xdef0,
            9,
            7,
        ];
        let mut raw = bytes(words);
        raw[0] = 2;
        let slot = decode(&raw).unwrap();
        assert_eq!(slot.completion, 7);
        let Packet::Dispatch { kernel_object, kernarg, grid, workgroup, scratch } = slot.packet
        else {
            panic!()
        };
        assert_eq!(scratch, 96);
        assert_eq!((kernel_object, kernarg), (0xabc0, 0xdef0));
        assert_eq!((grid, workgroup), ([1024, 4, 5], [64, 2, 1]));
    }

    #[test]
    fn barriers_look_at_their_signals() {
        let zero = [1_u64, 0];
        let one = [1_u64, 1];
        let (z, o) = (zero.as_ptr() as u64, one.as_ptr() as u64);
        let and = |deps| Packet::BarrierAnd(deps).is_satisfied();
        let or = |deps| Packet::BarrierOr(deps).is_satisfied();
        assert!(and([0; 5]) && and([z, 0, z, 0, 0]) && !and([z, o, 0, 0, 0]));
        assert!(or([0; 5]) && or([o, z, 0, 0, 0]) && !or([o, 0, 0, 0, 0]));
        let value = |condition, value| {
            Packet::BarrierValue { signal: o, value, mask: -1, condition }.is_satisfied()
        };
        assert!(value(0, 1) && value(1, 2) && value(2, 2) && value(3, 1) && !value(3, 2));
    }

    #[test]
    fn strange_packets_are_named() {
        assert!(decode(&bytes([4, 0, 0, 0, 0, 0, 0, 0])).unwrap_err().contains("agent dispatch"));
        assert!(decode(&bytes([0, 0, 0, 0, 0, 0, 0, 0])).unwrap_err().contains("format 0"));
        assert!(decode(&bytes([9, 0, 0, 0, 0, 0, 0, 0])).unwrap_err().contains("type 9"));
    }
}
