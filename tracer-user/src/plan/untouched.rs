//! The memory of a process of our own, in which nobody has redirected a table.

use std::{cell::OnceCell, io, path::PathBuf};

use super::{
    binary::{Binary, PlanError},
    process::{Mapping, Process, ProcessMemory},
};
use crate::discover::{Library, Runtime, Scout};

/// A [`Scout`] that is started when it is first looked at. Nothing is mapped in one that cannot be
/// started.
pub struct Untouched {
    library: PathBuf,
    process: OnceCell<Option<(Process, Scout)>>,
}

impl Untouched {
    /// For a library; none where an untouched process tells nothing: the HIP runtime makes its tables
    /// when they are first used.
    pub fn of(library: &Library) -> Option<Self> {
        let path = &library.open_path;
        (library.runtime == Runtime::Hsa)
            .then(|| Self { library: path.clone(), process: OnceCell::new() })
    }

    fn process(&self) -> Option<&Process> {
        let start = || match Scout::start(&self.library) {
            Ok(scout) => Some((Process::open(scout.pid()).ok()?, scout)),
            Err(error) => {
                tracing::info!("{}: not loaded: {error}", self.library.display());
                None
            }
        };
        self.process.get_or_init(start).as_ref().map(|(process, _)| process)
    }
}

impl ProcessMemory for Untouched {
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.process().ok_or(io::ErrorKind::NotFound)?.read(address, buffer)
    }

    fn mappings(&self) -> &[Mapping] {
        self.process().map_or(&[], Process::mappings)
    }

    fn open(&self, mapping: &Mapping) -> Result<Binary, PlanError> {
        match self.process() {
            Some(process) => process.open(mapping),
            None => Err(PlanError::not_found(&self.library)),
        }
    }
}
