//! SDMA packets as ROCr writes them for gfx9 and gfx10 (its sdma_registers.h): 32-bit words, the
//! operation in bits 0–7 of the first, the sub-operation in bits 8–15.

use crate::work::Work;

/// Most words that any known packet has.
pub const MAX_WORDS: usize = 13;

/// A packet, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Nothing: padding, cache and HDP flushes.
    Nop,
    /// Bytes to copy.
    Copy(Work),
    /// Bytes to fill.
    Fill(Work),
    /// Store 32 bits.
    Fence(u64, u32),
    /// Raise an event.
    Trap(u32),
    /// Wait until (word & mask) compares with the reference.
    Poll {
        /// Where the word is.
        addr: u64,
        /// Compared with.
        reference: u32,
        /// Bits that count.
        mask: u32,
        /// Comparison: 0 always, then `<`, `<=`, `==`, `!=`, `>=`, `>`.
        function: u32,
    },
    /// Add to 64 bits.
    Add64(u64, i64),
    /// Store the GPU clock.
    Timestamp(u64),
}

impl Packet {
    /// The comparison of a poll.
    pub fn compare(function: u32, value: u32, reference: u32) -> bool {
        match function {
            1 => value < reference,
            2 => value <= reference,
            3 => value == reference,
            4 => value != reference,
            5 => value >= reference,
            6 => value > reference,
            _ => true,
        }
    }
}

/// Decodes the packet that starts at `w[0]`; also its length in words. `count_bits` is the width of
/// the target's byte counts. The error names what it is.
pub fn decode(w: &[u32; MAX_WORDS], count_bits: u32) -> Result<(Packet, usize), String> {
    let addr = |i: usize| u64::from(w[i]) | u64::from(w[i + 1]) << 32;
    let count = |word: u32| u64::from(word) & ((1 << count_bits) - 1);
    Ok(match (w[0] & 0xff, w[0] >> 8 & 0xff) {
        (0, _) => (Packet::Nop, 1 + (w[0] >> 16 & 0x3fff) as usize),
        (1, 0) => {
            let copy = Work::Copy { src: addr(3), dst: addr(5), bytes: count(w[1]) + 1 };
            (Packet::Copy(copy), 7)
        }
        (1, 4) => (Packet::Copy(rectangle(w)), 13),
        (5, 0) => (Packet::Fence(addr(1), w[3]), 4),
        (6, 0) => (Packet::Trap(w[1] & 0x0fff_ffff), 2),
        (8, 0) if w[0] >> 31 == 0 => (Packet::Nop, 6),
        (8, 0) => {
            let poll = Packet::Poll {
                addr: addr(1),
                reference: w[3],
                mask: w[4],
                function: w[0] >> 28 & 7,
            };
            (poll, 6)
        }
        (10, 0) if w[0] >> 25 == 47 => (Packet::Add64(addr(1), addr(3) as i64), 8),
        (11, 0) if w[0] >> 30 == 2 => {
            let (dst, pattern) = (addr(1), w[3].to_le_bytes().to_vec());
            let fill = Work::Fill { dst, pattern, count: count(w[4]) / 4 + 1, rows: 1, pitch: 0 };
            (Packet::Fill(fill), 5)
        }
        (13, 2) => (Packet::Timestamp(addr(1)), 3),
        (17, 1) => (Packet::Nop, 5),
        (op, sub) => {
            return Err(format!("SDMA operation {op} (sub-operation {sub}, word {:#010x})", w[0]));
        }
    })
}

/// A linear sub-window: all lengths in elements of 1 << bits 29–31 bytes, less one.
fn rectangle(w: &[u32; MAX_WORDS]) -> Work {
    let element = w[0] >> 29;
    let field = |i: usize, shift: u32, bits: u32| u64::from(w[i] >> shift & ((1_u32 << bits) - 1));
    let addr = |i: usize| u64::from(w[i]) | u64::from(w[i + 1]) << 32;
    let side = |i: usize| {
        let pitch = (field(i + 3, 13, 19) + 1) << element;
        let slice = (field(i + 4, 0, 28) + 1) << element;
        let (x, y, z) = (field(i + 2, 0, 14) << element, field(i + 2, 16, 14), field(i + 3, 0, 11));
        (addr(i) + x + y * pitch + z * slice, [pitch, slice])
    };
    let ((src, src_pitch), (dst, dst_pitch)) = (side(1), side(6));
    let size = [(field(11, 0, 14) + 1) << element, field(11, 16, 14) + 1, field(12, 0, 11) + 1];
    Work::CopyRect { src, src_pitch, dst, dst_pitch, size }
}

#[cfg(test)]
mod tests {
    use super::{MAX_WORDS, Packet, decode};
    use crate::work::Work;

    fn packet(words: &[u32]) -> (Packet, usize) {
        let mut w = [0; MAX_WORDS];
        w[..words.len()].copy_from_slice(words);
        decode(&w, 22).unwrap()
    }

    #[test]
    fn a_linear_copy_counts_from_one() {
        let (p, words) = packet(&[1, 0x003f_ffdf, 0, 0x1000, 0x7f, 0x2000, 0x7e]);
        let expected = Work::Copy { src: 0x7f_0000_1000, dst: 0x7e_0000_2000, bytes: 0x3f_ffe0 };
        assert_eq!((p, words), (Packet::Copy(expected), 7));
    }

    #[test]
    fn wide_counts_need_wide_fields() {
        let mut w = [0; MAX_WORDS];
        (w[0], w[1]) = (1, 0x1234_5678);
        for (bits, bytes) in [(22, 0x0034_5679), (30, 0x1234_5679)] {
            let (Packet::Copy(copy), _) = decode(&w, bits).unwrap() else { panic!() };
            assert_eq!(copy.bytes(), bytes);
        }
    }

    #[test]
    fn signalling_packets() {
        assert_eq!(packet(&[5, 0x10, 1, 42]), (Packet::Fence(0x1_0000_0010, 42), 4));
        assert_eq!(packet(&[6, 7]), (Packet::Trap(7), 2));
        assert_eq!(packet(&[10 | 47 << 25, 8, 0, u32::MAX, u32::MAX]), (Packet::Add64(8, -1), 8));
        assert_eq!(packet(&[13 | 2 << 8, 0x20, 0]), (Packet::Timestamp(0x20), 3));
        let poll = Packet::Poll { addr: 0x40, reference: 0, mask: u32::MAX, function: 3 };
        assert_eq!(packet(&[8 | 3 << 28 | 1 << 31, 0x40, 0, 0, u32::MAX, 0]), (poll, 6));
        assert_eq!(packet(&[8, 0, 0x8000_0000]), (Packet::Nop, 6));
        assert_eq!(packet(&[17 | 1 << 8]), (Packet::Nop, 5));
    }

    #[test]
    fn a_rectangle_in_dwords() {
        // 8 × 3 bytes in rows of 64 from an offset of one dword to rows of 32.
        let w = [
            1 | 4 << 8 | 2 << 29,
            0x1000,
            0,
            1,
            15 << 13,
            0,
            0x2000,
            0,
            0,
            7 << 13,
            0,
            1 | 2 << 16,
            0,
        ];
        let (Packet::Copy(Work::CopyRect { src, src_pitch, dst, dst_pitch, size }), 13) =
            packet(&w)
        else {
            panic!()
        };
        assert_eq!((src, dst, size), (0x1004, 0x2000, [8, 3, 1]));
        assert_eq!((src_pitch[0], dst_pitch[0]), (64, 32));
    }

    #[test]
    fn others_are_named() {
        let mut w = [0; MAX_WORDS];
        w[0] = 2;
        assert!(decode(&w, 22).unwrap_err().contains("operation 2"));
    }
}
