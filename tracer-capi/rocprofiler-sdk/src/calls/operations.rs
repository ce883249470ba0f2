//! Functions of the runtimes, as tools know them: by kind and number.

use std::array;
use std::collections::HashMap;
use std::sync::LazyLock;

use capi_common::hip::{Functions, in_tables};
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::{Service, Services};
use tracer_common::slots::{SLOT_COUNT, function};

use crate::{SDK, layout};

/// Kinds whose operations are functions that are recorded here.
const KINDS: [Kind; 5] = [
    Kind::HsaCoreApi,
    Kind::HsaAmdExtApi,
    Kind::HsaImageExtApi,
    Kind::HipRuntimeApi,
    Kind::HipCompilerApi,
];

/// A function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Operation {
    pub kind: Kind,
    pub number: u32,
}

impl Operation {
    /// Whether anybody wants its calls recorded just now.
    pub fn is_wanted(self) -> bool {
        !self.wanting().is_empty()
    }

    /// Whether any tool wants to be told of its calls just now, with their arguments, or is asked for their external ids.
    pub fn has_callback(self) -> bool {
        let services = self.wanting();
        let is_meant = |service: &Service| service.has_callback() || service.has_arguments();
        SDK.each(self.kind, services).any(is_meant) || SDK.asks(self.kind, services)
    }

    fn wanting(self) -> Services {
        SDK.wanting(self.kind, Some(self.number as usize))
    }
}

static BY_NAME: LazyLock<HashMap<&[u8], Operation>> = LazyLock::new(|| {
    let of = |kind: Kind| {
        let names = layout::operations(kind).unwrap_or_default().iter().map(|name| name.as_bytes());
        names.zip(0..).map(move |(name, number)| (name, Operation { kind, number }))
    };
    KINDS.into_iter().flat_map(of).collect()
});

fn of_name(name: &[u8]) -> Option<Operation> {
    BY_NAME.get(in_tables(name)).copied()
}

/// Functions of HSA and of HIP, by place in tables. Those of later releases than the interface's are none of its operations.
pub static OF_TABLES: LazyLock<[Option<Operation>; SLOT_COUNT]> =
    LazyLock::new(|| array::from_fn(|slot| of_name(function(slot).name.as_bytes())));

/// Functions of HIP, by the ids that the runtime that is loaded has for them when it tells of calls: it was found before
/// anybody looks here.
pub static OF_HIP: LazyLock<Vec<Option<Operation>>> = LazyLock::new(|| {
    let functions = Functions::found();
    let of = |op| functions.name(op).and_then(|name| of_name(name.to_bytes()));
    (0..functions.end()).map(of).collect()
});

#[cfg(test)]
mod tests {
    use super::*;
    use tracer_common::hsa_functions::{IMAGE, SLOTS};

    #[test]
    fn functions_of_hsa_have_the_numbers_of_the_interface() {
        let of =
            |name: &str| SLOTS.iter().position(|slot| slot.name == name).map(|at| OF_TABLES[at]);
        let operation = |kind, number| Some(Some(Operation { kind, number }));
        assert_eq!(of("hsa_init"), operation(Kind::HsaCoreApi, 0));
        assert_eq!(of("hsa_amd_enable_logging"), operation(Kind::HsaAmdExtApi, 70));
        assert_eq!(of("hsa_ext_sampler_destroy"), operation(Kind::HsaImageExtApi, 9));
        // Of ROCm 7.
        let later =
            cfg!(feature = "v1").then_some(Operation { kind: Kind::HsaAmdExtApi, number: 71 });
        assert_eq!(of("hsa_amd_signal_wait_all"), Some(later));
        // All of them have a place in the tables.
        for kind in KINDS.into_iter().filter(|kind| kind.name().to_bytes().starts_with(b"HSA")) {
            let known = OF_TABLES.iter().flatten().filter(|operation| operation.kind == kind);
            assert_eq!(known.count(), layout::operations(kind).expect("some").len(), "{kind:?}");
        }
        assert_eq!(IMAGE.len(), 14);
    }

    #[test]
    fn functions_of_hip_have_the_numbers_of_the_interface() {
        let of = |name: &str| of_name(name.as_bytes());
        let runtime = |number| Some(Operation { kind: Kind::HipRuntimeApi, number });
        assert_eq!(of("hipChooseDevice"), runtime(11));
        assert_eq!(of("hipChooseDeviceR0600"), runtime(11));
        assert_eq!(of("hipChooseDeviceR0000"), runtime(12));
        assert_eq!(of("hipGetDevicePropertiesR0600"), runtime(105));
        assert_eq!(of("hipGetDeviceProperties"), runtime(106));
        let compiler = Operation { kind: Kind::HipCompilerApi, number: 1 };
        assert_eq!(of("__hipPushCallConfiguration"), Some(compiler));
        let later = cfg!(feature = "v1").then(|| runtime(474)).flatten();
        assert_eq!(of("hipLaunchKernelExC"), later);
        // Of ROCm 7, and of neither interface.
        assert_eq!(of("hipModuleLoadFatBinary"), None);
    }
}
