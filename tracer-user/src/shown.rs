//! Text on its way to a terminal or into a file for people.
//!
//! A traced program chooses its arguments, its name, the paths of its libraries, the names of its
//! kernels, the text of its `dlerror`. On a terminal such a name could move the cursor, set the title
//! or answer in the user's place; with line breaks it could write lines that look like roctap's own;
//! with marks for the direction of writing it could look like another name. So nothing is printed but
//! through this module ([`print()`], [`say`], [`LogFields`]; the lints `print_stdout` and
//! `print_stderr` see to it; the line of numbers in `record/progress.rs` is the one exception), and what is put into a line is made harmless with [`clean`] or [`line`].

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    io::{self, Write as _},
    path::Path,
};

use serde::Serialize;
use tracer_text::harmless::is_harmless;
use tracing_subscriber::{
    field::RecordFields,
    fmt::{FormatFields, format},
};

use crate::trace::limits::cut;

pub use tracer_text::clean;

/// The most bytes of a line about one thing.
const LINE: usize = 4 << 10;

/// `text`, cleaned and cut to a length that a line can have.
pub fn line(text: &str) -> Cow<'_, str> {
    match clean(cut(text, LINE).as_ref()) {
        Cow::Borrowed(same) if same.len() == text.len() => Cow::Borrowed(text),
        cleaned => Cow::Owned(cut(&cleaned, LINE).into_owned()),
    }
}

/// Bytes that should be text, such as a path or an argument: bytes that are not text are shown as `\xff`.
pub fn text_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing into a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// A path, as [`text_of`]: two different paths are shown differently.
pub fn path(path: &Path) -> String {
    text_of(path.as_os_str().as_encoded_bytes())
}

/// A number of things: `1 gap`, `2 gaps`.
pub fn counted<N: fmt::Display + PartialEq + From<u8>>(count: N, thing: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {thing}{ending}")
}

/// A value as JSON for people and programs, with a line break at its end. Characters that could affect a terminal are
/// escaped, which JSON allows in all strings.
///
/// # Errors
///
/// When the value has no JSON.
pub fn json(value: &impl Serialize) -> serde_json::Result<String> {
    let json = serde_json::to_string_pretty(value)?;
    let mut escaped = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        // Line breaks are between the strings: inside them they are escaped already.
        if is_harmless(c) || c == '\n' {
            escaped.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing into a string cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        }
    }
    escaped.push('\n');
    Ok(escaped)
}

/// Prints lines to standard output. Characters in them that are not harmless are cleaned here; a reader that has
/// closed the output is no error.
///
/// # Errors
///
/// When standard output cannot be written.
pub fn print(lines: &str) -> io::Result<()> {
    let cleaned: String = lines
        .split_inclusive('\n')
        .flat_map(|line| match line.strip_suffix('\n') {
            Some(line) => [clean(line), Cow::Borrowed("\n")],
            None => [clean(line), Cow::Borrowed("")],
        })
        .collect();
    let mut out = io::stdout().lock();
    match out.write_all(cleaned.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Prints a line on standard error.
pub fn say(text: &str) {
    // If this fails, there is nobody to report it to.
    let _ = writeln!(io::stderr().lock(), "roctap: {}", line(text));
}

/// Fields of log messages, each in one line.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogFields;

impl<'w> FormatFields<'w> for LogFields {
    fn format_fields<R: RecordFields>(&self, writer: format::Writer<'w>, fields: R) -> fmt::Result {
        let in_a_line = format::debug_fn(|writer, field, value| match field.name() {
            "message" => write!(writer, "{}", line(&format!("{value:?}"))),
            name => write!(writer, " {name}={}", line(&format!("{value:?}"))),
        });
        in_a_line.format_fields(writer, fields)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOSTILE: &str = "a\u{1b}[2Jb\nroctap: c\r\t\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}\u{2028}\u{e0001}d";

    #[test]
    fn what_acts_on_a_terminal_is_escaped() {
        assert_eq!(
            clean(HOSTILE),
            r"a\u{1b}[2Jb\nroctap: c\r\t\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}\u{2028}\u{e0001}d"
        );
        for same in ["void k<float>(a\\b, \"c'\")", "größe 数 ☃", ""] {
            assert!(matches!(clean(same), Cow::Borrowed(text) if text == same), "{same}");
        }
    }

    #[test]
    fn one_thing_is_not_several() {
        assert_eq!([0, 1, 2].map(|n: u64| counted(n, "gap")), ["0 gaps", "1 gap", "2 gaps"]);
    }

    #[test]
    fn lines_have_a_length() {
        assert_eq!(line("short"), "short");
        for unit in ["x", "\u{1b}", "é"] {
            let cut = line(&unit.repeat(1 << 20)).into_owned();
            assert!(cut.len() <= LINE && cut.ends_with('…'), "{unit:?}: {} bytes", cut.len());
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_told_apart() {
        assert_eq!(text_of(b"a\xff\xfeb\xc3"), "a\\xff\\xfeb\\xc3");
        assert_eq!(text_of("größe".as_bytes()), "größe");
    }

    #[test]
    fn json_has_no_raw_control_characters_and_is_read_back() {
        let json = json(&[HOSTILE, "数"]).unwrap();
        assert!(json.lines().all(|line| clean(line) == line), "{json}");
        let read: [String; 2] = serde_json::from_str(&json).unwrap();
        assert_eq!(read, [HOSTILE, "数"]);
    }

    proptest! {
        #[test]
        fn whatever_is_cleaned_is_harmless(text in any::<String>()) {
            let cleaned = clean(&text).into_owned();
            prop_assert!(cleaned.chars().all(|c| !c.is_control()));
            prop_assert_eq!(clean(&cleaned), cleaned.as_str());
            let read: String = serde_json::from_str(&json(&text).unwrap()).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}
