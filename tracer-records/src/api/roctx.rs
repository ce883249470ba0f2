//! The functions of roctx, in the order of [`tracer_common::activity::roctx`].

use tracer_common::activity::{Domain, roctx};

use super::table::{Argument, Kind, Operation, Type, register};

static MESSAGE: Type = Type { name: "const char*", kind: Kind::Pointer };
static ID: Type = Type { name: "roctx_range_id_t", kind: Kind::Unsigned(64) };
static DEPTH: Type = Type { name: "int", kind: Kind::Signed(32) };
static NOTHING: Type = Type { name: "void", kind: Kind::Void };

const fn function(
    name: &'static str,
    id: u32,
    args: &'static [Argument],
    ret: &'static Type,
) -> Operation {
    Operation { name, symbol: Some(name), domain: Domain::ROCTX, id: id as u16, args, ret }
}

pub static OPERATIONS: [Operation; 5] = [
    function("roctxMarkA", roctx::MARK, &[register("message", &MESSAGE, 0)], &NOTHING),
    function("roctxRangePushA", roctx::PUSH, &[register("message", &MESSAGE, 0)], &DEPTH),
    function("roctxRangePop", roctx::POP, &[], &DEPTH),
    function("roctxRangeStartA", roctx::START, &[register("message", &MESSAGE, 0)], &ID),
    function("roctxRangeStop", roctx::STOP, &[register("id", &ID, 0)], &NOTHING),
];
