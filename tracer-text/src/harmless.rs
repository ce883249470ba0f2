//! Text that a program chose: names of kernels, messages, strings among arguments.

use std::borrow::Cow;

/// Whether a character does nothing but stand where it stands: no control character, no mark for the
/// direction of writing, no separator of lines, nothing of no width, nothing unassigned.
pub fn is_harmless(c: char) -> bool {
    // The characters that `{:?}` of a string would escape, without those that it escapes only to be Rust.
    matches!(c, ' '..='~') || c.escape_debug().len() == 1
}

/// `text` in one line and without effect on a terminal: a character that is not harmless is written as in Rust, such as
/// `\n` or `\u{1b}`.
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_harmless(c) {
            cleaned.push(c);
        } else {
            cleaned.extend(c.escape_debug());
        }
    }
    Cow::Owned(cleaned)
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn text_stays_in_its_line() {
        assert_eq!(clean("größe \"x\" \\"), "größe \"x\" \\");
        assert_eq!(clean("a\nb\u{1b}[2J\u{202e}"), "a\\nb\\u{1b}[2J\\u{202e}");
    }
}
