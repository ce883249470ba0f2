//! Calls of roctx. They wait for nothing: no roctx call launches an operation.

use tracer_common::{
    activity::roctx,
    bpf::{ApiRecord, MESSAGE_BYTES, flag},
};
use tracer_records::{
    model::{ApiCall, StringId},
    sink::RecordSink,
};
use zerocopy::IntoBytes as _;

use super::process::api_call;
use crate::{shown, trace::limits::MARK};

/// The type of [`tracer_common::bpf::MarkRecord::message`].
pub type Message = [u64; MESSAGE_BYTES / 8];

/// The event of a call. If the call has a message, the sink keeps the message's text.
pub fn event(call: &ApiRecord, message: Option<&Message>, sink: &mut dyn RecordSink) -> ApiCall {
    let mut event = api_call(call);
    match message {
        Some(message) if event.flags & flag::UNREADABLE == 0 => {
            let text = text(message, event.flags & flag::CUT != 0);
            let id: StringId = sink.string(call.header.pid, &text);
            event.record.bytes_or_name = id.into();
            if id == 0 && !text.is_empty() {
                // The sink had no room for the text.
                event.flags |= flag::UNREADABLE;
            }
        }
        Some(_) => {}
        // The call was open when recording began or ended.
        None if roctx::has_message(event.record.op) => {
            event.flags |= flag::UNREADABLE;
        }
        None => {}
    }
    event
}

/// The bytes that are kept of a message that may be longer: a message of one byte more could be whole.
const KEPT: usize = MESSAGE_BYTES - 2;

/// The text of a message; [`MARK`] stands for the end of one that was cut, whose last character may not be whole.
fn text(message: &Message, is_cut: bool) -> String {
    let bytes = message.as_bytes();
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    if !is_cut {
        return shown::text_of(text);
    }
    let kept = text.get(..KEPT).unwrap_or(text);
    let torn = kept.utf8_chunks().last().map_or(0, |last| last.invalid().len());
    shown::text_of(kept.get(..kept.len() - torn).unwrap_or_default()) + MARK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8]) -> Message {
        let mut message = Message::default();
        message.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        message
    }

    #[test]
    fn messages_end_at_the_first_zero() {
        assert_eq!(text(&message(b""), false), "");
        assert_eq!(text(&message(b"step 1\0left from before"), false), "step 1");
        assert_eq!(text(&message(b"caf\xe9"), false), r"caf\xe9");
        // The writer of the record may have left no zero at the end.
        assert_eq!(text(&message(&[b'x'; MESSAGE_BYTES]), false).len(), MESSAGE_BYTES);
    }

    #[test]
    fn a_message_that_was_cut_ends_with_a_whole_character() {
        let long = "ä".repeat(MESSAGE_BYTES);
        let cut = message(&long.as_bytes()[..MESSAGE_BYTES - 1]);
        assert_eq!(text(&cut, true), "ä".repeat(KEPT / 2) + MARK);
        let cut = message(format!("x{long}").get(..MESSAGE_BYTES - 1).unwrap().as_bytes());
        assert_eq!(text(&cut, true), format!("x{}{MARK}", "ä".repeat(KEPT / 2 - 1)));
    }
}
