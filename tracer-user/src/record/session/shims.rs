//! The shims' side of a recording: the shared memories that they write to.

use std::{ffi::OsString, os::fd::OwnedFd};

use anyhow::Context as _;
use tracer_common::{
    bpf::flag,
    calls::{FIRST_ID, ID_BITS},
    shim::Layout,
};

use super::recorder::Recorder;
use crate::{
    record::{
        connection::Connection,
        options::{Gpu, Options},
        select::Selection,
    },
    shim::{Frame, Memory, MemoryError, Relief, Shim},
    trace::TraceError,
};

/// The shims of all processes.
pub struct Shims {
    /// Which GPU times are asked for.
    gpu: Gpu,
    /// The library, if processes may have it.
    shim: Option<Shim>,
    layout: Layout,
    /// The calls that they are to record, by slot.
    wanted: Vec<u64>,
    connections: Vec<Connection>,
    relief: Relief,
}

impl Shims {
    /// The memories that a command finds in its environment, if one is started.
    pub fn open(
        options: &Options,
        shim: Option<Shim>,
        selection: &Selection,
    ) -> anyhow::Result<Self> {
        let layout = Layout { ring_bytes: options.shim_ring_bytes as usize, ..Layout::DEFAULT };
        let by_environment = shim.is_some() && !options.command.is_empty();
        let memories = if by_environment { options.processes } else { 0 };
        let wanted = selection.shim_calls();
        let relief = Relief::start().context("starting the thread that reads the shims' rings")?;
        let connections = (0..memories)
            .map(|index| {
                let memory = Memory::create(layout)?;
                memory.want_calls(&wanted, first_call_id(index as usize));
                Ok(Connection::open(memory, &relief))
            })
            .collect::<Result<_, MemoryError>>()?;
        let shims = Self { gpu: options.gpu, shim, layout, wanted, connections, relief };
        shims.beat();
        Ok(shims)
    }

    /// Which GPU times are asked for.
    pub fn gpu(&self) -> Gpu {
        self.gpu
    }

    /// The library, if processes may have it.
    pub fn shim(&self) -> Option<&Shim> {
        self.shim.as_ref()
    }

    /// What a command must find in its environment.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let memories = self.connections.iter().map(Connection::memory);
        self.shim.iter().flat_map(|shim| shim.environment(memories.clone())).collect()
    }

    /// Adds a memory that process `pid` has made.
    pub fn adopt(&self, pid: u32, memory: OwnedFd) -> Result<Connection, MemoryError> {
        let memory = Memory::adopt(memory, self.layout)?;
        memory.want_calls(&self.wanted, first_call_id(self.connections.len()));
        let connection = Connection::to(pid, memory, &self.relief);
        // The shim looks whether it is read before it records.
        connection.beat();
        Ok(connection)
    }

    /// Reads a memory from now on.
    pub fn add(&mut self, connection: Connection) {
        self.connections.push(connection);
    }

    /// All memories.
    pub fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter()
    }

    /// All memories, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.connections.iter_mut()
    }

    /// The memories that the program of process `pid` writes to.
    pub fn of(&mut self, pid: u32) -> impl Iterator<Item = &mut Connection> {
        self.connections.iter_mut().filter(move |connection| connection.pid() == Some(pid))
    }

    /// Tells the shims that they are being read.
    pub fn beat(&self) {
        self.connections.iter().for_each(Connection::beat);
    }

    /// Frames that full rings dropped.
    pub fn dropped(&self) -> u64 {
        self.connections.iter().map(|connection| connection.dropped().0).sum()
    }

    /// Records every frame that is there; `on_call` is told the ids of calls.
    pub fn drain(
        &mut self,
        recorder: &mut Recorder,
        mut on_call: impl FnMut(u64),
    ) -> Result<(), TraceError> {
        let mut result = Ok(());
        for connection in &mut self.connections {
            connection.drain(|pid, tid, frame| {
                if let Frame::Call(call) = &frame {
                    on_call(call.correlation_id);
                }
                if result.is_ok() {
                    result = recorder.frame(pid, tid, frame);
                }
            });
        }
        result
    }

    /// Frees the rings of threads that are gone.
    pub fn free_rings(&mut self, recorder: &mut Recorder) {
        for connection in &mut self.connections {
            connection.free_rings(|pid, tid, call| {
                recorder.shim_call(pid, tid, &call, flag::OPEN_AT_END);
            });
        }
    }
}

/// Where the ids of the calls of the `index`-th shared memory begin.
fn first_call_id(index: usize) -> u64 {
    FIRST_ID + ((index as u64) << ID_BITS)
}
