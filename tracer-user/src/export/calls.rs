//! Calls in the form of exports: as text, by the tables of the API, and with a begin and an end.

use tracer_common::bpf::flag;

use tracer_records::api::{self, Kind, Operation};
use tracer_records::model::ApiCall;

/// Converts the captured words of a call to text. The tables of the API know how; exports only place the text.
/// [`ApiTables`] is the implementation that the program uses.
pub trait CallFormat {
    /// The arguments without parentheses: `ptr=0x7f0012340000, size=4096`. Empty when unknown.
    fn args(&self, call: &ApiCall) -> String;
    /// The result. Empty when the function returns nothing, `?` when it is not known.
    fn ret(&self, call: &ApiCall) -> String;
}

/// Formats calls by [`tracer_records::api`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ApiTables;

fn operation(call: &ApiCall) -> Option<&'static Operation> {
    api::by_id(call.record.domain, u16::try_from(call.record.op).ok()?)
}

impl CallFormat for ApiTables {
    fn args(&self, call: &ApiCall) -> String {
        operation(call)
            .map(|op| api::format_args(op, &call.args, &call.extra, call.flags))
            .unwrap_or_default()
    }

    fn ret(&self, call: &ApiCall) -> String {
        if call.flags & (flag::OPEN_AT_END | flag::ENTRY_ONLY) != 0 {
            return "?".to_owned();
        }
        match operation(call) {
            Some(op) if !matches!(op.ret.kind, Kind::Unknown) => api::format_return(op, call.ret),
            _ => "?".to_owned(),
        }
    }
}

/// When a call began and returned, for formats in which every call has both times: a call whose begin or return was not
/// seen, or that did not return, lasts 0 ns there. roctracer itself writes `hsa_shut_down` in this way.
pub(super) fn call_times(call: &ApiCall) -> (u64, u64) {
    match (call.record.begin_ns, call.record.end_ns) {
        (0, end_ns) => (end_ns, end_ns),
        (begin_ns, 0) => (begin_ns, begin_ns),
        times => times,
    }
}

/// Whether a call's begin or end was not seen.
pub(super) fn is_untimed(call: &ApiCall) -> bool {
    call.record.begin_ns == 0 || call.record.end_ns == 0
}
