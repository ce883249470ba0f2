//! The reader of the rings that a shim writes.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roctap::shim::fuzz_ring(bytes));
