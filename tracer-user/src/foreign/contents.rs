//! Reading an object file whose every number may be a lie.

use std::{cell::Cell, ffi::CStr, io, ops::Range};

use object::read::{ReadCache, ReadCacheOps, ReadRef};

/// The most that is read of a file at once: its largest table.
const MAX_PIECE_BYTES: u64 = 64 << 20;
/// The most that is read of a file in all.
const MAX_BYTES: u64 = 256 << 20;
/// The most bytes that the names of a file may have in all, including names that share their bytes with others.
const MAX_NAMES_BYTES: u64 = 128 << 20;
/// The least number of bytes that a name counts for: the cost of looking at it.
const NAME_BYTES: u64 = 32;
/// Bytes of a block, and of the longest name.
const BLOCK: u64 = 16 << 10;

/// The bytes of an object file.
pub trait Source {
    /// The number of bytes.
    fn length(&self) -> u64;

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    ///
    /// When not all of it can be read.
    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Source for &[u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let range = start..start.saturating_add(bytes.len());
        bytes.copy_from_slice(self.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// The parts of a [`Source`] that have been read, and the rest that can be.
pub struct Contents<S: Source> {
    cache: ReadCache<LimitedSource<S>>,
    names_left: Cell<u64>,
}

impl<S: Source> Contents<S> {
    /// All of the source.
    pub fn of(source: S) -> Self {
        let length = source.length();
        Self::range(source, 0, length)
    }

    /// `length` bytes from `offset` on, as far as they are there.
    pub fn range(source: S, offset: u64, length: u64) -> Self {
        let length = length.min(source.length().saturating_sub(offset));
        let rest = LimitedSource { source, offset, length, position: 0, left: MAX_BYTES };
        Self { cache: ReadCache::new(rest), names_left: Cell::new(MAX_NAMES_BYTES) }
    }

    /// The view by which `object` reads the contents.
    pub fn view(&self) -> View<'_, S> {
        View(self)
    }
}

/// A source, and the number of bytes that may still be read of it.
struct LimitedSource<S> {
    source: S,
    offset: u64,
    length: u64,
    position: u64,
    left: u64,
}

impl<S: Source> ReadCacheOps for LimitedSource<S> {
    fn len(&mut self) -> Result<u64, ()> {
        Ok(self.length)
    }

    fn seek(&mut self, position: u64) -> Result<u64, ()> {
        self.position = position;
        Ok(position)
    }

    /// Not used: names are read by the block.
    fn read(&mut self, _: &mut [u8]) -> Result<usize, ()> {
        Err(())
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), ()> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(())?;
        let at = self.offset.checked_add(self.position).ok_or(())?;
        self.source.read(bytes, at).map_err(drop)
    }
}

/// A view of [`Contents`], for `object`.
///
/// Names are read by the block: read one by one, each would cost two system calls, and a library has up to some 100,000
/// of them.
pub struct View<'d, S: Source>(&'d Contents<S>);

impl<S: Source> Clone for View<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Source> Copy for View<'_, S> {}

impl<'d, S: Source> ReadRef<'d> for View<'d, S> {
    fn len(self) -> Result<u64, ()> {
        (&self.0.cache).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'d [u8], ()> {
        if size > MAX_PIECE_BYTES {
            return Err(());
        }
        (&self.0.cache).read_bytes_at(offset, size)
    }

    /// Reads names only, which end with NUL. A name that is longer than a block is an error.
    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'d [u8], ()> {
        if delimiter != 0 {
            return Err(());
        }
        let start = range.start - range.start % BLOCK;
        let length = self.len()?.saturating_sub(start);
        for blocks in [1, 2] {
            let block = self.read_bytes_at(start, length.min(blocks * BLOCK))?;
            let end = block.len().min(range.end.saturating_sub(start) as usize);
            let here = block.get((range.start - start) as usize..end).ok_or(())?;
            let here = &here[..here.len().min(BLOCK as usize)];
            let name = CStr::from_bytes_until_nul(here).map(CStr::to_bytes);
            let cost = name.as_ref().map_or(here.len(), |name| name.len()) as u64 + NAME_BYTES;
            let left = &self.0.names_left;
            left.set(left.get().checked_sub(cost).ok_or(())?);
            if let Ok(name) = name {
                return Ok(name);
            }
        }
        Err(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_at_the_ends_of_blocks_and_of_the_file() {
        let mut bytes = vec![b'x'; 3 * BLOCK as usize];
        for at in [BLOCK - 1, BLOCK + 5, 2 * BLOCK + 5] {
            bytes[at as usize] = 0;
        }
        let contents = Contents::of(&bytes[..]);
        let until = |start: u64, end: u64| contents.view().read_bytes_at_until(start..end, 0);
        let end = bytes.len() as u64;
        assert_eq!(until(BLOCK - 3, end).unwrap().len(), 2);
        assert_eq!(until(BLOCK - 1, end).unwrap().len(), 0);
        assert_eq!(until(BLOCK, end).unwrap().len(), 5);
        // Across the border of two blocks.
        assert_eq!(until(2 * BLOCK - 7, end).unwrap().len(), 12);
        // No NUL before the end of the range, or of the file; and an empty range.
        for (start, end) in [(BLOCK, BLOCK + 5), (2 * BLOCK + 6, end), (end, end + 9), (9, 3)] {
            until(start, end).unwrap_err();
        }
        // The longest name, and one that is longer than allowed.
        assert_eq!(until(0, end).unwrap().len() as u64, BLOCK - 1);
        let endless = vec![b'x'; 3 * BLOCK as usize];
        Contents::of(&endless[..]).view().read_bytes_at_until(3..end, 0).unwrap_err();
    }

    /// Zeros without end.
    struct Endless;

    impl Source for Endless {
        fn length(&self) -> u64 {
            u64::MAX
        }

        fn read(&self, bytes: &mut [u8], _: u64) -> io::Result<()> {
            bytes.fill(0);
            Ok(())
        }
    }

    #[test]
    fn no_more_is_read_than_is_allowed() {
        let contents = Contents::of(Endless);
        let read = |nth: u64, bytes| contents.view().read_bytes_at(nth, bytes).map(<[u8]>::len);
        read(0, MAX_PIECE_BYTES + 1).unwrap_err();
        for nth in 0..4 {
            assert_eq!(read(nth, MAX_PIECE_BYTES), Ok(MAX_PIECE_BYTES as usize));
        }
        assert_eq!(read(0, MAX_PIECE_BYTES), Ok(MAX_PIECE_BYTES as usize), "read before");
        read(9, 1).unwrap_err();
        let window = Contents::range(&b"0123456789"[..], 4, 100);
        assert_eq!(window.view().len(), Ok(6));
        assert_eq!(window.view().read_bytes_at(1, 2), Ok(&b"56"[..]));
        window.view().read_bytes_at(1, 6).unwrap_err();
    }

    #[test]
    fn a_name_that_is_read_again_and_again_counts_again() {
        let mut bytes = vec![b'x'; BLOCK as usize];
        bytes[BLOCK as usize - 1] = 0;
        let contents = Contents::of(&bytes[..]);
        let read = || contents.view().read_bytes_at_until(0..BLOCK, 0).is_ok();
        let times = (0..1 << 20).take_while(|_| read()).count() as u64;
        assert_eq!(times, MAX_NAMES_BYTES / (BLOCK - 1 + NAME_BYTES));
    }
}
