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
    /// None, since something is missing.
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

/// What a build says that lacks its programs.
pub fn warning(missing: Missing) -> String {
    format!(
        "roctap is built without its BPF programs and cannot record, for want of {missing}; `cargo xtask build-ebpf` installs it and builds roctap with them"
    )
}

/// Rust source that makes the compiler say `warning` where it is included; nothing where there is none.
///
/// What a build script says comes somewhere in the middle of a build. What the compiler says about the
/// last crate comes at the end. Where `rustflags`, in cargo's form, are about warnings, they may make them
/// errors: then the build script's word must do. So it must for clippy.
pub fn notice(warning: Option<&str>, rustflags: &str) -> String {
    match warning {
        Some(warning) if !rustflags.contains("warnings") => format!(
            "#[cfg(not(clippy))]\n#[deprecated(note = {warning:?})]\nconst BPF_PROGRAMS: () = ();\n#[cfg(not(clippy))]\nconst _: () = BPF_PROGRAMS;\n"
        ),
        _ => String::new(),
    }
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
    fn compiler_repeats_a_warning_unless_that_would_be_an_error() {
        assert!(notice(Some("so `it` is"), "").contains("note = \"so `it` is\""));
        assert_eq!(notice(Some("so it is"), "-D\x1fwarnings"), "");
        assert_eq!(notice(None, ""), "");
    }

    #[test]
    fn warning_is_a_line_that_names_what_is_missing_and_the_command() {
        let warning = warning(Missing::Linker);
        assert!(warning.contains("for want of bpf-linker"));
        assert!(warning.contains("`cargo xtask build-ebpf`"));
        assert!(!warning.contains('\n'));
    }
}
