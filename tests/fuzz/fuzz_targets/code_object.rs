//! The reader of a traced process's GPU code objects.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roctap::outside::fuzz_code_object(bytes));
