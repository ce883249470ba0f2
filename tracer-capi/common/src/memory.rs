//! Memory that arguments point at. A call may have failed because of one that leads nowhere.

use tracer_hooks::sys;

/// Longest string that is read.
const MOST_BYTES: usize = 1024;
/// A string is read in pieces that no page's end cuts.
const PIECE: usize = 64;

/// Copies what is at `address`, if all of it can be read; at most a page.
///
/// It is for arguments of a call that the thread is in, or has just made: nobody gives that memory back
/// meanwhile.
#[must_use]
pub fn copy(address: u64, to: &mut [u8]) -> bool {
    let Ok(address) = usize::try_from(address) else { return false };
    if !is_readable(address, to.len()) {
        return false;
    }
    #[expect(unsafe_code, reason = "memory of the program's")]
    // SAFETY: it can be read, and stays so, as is said above.
    unsafe {
        std::ptr::with_exposed_provenance::<u8>(address)
            .copy_to_nonoverlapping(to.as_mut_ptr(), to.len());
    }
    true
}

/// The string at `address`, cut where it is long; none if it cannot be read.
pub fn string(address: u64) -> Option<String> {
    let mut bytes = Vec::new();
    while bytes.len() < MOST_BYTES {
        let at = address.checked_add(bytes.len() as u64)?;
        let piece = PIECE - at as usize % PIECE;
        let mut read = [0; PIECE];
        let read = read.get_mut(..piece)?;
        if !copy(at, read) {
            return None;
        }
        let end = read.iter().position(|&byte| byte == 0);
        bytes.extend_from_slice(read.get(..end.unwrap_or(piece))?);
        if end.is_some() {
            return Some(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    bytes.truncate(MOST_BYTES);
    Some(String::from_utf8_lossy(&bytes).into_owned() + "…")
}

/// Whether bytes can be read. The kernel is asked for whole words, which no page's end cuts.
fn is_readable(address: usize, bytes: usize) -> bool {
    const WORD: usize = size_of::<usize>();
    let first = address - address % WORD;
    let Some(end) = address.checked_add(bytes) else { return false };
    let Some(end) = end.checked_next_multiple_of(WORD) else { return false };
    bytes == 0 || sys::is_readable(first, end - first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_is_copied() {
        let bytes = *b"0123456789";
        let at = bytes.as_ptr().expose_provenance() as u64;
        let mut read = [0; 5];
        assert!(copy(at + 3, &mut read));
        assert_eq!(&read, b"34567");
        for nowhere in [0, 8, 4096, u64::MAX - 2, 1 << 63] {
            assert!(!copy(nowhere, &mut read), "{nowhere:#x}");
            assert_eq!(string(nowhere), None);
        }
    }

    #[test]
    fn strings_end_at_their_end_and_long_ones_are_cut() {
        let at = |text: &[u8]| text.as_ptr().expose_provenance() as u64;
        let long = vec![b'a'; 5000];
        assert_eq!(string(at(b"module.co\0")).as_deref(), Some("module.co"));
        assert_eq!(string(at(b"\0")).as_deref(), Some(""));
        assert_eq!(string(at(b"\xff\0")).as_deref(), Some("\u{fffd}"));
        assert_eq!(string(at(&long)), Some("a".repeat(MOST_BYTES) + "…"));
    }
}
