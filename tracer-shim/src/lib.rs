//! x
#![deny(unsafe_code)]
