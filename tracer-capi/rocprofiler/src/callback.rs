//! Callbacks: a tool is told of something on the thread that does it.

use std::ffi::c_void;

use crate::kinds::Kind;

/// When a callback is called. The numbers are those of the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// It has no begin and no end.
    None = 0,
    /// A call begins, or something was loaded.
    Enter = 1,
    /// It has ended, or is unloaded.
    Exit = 2,
}

/// What a callback is told.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The thread that does it.
    pub thread: u64,
    /// 0 if it has none.
    pub correlation_id: u64,
    /// That of the callback's context.
    pub external_id: u64,
    /// What it is.
    pub kind: Kind,
    /// Which of the kind.
    pub operation: u32,
    /// When.
    pub phase: Phase,
    /// A structure of the kind's; it is there until the callback returns.
    pub payload: *mut c_void,
}

/// Calls a tool's function with that, and with where the tool may keep a number from the begin to the end. It may throw.
pub type Callback = Box<dyn Fn(&Event, *mut u64) + Send + Sync>;

/// What a tool is asked for an external correlation id of.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The thread that does it.
    pub thread: u64,
    /// What it is.
    pub kind: Kind,
    /// Which of the kind.
    pub operation: u32,
    /// Its correlation id.
    pub correlation_id: u64,
}

/// Asks a tool. None: what was pushed counts. It may throw.
pub type Ask = Box<dyn Fn(&Request) -> Option<u64> + Send + Sync>;
