//! The names of kernels.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tracer_records::demangle::fuzz_demangle(bytes));
