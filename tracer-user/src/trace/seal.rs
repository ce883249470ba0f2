//! The secret by which the chunks of a trace are recognised inside.
//!
//! The mark in the chunks' headers has 32 bits: a program that puts any number of names into a trace may guess it in
//! the end. The seal is behind the mark, and has 128 bits. Older files have none.

use std::io;

use serde::{Deserialize, Serialize};
use zerocopy::FromBytes as _;

use super::format::{SectionHeader, section_kind};
use super::random::random;

/// Random bits that each chunk of a file begins with, expanded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seal(u128);

/// Bytes of the section that holds the seal.
pub const SEALED: usize = size_of::<SectionHeader>() + size_of::<u128>();

/// The JSON in the header of the file.
#[derive(Serialize, Deserialize)]
pub struct Sealed<M> {
    /// The recording's own facts.
    #[serde(flatten)]
    pub metadata: M,
    /// The seal in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seal: Option<String>,
}

impl<M> Sealed<M> {
    /// `metadata` of a file with this seal.
    pub fn new(metadata: M, Seal(bits): Seal) -> Self {
        Self { metadata, seal: Some(format!("{bits:032x}")) }
    }

    /// The seal; none in an older file.
    pub fn seal(&self) -> Option<Seal> {
        u128::from_str_radix(self.seal.as_ref()?, 16).ok().map(Seal)
    }
}

impl Seal {
    /// A seal that nobody can know.
    ///
    /// # Errors
    ///
    /// When the kernel gives no random numbers.
    pub fn new() -> io::Result<Self> {
        random().map(u128::from_le_bytes).map(Self)
    }

    /// The body of the seal's section.
    pub fn to_bytes(self) -> [u8; size_of::<u128>()] {
        self.0.to_le_bytes()
    }

    /// The seal that an expanded chunk begins with; of its bytes, the first [`SEALED`] suffice.
    pub fn of_chunk(raw: &[u8]) -> Option<Self> {
        let (header, rest) = SectionHeader::read_from_prefix(raw).ok()?;
        let bytes = rest.first_chunk().filter(|bytes| header.bytes.get() as usize == bytes.len());
        let bytes = bytes.filter(|_| header.kind.get() == section_kind::SEAL)?;
        Some(Self(u128::from_le_bytes(*bytes)))
    }
}
