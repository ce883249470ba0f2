//! The agents that the loaded HSA runtime reports.

#![expect(unsafe_code, reason = "functions of libraries that are loaded")]

use core::ffi::{c_int, c_void};
use core::mem::transmute;

use capi_common::hsa::LIBRARY;
use capi_common::loaded::Loaded;
use tracer_text::lines::Agent;

/// The agents of the HSA runtime; none before it is initialized.
pub fn agents() -> Vec<Agent> {
    type Visit = unsafe extern "C" fn(u64, *mut c_void) -> c_int;
    type Iterate = unsafe extern "C" fn(Visit, *mut c_void) -> c_int;
    let mut found = Found { agents: Vec::new(), info: None };
    let Some(library) = Loaded::find(LIBRARY) else { return found.agents };
    let Some(iterate) = library.function(c"hsa_iterate_agents") else { return found.agents };
    // SAFETY: functions of these types, by their names.
    let (iterate, info) = unsafe {
        let info = library.function(c"hsa_agent_get_info");
        let info = info.map(|info| transmute::<*mut c_void, Info>(info));
        (transmute::<*mut c_void, Iterate>(iterate), info)
    };
    found.info = info;
    // SAFETY: the runtime's function, and one that takes what it is given here. An error is that there are no
    // agents to be told of.
    unsafe { iterate(visit, (&raw mut found).cast()) };
    found.agents
}

type Info = unsafe extern "C" fn(u64, u32, *mut c_void) -> c_int;

struct Found {
    agents: Vec<Agent>,
    info: Option<Info>,
}

/// # Safety
///
/// `found` is what [`agents`] has given the runtime.
unsafe extern "C" fn visit(agent: u64, found: *mut c_void) -> c_int {
    /// `HSA_AGENT_INFO_DEVICE`.
    const DEVICE: u32 = 17;
    /// `HSA_DEVICE_TYPE_CPU`.
    const CPU: u32 = 0;
    const SUCCESS: c_int = 0;
    // SAFETY: what `agents` has given the runtime.
    let found = unsafe { &mut *found.cast::<Found>() };
    let mut device = u32::MAX;
    // SAFETY: the runtime's function, which writes a number of 32 bits.
    let known = found
        .info
        .is_some_and(|info| unsafe { info(agent, DEVICE, (&raw mut device).cast()) == SUCCESS });
    if known {
        found.agents.push(Agent { handle: agent, is_cpu: device == CPU });
    }
    SUCCESS
}
