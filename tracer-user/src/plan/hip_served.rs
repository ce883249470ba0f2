//! The functions of a HIP library that go through its dispatch tables, by its file: the shim records their calls there.

use std::collections::HashSet;

use tracer_common::{
    hip_functions,
    hip_wrappers::{CODE_BYTES, Code, Getters},
};

use super::Binary;
use crate::discover::Function;

/// The names of such functions.
#[derive(Default)]
pub struct HipServed {
    names: HashSet<String>,
}

impl HipServed {
    /// Finds them among the exported `functions` of a library.
    pub fn of(binary: &Binary, functions: &[Function]) -> Self {
        let code = |address: u64| {
            let read = binary.code(address, CODE_BYTES as u64)?;
            let mut bytes = [0; CODE_BYTES];
            bytes.get_mut(..read.len())?.copy_from_slice(&read);
            Some(Code { address, bytes })
        };
        let exported = |name: &str| {
            let function = functions.iter().find(|function| function.name == name)?;
            code(function.address)
        };
        let getters = Getters::find(exported, code);
        let is_served = |function: &&Function| {
            let slot = hip_functions::slot_of(&function.name);
            slot.is_some_and(|slot| {
                code(function.address).is_some_and(|code| getters.serve(slot, &code))
            })
        };
        let names = functions.iter().filter(is_served).map(|function| function.name.clone());
        Self { names: names.collect() }
    }

    /// Whether a function is one of them.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}
