//! Bits that nobody can guess.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Random bits of the kernel's.
///
/// # Errors
///
/// When the kernel gives none (a seccomp filter).
pub fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    match getrandom(&mut bytes, GetRandomFlags::empty())? {
        // The kernel gives up to 256 bytes at once.
        filled if filled == BYTES => Ok(bytes),
        _ => Err(io::Error::other("too few random numbers")),
    }
}
