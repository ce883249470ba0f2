//! The receivers of records.

use std::error::Error;

use crate::model::{Agent, ClockOffsets, Event, Kernel, Process, StringId};

/// Why a sink takes no more.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct SinkError(#[from] Box<dyn Error + Send + Sync>);

/// Takes records as they become known: a trace file, a live view, a counter.
///
/// It gives names their ids, by which other records refer to them. A sink that wants to stand beside another one wraps
/// it: it hands on the records that it is given, and returns the ids that it gets back.
pub trait RecordSink {
    /// Recording has begun: its result is there from now on, though it has no records yet.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    fn begin(&mut self) -> Result<(), SinkError>;

    /// Takes an event.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    fn push(&mut self, event: Event) -> Result<(), SinkError>;

    /// Lets go of what it has collected: called every 250 ms or so.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    fn flush(&mut self) -> Result<(), SinkError>;

    /// Takes the end of the recording: how far apart the clocks are then.
    ///
    /// # Errors
    ///
    /// When the sink has not kept everything.
    fn finish(self: Box<Self>, end_clock: ClockOffsets) -> Result<(), SinkError>;

    /// The causes by which it has not kept what it was given, and how often.
    fn losses(&self) -> Vec<(&'static str, u64)>;

    /// The id of `text`, the same one for the same text; 0 for the empty text, and for a text that is left out.
    /// `process_id` is the process that told it (0: no certain one), since a sink may bound the texts of each process.
    fn string(&mut self, process_id: u32, text: &str) -> StringId;

    /// Takes a kernel symbol of a process. Before the first event that refers to it.
    fn kernel(&mut self, process_id: u32, kernel_id: u32, kernel: Kernel);

    /// Takes the name of an API operation. Before the first event that refers to it.
    fn operation(&mut self, domain: u32, operation: u32, name: &str);

    /// Takes a process, or replaces what is known of it.
    fn process(&mut self, process_id: u32, process: Process);

    /// Takes or replaces the name of a thread.
    fn thread(&mut self, process_id: u32, thread_id: u32, name: &str);

    /// Takes an agent of a process.
    fn agent(&mut self, process_id: u32, node_id: u32, agent: Agent);

    /// Adds `count` to the losses of a process (0: of no certain one) by `cause`. A count of 0 is kept
    /// too: it says that nothing was lost in this way.
    fn loss(&mut self, process_id: u32, cause: &str, count: u64);

    /// Takes something that the user should know. The same text is kept once.
    fn notice(&mut self, text: &str);
}
