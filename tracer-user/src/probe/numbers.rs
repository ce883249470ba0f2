//! Numbers by which the BPF programs identify captures and files: a cookie has no room for more.

use std::{cell::RefCell, collections::HashMap, hash::Hash};

use tracer_common::bpf::Capture;

use crate::discover::FileId;

/// The numbers that were given, from 0 on.
#[derive(Default)]
pub struct Numbers {
    captures: RefCell<HashMap<u64, u32>>,
    files: RefCell<HashMap<FileId, u32>>,
}

impl Numbers {
    /// The number of a capture.
    pub fn of_capture(&self, capture: Capture) -> u32 {
        number(&self.captures, capture.to_u64())
    }

    /// The number of a file.
    pub fn of_file(&self, file: FileId) -> u32 {
        number(&self.files, file)
    }
}

fn number<K: Eq + Hash>(given: &RefCell<HashMap<K, u32>>, key: K) -> u32 {
    let mut given = given.borrow_mut();
    let next = given.len() as u32;
    *given.entry(key).or_insert(next)
}
