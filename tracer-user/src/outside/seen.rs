//! A packet, once it has been seen.

/// A packet that was seen, and whose end may be seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenPacket {
    /// Its process, and its number there.
    pub key: (u32, u64),
    /// When its doorbell rang.
    pub time_ns: u64,
    /// Its queue.
    pub queue: QueueKey,
}

/// A queue's address and id.
pub type QueueKey = (u64, u64);
