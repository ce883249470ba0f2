//! The reader of the dynamic linker's structures in a traced process.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roctap::inject::fuzz_link_map(bytes));
