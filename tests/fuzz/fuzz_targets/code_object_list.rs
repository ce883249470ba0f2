//! The reader of the list of code objects in a traced process, and of their URIs.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roctap::outside::fuzz_code_object_list(bytes));
