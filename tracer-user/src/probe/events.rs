//! Events of tracefs that are shared by all processes that are probed at the same places.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd},
    sync::Arc,
};

use libbpf_rs::{Link, PerfEventOpts, ProgramMut};
use tracer_common::bpf::Cookie;

use super::{
    sys,
    tracefs::{Definition, Tracefs},
};
use crate::discover::FileId;

/// A uprobe event with its program, for all processes that are probed at its places.
#[derive(Debug)]
pub(super) struct Event {
    /// Closed first: the definition must not be in use any more.
    _link: Link,
    definition: Definition,
}

/// The key of an event: its program, file and places.
type EventKey = (String, FileId, BTreeSet<u64>);

/// The description of an event that is to be defined.
pub(super) struct Wanted<'a> {
    /// The program that it runs.
    pub program: &'a ProgramMut<'a>,
    /// Whether the program runs when functions return.
    pub retprobe: bool,
    /// The file whose functions are probed.
    pub file: &'a OwnedFd,
    /// The identity of that file.
    pub id: FileId,
    /// The places in it.
    pub offsets: BTreeSet<u64>,
    /// The cookie that the program gets.
    pub cookie: Cookie,
}

/// The events of a recording. They stay until it ends: a definition costs the kernel much, the more so the more there
/// are.
#[derive(Debug)]
pub(super) struct Events {
    tracefs: Arc<Tracefs>,
    defined: RefCell<BTreeMap<EventKey, Arc<Event>>>,
}

impl Events {
    /// No event is defined yet.
    pub fn new(tracefs: Tracefs) -> Self {
        Self { tracefs: Arc::new(tracefs), defined: RefCell::default() }
    }

    /// The part of process `pid` (-1: of all) in an event, and the event, which is defined if it is not yet.
    pub fn part_in(
        &self,
        wanted: Wanted<'_>,
        pid: i32,
    ) -> libbpf_rs::Result<(OwnedFd, Arc<Event>)> {
        let event = if pid == std::process::id().cast_signed() {
            // The event's link is tied to this process, and would keep the probes there.
            Arc::new(Event::new(&self.tracefs, &wanted)?)
        } else {
            let name = wanted.program.name().to_string_lossy().into_owned();
            let mut defined = self.defined.borrow_mut();
            match defined.entry((name, wanted.id, wanted.offsets.clone())) {
                Entry::Occupied(entry) => Arc::clone(entry.get()),
                Entry::Vacant(entry) => {
                    let event = Arc::new(Event::new(&self.tracefs, &wanted)?);
                    Arc::clone(entry.insert(event))
                }
            }
        };
        Ok((sys::open_tracepoint(event.definition.id, pid)?, event))
    }
}

impl Event {
    /// Defines an event and links its program to it. The kernel runs the program for every process that has a part in
    /// the event: the link's own part is that of roctap, which calls none of the functions.
    fn new(tracefs: &Arc<Tracefs>, wanted: &Wanted<'_>) -> libbpf_rs::Result<Self> {
        let definition = tracefs.define(wanted.file, &wanted.offsets, wanted.retprobe)?;
        let part = sys::open_tracepoint(definition.id, std::process::id().cast_signed())?;
        let options = PerfEventOpts { cookie: wanted.cookie.to_u64(), ..Default::default() };
        let link = wanted.program.attach_perf_event_with_opts(part.as_raw_fd(), options)?;
        // The link owns the descriptor now.
        let _ = part.into_raw_fd();
        Ok(Self { _link: link, definition })
    }
}
