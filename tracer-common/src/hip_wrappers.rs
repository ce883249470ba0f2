//! The code by which the exported functions of HIP 6.0 and later find their entries of its dispatch tables.
//!
//! Each calls a function that returns the address of the table, the *getter*, and jumps through its entry:
//!
//! ```text
//! call GETTER     mov OFFSET(%rax),%rax     jmp *%rax
//! ```
//!
//! with instructions in between that keep the arguments. The getter makes the table when it is first called. From
//! then on it returns a pointer:
//!
//! ```text
//! movzbl MADE(%rip),%eax     test %al,%al     je MAKES_IT     mov TABLE(%rip),%rax     ret
//! ```
//!
//! The shim reads this in the process and roctap in the file. Both have to find the same functions: a function whose
//! calls the shim records is not probed.

use crate::hip_functions::{COMPILER, RUNTIME, SLOTS, offset};

/// As much of a function as is looked at, bytes.
pub const CODE_BYTES: usize = 256;
/// Longest distance from the call to the jump through the entry, bytes.
const REACH: usize = 128;

/// The functions by which the getters are found: one of each table, small in every release.
pub const EXAMPLES: [&str; 2] = ["hipGetDevice", "__hipPopCallConfiguration"];

/// The code of a function.
#[derive(Clone, Copy)]
pub struct Code {
    /// Its address.
    pub address: u64,
    /// The bytes that stand there, zeros where less can be read.
    pub bytes: [u8; CODE_BYTES],
}

/// A getter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Getter {
    /// Its address.
    pub address: u64,
    /// The address of the byte that is not 0 once the table is made.
    pub made: u64,
    /// The address of the pointer to the table.
    pub table: u64,
}

impl Getter {
    /// The getter whose code this is; none if it is another function.
    pub fn of(code: &Code) -> Option<Self> {
        let mut rest = CodeReader { code, at: 0 };
        rest.skip(&[0xf3, 0x0f, 0x1e, 0xfa]);
        let made = match rest.take()? {
            // movzbl MADE(%rip),%eax; mov MADE(%rip),%al
            [0x0f, 0xb6, 0x05, a, b, c, d, ..] => rest.relative(7, [*a, *b, *c, *d]),
            [0x8a, 0x05, a, b, c, d, ..] => rest.relative(6, [*a, *b, *c, *d]),
            _ => return None,
        };
        // test %al,%al
        if !rest.skip(&[0x84, 0xc0]) {
            return None;
        }
        match rest.take()? {
            // je, near and far
            [0x74, _, ..] => rest.at += 2,
            [0x0f, 0x84, ..] => rest.at += 6,
            _ => return None,
        }
        let [0x48, 0x8b, 0x05, a, b, c, d, 0xc3, ..] = rest.take()? else { return None };
        let table = rest.relative(7, [*a, *b, *c, *d]);
        Some(Self { address: code.address, made, table })
    }

    /// Whether the function with this code calls the getter and then jumps through the entry `offset` bytes from the
    /// table's begin.
    fn serves(&self, code: &Code, offset: usize) -> bool {
        let behind = calls(code).find(|&(_, function)| function == self.address);
        let Some(behind) = behind.and_then(|(at, _)| code.bytes.get(at..)) else { return false };
        (0..REACH).any(|at| behind.get(at..).and_then(used_offset) == Some(offset))
    }
}

/// Code that is being read.
struct CodeReader<'a> {
    code: &'a Code,
    at: usize,
}

impl<'a> CodeReader<'a> {
    fn take(&self) -> Option<&'a [u8]> {
        self.code.bytes.get(self.at..)
    }

    /// Goes beyond `bytes`, if they come next.
    fn skip(&mut self, bytes: &[u8]) -> bool {
        let next = self.take().is_some_and(|rest| rest.starts_with(bytes));
        self.at += if next { bytes.len() } else { 0 };
        next
    }

    /// Goes beyond an instruction of this many bytes, and returns the address that it refers to.
    fn relative(&mut self, bytes: usize, distance: [u8; 4]) -> u64 {
        self.at += bytes;
        relative(self.code.address, self.at, distance)
    }
}

/// The address at `distance` from the end of the instruction that ends `at` bytes behind `address`.
fn relative(address: u64, at: usize, distance: [u8; 4]) -> u64 {
    let end = address.wrapping_add(at as u64);
    end.wrapping_add_signed(i32::from_le_bytes(distance).into())
}

/// The places in the code that may be calls: the end of each, and the called function.
fn calls(code: &Code) -> impl Iterator<Item = (usize, u64)> {
    code.bytes.windows(5).enumerate().filter_map(move |(at, bytes)| {
        let &[0xe8, a, b, c, d] = bytes else { return None };
        Some((at + 5, relative(code.address, at + 5, [a, b, c, d])))
    })
}

/// The offset from a register at which the instruction, if it is one, loads a 64-bit register, jumps or calls. Neither from
/// the stack pointer nor from the frame pointer, where arguments are.
fn used_offset(code: &[u8]) -> Option<usize> {
    let (operand, rest) = match *code {
        [0x48..=0x4f, 0x8b, operand, ref rest @ ..] => (operand, rest),
        [0xff, operand, ref rest @ ..] if matches!(operand >> 3 & 7, 2 | 4) => (operand, rest),
        _ => return None,
    };
    if matches!(operand & 7, 4 | 5) {
        return None;
    }
    match (operand >> 6, rest) {
        (1, &[a, ..]) => Some(a.into()),
        (2, &[a, b, c, d, ..]) => Some(u32::from_le_bytes([a, b, c, d]) as usize),
        _ => None,
    }
}

/// The getters of one library: of [`RUNTIME`]'s table, and of [`COMPILER`]'s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Getters {
    /// One for each of [`EXAMPLES`], where there is one.
    pub of: [Option<Getter>; 2],
}

impl Getters {
    /// Finds them. `function` tells the code of an exported function, `code` the bytes at an address.
    pub fn find(
        function: impl Fn(&str) -> Option<Code>,
        code: impl Fn(u64) -> Option<Code>,
    ) -> Self {
        let getter = |example| {
            let example = function(example)?;
            calls(&example).find_map(|(_, address)| Getter::of(&code(address)?))
        };
        Self { of: EXAMPLES.map(getter) }
    }

    /// The getter of a slot's table.
    pub fn of_slot(&self, slot: usize) -> Option<Getter> {
        let [runtime, compiler] = self.of;
        if RUNTIME.contains(&slot) {
            runtime
        } else {
            compiler.filter(|_| COMPILER.contains(&slot))
        }
    }

    /// Whether the exported function of a slot, whose code this is, jumps through the slot's entry.
    pub fn serve(&self, slot: usize, code: &Code) -> bool {
        slot < SLOTS.len()
            && self.of_slot(slot).is_some_and(|getter| getter.serves(code, offset(slot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hip_functions::slot_of;

    const AT: u64 = 0x10_0000;

    fn getter() -> Vec<u8> {
        let mut code = vec![0xf3, 0x0f, 0x1e, 0xfa];
        code.extend([0x0f, 0xb6, 0x05, 0x00, 0x01, 0x00, 0x00, 0x84, 0xc0, 0x74, 0x11]);
        code.extend([0x48, 0x8b, 0x05, 0x00, 0x02, 0x00, 0x00, 0xc3]);
        code
    }

    /// A `call` of the function `distance` bytes from the call's end, followed by these bytes.
    fn wrapper(distance: i32, then: &[u8]) -> Vec<u8> {
        let mut code = vec![0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x18, 0xe8];
        code.extend(distance.to_le_bytes());
        code.extend([0x48, 0x8b, 0x7c, 0x24, 0x08]);
        code.extend(then);
        code
    }

    fn code(address: u64, bytes: &[u8]) -> Code {
        let mut code = Code { address, bytes: [0; CODE_BYTES] };
        code.bytes[..bytes.len()].copy_from_slice(bytes);
        code
    }

    fn read(bytes: &[u8]) -> Option<Getter> {
        Getter::of(&code(AT, bytes))
    }

    #[test]
    fn a_getter_is_read_as_two_releases_have_it() {
        let expected = Getter { address: AT, made: AT + 0x10b, table: AT + 0x216 };
        assert_eq!(read(&getter()), Some(expected));
        assert_eq!(read(&getter()[4..]).map(|getter| getter.made), Some(AT + 0x107));
        for cut in 0..getter().len() {
            assert_eq!(read(&getter()[..cut]), None);
        }
        for (at, byte) in [(5, 0xb7), (11, 0x38), (13, 0x75), (15, 0x4c), (22, 0xc2)] {
            let mut other = getter();
            other[at] = byte;
            assert_eq!(read(&other), None, "{at}");
        }
    }

    #[test]
    fn a_wrapper_agrees_with_its_own_entry_alone() {
        let there = 0x1000 - 13;
        let function = |_: &str| Some(code(AT - 0x1000, &wrapper(there, &[])));
        let at = |address| (address == AT).then(|| code(address, &getter()));
        let getters = Getters::find(function, at);
        assert!(getters.of.iter().all(|getter| getter.is_some_and(|getter| getter.address == AT)));
        let agrees = |name: &str, distance, then: &[u8]| {
            let slot = slot_of(name).expect("there");
            getters.serve(slot, &code(AT - 0x1000, &wrapper(distance, then)))
        };
        // mov 0x338(%rax),%rax; call *0x338(%rax); mov 0x338(%rcx),%r10
        for load in [
            [0x48, 0x8b, 0x80, 0x38, 0x03, 0, 0],
            [0xff, 0x90, 0x38, 0x03, 0, 0, 0x90],
            [0x4c, 0x8b, 0x91, 0x38, 0x03, 0, 0],
        ] {
            assert!(agrees("hipGetDevice", there, &load));
            assert!(!agrees("hipGetDeviceCount", there, &load), "another entry");
            assert!(!agrees("hipGetDevice", there + 16, &load), "another function is called");
        }
        // mov 0x8(%rsp),%rdi is an argument, not the first entry.
        assert!(!agrees("hipApiName", there, &[]));
        assert!(agrees("hipApiName", there, &[0x48, 0x8b, 0x40, 0x08]));
        assert!(!agrees("hipGetDevice", there, &[0xc3]), "none is used");
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let getter = Getter { address: AT, made: 0, table: 0 };
        assert!(!getter.serves(&code(AT, &[0xe8; CODE_BYTES]), 8));
        let mut last = [0x90; CODE_BYTES];
        last[CODE_BYTES - 5..].copy_from_slice(&[0xe8, 0, 0, 0, 0]);
        let next = Getter { address: AT + CODE_BYTES as u64, ..getter };
        assert!(!next.serves(&code(AT, &last), 8));
    }
}
