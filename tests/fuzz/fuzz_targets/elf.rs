//! The reader of a library's symbols.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roctap::discover::fuzz_elf(bytes));
