//! Standard input, if it is a descriptor that the parent hands over.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

/// Takes standard input, which is empty from then on.
pub fn take() -> io::Result<OwnedFd> {
    let taken = io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(taken)
}
