//! Compression of chunks.

use std::io::{self, Read as _};

use super::limits::MAX_RAW;

/// zstd at level 1: the recorder shares the machine with the recorded programs.
const LEVEL: i32 = 1;

/// Compresses chunk after chunk with one context.
pub struct Packer {
    zstd: zstd::bulk::Compressor<'static>,
}

impl Packer {
    /// A context.
    pub fn new() -> io::Result<Self> {
        Ok(Self { zstd: zstd::bulk::Compressor::new(LEVEL)? })
    }

    /// Compresses `raw` into `out`, behind `keep` bytes that are already there.
    pub fn pack(&mut self, raw: &[u8], out: &mut Vec<u8>, keep: usize) -> io::Result<()> {
        out.resize(keep + zstd::zstd_safe::compress_bound(raw.len()), 0);
        let size = match out.get_mut(keep..) {
            Some(room) => self.zstd.compress_to_buffer(raw, room)?,
            None => 0,
        };
        out.truncate(keep + size);
        Ok(())
    }
}

/// Expands chunk after chunk with one context.
pub struct Unpacker {
    zstd: zstd::bulk::Decompressor<'static>,
}

impl Unpacker {
    /// A context.
    pub fn new() -> io::Result<Self> {
        Ok(Self { zstd: zstd::bulk::Decompressor::new()? })
    }

    /// Expands `packed` into `out`. More than `raw_bytes` is an error, found before anything beyond is stored: the
    /// caller has checked `raw_bytes` against its limit.
    pub fn unpack(&mut self, packed: &[u8], raw_bytes: usize, out: &mut Vec<u8>) -> io::Result<()> {
        out.resize(raw_bytes, 0);
        let size = self.zstd.decompress_to_buffer(packed, out.as_mut_slice())?;
        out.truncate(size);
        Ok(())
    }

    /// Expands the beginning of `packed`, and no more than a block of it.
    pub fn first<const BYTES: usize>(packed: &[u8]) -> io::Result<[u8; BYTES]> {
        let mut out = [0; BYTES];
        let mut zstd = zstd::stream::read::Decoder::with_buffer(packed)?;
        // A frame can ask for memory in advance: for a chunk no more than it expands to.
        zstd.window_log_max(MAX_RAW.ilog2())?;
        zstd.read_exact(&mut out)?;
        Ok(out)
    }
}
