//! The callbacks and pools that the clients of this process have enabled.

use std::sync::LazyLock;

use roctracer::tracer::Tracer;

/// For the code that calls callbacks and writes records.
pub static TRACER: LazyLock<Tracer> = LazyLock::new(Tracer::new);
