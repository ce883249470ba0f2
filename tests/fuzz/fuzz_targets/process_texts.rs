//! The readers of what `/proc` tells of a traced process.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roctap::inject::fuzz_process_texts(bytes));
