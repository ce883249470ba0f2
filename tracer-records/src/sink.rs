//! The receivers of records.

use crate::model::{Agent, Event, Kernel, Process, StringId};

/// Takes records as they become known: a trace file, a live view, a counter.
///
/// It gives names their ids, by which other records refer to them. A sink that wants to stand beside another one wraps
/// it: it hands on the records that it is given, and returns the ids that it gets back.
pub trait RecordSink {
    /// The reason for which it takes no more.
    type Error;

    /// Takes an event.
    ///
    /// # Errors
    ///
    /// When it takes no more.
    fn push(&mut self, event: Event) -> Result<(), Self::Error>;

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
