//! The tracer of this process with its sources, for functions that change what is enabled.

use std::sync::Once;

use roctracer::tracer::Tracer;
use tracer_common::activity::Domain;

use crate::enabled::TRACER;
use crate::gpu::{HIP_OPS, HSA_OPS};
use crate::roctx::MARKS;
use crate::table_calls::{CALLS, Recorders};
use crate::{hip, hsa};

/// The tracer, with the sources that follow it.
pub fn tracer() -> &'static Tracer {
    static SET: Once = Once::new();
    SET.call_once(|| {
        CALLS.set_recorders(Recorders { hip: &hip::tables::Hip, hsa: &hsa::Hsa });
        TRACER.set_source(Domain::HIP_API, &hip::Calls);
        TRACER.set_source(Domain::ROCTX, &MARKS);
        TRACER.set_source(Domain::HSA_API, &hsa::CALLS);
        TRACER.set_source(Domain::HSA_EVT, &hsa::EVENTS);
        TRACER.set_source(Domain::HIP_OPS, &HIP_OPS);
        TRACER.set_source(Domain::HSA_OPS, &HSA_OPS);
    });
    &TRACER
}
