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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{by_id, by_name, captured};

    #[test]
    fn functions_are_found_by_their_ids_and_names() {
        for (id, operation) in (0..).zip(&OPERATIONS) {
            assert_eq!(by_id(Domain::ROCTX, id).map(|op| op.name), Some(operation.name));
            assert_eq!(
                by_name(operation.name).map(|op| (op.domain, op.id)),
                Some((Domain::ROCTX, id))
            );
            // The one function whose result is needed has a return probe.
            let capture = captured(operation);
            assert_eq!(capture.entry_only == 0, operation.name == "roctxRangeStartA");
            assert_eq!(capture.to_u64() as u32, Domain::ROCTX.0 << 16 | u32::from(id));
        }
        assert!(by_id(Domain::ROCTX, 5).is_none());
    }
}
