//! Agents, by HIP's numbers of its devices.

#![expect(unsafe_code, reason = "asks the runtimes")]

use core::ffi::{c_char, c_int, c_void};

use tracer_common::shim::Agent;

use super::interface::Interface;
use crate::abi::info;
use crate::announce::Agents;
use crate::sink::Sink;
use crate::{runtime, sys};

/// Handle of the first CPU.
pub const HOST: u64 = 1 << 32;
/// `HSA_AMD_AGENT_INFO_BDFID` and `…_DOMAIN`.
const BUS_DEVICE_FUNCTION: u32 = 0xA006;
const DOMAIN: u32 = 0xA00F;

/// Handle of a device of HIP. A number of ours: which agent it is need not be known yet.
pub fn of_device(device: i32) -> u64 {
    u64::from(u32::try_from(device).unwrap_or(0)) + 1
}

/// An agent as the HSA runtime tells it.
struct Told {
    agent: Agent,
    /// Domain, bus, device and function.
    place: (u32, u32),
}

/// Tells every agent, GPUs under the number of their device. HIP has been initialized. Called on the
/// worker: it sets HIP's last error of the thread.
pub fn tell(hip: &Interface, sink: &dyn Sink) {
    let (gpus, cpus): (Vec<Told>, Vec<Told>) =
        told(hip).into_iter().partition(|told| told.agent.device_type == 1);
    for (at, Told { agent, .. }) in (0..).zip(cpus) {
        sink.agent(Agent { handle: HOST + at, ..agent });
    }
    for (device, place) in (0..).zip(places(hip)) {
        // HIP shows some of them, in an order of the user's; by place where that tells.
        let mut at_place = gpus.iter().filter(|gpu| Some(gpu.place) == place);
        let found = match (at_place.next(), at_place.next()) {
            (Some(gpu), None) => Some(gpu),
            _ => gpus.get(device as usize),
        };
        if let Some(Told { agent, .. }) = found {
            sink.agent(Agent { handle: of_device(device), ..*agent });
        }
    }
}

fn told(hip: &Interface) -> Vec<Told> {
    unsafe extern "C" fn collect(agent: u64, handles: *mut c_void) -> u32 {
        // SAFETY: the vector below.
        sys::push(unsafe { &mut *handles.cast::<Vec<u64>>() }, agent);
        0
    }
    let mut handles = Vec::new();
    // SAFETY: the runtime's own function; the vector lives as long as the call.
    unsafe { (hip.agents)(collect, (&raw mut handles).cast()) };
    let mut agents = Agents::default();
    let record = |handle| {
        let number = |attribute| number(hip, handle, attribute);
        let agent = agents.next(handle, number, || name(hip, handle))?;
        let place = (number(DOMAIN).unwrap_or(0), number(BUS_DEVICE_FUNCTION).unwrap_or(0));
        Some(Told { agent, place })
    };
    gathered(handles.into_iter().filter_map(record))
}

fn number(hip: &Interface, agent: u64, attribute: u32) -> Option<u32> {
    let mut value = 0u32;
    // SAFETY: attributes of 32 bits, of an agent that the runtime has just told.
    let failed = unsafe { (hip.agent_info)(agent, attribute, (&raw mut value).cast()) };
    (failed == 0).then_some(value)
}

fn name(hip: &Interface, agent: u64) -> Option<[u8; 64]> {
    let mut name = [0u8; 64];
    // SAFETY: names are of 64 bytes; an agent that the runtime has just told.
    let failed = unsafe { (hip.agent_info)(agent, info::AGENT_NAME, name.as_mut_ptr().cast()) };
    (failed == 0).then_some(name)
}

/// Where HIP's devices are: domain, and bus, device and function.
fn places(hip: &Interface) -> Vec<Option<(u32, u32)>> {
    let mut count: c_int = 0;
    // SAFETY: HIP's own functions, with valid places to write to.
    unsafe { (hip.device_count)(&raw mut count) };
    let place = |device| {
        let mut text = [0u8; 32];
        let at = text.as_mut_ptr().cast::<c_char>();
        // SAFETY: as above; it writes 31 bytes at most.
        let failed = unsafe { (hip.device_bus_id)(at, 31, device) };
        if failed == 0 { parsed(runtime::c_bytes(&text)) } else { None }
    };
    gathered((0..count.clamp(0, 64)).map(place))
}

/// A list of as many as there is memory for.
fn gathered<T>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut list = Vec::new();
    for item in items {
        sys::push(&mut list, item);
    }
    list
}

/// `0000:03:00.0`: the domain, and bus, device and function as the HSA runtime writes them.
fn parsed(text: &[u8]) -> Option<(u32, u32)> {
    let mut parts = core::str::from_utf8(text).ok()?.split([':', '.']);
    let mut next = || u32::from_str_radix(parts.next()?, 16).ok();
    let (domain, bus, device, function) = (next()?, next()?, next()?, next()?);
    Some((domain, bus << 8 | device << 3 | function))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_as_both_runtimes_write_them() {
        assert_eq!(parsed(b"0000:03:00.0"), Some((0, 0x300)));
        assert_eq!(parsed(b"0001:c1:1f.7"), Some((1, 0xC1FF)));
        assert_eq!(parsed(b""), None);
        assert_eq!(parsed(b"0000:03:00"), None);
    }
}
