//! The bytes of `hip_api_data_t`.

#![expect(unsafe_code, reason = "memory of HIP's, or of the tracer's")]

use core::ffi::c_void;
use std::ptr::NonNull;

use super::table::{Copy, Field};
use crate::memory;

/// A call's data. The code that makes one promises that the data is there.
#[derive(Clone, Copy, Debug)]
pub struct Data(NonNull<u8>);

impl Data {
    /// The data at an address; none if that is null.
    ///
    /// # Safety
    ///
    /// It is a `hip_api_data_t` of the release whose fields it is asked for, as long as this is used; and
    /// nobody else reads or writes it while [`Data::fill`] does.
    pub unsafe fn at(data: *const c_void) -> Option<Self> {
        NonNull::new(data.cast_mut().cast()).map(Self)
    }

    /// The call's correlation id.
    pub fn correlation_id(self) -> u64 {
        u64::from_le_bytes(self.bytes(0))
    }

    /// Whether the call has returned.
    pub fn has_returned(self) -> bool {
        u32::from_le_bytes(self.bytes(8)) == 1
    }

    /// The first bytes of an argument, those behind them being zero.
    pub fn argument(self, field: &Field) -> u64 {
        self.word(field.at, 8)
    }

    /// Copies an argument's bytes.
    pub fn copy(self, at: u16, to: &mut [u8]) {
        // SAFETY: a field of the data's, as is promised in `Data::at`; `to` is the caller's.
        unsafe {
            let field = self.0.add(usize::from(at)).as_ptr();
            field.copy_to_nonoverlapping(to.as_mut_ptr(), to.len());
        }
    }

    /// The first bytes of a field, those behind them being zero.
    pub(super) fn word(self, at: u16, bytes: u16) -> u64 {
        let mut word = [0; 8];
        let bytes = usize::from(bytes).min(word.len());
        // SAFETY: a field of the data's, as is promised in `Data::at`.
        let field = unsafe { self.0.add(usize::from(at)) };
        // SAFETY: as above; `word` is ours.
        unsafe { field.as_ptr().copy_to_nonoverlapping(word.as_mut_ptr(), bytes) };
        u64::from_le_bytes(word)
    }

    pub(super) fn bytes<const N: usize>(self, at: u16) -> [u8; N] {
        // SAFETY: a field of the data's, as is promised in `Data::at`.
        unsafe { self.0.add(usize::from(at)).cast::<[u8; N]>().read_unaligned() }
    }

    /// Copies the values that arguments point at into the data, as `hipApiArgsInit` of HIP's header does: for a call
    /// that has returned. A value that cannot be read becomes 0.
    pub fn fill(self, fields: &[Field]) {
        for field in fields {
            let Some(Copy { at, bytes, .. }) = field.copy else { continue };
            // SAFETY: a field of the data's, which nobody else uses, as is promised in `Data::at`.
            let copy = unsafe {
                std::slice::from_raw_parts_mut(self.0.add(usize::from(at)).as_ptr(), bytes.into())
            };
            let address = self.word(field.at, 8);
            if address == 0 || !memory::copy(address, copy) {
                copy.fill(0);
            }
        }
    }
}
