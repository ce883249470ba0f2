//! Messages of marks and ranges that the BPF programs could not read.
//!
//! The BPF programs read only pages that are in memory. A text in a program's file gets there when somebody touches
//! its page, and the functions of roctx do not touch their messages. So roctap reads such a message itself, a moment
//! later, if it cannot have changed: if it is in a mapping of a file that nobody can write to. The kernel then has the
//! page and its neighbours in memory, for the BPF programs as well: each page is looked at once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tracer_common::bpf::{MESSAGE_BYTES, MarkRecord, flag};
use zerocopy::IntoBytes as _;

use super::Session;
use crate::foreign::{Access, Maps, TargetMemory};

/// The longest time spent on one process in all: it can pass any address, and unmap its pages.
const LOOK_FOR: Duration = Duration::from_secs(1);
/// The longest time spent on all processes in one go through the records: the rest of the records waits for it.
pub(super) const AT_ONCE: Duration = Duration::from_millis(20);

impl Session {
    /// Reads the message of a mark or range if the BPF programs could not, unless no time is left for it.
    pub(super) fn read_message_again(&mut self, mark: &mut MarkRecord, left: &mut Duration) {
        let header = &mut mark.call.header;
        let Some(target) = self.processes.get_mut(header.pid) else { return };
        let is_out_of_time = left.is_zero() || target.looked_for_messages >= LOOK_FOR;
        if header.flags & flag::UNREADABLE == 0 || is_out_of_time {
            return;
        }
        let began = Instant::now();
        let subject = Arc::clone(&target.subject);
        let text = subject.by_number(|pid| anyhow::Ok(constant(pid, mark.call.args[0])));
        let took = began.elapsed();
        target.looked_for_messages += took;
        *left = left.saturating_sub(took);
        if let Ok(Some((text, is_whole))) = text {
            let message = mark.message.as_mut_bytes();
            message.fill(0);
            message.iter_mut().zip(text).for_each(|(to, from)| *to = from);
            header.flags &= !flag::UNREADABLE;
            header.flags |= if is_whole { 0 } else { flag::CUT };
        }
    }
}

/// The text at an address of process `pid`, and whether that is all of it; none where it could have changed.
fn constant(pid: u32, address: u64) -> Option<(Vec<u8>, bool)> {
    let maps = Maps::of(pid).ok()?;
    let map = maps.iter().find(|map| map.range.contains(&address))?;
    if map.writable || map.path.is_none() {
        return None;
    }
    let room = (map.range.end - address).min(MESSAGE_BYTES as u64 - 1);
    let mut text = vec![0; room as usize];
    let read = TargetMemory::open(pid, Access::Read).ok()?.read_at(&mut text, address).ok()?;
    text.truncate(read);
    match text.iter().position(|&byte| byte == 0) {
        Some(end) => {
            text.truncate(end);
            Some((text, true))
        }
        None => (read == MESSAGE_BYTES - 1).then_some((text, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_program_are_read_and_no_others() {
        static TEXT: &[u8] = b"a text of the program\0";
        let long = include_bytes!("messages.rs");
        let own = |address: *const u8| constant(std::process::id(), address as u64);
        assert_eq!(own(TEXT.as_ptr()), Some((b"a text of the program".to_vec(), true)));
        assert_eq!(own(long.as_ptr()), Some((long[..MESSAGE_BYTES - 1].to_vec(), false)));
        let changes = TEXT.to_vec();
        assert_eq!(own(changes.as_ptr()), None, "it may have been another one");
        assert_eq!(own(std::ptr::without_provenance(16)), None, "nothing is there");
    }
}
