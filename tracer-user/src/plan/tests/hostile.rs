//! Inputs that are made to break the planner.

use std::sync::LazyLock;

use proptest::{prelude::*, sample::Index};

use super::{
    super::fuzz_plan,
    image::{Part, library},
};

/// A whole small library; the head of the test's own executable would do, but has no code in it.
static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let stub = [0x48, 0x8b, 0x05, 0x39, 0xa0, 0, 0, 0xff, 0xa0, 0x38, 1, 0, 0];
    let body = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x74, 0xf9, 0xff, 0xe0, 0x5d, 0xc3];
    let frame = [0x45, 0x0e, 16, 0x43, 0x0d, 6, 0x46, 0x0c, 7, 8];
    library(&[Part::new(&stub), Part::framed(&body, &frame), Part::new(&body)], &[0; 64]).0
});

/// A small shared library of this machine.
static REAL: LazyLock<Option<Vec<u8>>> = LazyLock::new(|| {
    let maps = procfs::process::Process::myself().ok()?.maps().ok()?;
    maps.into_iter().find_map(|map| {
        let procfs::process::MMapPath::Path(path) = map.pathname else { return None };
        path.to_string_lossy().contains("libgcc_s.so").then(|| std::fs::read(path).ok())?
    })
});

#[test]
fn whole_files_are_planned() {
    fuzz_plan(&LIBRARY);
    fuzz_plan(&std::fs::read(std::env::current_exe().unwrap()).unwrap());
    if let Some(real) = REAL.as_ref() {
        fuzz_plan(real);
    }
}

fn corrupted(mut bytes: Vec<u8>, changes: &[(Index, u8)], end: Option<Index>) -> Vec<u8> {
    for (at, byte) in changes {
        let at = at.index(bytes.len());
        bytes[at] = *byte;
    }
    if let Some(end) = end {
        bytes.truncate(end.index(bytes.len()));
    }
    bytes
}

fn changes() -> impl Strategy<Value = Vec<(Index, u8)>> {
    prop::collection::vec(any::<(Index, u8)>(), 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        fuzz_plan(&bytes);
    }

    /// Headers, code and tables changed where it hurts: the first 0x170 bytes are the headers,
    /// 0x1000 is code, 0x8000 are the tables.
    #[test]
    fn damaged_copies(
        at in prop::collection::vec(
            (prop_oneof![0..0x170usize, 0x1000..0x1030usize, 0x8000..0x8080usize], any::<u8>()),
            1..12,
        ),
        end in prop::option::weighted(0.1, any::<Index>()),
    ) {
        let mut bytes = LIBRARY.clone();
        for (at, byte) in at {
            bytes[at] = byte;
        }
        fuzz_plan(&corrupted(bytes, &[], end));
    }

    #[test]
    fn damaged_copies_of_a_real_library(
        changes in changes(),
        head in prop::collection::vec((64..0x300usize, any::<u8>()), 0..3),
        end in prop::option::weighted(0.2, any::<Index>()),
    ) {
        let Some(real) = REAL.as_ref() else { return Ok(()) };
        let mut bytes = real.clone();
        for (at, byte) in head {
            bytes[at] = byte;
        }
        fuzz_plan(&corrupted(bytes, &changes, end));
    }
}
