//! The answer of a process that hands records over, which roctap gets through a pipe.

/// The records that were read and handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandedOver {
    /// Events of the process for which it was started.
    pub events: u64,
    /// Calls among them that were left out: of functions without a number.
    pub unnumbered: u64,
}

const HANDED_OVER: &str = "handed over ";
const FAILED: &str = "failed";

/// The most bytes that an answer has.
pub const MOST_BYTES: usize = 64;

/// The text of an answer; none stands for a failure of the plugin, which was reported.
pub fn of(handed_over: Option<HandedOver>) -> String {
    match handed_over {
        Some(HandedOver { events, unnumbered }) => format!("{HANDED_OVER}{events} {unnumbered}"),
        None => FAILED.to_owned(),
    }
}

/// Reads an answer. None if the process ended without one.
pub fn read(answer: &[u8]) -> Option<Option<HandedOver>> {
    let answer = str::from_utf8(answer).ok()?;
    if answer == FAILED {
        return Some(None);
    }
    let (events, unnumbered) = answer.strip_prefix(HANDED_OVER)?.split_once(' ')?;
    let handed_over =
        HandedOver { events: events.parse().ok()?, unnumbered: unnumbered.parse().ok()? };
    Some(Some(handed_over))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_as_they_were_given() {
        let of_events = |events, unnumbered| Some(HandedOver { events, unnumbered });
        for answer in [None, of_events(3, 0), of_events(u64::MAX, u64::MAX)] {
            assert_eq!(read(of(answer).as_bytes()), Some(answer));
            assert!(of(answer).len() <= MOST_BYTES);
        }
        for cut in
            ["", "fail", "handed over ", "handed over 1", "handed over x 1", "something else"]
        {
            assert_eq!(read(cut.as_bytes()), None);
        }
        assert_eq!(read(b"\xff"), None);
    }
}
