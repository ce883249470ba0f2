//! The addresses of a library's functions and tables in a process.

use std::path::{Path, PathBuf};

use super::{
    Slot, binary::Binary, binary::PlanError, process::Loaded, process::ProcessMemory, stub::Stubs,
};
use crate::discover::{ElfError, Function, Image};

/// Why a library could not be found in a process.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// Its file cannot be read.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// Its file cannot be read.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The process does not map it.
    #[error("{}: not mapped as code by the process", .0.display())]
    NotMapped(PathBuf),
}

/// A library as a process has it loaded: addresses in that process.
pub struct Located<'a> {
    process: &'a dyn ProcessMemory,
    binary: Binary,
    bias: u64,
    functions: Vec<Function>,
    variables: Vec<(String, u64)>,
}

impl<'a> Located<'a> {
    /// Finds the library that can be opened at `library` in `process`.
    ///
    /// # Errors
    ///
    /// When the library's file cannot be read, or is not mapped.
    pub fn find(process: &'a dyn ProcessMemory, library: &Path) -> Result<Self, LocateError> {
        let binary = Binary::open(library)?;
        let image = Image::open(library)?;
        let bias = Loaded::find(process, &binary)
            .ok_or_else(|| LocateError::NotMapped(library.to_owned()))?
            .bias();
        let (functions, variables) = (image.functions(|_| true)?, image.variables()?);
        Ok(Self { process, binary, bias, functions, variables })
    }

    /// The address of an exported function.
    pub fn function(&self, name: &str) -> Option<u64> {
        self.exported(name).map(|function| self.bias.wrapping_add(function.address))
    }

    /// The address of an exported variable.
    pub fn variable(&self, name: &str) -> Option<u64> {
        let (_, address) = self.variables.iter().find(|(exported, _)| exported == name)?;
        Some(self.bias.wrapping_add(*address))
    }

    /// The value of an exported 64-bit variable.
    pub fn word(&self, name: &str) -> Option<u64> {
        self.process.word(self.variable(name)?)
    }

    /// The address of the table through which the exported stub `name` passes its calls on, 0 when the process has not
    /// made the table yet; none when the function is no such stub.
    pub fn table_of(&self, name: &str) -> Option<u64> {
        self.process.word(self.stub(name)?.0)
    }

    /// The address of the table's entry through which the exported stub `name` passes its calls on; none when the
    /// function is no such stub.
    pub fn entry_of(&self, name: &str) -> Option<u64> {
        let (pointer, offset) = self.stub(name)?;
        Some(self.process.word(pointer)?.wrapping_add(offset))
    }

    /// Where the stub `name` finds its table's address, and the entry's offset in the table.
    fn stub(&self, name: &str) -> Option<(u64, u64)> {
        match Stubs::new(&self.binary).recognise(self.exported(name)?.address)?.slot {
            Slot::Table { pointer, offset } => Some((self.bias.wrapping_add(pointer), offset)),
            Slot::Variable { .. } => None,
        }
    }

    fn exported(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{discover, plan::LiveProcess};

    #[test]
    fn the_tables_of_the_hsa_runtime_are_found_in_a_process() {
        let installed = discover::candidates(std::ffi::OsStr::new(""));
        let Some(library) = installed.iter().find(|l| l.runtime == discover::Runtime::Hsa) else {
            eprintln!("no HSA runtime is installed: nothing to find");
            return;
        };
        let mut program = std::process::Command::new("sleep");
        let mut child = program.arg("60").env("LD_PRELOAD", &library.path).spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let (process, core) = loop {
            assert!(std::time::Instant::now() < deadline, "the tables do not appear");
            let process = LiveProcess::open(child.id()).unwrap();
            let core = Located::find(&process, &library.open_path)
                .ok()
                .and_then(|l| l.table_of("hsa_init"))
                .filter(|&table| table != 0);
            if let Some(core) = core {
                break (process, core);
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let located = Located::find(&process, &library.open_path).unwrap();
        let amd = located.table_of("hsa_amd_profiling_set_profiler_enabled").unwrap();
        assert_ne!(core, amd);
        assert_eq!(located.table_of("hsa_queue_create"), Some(core));
        // Each begins with its version: major 1, and its size.
        let major = |table| process.word(table).unwrap() as u32;
        assert_eq!([major(core), major(amd)], [1, 1]);
        assert_eq!(located.table_of("no_such_function"), None);
        assert_eq!(located.function("no_such_function"), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
