//! The planner's entry for fuzzing.

use std::{collections::BTreeMap, io, path::Path};

use object::{Object as _, ObjectSymbol as _};

use super::{
    Binary, Identity, KernelVersion, MappedFile, Mapping, Planner, ProcessMemory, ReachedBy,
    getter::LazyTable, symbolic::LoadedMemory,
};
use crate::discover::Function;

/// The most bytes of one read: no process has more than this mapped in one piece.
const MAX_READ_BYTES: usize = 1 << 20;
/// The most functions that are planned of one input.
const MAX_FUNCTIONS: usize = 64;
/// The most getters among these.
const MAX_GETTERS: usize = 8;

const IDENTITY: Identity = Identity { device_major: 0, device_minor: 1, inode: 1 };

/// A process of a fuzz target: it maps the input as it is, and its memory holds the input's bytes everywhere.
pub struct Echo<'a> {
    bytes: &'a [u8],
    mappings: Vec<Mapping>,
}

impl<'a> Echo<'a> {
    /// A process with nothing mapped.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, mappings: Vec::new() }
    }
}

impl ProcessMemory for Echo<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        if self.bytes.is_empty() || buffer.len() > MAX_READ_BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (index, byte) in buffer.iter_mut().enumerate() {
            let at = address.wrapping_add(index as u64) % self.bytes.len() as u64;
            *byte = self.bytes[at as usize];
        }
        Ok(())
    }

    fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }
}

/// Reads code at these places as if it were a getter, which a random library hardly has: every function of `functions`
/// leaves its table's address in a variable.
fn make_tables(binary: &Binary, functions: &[Function]) {
    let Some(variables) = binary.segments().iter().find(|s| s.writable) else { return };
    let loaded = LoadedMemory::new(binary, BTreeMap::new());
    for function in functions.iter().take(MAX_GETTERS) {
        if let Some(made) = LazyTable::at_first_call(&loaded, function.address, variables.address) {
            made.entry(&loaded, 0);
        }
    }
}

/// Plans arbitrary `bytes`, as a library and as a process's memory: never panics, and never answers with a site outside
/// the file.
///
/// # Panics
///
/// When the planner breaks that promise.
pub fn fuzz_plan(bytes: &[u8]) {
    let path = Path::new("input");
    let Ok(binary) = Binary::from_bytes(bytes.to_vec(), path, Some(IDENTITY)) else { return };
    let mut functions: Vec<Function> = object::File::parse(bytes)
        .map(|elf| {
            let symbols = elf.symbols().chain(elf.dynamic_symbols());
            symbols.take(MAX_FUNCTIONS).map(|s| function(s.address(), s.size())).collect()
        })
        .unwrap_or_default();
    for segment in binary.segments().iter().filter(|s| s.executable) {
        let offsets = [0, 1, segment.file_size / 2, segment.file_size.wrapping_sub(1)];
        functions.extend(offsets.map(|o| function(segment.address.wrapping_add(o), o)));
    }
    make_tables(&binary, &functions);
    let mappings = binary
        .segments()
        .iter()
        .map(|segment| Mapping {
            start: segment.address & !0xfff,
            end: segment.address.saturating_add(segment.file_size),
            file_offset: segment.offset & !0xfff,
            executable: segment.executable,
            file: Some(MappedFile { path: path.to_owned(), identity: IDENTITY }),
        })
        .collect();
    let process = Echo { bytes, mappings };
    for kernel in [KernelVersion::new(4, 0), KernelVersion::new(6, 18), KernelVersion::new(6, 19)] {
        let planner = Planner::new(kernel);
        for process in [None, Some(&process as &dyn ProcessMemory)] {
            for plan in planner.plan_library(&binary, &functions, process) {
                let entry = match plan.reached {
                    ReachedBy::Implementation { file_offset, .. } => file_offset,
                    _ => 0,
                };
                let inside = plan.site.is_none_or(|site| {
                    site.file_offset < bytes.len() as u64 && site.file_offset >= entry
                });
                assert!(inside, "a site outside the file");
            }
        }
    }
}

fn function(address: u64, size: u64) -> Function {
    Function { name: format!("at_{address:x}"), address, size, file_offset: address }
}
