//! The names that libraries have for themselves (`DT_SONAME`), whatever their files are called.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use super::{elf::Image, planned::PlannedFile};
use crate::foreign::Map;

/// The most files whose names are kept; a process maps some hundred. If there are more, all are read again.
const MOST_KEPT: usize = 4 << 10;
/// The most bytes of a name: those of a file's name.
const MAX_NAME: usize = 255;

/// A file, as the list of mappings tells it: reading that is cheap, and looking at the file is not.
type Key = ((u32, u32), u64, PathBuf);

/// The names of the files that were looked at.
static KEPT: Mutex<BTreeMap<Key, Option<String>>> = Mutex::new(BTreeMap::new());

/// The name of the library that is mapped there, whose file `open` opens; none if it is no library, has no name, or cannot
/// be read.
pub(super) fn of(map: &Map<'_>, open: impl FnOnce() -> Option<PlannedFile>) -> Option<String> {
    let key = (map.device, map.inode, map.path?.to_owned());
    // Not while the file is read, which can take long.
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept().get(&key) {
        return known.clone();
    }
    let links = Image::open(&open()?.path()).and_then(|image| image.links());
    let soname = links.ok().and_then(|links| links.soname).filter(|name| name.len() <= MAX_NAME);
    let mut kept = kept();
    if kept.len() >= MOST_KEPT {
        kept.clear();
    }
    kept.insert(key, soname.clone());
    soname
}
