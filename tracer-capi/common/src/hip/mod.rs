//! `hip_api_data_t`: a correlation id, a phase, and the arguments of a function.
//!
//! HIP's header defines the arguments, under names that are not always those of the function's prototype.
//! `generated.rs` has them, written by `cargo xtask gen-api`: where a function's arguments are the same in
//! several releases, once; of a release that is not known for sure, none.

mod data;
#[rustfmt::skip]
mod generated;
mod runtime;
mod table;
mod text;

pub use data::Data;
pub use runtime::{Functions, LIBRARY, MOST_FUNCTIONS};
pub use table::{Copy, Field, Function, Kind};
pub use text::arguments;

/// The release of HIP that is loaded, as far as `hip_api_data_t` tells it apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// ROCm before 5.3.1.
    First,
    /// From there to 5.7.
    Five,
    /// ROCm 6 and 7.
    Later,
}

impl Release {
    /// The release whose library exports these functions.
    pub fn of(exports: impl Fn(&std::ffi::CStr) -> bool) -> Self {
        if !exports(c"hipRegisterTracerCallback") {
            Self::First
        } else if !exports(c"hipGetDevicePropertiesR0600") {
            Self::Five
        } else {
            Self::Later
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::First => table::FIRST,
            Self::Five => table::FIVE,
            Self::Later => table::LATER,
        }
    }
}

/// Functions that HIP 6 and 7 call otherwise, where they tell of calls, than in their tables. R0600 has the
/// `hipDeviceProp_t` of ROCm 6 on, R0000 the one before.
const RENAMED: [(&[u8], &[u8]); 2] = [
    (b"hipGetDeviceProperties", b"hipGetDevicePropertiesR0000"),
    (b"hipChooseDeviceR0600", b"hipChooseDevice"),
];

/// The name in the tables of a function by that under which HIP tells of it.
pub fn in_tables(name: &[u8]) -> &[u8] {
    RENAMED.iter().find(|(reported, _)| *reported == name).map_or(name, |&(_, in_tables)| in_tables)
}

/// Whether a function makes or launches a graph that can be launched. HIP 7.2 has programs that do so crash while any tracer
/// is registered with it.
pub fn uses_graphs(function: &str) -> bool {
    ["hipGraphInstantiate", "hipGraphLaunch"].iter().any(|begin| function.starts_with(begin))
}

/// The arguments of a function in a release; none if it has none, or they are not known.
pub fn fields(function: &str, release: Release) -> &'static [Field] {
    let all = &generated::FUNCTIONS;
    let first = all.partition_point(|entry| entry.name < function);
    let mut entries = all.iter().skip(first).take_while(|entry| entry.name == function);
    entries.find(|entry| entry.releases & release.bit() != 0).map_or(&[], |entry| entry.fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_in_bounds() {
        assert!(generated::FUNCTIONS.is_sorted_by(|a, b| a.name <= b.name));
        for pair in generated::FUNCTIONS.windows(2) {
            let both = pair[0].releases & pair[1].releases;
            assert!(pair[0].name != pair[1].name || both == 0, "{}", pair[0].name);
        }
        for function in &generated::FUNCTIONS {
            for field in function.fields {
                assert!(field.at >= 16 && field.at.is_multiple_of(4) || field.at > 16, "{field:?}");
            }
        }
    }

    #[test]
    fn releases_are_told_apart_by_what_they_export() {
        let of = |exported: &[&std::ffi::CStr]| Release::of(|name| exported.contains(&name));
        assert_eq!(of(&[]), Release::First);
        assert_eq!(of(&[c"hipRegisterTracerCallback"]), Release::Five);
        let later = [c"hipRegisterTracerCallback", c"hipGetDevicePropertiesR0600"];
        assert_eq!(of(&later), Release::Later);
    }

    #[test]
    fn arguments_are_those_of_the_release() {
        let names = |function, release| -> Vec<&str> {
            fields(function, release).iter().map(|field| field.name).collect()
        };
        for release in [Release::First, Release::Later] {
            assert_eq!(names("hipMalloc", release), ["ptr", "size"]);
        }
        assert!(names("hipDeviceSynchronize", Release::First).is_empty());
        // An array was passed by its address, and is passed by its handle since ROCm 6.
        let is_copied = |release| fields("hipFreeArray", release)[0].copy.is_some();
        assert!(is_copied(Release::First) && !is_copied(Release::Later));
    }
}
