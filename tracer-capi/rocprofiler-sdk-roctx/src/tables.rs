//! The tables of functions: `roctxCoreApiTable_t`, `roctxControlApiTable_t` and `roctxNameApiTable_t`.

use core::ffi::c_void;
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::own;

/// A table. A library that records puts functions of its own into it, while others are called.
#[repr(C)]
pub struct Table<const FUNCTIONS: usize> {
    /// Bytes of it.
    size: u64,
    functions: [AtomicPtr<c_void>; FUNCTIONS],
}

impl<const FUNCTIONS: usize> Table<FUNCTIONS> {
    const fn new(functions: [AtomicPtr<c_void>; FUNCTIONS]) -> Self {
        Self { size: size_of::<Self>() as u64, functions }
    }

    /// The function at a place now.
    #[inline]
    pub fn function(&self, place: usize) -> *mut c_void {
        // Acquire: what the function needs was made before it was put there.
        self.functions[place].load(Ordering::Acquire)
    }
}

/// Functions in their order, for a table.
macro_rules! table {
    ($($function:path),*) => { Table::new([$(AtomicPtr::new($function as *mut c_void)),*]) };
}

/// Marks and ranges.
pub static CORE: Table<6> =
    table![own::mark, own::push, own::pop, own::start, own::stop, own::thread_id];
/// Pausing and resuming.
pub static CONTROL: Table<2> = table![own::control, own::control];
/// Names.
pub static NAME: Table<4> =
    table![own::name_thread, own::name_agent, own::name_device, own::name_stream];

const _: () = assert!(size_of::<Table<6>>() == 56);
const _: () = assert!(size_of::<Table<2>>() == 24);
const _: () = assert!(size_of::<Table<4>>() == 40);
