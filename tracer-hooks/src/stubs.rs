//! The places of the HSA runtime's exported functions in its tables, as their code tells them.
//!
//! All but a few are stubs, of one of two shapes (5.2.3 to 7.2.4), which end in a jump through a table:
//!
//! ```text
//! mov TABLE(%rip),%rax                      jmp *OFFSET(%rax)
//! lea POINTER(%rip),%rax; mov (%rax),%rax   jmp *OFFSET(%rax)
//! ```
//!
//! Some begin with `endbr64`, and widen narrow arguments in between. Nothing but these instructions is
//! understood: a function that has another is no stub. Only the library's own code is read, and the pointer
//! that it reads itself.

#![expect(unsafe_code, reason = "reads the runtime's code")]

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::sys;

/// As much of a function as is looked at, bytes.
const MAX_BYTES: usize = 48;

/// The library that a table is in.
pub struct Library(sys::Library);

impl Library {
    /// The library that holds `table`; none if no library does.
    pub fn of(table: usize) -> Option<Self> {
        sys::Library::of(table).map(Self)
    }

    /// Where the exported stub `name` finds its entry, bytes from `table` on; none if there is no such
    /// stub, or it is of another shape.
    pub fn offset_in(&self, table: usize, name: &str) -> Option<u64> {
        Some(entry_of(self.0.function(name)?)?.wrapping_sub(table) as u64)
    }
}

/// Where the stub `function` finds its entry: an address; none if it is no stub, or of another shape.
pub fn entry_of(function: usize) -> Option<usize> {
    let Jump { pointer, offset } = decode(function, &sys::read_code::<MAX_BYTES>(function)?)?;
    if !sys::is_readable(pointer, size_of::<usize>()) {
        return None;
    }
    // SAFETY: it can be read, and the runtime's own code reads it as a pointer. Relaxed: what it points
    // at is not looked at here.
    let used = unsafe { &*(pointer as *const AtomicUsize) }.load(Ordering::Relaxed);
    Some(used.wrapping_add_signed(offset as isize))
}

/// A jump to where the word at `pointer`, plus `offset`, points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Jump {
    pointer: usize,
    offset: i32,
}

/// The content of `rax`.
#[derive(Clone, Copy)]
enum Rax {
    Nothing,
    Address(usize),
    /// The word at an address.
    Loaded(usize),
}

/// The jump that the stub with this `code` at `address` ends in; none if it is no stub.
fn decode(address: usize, code: &[u8]) -> Option<Jump> {
    let (mut at, mut rax) = (0, Rax::Nothing);
    loop {
        let relative =
            |d: &[u8; 4]| (address + at + 7).wrapping_add_signed(i32::from_le_bytes(*d) as isize);
        let rest = code.get(at..)?;
        at += match *rest {
            // endbr64
            [0xf3, 0x0f, 0x1e, 0xfa, ..] => 4,
            // mov POINTER(%rip),%rax
            [0x48, 0x8b, 0x05, a, b, c, d, ..] => {
                rax = Rax::Loaded(relative(&[a, b, c, d]));
                7
            }
            // lea POINTER(%rip),%rax
            [0x48, 0x8d, 0x05, a, b, c, d, ..] => {
                rax = Rax::Address(relative(&[a, b, c, d]));
                7
            }
            // mov (%rax),%rax
            [0x48, 0x8b, 0x00, ..] => {
                let Rax::Address(pointer) = rax else { return None };
                rax = Rax::Loaded(pointer);
                3
            }
            // movzbl and movzwl of a register but rax to itself, one with a prefix for dil and sil
            [0x0f, 0xb6 | 0xb7, registers, ..] if is_of_one(registers) => 3,
            [0x40, 0x0f, 0xb6, registers, ..] if is_of_one(registers) => 4,
            // movzbl N(%rsp),%eax; mov %eax,N(%rsp)
            [0x0f, 0xb6, 0x44, 0x24, from, 0x89, 0x44, 0x24, to, ..] if from == to => {
                rax = Rax::Nothing;
                9
            }
            [0xff, ref jump @ ..] => {
                let offset = match *jump {
                    // jmp *(%rax), with a byte, with four
                    [0x20, ..] => 0,
                    [0x60, a, ..] => i32::from(a as i8),
                    [0xa0, a, b, c, d, ..] => i32::from_le_bytes([a, b, c, d]),
                    _ => return None,
                };
                let Rax::Loaded(pointer) = rax else { return None };
                return Some(Jump { pointer, offset });
            }
            _ => return None,
        };
    }
}

/// Whether the operands of an instruction are one register twice, and that is not rax.
fn is_of_one(registers: u8) -> bool {
    registers >= 0xc0 && registers >> 3 & 7 == registers & 7 && registers & 7 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: usize = 0x10_0000;

    fn decoded(parts: &[&[u8]]) -> Option<Jump> {
        decode(AT, &parts.concat())
    }

    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    /// mov 0x100(%rip),%rax
    const LOAD: &[u8] = &[0x48, 0x8b, 0x05, 0x00, 0x01, 0x00, 0x00];
    /// jmp *0x90(%rax)
    const JUMP: &[u8] = &[0xff, 0xa0, 0x90, 0x00, 0x00, 0x00];

    #[test]
    fn the_shapes_of_four_releases_are_read() {
        let to = |pointer, offset| Some(Jump { pointer, offset });
        assert_eq!(decoded(&[LOAD, &[0xff, 0x60, 0x18]]), to(AT + 0x107, 0x18));
        assert_eq!(decoded(&[ENDBR64, LOAD, JUMP]), to(AT + 0x10b, 0x90));
        assert_eq!(decoded(&[LOAD, &[0xff, 0x20]]), to(AT + 0x107, 0));
        // lea -0x100(%rip),%rax; mov (%rax),%rax
        let indirect = [0x48, 0x8d, 0x05, 0x00, 0xff, 0xff, 0xff, 0x48, 0x8b, 0x00];
        assert_eq!(decoded(&[ENDBR64, &indirect, JUMP]), to(AT - 0x100 + 11, 0x90));
        // movzwl %dx,%edx; movzwl %si,%esi; movzwl %di,%edi; movzbl %dil,%edi
        let widened =
            [0x0f, 0xb7, 0xd2, 0x0f, 0xb7, 0xf6, 0x0f, 0xb7, 0xff, 0x40, 0x0f, 0xb6, 0xff];
        assert_eq!(decoded(&[LOAD, &widened, JUMP]), to(AT + 0x107, 0x90));
        // movzbl 0x20(%rsp),%eax; mov %eax,0x20(%rsp): `hsa_amd_memory_async_copy_on_engine`.
        let flag = [0x0f, 0xb6, 0x44, 0x24, 0x20, 0x89, 0x44, 0x24, 0x20];
        assert_eq!(decoded(&[ENDBR64, &flag, LOAD, JUMP]), to(AT + 0x114, 0x90));
    }

    #[test]
    fn what_does_anything_else_is_no_stub() {
        let call = [0xe8, 0, 0, 0, 0];
        let overwritten = [0x0f, 0xb7, 0xc0];
        let moved = [0x0f, 0xb7, 0xf7];
        let elsewhere = [0x0f, 0xb6, 0x44, 0x24, 0x20, 0x89, 0x44, 0x24, 0x28];
        for parts in [
            &[JUMP] as &[&[u8]],
            &[LOAD],
            &[LOAD, &[0xff]],
            &[&[0xcc], LOAD, JUMP],
            &[&call, LOAD, JUMP],
            &[LOAD, &overwritten, JUMP],
            &[LOAD, &moved, JUMP],
            &[LOAD, &[0x48, 0x8b, 0x00], JUMP],
            &[LOAD, &elsewhere, JUMP],
            // jmp *%rax, call *0x90(%rax)
            &[LOAD, &[0xff, 0xe0]],
            &[LOAD, &[0xff, 0x90, 0x90, 0, 0, 0]],
            // Its value is on the stack, not the table.
            &[LOAD, &[0x0f, 0xb6, 0x44, 0x24, 0x20, 0x89, 0x44, 0x24, 0x20], JUMP],
        ] {
            assert_eq!(decoded(parts), None, "{parts:x?}");
        }
    }
}
