//! The `roctap` program.
fn main() {}
