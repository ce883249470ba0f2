//! Numbers and names for people.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::iter;

/// A duration: whole nanoseconds, else three decimals of the largest unit that is not exceeded.
pub fn duration(ns: u64) -> String {
    let scaled = |unit: u64, name: &str| format!("{:.3} {name}", ns as f64 / unit as f64);
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => scaled(1_000, "µs"),
        1_000_000..1_000_000_000 => scaled(1_000_000, "ms"),
        _ => scaled(1_000_000_000, "s"),
    }
}

/// A size: whole bytes, else two decimals.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

/// A count, in groups of three digits.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share, in percent.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// `text` in at most `width` characters: its middle is left out, because template names differ at their ends.
pub fn shorten(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let head = kept.div_ceil(2);
    let tail = kept - head;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - tail).collect();
    format!("{start}…{end}")
}

/// Names in at most `width` characters each, such that different names stay different: if the kept parts of two are
/// equal, their first difference is shown too; if that is not enough, a number.
pub fn shorten_apart<'a>(names: &[&'a str], width: usize) -> HashMap<&'a str, String> {
    let mut alike = BTreeMap::<String, Vec<&str>>::new();
    for name in BTreeSet::from_iter(names) {
        alike.entry(shorten(name, width)).or_default().push(name);
    }
    let (mut shown, mut used) = (HashMap::new(), HashSet::new());
    for (short, group) in alike {
        let apart = difference(&group);
        for name in group.iter().copied() {
            let first = if group.len() == 1 { short.clone() } else { around(name, apart, width) };
            let numbered = (2..).map(|number| {
                let mark = format!(" #{number}");
                shorten(name, width.saturating_sub(mark.len())) + &mark
            });
            let free = iter::once(first).chain(numbered).find(|text| !used.contains(text));
            let text = free.unwrap_or_default();
            used.insert(text.clone());
            shown.insert(name, text);
        }
    }
    shown
}

/// The number of characters at the beginning that are equal in all names.
fn difference(names: &[&str]) -> usize {
    let first = names.first().copied().unwrap_or_default();
    let alike = |name: &&str| first.chars().zip(name.chars()).take_while(|(a, b)| a == b).count();
    names.iter().skip(1).map(alike).min().unwrap_or(0)
}

/// `name` in at most `width` characters: its beginning, the part around the character number `at`, and its end.
fn around(name: &str, at: usize, width: usize) -> String {
    let part = width.saturating_sub(2) / 3;
    let length = name.chars().count();
    let from = at.saturating_sub(part / 3);
    let piece = |from: usize, count: usize| name.chars().skip(from).take(count);
    let parts = [(0, part), (from, part), (length.saturating_sub(part), part)];
    let text: Vec<String> = parts.map(|(from, count)| piece(from, count).collect()).into();
    text.join("…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(1_000), "1.000 µs");
        assert_eq!(duration(12_345_678), "12.346 ms");
        assert_eq!(duration(61_000_000_000), "61.000 s");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(u64::MAX), "16777216.00 TiB");
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(percent(1, 0), 0.0);
        assert_eq!(percent(1, 4), 25.0);
    }

    #[test]
    fn names_give_way_in_the_middle() {
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("abcdefgh", 5), "ab…gh");
        assert_eq!(shorten("äöüäöüäö", 4), "äö…ö");
    }

    #[test]
    fn different_names_stay_different() {
        let names = |middle: &str| format!("void gemm<float, {middle}, true, false>(float*, int)");
        let padded = ["a", "b"]
            .map(|unit| names(&format!("{}{unit}{}", "x, ".repeat(20), ", y".repeat(20))));
        let others = [names("128"), "hipMalloc".to_owned()];
        let all = Vec::from_iter(padded.iter().chain(&others).map(String::as_str));
        for width in [24, 30, 60] {
            let shown = shorten_apart(&all, width);
            let texts = BTreeSet::from_iter(all.iter().map(|name| &shown[name]));
            assert_eq!(texts.len(), all.len(), "{shown:?}");
            assert!(texts.iter().all(|text| text.chars().count() <= width), "{shown:?}");
            assert_eq!(shown["hipMalloc"], "hipMalloc");
        }
        let shown = shorten_apart(&all[..2], 30);
        let expected = [", a", ", b"].map(|piece| shown.values().any(|text| text.contains(piece)));
        assert_eq!(expected, [true, true], "the difference is shown: {shown:?}");
    }

    /// The names differ at two places, of which the window shows one.
    #[test]
    fn names_that_differ_in_several_places_are_numbered() {
        let far = "-".repeat(100);
        let all = ["00", "01", "10", "11"].map(|bits| {
            let (a, b) = bits.split_at(1);
            format!("{far}{a}{far}{b}{far}")
        });
        let all = Vec::from_iter(all.iter().map(String::as_str));
        let shown = shorten_apart(&all, 30);
        assert_eq!(BTreeSet::from_iter(shown.values()).len(), 4, "{shown:?}");
        assert!(shown.values().all(|text| text.chars().count() <= 30), "{shown:?}");
    }
}
