//! A call as text.

use std::fmt::Write as _;

use tracer_common::bpf::flag;

use super::capture::{out_register, stack_args};
use super::table::{Argument, ArgumentPlace, Enumeration, Kind, Operation};

/// The captured words of one call.
#[derive(Clone, Copy)]
pub(super) struct Captured<'a> {
    pub args: &'a [u64; 6],
    pub extra: &'a [u64; 3],
    pub flags: u16,
}

impl Captured<'_> {
    /// The words of an argument, the second being 0 for types of one word; `None` if not captured.
    pub fn words(&self, op: &Operation, arg: &Argument) -> Option<[u64; 2]> {
        if self.flags & flag::OPEN_AT_START != 0 || !arg.ty.kind.printable() {
            return None;
        }
        let (from, first) = match arg.place {
            ArgumentPlace::Register(n) => (self.args.as_slice(), usize::from(n)),
            ArgumentPlace::Stack(n) if self.flags & flag::STACK_ARGS != 0 => {
                (self.extra.get(..usize::from(stack_args(op)))?, usize::from(n))
            }
            ArgumentPlace::Stack(_) | ArgumentPlace::Vector(_) => return None,
        };
        match from.get(first..first + arg.words())? {
            [word] => Some([*word, 0]),
            [low, high] => Some([*low, *high]),
            _ => None,
        }
    }
}

/// The words of an argument of a call, the second being 0 for types of one word; `None` if not captured.
pub fn argument(
    op: &Operation,
    arg: &Argument,
    args: &[u64; 6],
    extra: &[u64; 3],
    flags: u16,
) -> Option<[u64; 2]> {
    Captured { args, extra, flags }.words(op, arg)
}

/// The value that an argument pointed at when the call returned; `None` if not captured.
pub fn output(op: &Operation, arg: &Argument, extra: &[u64; 3], flags: u16) -> Option<u64> {
    let register = out_register(op).filter(|_| flags & flag::OUT_VALUE != 0)?;
    (arg.place == ArgumentPlace::Register(register)).then_some(extra[0])
}

/// The arguments of a call: `dst=0x7f00, src=0x7ffc, sizeBytes=16, kind=hipMemcpyHostToDevice`.
///
/// * Pointers, streams and handles in hexadecimal, numbers in decimal, `dim3` as `{x,y,z}`,
///   enumerations by name, or by number where the headers have no name for it.
/// * ` -> ` gives the value that an output argument pointed at when the call returned:
///   `hipMalloc(ptr=0x7ffc8e60 -> 0x7f0012340000, size=4096)`.
/// * `name=?`: not captured.
/// * Empty for functions without arguments and for those whose prototype is unknown.
pub fn format_args(op: &Operation, args: &[u64; 6], extra: &[u64; 3], flags: u16) -> String {
    let captured = Captured { args, extra, flags };
    let mut text = String::new();
    for (index, arg) in op.args.iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        text.push_str(arg.name);
        text.push('=');
        let Some(words) = captured.words(op, arg) else {
            text.push('?');
            continue;
        };
        push_value(&mut text, arg.ty.kind, words);
        if let Some(value) = output(op, arg, extra, flags) {
            text.push_str(" -> ");
            push_value(&mut text, Kind::Pointer, [value, 0]);
        }
    }
    text
}

/// The result of a call, by the rules of [`format_args`]. Empty for functions that return nothing or
/// whose prototype is unknown; `?` for results that are not in `rax`. The caller knows whether the
/// call returned at all.
pub fn format_return(op: &Operation, ret: u64) -> String {
    let mut text = String::new();
    match op.ret.kind {
        Kind::Void | Kind::Unknown => {}
        kind if kind.printable() && kind.words() == 1 => push_value(&mut text, kind, [ret, 0]),
        _ => text.push('?'),
    }
    text
}

/// Appends a value. Writing into a `String` cannot fail.
fn push_value(text: &mut String, kind: Kind, [word, next]: [u64; 2]) {
    let _ = match kind {
        Kind::Bool => write!(text, "{}", word as u8 != 0),
        Kind::Signed(8) => write!(text, "{}", word as i8),
        Kind::Signed(16) => write!(text, "{}", word as i16),
        Kind::Signed(32) => write!(text, "{}", word as i32),
        Kind::Signed(_) => write!(text, "{}", word as i64),
        Kind::Unsigned(8) => write!(text, "{}", word as u8),
        Kind::Unsigned(16) => write!(text, "{}", word as u16),
        Kind::Unsigned(32) => write!(text, "{}", word as u32),
        Kind::Unsigned(_) => write!(text, "{word}"),
        Kind::Pointer | Kind::Function | Kind::Stream | Kind::Handle => write!(text, "{word:#x}"),
        Kind::Enumeration(enumeration) => push_enumerator(text, enumeration, word),
        Kind::Dim3 => {
            let [x, y, z] = dim3([word, next]);
            write!(text, "{{{x},{y},{z}}}")
        }
        Kind::Unknown | Kind::Void | Kind::Float | Kind::Struct(_) => write!(text, "?"),
    };
}

fn push_enumerator(text: &mut String, enumeration: &Enumeration, word: u64) -> std::fmt::Result {
    let value =
        if enumeration.is_signed() { i64::from(word as i32) } else { i64::from(word as u32) };
    match enumeration.value_name(value) {
        Some(name) => text.write_str(name),
        None => write!(text, "{value}"),
    }
}

/// The three numbers of a `dim3` in two words.
pub(super) fn dim3([low, high]: [u64; 2]) -> [u32; 3] {
    [low as u32, (low >> 32) as u32, high as u32]
}
