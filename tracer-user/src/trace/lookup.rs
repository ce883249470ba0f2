//! The tables of a trace, and the lookups in them that every consumer of a trace needs.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use tracer_common::activity::{kind, op};

use crate::shown::clean;
use tracer_records::commands::{self, rect};
use tracer_records::demangle::demangle;
use tracer_records::model::{Agent, Copy, Dispatch, Kernel, Process, StringId};

/// The name that stands for a kernel whose name is not known.
pub const UNKNOWN_KERNEL: &str = "(unknown kernel)";

/// The direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// Host to device.
    HostToDevice,
    /// Device to host.
    DeviceToHost,
    /// Device to device, or inside one.
    DeviceToDevice,
    /// Host to host.
    HostToHost,
    /// Not a copy: memory of a device was set.
    Fill,
    /// Neither the command nor the agents determine it.
    Unknown,
}

impl Direction {
    /// The name of the direction, for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::HostToDevice => "host to device",
            Self::DeviceToHost => "device to host",
            Self::DeviceToDevice => "device to device",
            Self::HostToHost => "host to host",
            Self::Fill => "fill",
            Self::Unknown => "unknown",
        }
    }
}

/// Everything that events refer to. Written in pieces while recording, merged when read.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tables {
    /// Strings by id.
    pub strings: HashMap<StringId, String>,
    /// Names of API operations: (domain, operation id).
    pub operations: BTreeMap<(u32, u32), StringId>,
    /// Traced processes by id.
    pub processes: BTreeMap<u32, Process>,
    /// Thread names: (process id, thread id).
    pub threads: BTreeMap<(u32, u32), StringId>,
    /// Agents: (process id, node id).
    pub agents: BTreeMap<(u32, u32), Agent>,
    /// Kernels by kernel id.
    pub kernels: BTreeMap<u32, Kernel>,
    /// Losses, summed by (process id or 0, cause). Zero counts are kept: they say "none".
    pub losses: BTreeMap<(u32, String), u64>,
    /// Facts that the user should know: soft failures, limits that were hit.
    pub notices: Vec<String>,
}

impl Tables {
    /// The string of an id, cleaned: names come from the traced program, and are shown in lines and on terminals.
    /// Empty if there is none.
    pub fn text(&self, id: StringId) -> Cow<'_, str> {
        self.strings.get(&id).map_or(Cow::Borrowed(""), |text| clean(text))
    }

    /// The name of an API operation, or its number when the trace has no name.
    pub fn operation(&self, domain: u32, operation: u32) -> Cow<'_, str> {
        match self.operations.get(&(domain, operation)).map(|&id| self.text(id)) {
            Some(name) if !name.is_empty() => name,
            _ => Cow::Owned(format!("operation_{domain}_{operation}")),
        }
    }

    /// The demangled name of a dispatched kernel.
    pub fn kernel_name(&self, dispatch: &Dispatch) -> Cow<'_, str> {
        let demangled = self.text(dispatch.demangled);
        if !demangled.is_empty() {
            return demangled;
        }
        let raw = self.text(dispatch.record.bytes_or_name as StringId);
        if raw.is_empty() {
            return Cow::Borrowed(UNKNOWN_KERNEL);
        }
        demangle(&raw).map_or(raw, Cow::Owned)
    }

    /// The direction of a copy: by its command, else by the types of its agents.
    pub fn direction(&self, copy: &Copy) -> Direction {
        let by_kind = direction_of_kind(copy.record.kind);
        let gpu = |node| self.agents.get(&(copy.process_id, node)).map(|agent| agent.gpu);
        by_kind.unwrap_or_else(|| match (gpu(copy.src_node), gpu(copy.dst_node)) {
            (Some(false), Some(true)) => Direction::HostToDevice,
            (Some(true), Some(false)) => Direction::DeviceToHost,
            (Some(true), Some(true)) => Direction::DeviceToDevice,
            (Some(false), Some(false)) => Direction::HostToHost,
            _ => Direction::Unknown,
        })
    }
}

fn direction_of_kind(command: u32) -> Option<Direction> {
    Some(match command {
        kind::COPY_HOST_TO_DEVICE | rect::HOST_TO_DEVICE => Direction::HostToDevice,
        kind::COPY_DEVICE_TO_HOST | rect::DEVICE_TO_HOST => Direction::DeviceToHost,
        kind::COPY_DEVICE_TO_DEVICE | rect::DEVICE_TO_DEVICE => Direction::DeviceToDevice,
        kind::FILL => Direction::Fill,
        _ => return None,
    })
}

/// ROCclr's name of a command (`hipGetCmdName`), if it is a command of GPU work; for a command that is not known, a
/// name after the operation.
pub fn command_name(operation: u32, command: u32) -> &'static str {
    // 0 is a command of the runtime's own, or was not recorded.
    let named = (command != 0).then(|| commands::name(command)).flatten();
    named.unwrap_or(match operation {
        op::DISPATCH => "KernelExecution",
        op::COPY => "Copy",
        _ => "Barrier",
    })
}
