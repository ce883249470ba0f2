//! The shims' side of a recording: the shared memories that they write to.

use std::{cell::Cell, ffi::OsString, fs::File, ops::Range, os::fd::OwnedFd};

use anyhow::{Context as _, bail};
use tracer_common::{
    bpf::flag,
    calls::{Call, FIRST_ID, ID_BITS},
    loss::ShimLoss,
    shim::Layout,
};
use tracer_records::sink::SinkError;

use super::recorder::Recorder;
use crate::{
    clock,
    join::Joiner,
    losses::{Loss, Losses},
    record::{
        connection::{self, Account, Connection, NOT_UNDERSTOOD, ProgramEnd},
        gpu_source::Gpu,
        options::Options,
        room,
        select::Selection,
    },
    shim::{BackupReader, Extent, Frame, MemoryError, SharedMemory, Shim},
};

/// Each memory gets a range of ids for the calls of its process. There are this many ranges; later memories get the
/// same ranges once more.
const NUMBERED: u64 = FIRST_ID >> ID_BITS;

/// The shims of all processes.
pub struct Shims {
    /// The GPU times that are asked for.
    gpu: Gpu,
    /// The library, if processes may have it.
    shim: Option<Shim>,
    layout: Layout,
    /// The calls that they are to record, by slot.
    wanted: Vec<u64>,
    connections: Vec<Connection>,
    /// Open files by whose paths processes will find the memories that are offered next.
    names: Vec<OwnedFd>,
    /// How many memories were made.
    made: Cell<u64>,
    /// When last no offered memory was free, ns of CLOCK_BOOTTIME.
    full_ns: Option<u64>,
    /// How many programs that had a memory have ended.
    gone: u64,
    /// Whether the user was told that there cannot be another memory now.
    is_reported: bool,
    /// No memory is offered any more.
    stopped: bool,
    backup: BackupReader,
}

/// The final account of a memory whose program is gone.
pub struct ClosedAccount {
    /// The process that had claimed the memory.
    pub pid: u32,
    /// How the program has ended.
    pub over: ProgramEnd,
    /// The account of the memory.
    pub account: Account,
}

impl Shims {
    /// The memories that a command finds in its environment, if one is started.
    pub fn open(
        options: &Options,
        shim: Option<Shim>,
        command: Option<u32>,
        selection: &Selection,
        backup: BackupReader,
    ) -> anyhow::Result<Self> {
        let mut layout = Layout { ring_bytes: options.shim_ring_bytes as usize, ..Layout::DEFAULT };
        let mut memories = 0;
        if let Some(command) = command.filter(|_| shim.is_some()) {
            match room::layout(command, layout) {
                Ok(fitting) => (layout, memories) = (fitting, options.processes),
                // The limits are looked at again when the command uses a GPU: it is then seen from outside.
                Err(why) if options.gpu == Gpu::Auto => tracing::warn!("the command: {why}"),
                Err(why) => return Err(why).context("the command"),
            }
        }
        let name = |_| File::open("/dev/null").map(OwnedFd::from).context("/dev/null");
        let mut shims = Self {
            gpu: options.gpu,
            shim,
            layout,
            wanted: selection.shim_calls(),
            connections: Vec::new(),
            names: (0..memories).map(name).collect::<Result<_, _>>()?,
            made: Cell::new(0),
            full_ns: None,
            gone: 0,
            is_reported: false,
            stopped: false,
            backup,
        };
        shims.try_to_offer()?;
        Ok(shims)
    }

    /// A memory, with the ids of the calls that are recorded into it.
    fn create(
        &self,
        memory: Result<SharedMemory, MemoryError>,
    ) -> Result<(SharedMemory, Range<u64>), MemoryError> {
        let memory = memory?;
        let index = self.made.replace(self.made.get() + 1) % NUMBERED;
        let first = FIRST_ID + (index << ID_BITS);
        memory.want_calls(&self.wanted, first);
        Ok((memory, first..first + (1 << ID_BITS)))
    }

    /// Offers a new memory in the place of each memory whose process is gone. No process has two places in the same
    /// memory: the old program, if it still writes, writes to the memory that it has mapped, which nobody reads.
    fn try_to_offer(&mut self) -> anyhow::Result<()> {
        if self.stopped {
            return Ok(());
        }
        while let Some(name) = self.names.pop() {
            let memory = self.create(SharedMemory::create(self.layout));
            let (memory, call_ids) = match memory {
                Ok(made) => made,
                Err(error) => {
                    self.names.push(name);
                    return Err(error.into());
                }
            };
            match Connection::offered(memory, call_ids, name, &self.backup) {
                Ok(connection) => {
                    connection.beat();
                    self.connections.push(connection);
                }
                Err(name) => {
                    self.names.push(name);
                    bail!("shared memory for the shim: dup3 failed");
                }
            }
        }
        self.is_reported = false;
        Ok(())
    }

    /// Which GPU times are asked for.
    pub fn gpu(&self) -> Gpu {
        self.gpu
    }

    /// The library, if processes may have it.
    pub fn shim(&self) -> Option<&Shim> {
        self.shim.as_ref()
    }

    /// The variables that a command needs in its environment.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let memories: Vec<_> = self.connections.iter().filter_map(Connection::path).collect();
        self.shim.iter().flat_map(|shim| shim.environment(&memories)).collect()
    }

    /// The sizes of memories, where a process's limits allow them.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Adds a memory that process `pid` has made.
    pub fn adopt(
        &self,
        pid: u32,
        memory: OwnedFd,
        layout: Layout,
    ) -> Result<Connection, MemoryError> {
        let (memory, call_ids) = self.create(SharedMemory::adopt(memory, layout))?;
        let connection = Connection::to(pid, memory, call_ids, &self.backup);
        // The shim looks whether it is read before it records.
        connection.beat();
        Ok(connection)
    }

    /// Reads a memory from now on.
    pub fn add(&mut self, connection: Connection) {
        self.connections.push(connection);
    }

    /// Adds a memory whose program was replaced by another one meanwhile: its records are taken, and this memory alone
    /// is over.
    pub fn add_ended(
        &mut self,
        connection: Connection,
        joiner: &mut Joiner,
    ) -> Result<(), SinkError> {
        self.add(connection);
        self.drain(joiner, |_, _| {})?;
        if let Some(added) = self.connections.last_mut() {
            executed(added, u64::MAX, joiner);
        }
        Ok(())
    }

    /// Process `pid` executed another program at `time_ns`, and all that the old one wrote was read.
    pub fn executed(&mut self, pid: u32, time_ns: u64, joiner: &mut Joiner) {
        self.of(pid).for_each(|connection| executed(connection, time_ns, joiner));
    }

    /// The memories of a command are for process `pid` alone, and not for its children.
    pub fn keep_for(&self, pid: u32) {
        self.connections.iter().for_each(|connection| connection.memory().keep_for(pid));
    }

    /// All memories.
    pub fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter()
    }

    /// All memories, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.connections.iter_mut()
    }

    /// Tells the shims to stop. No memory is offered from now on.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.names.clear();
        self.connections.iter().for_each(Connection::stop);
        self.connections.retain(|connection| !connection.is_free());
    }

    /// Notes which memories' processes have ended, as `has_ended` or the processes' descriptors tell, before the
    /// memories are drained for the last time; and whether there is a free memory.
    pub fn look(&mut self, has_ended: impl Fn(u32) -> bool) {
        let mut offered = self.connections.iter().filter(|c| c.path().is_some()).peekable();
        if offered.peek().is_some() && !offered.any(Connection::is_free) {
            self.full_ns = Some(clock::now_ns());
        }
        for connection in &mut self.connections {
            if connection.pid().is_some_and(&has_ended) || connection.claimer_has_ended() {
                connection.ended();
            }
        }
    }

    /// Whether, at some time since `time_ns`, all memories that can be offered were claimed.
    pub fn were_full_since(&self, time_ns: u64) -> bool {
        self.full_ns.is_some_and(|full_ns| full_ns >= time_ns)
    }

    /// Gives up the memories of programs that are gone, after all of their records were read, and offers others in
    /// their places.
    pub fn give_up_the_gone(&mut self, recorder: &mut Recorder) -> Vec<ClosedAccount> {
        let is_over = |connection: &mut Connection| connection.over().is_some();
        let over: Vec<Connection> = self.connections.extract_if(.., is_over).collect();
        let gone = over.into_iter().filter_map(|mut connection| {
            if connection.over() == Some(ProgramEnd::Ended) {
                record_open(connection.open_calls(), &mut recorder.joiner);
            }
            let (pid, over, account) =
                (connection.process(), connection.over(), connection.account());
            self.gone += 1;
            connection.release();
            self.names.extend(connection.into_name());
            Some(ClosedAccount { pid: pid?, over: over?, account })
        });
        let gone = gone.collect();
        if let Err(error) = self.try_to_offer()
            && !std::mem::replace(&mut self.is_reported, true)
        {
            recorder.notice(&format!("fewer processes can have GPU times for now: {error:#}"));
        }
        gone
    }

    /// The memories that the program of process `pid` writes to.
    pub fn of(&mut self, pid: u32) -> impl Iterator<Item = &mut Connection> {
        self.connections.iter_mut().filter(move |connection| connection.pid() == Some(pid))
    }

    /// Tells the shims that they are being read.
    pub fn beat(&self) {
        self.connections.iter().for_each(Connection::beat);
    }

    /// Records every frame that is there; `on_call` gets the processes and ids of calls.
    pub fn drain(
        &mut self,
        joiner: &mut Joiner,
        on_call: impl FnMut(u32, u64),
    ) -> Result<(), SinkError> {
        self.take(Extent::Everything, joiner, on_call)
    }

    /// The number of shares that have to be drained, at most, until every record that is there now was read.
    pub fn shares(&self) -> u64 {
        self.connections.iter().map(Connection::shares).max().unwrap_or(0)
    }

    /// Records frames that are there, and of no process so many that the others would have to wait.
    pub fn drain_shares(&mut self, joiner: &mut Joiner) -> Result<(), SinkError> {
        self.take(Extent::Share, joiner, |_, _| {})
    }

    fn take(
        &mut self,
        extent: Extent,
        joiner: &mut Joiner,
        mut on_call: impl FnMut(u32, u64),
    ) -> Result<(), SinkError> {
        let mut result = Ok(());
        for connection in &mut self.connections {
            if let Some(pid) = connection.pid() {
                joiner.shim_ids(pid, connection.call_ids());
            }
            connection.drain(extent, |pid, tid, frame| {
                if let Frame::Call(call) = &frame {
                    on_call(pid, call.correlation_id);
                }
                if result.is_ok() {
                    result = joiner.frame(pid, tid, frame);
                }
            });
        }
        result
    }

    /// Frees the rings of threads that are gone.
    pub fn free_rings(&mut self, joiner: &mut Joiner) {
        for connection in &mut self.connections {
            connection.free_rings(|pid, tid, call| {
                joiner.shim_call(pid, tid, &call, flag::OPEN_AT_END);
            });
        }
    }
}

/// Of programs that are still there, by process. Those of programs that are gone are told when their memories are given
/// up, but for the causes by which nothing was lost.
impl Losses for Shims {
    fn losses(&self) -> anyhow::Result<Vec<Loss>> {
        let causes = connection::causes().map(ShimLoss::describe).chain([NOT_UNDERSTOOD]);
        let gone = causes.filter(|_| self.gone > 0).map(|cause| Loss::of_unknown((cause, 0)));
        let claimed = self.connections.iter().filter_map(|c| Some((c.process()?, c.account())));
        let living = claimed.flat_map(|(pid, account)| {
            account.losses.into_iter().map(move |(cause, count)| Loss { pid, cause, count })
        });
        Ok(gone.chain(living).collect())
    }
}

/// A memory's program was replaced by another one: its open calls never return.
fn executed(connection: &mut Connection, time_ns: u64, joiner: &mut Joiner) {
    let open = connection.open_calls();
    connection.executed_at(time_ns);
    if connection.over() == Some(ProgramEnd::Executed) {
        record_open(open, joiner);
    }
}

fn record_open(calls: Vec<(u32, u32, Call)>, joiner: &mut Joiner) {
    for (pid, tid, call) in calls {
        joiner.shim_call(pid, tid, &call, flag::OPEN_AT_END);
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::atomic::Ordering};

    use tracer_common::shim::control;
    use tracer_records::model::Metadata;

    use super::*;
    use crate::{
        join::Mode,
        trace::{Existing, Writer},
    };

    /// `count` memories that are offered, with the shims' other state.
    fn shims(count: usize) -> Shims {
        let name = |_| File::open("/dev/null").unwrap().into();
        let mut shims = Shims {
            gpu: Gpu::Auto,
            shim: None,
            layout: Layout { rings: 1, ring_bytes: 4096 },
            wanted: Vec::new(),
            connections: Vec::new(),
            names: (0..count).map(name).collect(),
            made: Cell::new(0),
            full_ns: None,
            gone: 0,
            is_reported: false,
            stopped: false,
            backup: BackupReader::default(),
        };
        shims.try_to_offer().unwrap();
        shims
    }

    fn recorder(dir: &Path) -> Recorder {
        let trace =
            Writer::create(&dir.join("trace"), &Metadata::default(), Existing::Refuse).unwrap();
        Recorder::new(Mode::default(), Box::new(trace))
    }

    fn claim(connection: &Connection, pid: u32) {
        connection.memory().word(control::PID).store(pid.into(), Ordering::Relaxed);
    }

    /// A new memory would ask its shim to record at a time when nobody reads it any more.
    #[test]
    fn nothing_is_offered_after_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let (mut shims, mut recorder) = (shims(2), recorder(dir.path()));
        claim(&shims.connections[0], 7);
        shims.look(|_| false);
        shims.stop();
        assert_eq!(shims.connections.len(), 1, "the free one is gone");
        shims.look(|pid| pid == 7);
        shims.drain_shares(&mut recorder.joiner).unwrap();
        assert_eq!(shims.give_up_the_gone(&mut recorder).len(), 1);
        assert!(shims.connections.is_empty());
    }

    /// A forked child still has the memory of its parent.
    #[test]
    fn a_place_comes_back_whatever_is_written_to_its_memory() {
        let dir = tempfile::tempdir().unwrap();
        let (mut shims, mut recorder) = (shims(1), recorder(dir.path()));
        let path = shims.connections[0].path();
        claim(&shims.connections[0], 7);
        shims.look(|pid| pid == 7);
        claim(&shims.connections[0], 0);
        shims.drain_shares(&mut recorder.joiner).unwrap();
        let gone = shims.give_up_the_gone(&mut recorder);
        assert_eq!(gone.into_iter().map(|gone| gone.pid).collect::<Vec<_>>(), [7]);
        assert!(shims.connections[0].is_free() && shims.connections[0].path() == path);
    }

    /// The program that the process runs now has a memory of its own.
    #[test]
    fn only_the_memory_of_the_program_of_before_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (mut shims, mut recorder) = (shims(1), recorder(dir.path()));
        claim(&shims.connections[0], 7);
        shims.drain(&mut recorder.joiner, |_, _| {}).unwrap();
        let memory = SharedMemory::create(shims.layout).unwrap();
        let before = Connection::to(7, memory, 0..1, &shims.backup);
        claim(&before, 7);
        shims.add_ended(before, &mut recorder.joiner).unwrap();
        let over: Vec<_> = shims.iter().map(Connection::over).collect();
        assert_eq!(over, [None, Some(ProgramEnd::Executed)]);
    }

    /// A thread executes another program while others are in calls.
    #[test]
    fn calls_that_an_exec_cuts_off_are_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let (mut shims, mut recorder) = (shims(1), recorder(dir.path()));
        claim(&shims.connections[0], 7);
        shims.drain(&mut recorder.joiner, |_, _| {}).unwrap();
        let call = Call { correlation_id: FIRST_ID, begin_ns: 5, ..Call::default() };
        shims.connections[0].memory().open_call(0, 8, &call);
        shims.executed(7, u64::MAX, &mut recorder.joiner);
        assert_eq!(shims.give_up_the_gone(&mut recorder).len(), 1);
        recorder.joiner.settle_calls(u64::MAX).unwrap();
        assert_eq!(recorder.joiner.counts().calls, 1);
    }
}
