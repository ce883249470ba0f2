//! What the clients of this process have enabled.

use std::sync::LazyLock;

use roctracer::tracer::Tracer;

/// For those who call callbacks and write records.
pub static TRACER: LazyLock<Tracer> = LazyLock::new(Tracer::new);
