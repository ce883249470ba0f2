//! Names of kernels: the symbol as people write it, and the bare name.

use std::collections::HashMap;
use std::ffi::CStr;

use tracer_records::demangle::demangle;
use tracer_text::clean;
use tracer_text::names::{operation_name, truncate_name};

/// Kernels whose names are kept: a program has fewer.
const MOST_KEPT: usize = 16 << 10;

/// The names of a kernel.
pub struct Names {
    /// All of it: `void ns::k<float>(float*)`.
    pub whole: String,
    /// As work of a GPU has it: `k`, never empty.
    pub operation: String,
}

impl Names {
    fn of(symbol: &CStr) -> Self {
        let symbol = symbol.to_string_lossy();
        let whole = demangle(&symbol).unwrap_or_else(|| symbol.into_owned());
        let whole = clean(&whole).into_owned();
        let operation = operation_name(&whole);
        Self { whole, operation }
    }

    /// As a call that launches it has it.
    pub fn of_call(&self, is_truncated: bool) -> &str {
        if is_truncated { truncate_name(&self.whole) } else { &self.whole }
    }
}

/// Those that were asked for.
#[derive(Default)]
pub struct Kernels(HashMap<Box<CStr>, Names>);

impl Kernels {
    /// The names of a symbol.
    pub fn names(&mut self, symbol: &CStr) -> &Names {
        if self.0.len() == MOST_KEPT && !self.0.contains_key(symbol) {
            self.0.clear();
        }
        self.0.entry(symbol.into()).or_insert_with(|| Names::of(symbol))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_demangled() {
        let mut kernels = Kernels::default();
        let names = kernels.names(c"_Z3fooILi3EEvPf");
        assert_eq!((&*names.whole, &*names.operation), ("void foo<3>(float*)", "foo"));
        assert_eq!([true, false].map(|cut| names.of_call(cut)), ["foo", "void foo<3>(float*)"]);
        let names = kernels.names(c"a\nb:");
        assert_eq!((&*names.whole, &*names.operation), ("a\\nb:", "a\\nb_"));
    }

    #[test]
    fn a_program_with_names_without_end_takes_no_memory_without_end() {
        let mut kernels = Kernels::default();
        for nth in 0..MOST_KEPT + 10 {
            let symbol = std::ffi::CString::new(format!("k{nth}")).unwrap();
            assert_eq!(kernels.names(&symbol).operation, format!("k{nth}"));
        }
        assert!(kernels.0.len() <= MOST_KEPT);
    }
}
