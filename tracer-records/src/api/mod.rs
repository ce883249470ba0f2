//! The API functions that roctap can trace, and the meaning of the words that were captured of a call.
//!
//! * `generated.rs`: names, ids, argument and result types, from ROCm's headers. Written by
//!   `cargo xtask gen-api`, checked in.
//! * [`capture`]: the words of a call that are captured, by probes or by the shim. By hand are only the functions with
//!   output values and those with callbacks, which must not get a return probe; all else, stack arguments too, comes
//!   from `generated.rs`.
//! * `roctx.rs`: the five functions of roctx, by hand.
//! * [`format_args`], [`format_return`]: a call as text; [`argument`], [`output`]: its parts.
//! * [`outcome`]: whether it failed.
//! * [`launch`], [`stream`]: the parts of a call that the rest of roctap computes with.
//!
//! It knows nothing of libraries on disk or of probes: symbols are resolved elsewhere.
//!
//! Captured words come as an [`ApiRecord`](tracer_common::bpf::ApiRecord) has them: `args`, `extra`
//! and the header's `flags`. Nothing in them is trusted: any words and flags give some text.

pub mod capture;
mod format;
#[rustfmt::skip]
mod generated;
mod launch;
mod outcome;
mod roctx;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::LazyLock;

use tracer_common::activity::Domain;

pub use capture::{captured, is_called_by_shim, shim_call};
pub use format::{argument, format_args, format_return, output};
pub use launch::{Launch, launch, stream};
pub use outcome::{Outcome, outcome};
pub use table::{Argument, ArgumentPlace, Enumeration, Kind, Operation, Type};

/// Finds a function by its name, or by its symbol where that differs (C++ linkage).
pub fn by_name(name: &str) -> Option<&'static Operation> {
    static INDEX: LazyLock<HashMap<&str, &Operation>> = LazyLock::new(|| {
        let symbols = operations().filter_map(|op| Some((op.symbol?, op)));
        let roctx = roctx::OPERATIONS.iter();
        symbols.chain(operations().chain(roctx).map(|op| (op.name, op))).collect()
    });
    INDEX.get(name).copied()
}

/// Whether a function of HIP is one that the compiler calls, not the programmer: HIP's compiler API, as
/// ROCprofiler-SDK divides it.
pub fn is_called_by_compiler(name: &str) -> bool {
    name.starts_with("__hip")
}

/// Finds a function by its id.
pub fn by_id(domain: Domain, id: u16) -> Option<&'static Operation> {
    if domain == Domain::ROCTX {
        return roctx::OPERATIONS.get(usize::from(id));
    }
    let table = &generated::OPERATIONS;
    let index = table.binary_search_by_key(&(domain, id), |op| (op.domain, op.id)).ok()?;
    table.get(index)
}

/// All functions of HIP and HSA, by domain and id.
pub fn operations() -> impl Iterator<Item = &'static Operation> {
    generated::OPERATIONS.iter()
}
