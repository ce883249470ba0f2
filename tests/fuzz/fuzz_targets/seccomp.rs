//! The interpreter of a traced process's seccomp filters.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roctap::inject::fuzz_seccomp(bytes));
