//! The reader of trace files.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roctap::trace::fuzz_reader(bytes));
