//! Keeps the last messages of libbpf, to explain a failure. libbpf prints everything: a hundred thousand lines about a
//! program that the verifier gives up on.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use libbpf_rs::{PrintLevel, set_print};

/// The number of lines that are kept, and the bytes of each.
const LINES: usize = 12;
const LINE_BYTES: usize = 200;

static LAST: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Keeps the messages from now on, and forgets earlier ones.
pub fn keep() {
    set_print(Some((PrintLevel::Info, hear)));
    last().clear();
}

/// Takes the last lines.
pub fn take() -> Vec<String> {
    last().drain(..).collect()
}

fn last() -> std::sync::MutexGuard<'static, VecDeque<String>> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hear(_: PrintLevel, text: String) {
    let mut last = last();
    let lines: Vec<&str> =
        text.lines().rev().filter(|l| !l.trim().is_empty()).take(LINES).collect();
    for line in lines.into_iter().rev() {
        tracing::debug!("libbpf: {line}");
        if last.len() == LINES {
            last.pop_front();
        }
        last.push_back(line.chars().take(LINE_BYTES).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_lines_the_last_are_kept() {
        keep();
        let many: String = (0..100_000).map(|n| format!("{n}: (07) r1 += 1\n")).collect();
        hear(PrintLevel::Warn, many);
        hear(PrintLevel::Warn, "x".repeat(1000));
        let kept = take();
        assert_eq!(kept.len(), LINES);
        assert_eq!(kept[LINES - 2], "99999: (07) r1 += 1");
        assert_eq!(kept[LINES - 1].len(), LINE_BYTES);
        assert_eq!(take(), Vec::<String>::new());
    }
}
