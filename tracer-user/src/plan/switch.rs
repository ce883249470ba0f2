//! Jump tables of switches.

use std::ops::RangeInclusive;

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::binary::Binary;

/// The number of instructions before the jump that are looked at.
pub(super) const WINDOW: usize = 10;
/// Largest table that is read, entries.
const MAX_ENTRIES: u64 = 4096;

/// A switch and the targets of its indirect jump.
pub(super) struct Switch {
    /// All possible targets.
    pub targets: Vec<u64>,
    /// The instructions between the check of the index and the jump. A branch to one of these would evade the check.
    pub guarded: RangeInclusive<u64>,
}

/// Reads the switch that ends in the indirect `jump`, if it has the one shape that GCC and clang give
/// switches in position-independent code:
/// `cmp $LAST,%i; ja …; lea TABLE(%rip),%t; mov %i,%i; movslq (%t,%i,4),%x; add %t,%x; jmp *%x`.
pub(super) fn read(binary: &Binary, before: &[Instruction], jump: &Instruction) -> Option<Switch> {
    let [rest @ .., load, add] = before else { return None };
    let sum = jump.op0_register();
    let added = jump.op0_kind() == OpKind::Register
        && add.mnemonic() == Mnemonic::Add
        && add.op0_register() == sum
        && add.op1_kind() == OpKind::Register;
    let base = add.op1_register();
    let loaded = load.mnemonic() == Mnemonic::Movsxd
        && load.op0_register() == sum
        && load.op1_kind() == OpKind::Memory
        && load.memory_base() == base
        && load.memory_index_scale() == 4
        && load.memory_displacement64() == 0
        && load.segment_prefix() == Register::None
        && base != sum;
    let index = load.memory_index();
    if !added || !loaded || !index.is_gpr64() || index == base {
        return None;
    }
    let mut table = None;
    let mut rest = rest.iter().rev();
    let check = loop {
        let i = rest.next()?;
        match i.mnemonic() {
            Mnemonic::Lea if i.op0_register() == base && table.is_none() => {
                table = Some(i.is_ip_rel_memory_operand().then(|| i.ip_rel_memory_address())?);
            }
            // Clears the upper half, which the check did not look at.
            Mnemonic::Mov
                if i.op0_register().is_gpr32()
                    && i.op1_kind() == OpKind::Register
                    && i.op0_register() == i.op1_register()
                    && i.op0_register().full_register() == index => {}
            Mnemonic::Ja => break i,
            _ => return None,
        }
    };
    let compare = rest.next()?;
    let compares = compare.mnemonic() == Mnemonic::Cmp
        && compare.op0_kind() == OpKind::Register
        && compare.op0_register().full_register() == index
        && (compare.op0_register().is_gpr32() || compare.op0_register().is_gpr64())
        && matches!(
            compare.op1_kind(),
            OpKind::Immediate8to32
                | OpKind::Immediate8to64
                | OpKind::Immediate32
                | OpKind::Immediate32to64
        );
    let entries = compare.immediate(1).checked_add(1).filter(|n| compares && *n <= MAX_ENTRIES)?;
    let table = table?;
    let bytes = binary.constant(table, entries * 4)?;
    let (words, _) = bytes.as_chunks::<4>();
    let target = |word: &[u8; 4]| table.wrapping_add_signed(i32::from_le_bytes(*word).into());
    Some(Switch {
        targets: words.iter().map(target).collect(),
        guarded: check.next_ip()..=jump.ip(),
    })
}
