//! External correlation ids of the calling thread.

use rocprofiler::sdk::Externals;
use roctracer::thread::own_ids;

use crate::SDK;

/// Those that its calls and its work belong to, in every context.
#[inline]
pub fn own() -> Externals {
    let ids = own_ids();
    SDK.externals(ids.thread.into(), ids.process.into())
}
