//! Calls as text, by the tables of the API.

use tracer_common::bpf::flag;

use super::CallFormat;
use tracer_records::api::{self, Kind, Operation};
use tracer_records::model::ApiCall;

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
