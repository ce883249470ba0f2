//! A client that wants nothing.

use std::ffi::CStr;

use tracer_common::shim::{Barrier, Copy, Dispatch};

use super::client::{Agents, Client, CompletedWork};
use super::writing::Writing;

pub struct Nobody;

impl Client for Nobody {
    type OperationData = ();
    /// The correlation id of a call.
    type Caller = u64;
    type BufferKey = ();

    const NAME: &'static str = "nobody";
    const THREAD_NAME: &'static CStr = c"nobody";
    const DRAIN_MS: &'static str = "NOBODY_DRAIN_MS";

    fn is_wanted(&self) -> bool {
        false
    }

    fn kernel(&self, _: &Dispatch) -> Option<()> {
        None
    }

    fn copy(&self, _: &Copy) -> Option<()> {
        None
    }

    fn barrier(&self, _: &Barrier) -> Option<()> {
        None
    }

    fn caller(&self) -> u64 {
        0
    }

    fn write(
        &self,
        _: CompletedWork<Self>,
        _: &Agents,
        _: &Writing<'_>,
    ) -> Option<((), CompletedWork<Self>)> {
        None
    }
}
