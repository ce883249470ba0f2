//! Calls that pass through HIP's dispatch tables, which it has since 6.0.
//!
//! HIP itself reports calls as well, some of which do not pass through the tables. Before a program uses graphs, HIP is
//! told to report no more: HIP 7.2 has such programs crash while any tracer is registered, also one that does nothing.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use capi_common::hip::{Functions, MOST_FUNCTIONS, in_tables, uses_graphs};
use capi_sources::hip;
use capi_sources::hsa::Client;
use capi_sources::open::OfThreads;
use roctracer::tracer::Wanted;
use tracer_common::activity::Domain;
use tracer_common::calls::{self as shim_calls, Call};
use tracer_common::hip_functions::SLOTS;
use tracer_common::slots;
use tracer_hooks::{calls, contained};

use super::data::{Argument, Data, arguments};
use super::open::IN_TABLES;
use crate::gpu;
use crate::operations::Operations;
use crate::table_calls::{CALLS, OpenCall, Runtime};

/// HIP, since 6.0.
pub struct Hip;

/// A function of HIP's.
#[derive(Default)]
struct Function {
    /// Its id in the runtime that is loaded; none if HIP reports its calls to nobody, or is the only source of them.
    op: Option<u16>,
    /// The arguments of a call, as callbacks get them.
    arguments: Vec<Argument>,
    /// It makes or launches a graph that can be launched.
    uses_graphs: bool,
}

/// The functions of the tables, in their order.
static FUNCTIONS: OnceLock<Vec<Function>> = OnceLock::new();
/// The wanted operations, by id.
static WANTED: Operations<{ MOST_FUNCTIONS as usize }> = Operations::new();
/// HIP is loaded, and has tables and ids for functions.
pub fn know() {
    FUNCTIONS.get_or_init(|| {
        let entry = |(op, reported): (u32, &'static str)| {
            (in_tables(reported.as_bytes()), (op as u16, reported))
        };
        let by_name: HashMap<&[u8], (u16, &str)> = Functions::found().all().map(entry).collect();
        let function = |name: &str| {
            // HIP reports a function for the default streams of threads as the other one.
            let plain = name.strip_suffix("_spt").unwrap_or(name);
            let found = by_name.get(name.as_bytes()).or_else(|| by_name.get(plain.as_bytes()));
            let function = found.and_then(|&(op, reported)| {
                let arguments = arguments(name, reported)?;
                Some(Function { op: Some(op), arguments, uses_graphs: uses_graphs(name) })
            });
            function.unwrap_or_default()
        };
        SLOTS.iter().map(|slot| function(slot.name)).collect()
    });
}

fn have_tables() -> bool {
    FUNCTIONS.get().is_some()
}

/// The function at a place among those of the tables.
fn function(place: usize) -> Option<&'static Function> {
    FUNCTIONS.get()?.get(place)
}

/// The slots of an operation.
fn slots_of(op: u32) -> impl Iterator<Item = usize> {
    let functions = slots::HIP.zip(FUNCTIONS.get().into_iter().flatten());
    functions.filter(move |(_, its)| its.op.map(u32::from) == Some(op)).map(|(slot, _)| slot)
}

/// The wanted parts of an operation have changed, or were asked for again.
pub fn follow(op: u32, wanted: Wanted) {
    WANTED.set(op, wanted);
    gpu::want(gpu::CALLS_OF_HIP, have_tables() && WANTED.any());
    hip::follow(op, wanted);
    slots_of(op).for_each(|slot| CALLS.record(slot));
}

/// The followed operations are to be observed from now on.
pub fn begin() {
    static IS_AT_WORK: AtomicBool = AtomicBool::new(false);
    if !have_tables() {
        return;
    }
    if !IS_AT_WORK.swap(true, Ordering::Relaxed) {
        CALLS.tell_wishes();
        CALLS.record_all();
        contained(calls::patch_hip);
    }
    if WANTED.any() {
        gpu::begin();
    }
}

/// Whether a call that HIP reports has passed through a function of ours, which reports it, too. A thread may have come
/// past its entry before our function was there: so HIP is asked as well.
pub fn is_in_call(op: u32) -> bool {
    IN_TABLES.innermost().is_some_and(|call| call.kept.is_of(op))
}

/// Whether a function uses graphs, and HIP is not silent yet, as it must be before.
fn needs_silence(place: usize) -> bool {
    !hip::is_silent() && function(place).is_some_and(|its| its.uses_graphs)
}

impl Runtime for Hip {
    const DOMAIN: Domain = Domain::HIP_API;
    type Data = Data;
    const THREADS: OfThreads<OpenCall<Data>> = IN_TABLES;

    /// The place of a function stands for the operation, which may have several functions.
    fn wish(place: usize) -> Option<shim_calls::Wanted> {
        let (domain, operation) = (Domain::HIP_API.0 as u8, place as u16);
        function(place)?.op?;
        Some(shim_calls::Wanted { domain, operation, ..shim_calls::Wanted::default() })
    }

    fn is_wanted(place: usize) -> bool {
        let op = function(place).and_then(|function| function.op);
        op.is_some_and(|op| WANTED.has(op.into())) || needs_silence(place)
    }

    fn comes(call: &Call) -> bool {
        if needs_silence(call.operation.into()) {
            hip::silence();
        }
        false
    }

    fn op(call: &Call) -> u32 {
        function(call.operation.into()).and_then(|function| function.op).map_or(0, u32::from)
    }

    fn begin(data: &mut Data, call: &Call, stack: &[u64], phase_data: *mut u64) {
        data.begin(call.correlation_id, phase_data);
        let function = function(call.operation.into());
        for argument in function.into_iter().flat_map(|function| &function.arguments) {
            data.set_argument(argument, &call.args, stack);
        }
    }

    fn end(data: &mut Data, _call: &Call) {
        data.end();
    }
}
