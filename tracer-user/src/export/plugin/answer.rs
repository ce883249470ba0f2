//! What a process that hands records over answers to roctap, through a pipe.

/// Handed over everything, but for so many calls of functions without a number; none if the plugin failed, which
/// was told.
pub type HandedOver = Option<u64>;

const HANDED_OVER: &str = "handed over ";
const FAILED: &str = "failed";

/// The most bytes that an answer has.
pub const MOST_BYTES: usize = 64;

/// The answer.
pub fn of(handed_over: HandedOver) -> String {
    handed_over.map_or(FAILED.to_owned(), |unnumbered| format!("{HANDED_OVER}{unnumbered}"))
}

/// An answer that came. None if the process ended without one.
pub fn read(answer: &[u8]) -> Option<HandedOver> {
    match str::from_utf8(answer).ok()? {
        FAILED => Some(None),
        answer => answer.strip_prefix(HANDED_OVER)?.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_as_they_were_given() {
        for answer in [None, Some(0), Some(u64::MAX)] {
            assert_eq!(read(of(answer).as_bytes()), Some(answer));
            assert!(of(answer).len() <= MOST_BYTES);
        }
        for cut in ["", "fail", "handed over ", "handed over x", "something else"] {
            assert_eq!(read(cut.as_bytes()), None);
        }
        assert_eq!(read(b"\xff"), None);
    }
}
