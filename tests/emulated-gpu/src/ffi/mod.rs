//! The C interface: the structures of the header and the functions that the runtime imports.

mod events;
mod memory;
mod queues;
mod system;
pub mod types;

use types::Status;

/// Turns "there was one" into a status.
fn found(yes: bool) -> Status {
    if yes { Status::SUCCESS } else { Status::INVALID_HANDLE }
}

/// Names a request that is refused.
fn refuse(what: &str) -> Status {
    eprintln!("emulated-gpu: unsupported: {what}");
    Status::NOT_SUPPORTED
}
