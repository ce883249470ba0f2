//! `roctap tool` has put this library into the running process, or found it there, and wants a tool in it: that is loaded,
//! configured, and finalized when roctap lets go of it.

#![expect(unsafe_code, reason = "what roctap reads and calls, and its memory")]

use core::ffi::c_void;
use core::ptr;

use tracer_common::shim::{self, Attach, attach_status};
use tracer_common::tool::{self, state};
use tracer_hooks::attach_block::{answer, remove_block};
use tracer_hooks::{contained, sys};

use crate::late::{self, Refused, Request};
use crate::{log, registration};

/// The memory that this library knows: what roctap finds in the file of one that is there already.
#[unsafe(no_mangle)]
static ROCTAP_TOOL_PROTOCOL: u64 = tool::VERSION;

/// Puts a tool in. It is for roctap, which calls it on a detached thread of its own.
///
/// # Safety
///
/// `request` is null, or valid until its block is unmapped, which is done here.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctap_attach_tool(request: *mut Attach) -> *mut c_void {
    sys::block_signals();
    if !request.is_null() {
        let mut taken = None;
        // SAFETY: the caller's promise.
        contained(|| taken = unsafe { begin(request) });
        // Not contained: the tool's functions are called in it.
        taken.iter().for_each(stay);
    }
    ptr::null_mut()
}

/// Answers whether the request can be met, and puts the block away that it came in.
///
/// # Safety
///
/// As of [`roctap_attach_tool`].
unsafe fn begin(request: *mut Attach) -> Option<Request> {
    // SAFETY: the caller's promise; it is not touched again but for the status.
    let asked = unsafe { request.read() };
    let (status, taken) = if asked.version != shim::VERSION {
        // Not even the descriptor is where we think.
        (attach_status::VERSION, None)
    } else {
        match Request::take(asked.memory_fd) {
            Ok(taken) => (attach_status::RECORDING, Some(taken)),
            Err(Refused::Memory) => (attach_status::MEMORY, None),
            Err(Refused::Busy) => (attach_status::BUSY, None),
            Err(Refused::Forked) => (attach_status::UNUSABLE, None),
        }
    };
    // SAFETY: the caller's promise.
    unsafe { answer(request, status) };
    if asked.version == shim::VERSION && asked.block_bytes != 0 {
        // SAFETY: the caller's promise; nothing of the block is used any more.
        unsafe { remove_block(&asked) };
    }
    tracer_hooks::may_read(asked.may_read != 0);
    taken
}

/// The tool is there from its begin to its end.
fn stay(request: &Request) {
    if !request.is_wanted() {
        log::error(format_args!("roctap has ended before the tool was loaded"));
        late::end(state::FAILED);
        return;
    }
    late::tell(state::BEGINS);
    if let Err(why) = registration::begin_late(&request.path) {
        log::error(format_args!("{why}"));
        late::end(state::FAILED);
        return;
    }
    late::tell(state::AT_WORK);
    if !request.wait() {
        log::error(format_args!(
            "the process has closed the descriptor by which the tool waits for roctap, or may not lock it: the tool ends"
        ));
    }
    registration::end_late();
}
