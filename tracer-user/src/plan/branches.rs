//! Whether a branch lands between a function's entry and a site.

use std::{collections::VecDeque, ops::RangeInclusive};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use super::{
    binary::{Binary, MAX_FUNCTION_BYTES},
    model::NotMoved,
    switch,
    unwind::{Cfa, Extent, Rows},
};

/// Parts outside the function that are looked at: a function has one cold part, or tail calls.
const MAX_PARTS: usize = 64;
/// Places that the branches and switches of a function lead to.
const MAX_TARGETS: usize = 1 << 17;
/// Switches in a function.
const MAX_SWITCHES: usize = 256;

/// Decodes `code`, which is at `address`.
pub(super) fn decoder(code: &[u8], address: u64) -> Decoder<'_> {
    Decoder::with_ip(64, code, address, DecoderOptions::NONE)
}

/// Whether the function of `extent` jumps to `entry` itself. Calls are new calls and do not count.
pub(super) fn jumps_to(code: &[u8], extent: Extent, entry: u64) -> bool {
    decoder(code, extent.start)
        .into_iter()
        .any(|i| is_jump(&i) && !i.is_invalid() && i.near_branch_target() == entry)
}

/// Proves that no branch of the function lands in `region`, from its entry to the site.
///
/// - Direct branches and calls are decoded, all of them: in the function, in the part to which it jumps out (its cold
///   part), and in the parts to which that one jumps out.
/// - An indirect jump has no target to decode. But the unwind tables say where the frame is when it is executed. In
///   `region` the CFA is `rsp + 8`; a jump changes neither. So a jump from a place with another CFA cannot land there.
///   If the CFA is `rsp + 8`, the jump is a switch in a function without a frame, whose table is read, or a tail call,
///   whose target cannot be determined.
/// - `passes_on` is the jump of a stub, which is a tail call: it leads to the beginning of the function in the table's
///   entry. With `rsp` as it was at the entry, that function returns in the stub's place, once.
/// - Code that is jumped to with the CFA at `rsp + 8` may be another function, tail-called. Its indirect jumps are its
///   own affair: they land in it or are its tail calls, which are calls of this function only when they land on its
///   entry. Nor is it followed further.
pub(super) fn prove_clear(
    binary: &Binary,
    extent: Extent,
    rows: &Rows,
    region: &RangeInclusive<u64>,
    passes_on: Option<u64>,
) -> Result<(), NotMoved> {
    let mut exits = scan(binary, extent, region, Some(rows), passes_on)?;
    let mut seen = vec![extent];
    while let Some(target) = exits.pop() {
        let Some(part) = binary.unwind().covering(target) else {
            // Not in the tables: hand-written code or a linkage stub, which jumps elsewhere.
            continue;
        };
        if seen.contains(&part) {
            continue;
        }
        if seen.len() >= MAX_PARTS {
            return Err(NotMoved::Undecodable);
        }
        seen.push(part);
        let rows = binary.unwind().rows(part);
        let same_frame = matches!(rows.cfa(target), Cfa::Frame)
            || matches!(rows.cfa(target), Cfa::Stack(offset) if offset != 8);
        let further = scan(binary, part, region, same_frame.then_some(&rows), None)?;
        if same_frame {
            exits.extend(further);
        }
    }
    Ok(())
}

/// Looks at all branches in `extent`; returns the targets of those that leave it. Without `rows`, indirect jumps are
/// accepted.
fn scan(
    binary: &Binary,
    extent: Extent,
    region: &RangeInclusive<u64>,
    rows: Option<&Rows>,
    passes_on: Option<u64>,
) -> Result<Vec<u64>, NotMoved> {
    if extent.len() > MAX_FUNCTION_BYTES {
        return Err(NotMoved::Undecodable);
    }
    let code = binary.code(extent.start, extent.len()).ok_or(NotMoved::Undecodable)?;
    if code.len() as u64 != extent.len() {
        return Err(NotMoved::Undecodable);
    }
    let mut exits = Vec::new();
    let (mut targets, mut guarded) = (Vec::new(), Vec::new());
    let mut before: VecDeque<Instruction> = VecDeque::with_capacity(switch::WINDOW);
    for instruction in &mut decoder(&code, extent.start) {
        if instruction.is_invalid() {
            return Err(NotMoved::Undecodable);
        }
        let from = instruction.ip();
        match instruction.flow_control() {
            FlowControl::IndirectBranch if passes_on == Some(from) => {}
            FlowControl::IndirectBranch => {
                let elsewhere = |rows: &Rows| match rows.cfa(from) {
                    Cfa::Stack(offset) => offset != 8,
                    Cfa::Frame => true,
                    Cfa::Unknown => false,
                };
                if !rows.is_none_or(elsewhere) {
                    let switch = switch::read(binary, before.make_contiguous(), &instruction)
                        .ok_or(NotMoved::IndirectJump { from })?;
                    if switch.targets.iter().any(|target| region.contains(target)) {
                        return Err(NotMoved::JumpTarget { from });
                    }
                    targets.extend(switch.targets);
                    guarded.push((from, switch.guarded));
                }
            }
            FlowControl::Call
            | FlowControl::XbeginXabortXend
            | FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch => {
                // Zero for far branches and instructions without a target; no code is there.
                let target = instruction.near_branch_target();
                let new_call =
                    instruction.flow_control() == FlowControl::Call && target == *region.start();
                if region.contains(&target) && !new_call {
                    return Err(NotMoved::JumpTarget { from });
                }
                targets.push(target);
                if is_jump(&instruction) && !extent.contains(target) {
                    exits.push(target);
                }
            }
            FlowControl::Next
            | FlowControl::Return
            | FlowControl::IndirectCall
            | FlowControl::Interrupt
            | FlowControl::Exception => {}
        }
        if targets.len() > MAX_TARGETS || guarded.len() > MAX_SWITCHES {
            return Err(NotMoved::Undecodable);
        }
        if before.len() == switch::WINDOW {
            before.pop_front();
        }
        before.push_back(instruction);
    }
    for (from, guarded) in guarded {
        if targets.iter().any(|target| guarded.contains(target)) {
            return Err(NotMoved::IndirectJump { from });
        }
    }
    exits.sort_unstable();
    exits.dedup();
    Ok(exits)
}

fn is_jump(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
    )
}
