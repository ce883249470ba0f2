//! The contents of a plan.

use std::{fmt, path::PathBuf};

use super::kernel::{Class, Refusal};
use crate::discover::SHIM_FILE_NAME;

/// The site in one function, and the facts about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionPlan {
    /// The function's primary name.
    pub symbol: String,
    /// Other names of functions that a probe at this site cannot tell apart from this one.
    pub aliases: Vec<String>,
    /// How the probed function was reached from the exported one.
    pub reached: ReachedBy,
    /// The place to probe; none if no probe may be placed.
    pub site: Option<Site>,
    /// The shortcomings of the site or of the function, and their reasons. Empty for a cheap site in a function that
    /// is as expected.
    pub notes: Vec<Note>,
}

impl FunctionPlan {
    /// The primary name and the aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.symbol).chain(&self.aliases).map(String::as_str)
    }

    /// Whether there is a site and it is of a cheap class.
    pub fn is_cheap(&self) -> bool {
        self.site.as_ref().is_some_and(|site| site.class.is_cheap())
    }
}

/// A place for a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Offset of the probed instruction in the library's file.
    pub file_offset: u64,
    /// Offset of the probed instruction from the entry of the function.
    pub function_offset: u64,
    /// The instruction, as an assembler would have it.
    pub instruction: String,
    /// The cost of a probe there.
    pub class: Class,
    /// Whether a return probe may be placed there.
    pub return_probe: ReturnProbe,
}

/// Whether a return probe may be placed at a site.
///
/// The kernel's return probe takes the word at `rsp` for the return address and puts its own in its
/// place (`arch_uretprobe_hijack_return_addr`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReturnProbe {
    /// `rsp` points at the return address there.
    Allowed,
    /// The function calls the caller's code back. An exception that unwinds from there through the return-probed frame
    /// aborts the program, because the return address is not the one that the unwind tables know.
    CallsBack,
    /// The unwind tables contradict: they say that `rsp` does not point at the return address.
    WrongStack,
}

/// How a probed function was reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReachedBy {
    /// It is the exported function itself.
    Exported,
    /// It is the function to which the exported stub jumps, in the same library, by the process's live table.
    Implementation {
        /// Where in the library's file the implementation begins.
        file_offset: u64,
        /// Where the stub finds the address.
        slot: Slot,
    },
    /// The exported function is a stub, and the live table leads elsewhere: another tool has put
    /// itself in between.
    Redirected {
        /// Where the table leads.
        target: OutsideCode,
        /// Where the stub finds the address.
        slot: Slot,
        /// Where the site is.
        probed: Probed,
    },
    /// The exported function is a stub, but its target is not known: there is no process, or its table cannot be read.
    /// The site is in the stub.
    Stub {
        /// Where the stub would find the address.
        slot: Slot,
    },
}

/// The function that is probed, of those that a call passes through if another tool has put one of its own in between.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Probed {
    /// The exported stub, if its implementation is not known.
    Stub,
    /// The function in the library to which the stub would jump.
    Implementation {
        /// Where in the library's file it begins.
        file_offset: u64,
    },
}

/// Where a stub finds the address that it jumps to. Addresses are those of the image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Slot {
    /// In a variable.
    Variable {
        /// Its address.
        address: u64,
    },
    /// In a table that a variable points at.
    Table {
        /// The variable's address.
        pointer: u64,
        /// Offset of the entry in the table, bytes.
        offset: u64,
    },
}

/// Code outside the library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutsideCode {
    /// The file that is mapped there; none for anonymous memory.
    pub path: Option<PathBuf>,
    /// Address in the process.
    pub address: u64,
}

impl OutsideCode {
    /// Whether it is roctap's own shim, which an earlier recording may have left there.
    pub fn is_shim(&self) -> bool {
        let path = self.path.as_ref().map(|path| path.to_string_lossy());
        path.is_some_and(|path| path.contains(SHIM_FILE_NAME))
    }
}

/// The name of the file, for people.
impl fmt::Display for OutsideCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}", path.display()),
            None => f.write_str("anonymous memory"),
        }
    }
}

/// A fact that the reader of a plan should know.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Note {
    /// No cheap site can be reached from the entry.
    #[error("no cheap site: {0}")]
    NoCheapSite(Stop),
    /// A cheap site lies further on but may not be used.
    #[error("the cheap site at +{offset} may not be used: {reason}")]
    NotMoved {
        /// Its distance from the entry.
        offset: u64,
        /// Why not.
        reason: NotMoved,
    },
    /// The kernel refuses a probe at the entry.
    #[error("the entry cannot be probed: {0}")]
    EntryRefused(Refusal),
    /// The symbol is not in an executable part of the file.
    #[error("the symbol is not in executable contents of the file")]
    NotCode,
    /// The code is in a writable mapping, where the kernel places no probes.
    #[error("the code is in a writable segment")]
    WritableCode,
    /// The unwind tables have no entry for the function.
    #[error("no unwind table entry")]
    NoUnwindEntry,
    /// The symbol and the unwind tables do not agree on where the function begins or ends, or the
    /// tables' frame is not that of a function's entry.
    #[error("unwind tables and code disagree: {0}")]
    Disagreement(&'static str),
    /// The function jumps back to its entry: a probe there fires more than once a call.
    #[error("the function jumps to its own entry: a probe there fires more than once a call")]
    EntryIsJumpTarget,
    /// The stub's table could not be followed.
    #[error("the stub was not followed: {0}")]
    NotFollowed(&'static str),
}

/// The instruction or limit at which a search for a cheap site ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stop {
    /// An instruction that may branch, call or return.
    Branch,
    /// An instruction that moves the stack pointer.
    StackPointer,
    /// An instruction that writes an argument register; whether a cheap site comes right behind.
    Argument {
        /// `rdi`, `rsi`, `rdx`, `rcx`, `r8` or `r9`.
        register: &'static str,
        /// A cheap site comes soon behind, where this argument is lost.
        cheap_behind: bool,
    },
    /// An instruction that writes memory: it could change an argument there, or data below the stack pointer.
    MemoryWrite,
    /// An instruction that changes a segment, or that only the kernel may execute.
    System,
    /// Bytes that are no instruction, or the function's end.
    End,
    /// The longest distance that is searched.
    Distance,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Branch => f.write_str("a branch comes first"),
            Self::StackPointer => f.write_str("the stack pointer is moved first"),
            Self::Argument { register, cheap_behind: true } => {
                write!(f, "{register} is overwritten before the cheap site")
            }
            Self::Argument { register, .. } => write!(f, "{register} is overwritten first"),
            Self::MemoryWrite => f.write_str("memory is written first"),
            Self::System => f.write_str("a system instruction comes first"),
            Self::End => f.write_str("the code ends first"),
            Self::Distance => f.write_str("none near the entry"),
        }
    }
}

/// Why a site behind the entry may not be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NotMoved {
    /// The unwind tables are missing or disagree (see the other notes).
    NoUnwindRows,
    /// The tables say that `rsp` does not point at the return address there.
    WrongStack,
    /// A branch at this address lands between the entry and the site.
    JumpTarget {
        /// Address in the image of the branch.
        from: u64,
    },
    /// The target of the indirect jump at this address cannot be determined.
    IndirectJump {
        /// Address in the image of the jump.
        from: u64,
    },
    /// The function cannot be decoded to its end.
    Undecodable,
}

impl fmt::Display for NotMoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUnwindRows => f.write_str("the unwind tables do not vouch for it"),
            Self::WrongStack => f.write_str("the unwind tables say that the stack has moved"),
            Self::JumpTarget { from } => write!(f, "the branch at {from:#x} lands before it"),
            Self::IndirectJump { from } => {
                write!(f, "the indirect jump at {from:#x} could land before it")
            }
            Self::Undecodable => f.write_str("the function cannot be decoded to its end"),
        }
    }
}
