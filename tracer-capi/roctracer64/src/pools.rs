//! Pools of activity records (3.6): made, closed, flushed; the default pool.

#![expect(unsafe_code, reason = "exports, functions and pointers of the client's")]

use core::ffi::{c_char, c_int, c_void};
use std::ptr;

use roctracer::error::Error;
use roctracer::pool::{Allocator, Consumer, Pool, Properties, system_allocator};
use tracer_common::activity::ActivityRecord;

use crate::answer;
use crate::sources::tracer;

/// `roctracer_allocator_t`. It may throw.
type AllocatorFunction = unsafe extern "C-unwind" fn(*mut *mut c_char, usize, *mut c_void);
/// `roctracer_buffer_callback_t`.
type BufferFunction = unsafe extern "C-unwind" fn(*const c_char, *const c_char, *mut c_void);

/// `roctracer_properties_t`.
#[repr(C)]
struct PoolProperties {
    /// Means nothing.
    mode: u32,
    /// Bytes of each of two buffers.
    buffer_size: usize,
    alloc_fun: Option<AllocatorFunction>,
    alloc_arg: *mut c_void,
    buffer_callback_fun: Option<BufferFunction>,
    buffer_callback_arg: *mut c_void,
}

/// The argument of a client's function, on whichever thread.
struct Argument(*mut c_void);

// SAFETY: the argument is the client's, who has its functions called on other threads.
unsafe impl Send for Argument {}

impl Argument {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

impl PoolProperties {
    fn for_pool(&self) -> Properties {
        let Self { buffer_size, alloc_fun, buffer_callback_fun, .. } = *self;
        let argument = Argument(self.alloc_arg);
        let allocator = alloc_fun.map_or_else(system_allocator, |function| -> Allocator {
            Box::new(move |memory, bytes| {
                let mut memory = memory.cast();
                // SAFETY: the client's allocator, by its protocol.
                unsafe { function(&raw mut memory, bytes, argument.get()) };
                memory.cast()
            })
        });
        let argument = Argument(self.buffer_callback_arg);
        let consumer = move |records: &[ActivityRecord]| {
            // Without a function there is no callback to deliver to.
            if let Some(function) = buffer_callback_fun {
                let std::ops::Range { start, end } = records.as_ptr_range();
                // SAFETY: the client's function, with a buffer of records.
                unsafe { function(start.cast(), end.cast(), argument.get()) };
            }
        };
        Properties {
            buffer_bytes: buffer_size,
            allocator,
            consumer: Box::new(consumer) as Consumer,
        }
    }
}

/// The pool of a handle, none for null.
///
/// # Safety
///
/// Null, or a handle that opening a pool has returned.
pub unsafe fn pool_of(handle: *mut c_void) -> Option<&'static Pool> {
    // SAFETY: a pool lives for ever, also when it was closed.
    unsafe { handle.cast::<Pool>().cast_const().as_ref() }
}

fn handle_of(pool: Option<&'static Pool>) -> *mut c_void {
    pool.map_or(ptr::null_mut(), |pool| ptr::from_ref(pool).cast_mut().cast())
}

/// Makes a pool, and the default pool of it if there is no place for its handle. The client's allocator may
/// throw: nothing has been made then.
///
/// # Safety
///
/// `properties` are valid or null, `place` is valid for a write or null.
unsafe fn open(properties: *const PoolProperties, place: *mut *mut c_void) -> Result<(), Error> {
    // SAFETY: null, or properties, as the caller promises.
    let properties = unsafe { properties.as_ref() }.ok_or(Error::InvalidArgument)?.for_pool();
    if place.is_null() {
        return tracer().open_default_pool(properties);
    }
    let pool = Pool::open(properties)?;
    // SAFETY: valid for writes, as the caller promises.
    unsafe { place.write(handle_of(Some(pool))) };
    Ok(())
}

/// Makes a pool; the default pool if `pool` is null.
///
/// # Safety
///
/// `properties` are valid or null, `pool` is valid for a write or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctracer_open_pool_expl(
    properties: *const PoolProperties,
    pool: *mut *mut c_void,
) -> c_int {
    // SAFETY: as the caller promises.
    answer::of("roctracer_open_pool_expl", unsafe { open(properties, pool) })
}

/// Makes the default pool.
///
/// # Safety
///
/// `properties` are valid or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctracer_open_pool(properties: *const PoolProperties) -> c_int {
    // SAFETY: as the caller promises.
    answer::of("roctracer_open_pool", unsafe { open(properties, ptr::null_mut()) })
}

/// Closes a pool, the default pool if it is null: operations that use it are disabled, and the written records
/// delivered.
///
/// # Safety
///
/// As of [`pool_of`].
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctracer_close_pool_expl(pool: *mut c_void) -> c_int {
    answer::to("roctracer_close_pool_expl", || {
        // SAFETY: as the caller promises.
        tracer().close_pool(unsafe { pool_of(pool) });
        Ok(())
    })
}

/// Closes the default pool, if there is one.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_close_pool() -> c_int {
    answer::to("roctracer_close_pool", || {
        tracer().close_pool(None);
        Ok(())
    })
}

/// Makes a pool the default pool, unless it is null. Returns the one before, or null.
///
/// # Safety
///
/// As of [`pool_of`].
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctracer_default_pool_expl(pool: *mut c_void) -> *mut c_void {
    // SAFETY: as the caller promises.
    handle_of(match unsafe { pool_of(pool) } {
        Some(pool) => tracer().exchange_default_pool(pool),
        None => tracer().default_pool(),
    })
}

/// The default pool, or null.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_default_pool() -> *mut c_void {
    handle_of(tracer().default_pool())
}

/// Delivers the records of a pool, the default pool if it is null, and returns when that is done.
///
/// # Safety
///
/// As of [`pool_of`].
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctracer_flush_activity_expl(pool: *mut c_void) -> c_int {
    answer::to("roctracer_flush_activity_expl", || {
        // SAFETY: as the caller promises.
        tracer().flush(unsafe { pool_of(pool) });
        Ok(())
    })
}

/// As [`roctracer_flush_activity_expl`], for the default pool.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_flush_activity() -> c_int {
    answer::to("roctracer_flush_activity", || {
        tracer().flush(None);
        Ok(())
    })
}

/// Steps to the next record of a buffer.
///
/// # Safety
///
/// `record` is a record of the buffer, `next` valid for a write; or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctracer_next_record(
    record: *const ActivityRecord,
    next: *mut *const ActivityRecord,
) -> c_int {
    answer::to("roctracer_next_record", || {
        if record.is_null() || next.is_null() {
            return Err(Error::InvalidArgument);
        }
        // SAFETY: valid for writes; the next one is in the buffer, or at its end.
        unsafe { next.write(record.add(1)) };
        Ok(())
    })
}
