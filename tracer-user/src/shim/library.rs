//! The shim's library file, and the environment that makes a new process load it.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use tracer_common::shim::{DISPATCH_CODE, DISPATCH_SITE, MEMORY_ENV};

use crate::{
    discover::{ElfError, Function, Image, SHIM_FILE_NAME},
    files,
    plan::{KernelVersion, dispatch_site},
    privileges,
};

/// The HSA runtime's list of tool libraries, separated by spaces.
const TOOLS_ENV: &str = "HSA_TOOLS_LIB";
/// Without it, an HSA runtime that was built with rocprofiler-register ignores [`TOOLS_ENV`].
const V1_TOOLS_ENV: &str = "HSA_TOOLS_ROCPROFILER_V1_TOOLS";
/// The variable that names another shim file.
const SHIM_ENV: &str = "ROCTAP_SHIM";

/// Why the shim cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// It is at none of its places.
    #[error(
        "{SHIM_FILE_NAME} not found beside {roctap}, in lib beside it, or in ../lib/roctap; {SHIM_ENV} can name it; without it there are no GPU times (--gpu off)"
    )]
    NotFound {
        /// This program.
        roctap: PathBuf,
    },
    /// Its path cannot stand in a list separated by spaces.
    #[error(
        "{path}: {TOOLS_ENV} is a list separated by spaces, so the shim's path must not have one"
    )]
    Space {
        /// The path.
        path: PathBuf,
    },
    /// It is not a shim.
    #[error("{path}: has no function {DISPATCH_SITE} as it should be: not the shim of this roctap")]
    NotAShim {
        /// The path.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error(transparent)]
    Elf(#[from] ElfError),
}

/// The place of the probe at the dispatch site of the shim at `path`: an offset in the file. None if the file has no
/// such site, or another one.
///
/// # Errors
///
/// When the file is not a readable library.
pub fn dispatch_site_in(path: &Path) -> Result<Option<u64>, ElfError> {
    let image = Image::open(path)?;
    let functions = image.functions(|name| name == DISPATCH_SITE)?;
    let as_it_should_be = |function: &&Function| {
        image.code(function).is_some_and(|code| code.starts_with(&DISPATCH_CODE))
    };
    let Some(site) = functions.iter().find(as_it_should_be) else { return Ok(None) };
    let kernel = KernelVersion::running().unwrap_or(KernelVersion::EMULATES_PUSH);
    Ok(Some(site.file_offset + dispatch_site(site.file_offset % 4096, kernel).0))
}

/// The file that a variable of the environment names, unless the environment is that of a user with fewer rights than
/// roctap, or the file is another user's.
fn trusted(variable: &str) -> Option<PathBuf> {
    let path = Path::new(&std::env::var_os(variable)?).canonicalize().ok()?;
    let distrust = match privileges::exceed_the_callers() {
        true => Some("roctap has more rights than whoever started it".to_owned()),
        false => files::distrust(&path),
    };
    if let Some(why) = &distrust {
        tracing::warn!("{variable}={} is ignored: {why}", path.display());
    }
    distrust.is_none().then_some(path)
}

/// A library of roctap's: where `variable` says, beside this program, or where libraries are installed.
pub fn file_of_ours(name: &str, variable: &str) -> Option<PathBuf> {
    let roctap = std::env::current_exe().unwrap_or_default();
    let directory = roctap.parent().unwrap_or(Path::new("."));
    let places =
        ["", "lib", "../lib", "../lib/roctap"].map(|place| directory.join(place).join(name));
    trusted(variable).into_iter().chain(places).find_map(|place| place.canonicalize().ok())
}

/// The shim's library.
#[derive(Clone, Debug)]
pub struct Shim {
    /// Where it is.
    pub path: PathBuf,
    /// The place of the probe at its dispatch site: an offset in the file.
    pub site_offset: u64,
}

impl Shim {
    /// Finds the shim: where `ROCTAP_SHIM` says, beside this program, or in `../lib/roctap`.
    ///
    /// # Errors
    ///
    /// When the shim is not there or not usable.
    pub fn find() -> Result<Self, ShimError> {
        let roctap = std::env::current_exe().unwrap_or_default();
        let path = file_of_ours(SHIM_FILE_NAME, SHIM_ENV).ok_or(ShimError::NotFound { roctap })?;
        if path.to_string_lossy().contains(' ') {
            return Err(ShimError::Space { path });
        }
        match dispatch_site_in(&path)? {
            Some(site_offset) => Ok(Self { path, site_offset }),
            None => Err(ShimError::NotAShim { path }),
        }
    }

    /// The environment that makes a process and its children load the shim and find the memories, by their paths.
    /// Libraries that `HSA_TOOLS_LIB` named already stay, behind the shim.
    pub fn environment(&self, memories: &[OsString]) -> [(&'static str, OsString); 3] {
        let mut tools = self.path.clone().into_os_string();
        if let Some(others) = std::env::var_os(TOOLS_ENV).filter(|v| !v.is_empty()) {
            tools.push(" ");
            tools.push(others);
        }
        let memories = memories.join(OsStr::new(":"));
        [(TOOLS_ENV, tools), (MEMORY_ENV, memories), (V1_TOOLS_ENV, "1".into())]
    }
}
