//! Names of kernels as people write them.

use std::fmt;

use cpp_demangle::{DemangleNodeType, DemangleOptions, DemangleWrite, ParseOptions, Symbol};

/// Longest name that comes out, bytes.
const MAX_BYTES: usize = 64 << 10;
/// Longest name that is looked at.
const MAX_MANGLED_BYTES: usize = 64 << 10;
/// Parts of a name that are looked at: those that write nothing too.
const MAX_PARTS: usize = 1 << 16;
/// The depth to which parts may be nested. The stack of a thread suffices for it.
const MAX_DEPTH: u32 = 96;

/// The demangled name; none when `mangled` is not mangled. A name can refer to its own parts, so that few bytes become
/// many: a name that becomes too long has none either, since names that were cut could be the same.
pub fn demangle(mangled: &str) -> Option<String> {
    if mangled.len() > MAX_MANGLED_BYTES {
        return None;
    }
    let options = ParseOptions::default().recursion_limit(MAX_DEPTH);
    let symbol = Symbol::new_with_options(mangled.as_bytes(), &options).ok()?;
    let mut name = Bounded { text: String::new(), parts: 0 };
    let options = DemangleOptions::default().recursion_limit(MAX_DEPTH);
    symbol.structured_demangle(&mut name, &options).ok()?;
    Some(name.text)
}

/// A text that refuses to grow beyond the limits.
struct Bounded {
    text: String,
    parts: usize,
}

impl DemangleWrite for Bounded {
    fn push_demangle_node(&mut self, _: DemangleNodeType) {
        self.parts += 1;
    }

    fn write_string(&mut self, part: &str) -> fmt::Result {
        self.parts += 1;
        if self.text.len() + part.len() > MAX_BYTES || self.parts > MAX_PARTS {
            return Err(fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}

/// Demangles whatever `bytes` are: the body of a fuzz target.
///
/// # Panics
///
/// When the name is too long.
pub fn fuzz_demangle(bytes: &[u8]) {
    let name = demangle(&String::from_utf8_lossy(bytes)).unwrap_or_default();
    assert!(name.len() <= MAX_BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `f` of a template whose arguments are pairs of the one before: twice as long with each.
    fn doubling(times: usize) -> String {
        // S_ is P, S0_ P<int, int>, S1_ P<S0_, S0_> and so on.
        let code = |nth: usize| match nth {
            0 => "S_".to_owned(),
            nth => format!("S{}_", char::from_digit(nth as u32 - 1, 36).unwrap().to_uppercase()),
        };
        let mut name = "_Z1f1PIiiE".to_owned();
        for nth in 1..times {
            name += &format!("S_I{0}{0}E", code(nth));
        }
        name
    }

    #[test]
    fn names_are_demangled_when_they_are_mangled() {
        assert_eq!(demangle("_Z3fooILi3EEvPf").as_deref(), Some("void foo<3>(float*)"));
        assert_eq!(demangle("__amd_rocclr_copyBuffer"), None);
        assert_eq!(demangle(""), None);
    }

    #[test]
    fn a_name_that_would_be_huge_stays_as_it_is() {
        let short = demangle(&doubling(3)).unwrap();
        assert_eq!(
            short,
            "f(P<int, int>, P<P<int, int>, P<int, int> >, P<P<P<int, int>, P<int, int> >, P<P<int, int>, P<int, int> > >)"
        );
        let mangled = doubling(24);
        assert!(mangled.len() < 300, "{mangled}");
        assert_eq!(demangle(&mangled), None);
    }

    #[test]
    fn what_is_too_deep_or_too_long_stays_as_it_is() {
        assert_eq!(demangle(&format!("_Z1f{}i", "P".repeat(10_000))), None);
        assert_eq!(demangle(&format!("_Z1f{}", "i".repeat(MAX_MANGLED_BYTES))), None);
    }
}
