//! The planner of probe sites on anything that may be an ELF file.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roctap::plan::fuzz_plan(bytes));
