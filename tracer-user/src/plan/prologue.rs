//! The choice of a site in one function.

use iced_x86::{
    FlowControl, Formatter as _, GasFormatter, Instruction, InstructionInfoFactory, OpAccess,
    Register,
};

use super::{
    binary::{Binary, MAX_FUNCTION_BYTES},
    branches::{self, decoder},
    kernel::{Class, KernelVersion, Refusal, classify},
    model::{NotMoved, Note, ReturnProbe, Site, Stop},
    unwind::{Cfa, Extent, Rows},
};

/// The largest distance of a site from the entry, bytes. Cheap sites in the libraries seen are at most 10 bytes away.
const MAX_DISTANCE: u64 = 32;
/// The number of bytes that are decoded of a function without a symbol size and an unwind entry.
const UNBOUNDED_BYTES: u64 = 16;

/// A place at which the kernel would take a probe.
struct Candidate {
    instruction: Instruction,
    class: Class,
}

/// The description of the function in the unwind tables.
struct UnwindRows {
    extent: Extent,
    rows: Rows,
}

/// Chooses the site in the function at `address`, whose symbol says `size` (0: unknown). `passes_on` is the
/// jump by which it passes its calls on to another function, if it is known to.
pub(super) fn choose(
    binary: &Binary,
    kernel: KernelVersion,
    address: u64,
    size: u64,
    passes_on: Option<u64>,
) -> (Option<Site>, Vec<Note>) {
    let mut notes = Vec::new();
    let Some(segment) = binary.code_segment(address) else {
        return (None, vec![Note::NotCode]);
    };
    if segment.writable {
        return (None, vec![Note::WritableCode]);
    }
    let extent = binary.unwind().covering(address);
    let rows = extent.map(|extent| binary.unwind().rows(extent)).unwrap_or_default();
    let unwind_rows = agreement(extent, rows, address, size, &mut notes);
    let length = match &unwind_rows {
        Some(unwind_rows) => unwind_rows.extent.len(),
        None if size > 0 => size,
        None => UNBOUNDED_BYTES,
    };
    let Some(code) = binary.code(address, length.min(MAX_FUNCTION_BYTES)) else {
        notes.push(Note::NotCode);
        return (None, notes);
    };
    let Search { entry, candidates, stop } = search(&code, address, kernel);
    if let Err(refusal) = entry {
        notes.push(Note::EntryRefused(refusal));
    }
    let chosen = candidates.into_iter().find(|candidate| {
        let site = candidate.instruction.ip();
        let allowed = if site == address {
            Ok(())
        } else {
            may_move(binary, unwind_rows.as_ref(), address, site, passes_on)
        };
        if let Err(reason) = allowed {
            notes.push(Note::NotMoved { offset: site - address, reason });
        }
        allowed.is_ok()
    });
    if let Some(UnwindRows { extent, .. }) = &unwind_rows
        && branches::jumps_to(&code, *extent, address)
    {
        notes.push(Note::EntryIsJumpTarget);
    }
    let site = chosen.and_then(|candidate| {
        if !candidate.class.is_cheap() && !notes.iter().any(|n| matches!(n, Note::NotMoved { .. }))
        {
            notes.push(Note::NoCheapSite(stop));
        }
        site(binary, address, &candidate, &notes)
    });
    (site, notes)
}

fn site(binary: &Binary, address: u64, candidate: &Candidate, notes: &[Note]) -> Option<Site> {
    let wrong_stack = notes.iter().any(|note| matches!(note, Note::Disagreement(WRONG_FRAME)));
    let mut instruction = String::new();
    GasFormatter::new().format(&candidate.instruction, &mut instruction);
    let at = candidate.instruction.ip();
    Some(Site {
        file_offset: binary.file_offset(at)?,
        function_offset: at - address,
        instruction,
        class: candidate.class,
        return_probe: if wrong_stack { ReturnProbe::WrongStack } else { ReturnProbe::Allowed },
    })
}

const WRONG_FRAME: &str = "the frame at the entry is not that of a function's entry";

/// The unwind tables' entry, if it agrees with the symbol.
fn agreement(
    extent: Option<Extent>,
    rows: Rows,
    address: u64,
    size: u64,
    notes: &mut Vec<Note>,
) -> Option<UnwindRows> {
    let Some(extent) = extent else {
        notes.push(Note::NoUnwindEntry);
        return None;
    };
    let disagreement = if rows.cfa(address) != Cfa::Stack(8) {
        WRONG_FRAME
    } else if extent.start != address {
        "the symbol is in the middle of a function"
    } else if size > extent.len() {
        "the symbol's size goes beyond the function's end"
    } else {
        return Some(UnwindRows { extent, rows });
    };
    notes.push(Note::Disagreement(disagreement));
    None
}

/// Whether the probe may be at `site` instead of at `entry`. [`search`] has checked that the instructions in between
/// leave the registers alone.
fn may_move(
    binary: &Binary,
    unwind_rows: Option<&UnwindRows>,
    entry: u64,
    site: u64,
    passes_on: Option<u64>,
) -> Result<(), NotMoved> {
    let UnwindRows { extent, rows } = unwind_rows.ok_or(NotMoved::NoUnwindRows)?;
    // Rows change only at instruction boundaries, and any row that ends before the site would show
    // at one of these addresses.
    if (entry..=site).any(|address| rows.cfa(address) != Cfa::Stack(8)) {
        return Err(NotMoved::WrongStack);
    }
    branches::prove_clear(binary, *extent, rows, &(entry..=site), passes_on)
}

struct Search {
    /// Whether the kernel takes a probe at the entry.
    entry: Result<Class, Refusal>,
    /// Places that the walk from the entry can reach, the cheapest first, then the nearest.
    candidates: Vec<Candidate>,
    /// The reason why the walk ended.
    stop: Stop,
}

/// Walks from the entry on as long as a probe may move.
fn search(code: &[u8], address: u64, kernel: KernelVersion) -> Search {
    let mut factory = InstructionInfoFactory::new();
    let mut entry = Err(Refusal::Invalid);
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut stop = Stop::End;
    let mut behind_argument = false;
    for instruction in &mut decoder(code, address) {
        // Code at the end of the address space goes on at its beginning.
        let Some(offset) = instruction.ip().checked_sub(address) else { break };
        if instruction.is_invalid() {
            break;
        }
        let bytes =
            usize::try_from(offset).ok().and_then(|at| code.get(at..at + instruction.len()));
        let class = bytes
            .ok_or(Refusal::Invalid)
            .and_then(|bytes| classify(bytes, instruction.ip(), kernel));
        if offset == 0 {
            entry = class;
        }
        if behind_argument {
            // Only to report the cheap site that the argument made unusable.
            if let Stop::Argument { cheap_behind, .. } = &mut stop {
                *cheap_behind |= class.is_ok_and(Class::is_cheap);
            }
        } else if let Ok(class) = class {
            candidates.push(Candidate { instruction, class });
        }
        let next = offset + instruction.len() as u64;
        match passable(&mut factory, &instruction) {
            Ok(()) if next > MAX_DISTANCE => {
                if !behind_argument {
                    stop = Stop::Distance;
                }
                break;
            }
            Ok(()) => {}
            Err(reason @ Stop::Argument { .. }) if !behind_argument => {
                (stop, behind_argument) = (reason, true);
            }
            Err(Stop::Argument { .. }) => {}
            Err(reason) => {
                if !behind_argument {
                    stop = reason;
                }
                break;
            }
        }
    }
    // A stable sort: among equals the nearest to the entry stays first.
    candidates.sort_by_key(|candidate| candidate.class);
    candidates.retain({
        // Only cheap places justify a move away from the entry.
        |c| c.class.is_cheap() || c.instruction.ip() == address || entry.is_err()
    });
    Search { entry, candidates, stop }
}

/// Whether a probe may be placed behind `instruction` instead of at it.
///
/// The instruction must go on to the next one and leave alone everything that the record captures: the argument
/// registers, `rsp`, memory (arguments on the stack, and the memory that pointers point at). An instruction that writes
/// memory is always refused, for another reason too: the call that replaces a nop5 writes below `rsp`, where a leaf
/// function may by then keep data (the red zone; Linux 6.18 does not skip it).
fn passable(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> Result<(), Stop> {
    if instruction.flow_control() != FlowControl::Next {
        return Err(Stop::Branch);
    }
    if instruction.is_privileged() {
        return Err(Stop::System);
    }
    let info = factory.info(instruction);
    for used in info.used_registers() {
        if !writes(used.access()) {
            continue;
        }
        match used.register().full_register() {
            Register::RSP => return Err(Stop::StackPointer),
            register if register.is_segment_register() => return Err(Stop::System),
            register => {
                if let Some(register) = argument(register) {
                    return Err(Stop::Argument { register, cheap_behind: false });
                }
            }
        }
    }
    if info.used_memory().iter().any(|used| writes(used.access())) {
        return Err(Stop::MemoryWrite);
    }
    Ok(())
}

/// Whether an instruction may write an operand that it uses with this access.
pub(super) const fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// The name of an argument register of the calling convention.
fn argument(register: Register) -> Option<&'static str> {
    Some(match register {
        Register::RDI => "rdi",
        Register::RSI => "rsi",
        Register::RDX => "rdx",
        Register::RCX => "rcx",
        Register::R8 => "r8",
        Register::R9 => "r9",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by `cargo xtask fuzz`.
    #[test]
    fn the_walk_ends_where_the_address_space_does() {
        let code = [0x0f, 0x1f, 0, 0x0f, 0x1f, 0, 0x55];
        let found = search(&code, u64::MAX - 4, KernelVersion::new(6, 18));
        let offsets: Vec<u64> =
            found.candidates.iter().map(|c| c.instruction.ip() - (u64::MAX - 4)).collect();
        assert!(!offsets.contains(&6) && offsets.contains(&0), "{offsets:?}");
    }
}
