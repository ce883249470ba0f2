//! Which programs a build of `roctap` gets.

use std::{ffi::OsString, path::PathBuf};

use crate::toolchain::{Missing, Toolchain};

/// The programs of a build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Programs {
    /// Those of this file.
    Given(PathBuf),
    /// None, on purpose.
    LeftOut,
    /// Those that are compiled now.
    Compiled(Toolchain),
    /// Those that would be compiled if nothing were missing: the build fails.
    Missing(Missing),
}

/// Decides by `ROCTAP_BPF_OBJECT`, which names a file or, empty, asks for none; else by cargo's
/// `PROFILE`. Only release builds have the programs: compiling them takes as long as a whole
/// `cargo check`, and unit tests do not run them.
pub fn decide(
    object: Option<OsString>,
    profile: &str,
    toolchain: impl FnOnce() -> Result<Toolchain, Missing>,
) -> Programs {
    match object {
        Some(none) if none.is_empty() => Programs::LeftOut,
        Some(path) => Programs::Given(path.into()),
        None if profile != "release" => Programs::LeftOut,
        None => toolchain().map_or_else(Programs::Missing, Programs::Compiled),
    }
}

/// What a build says that cannot compile the programs, as it fails.
pub fn refusal(missing: Missing) -> String {
    format!(
        "roctap's BPF programs cannot be compiled, for want of {missing}: `cargo xtask build-ebpf` installs it and builds roctap (ROCTAP_BPF_OBJECT= builds a roctap without them, which reads traces and cannot record)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there() -> Result<Toolchain, Missing> {
        Ok(Toolchain { linker: "bpf-linker".into() })
    }

    fn nobody_looks() -> Result<Toolchain, Missing> {
        panic!("looked for a toolchain")
    }

    #[test]
    fn release_compiles() {
        let compiled = Programs::Compiled(there().unwrap());
        assert_eq!(decide(None, "release", there), compiled);
    }

    #[test]
    fn release_without_toolchain_says_what_is_missing() {
        for missing in [Missing::RustSource, Missing::Linker] {
            let decided = decide(None, "release", || Err(missing));
            assert_eq!(decided, Programs::Missing(missing));
        }
    }

    #[test]
    fn debug_has_none_and_does_not_look() {
        assert_eq!(decide(None, "debug", nobody_looks), Programs::LeftOut);
    }

    #[test]
    fn variable_decides_in_every_profile() {
        for profile in ["debug", "release"] {
            let given = decide(Some("an.o".into()), profile, nobody_looks);
            assert_eq!(given, Programs::Given("an.o".into()));
            assert_eq!(decide(Some("".into()), profile, nobody_looks), Programs::LeftOut);
        }
    }

    #[test]
    fn refusal_is_a_line_that_names_what_is_missing_and_the_command() {
        let refusal = refusal(Missing::Linker);
        assert!(refusal.contains("for want of bpf-linker: `cargo xtask build-ebpf` installs it"));
        assert!(refusal.contains("ROCTAP_BPF_OBJECT= "));
        assert!(!refusal.contains('\n'));
    }
}
