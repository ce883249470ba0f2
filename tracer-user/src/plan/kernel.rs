//! How the kernel handles a probed instruction, by version.
//!
//! Facts are from `arch/x86/kernel/uprobes.c` (functions named below) and, from 6.19 on, `insn_is_nop` in
//! `arch/x86/lib/insn-eval.c`. A wrong class costs time; a probe on an instruction that the kernel misreads breaks the
//! program. So a doubtful instruction is refused, and one that may or may not be cheap counts as single-stepped.

use std::{fmt, ops::Range};

use tracer_common::shim::{DISPATCH_CODE, DISPATCH_LONG_NOP};

/// A kernel release, as far as probe costs depend on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KernelVersion {
    /// 6 of 6.18.
    pub major: u16,
    /// 18 of 6.18.
    pub minor: u16,
}

impl KernelVersion {
    /// `push reg` is emulated (`push_setup_xol_ops`, commit e7ed9d9bd037; 4.14 does not have it, so the first release
    /// after that which certainly has it is taken).
    pub const EMULATES_PUSH: Self = Self::new(4, 16);
    /// The nops that the kernel itself uses are emulated (`branch_setup_xol_ops` compares with
    /// `x86_nops[length]`).
    pub const EMULATES_LONG_NOPS: Self = Self::new(6, 16);
    /// A 5-byte nop becomes a call after the first hit (`can_optimize`).
    pub const OPTIMISES_NOP5: Self = Self::new(6, 18);
    /// All `nopl` forms and `mov %r,%r` are emulated; `pause` and `xchg %r8,%rax` no longer taken for
    /// nops (`insn_is_nop`, commit 8a5c6cbfe4a3).
    pub const EMULATES_ALL_NOPS: Self = Self::new(6, 19);
    /// 10-byte nops take the place of 5-byte ones ("uprobes/x86: Move optimized uprobe from nop5 to nop10": queued
    /// while 7.2 was being stabilised). On a kernel that took the change over earlier, a nop5 costs as much as an
    /// emulated instruction, and is not wrong.
    pub const OPTIMISES_NOP10: Self = Self::new(7, 3);

    /// Version `major.minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Reads a release such as `6.18.44-1-amd64`.
    pub fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some(Self::new(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    /// The running kernel.
    pub fn running() -> Option<Self> {
        Self::parse(rustix::system::uname().release().to_str().ok()?)
    }

    const fn optimises_nop5(self) -> bool {
        let (version, from, to) = (self.number(), Self::OPTIMISES_NOP5, Self::OPTIMISES_NOP10);
        version >= from.number() && version < to.number()
    }

    const fn number(self) -> u32 {
        (self.major as u32) << 16 | self.minor as u32
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The cost of a probe on an instruction. Ordered: the cheapest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// A 5-byte nop: the kernel replaces the trap by a call.
    Nop5,
    /// The trap handler emulates the instruction.
    Emulated,
    /// The instruction is executed out of line with the trap flag set: a second trap, and on a
    /// virtual machine a very dear one.
    SingleStep,
}

impl Class {
    /// Nanoseconds of an entry probe with an empty program, on the machine of `docs/probe-sites.md`. On other machines
    /// the ratios are similar, the figures are not.
    pub const fn entry_ns(self) -> u32 {
        match self {
            Self::Nop5 => 201,
            Self::Emulated => 435,
            Self::SingleStep => 16_000,
        }
    }

    /// Nanoseconds of an entry probe together with a return probe.
    pub const fn entry_and_return_ns(self) -> u32 {
        match self {
            Self::Nop5 => 446,
            Self::Emulated => 699,
            Self::SingleStep => 17_000,
        }
    }

    /// Whether it is one of the two cheap classes.
    pub const fn is_cheap(self) -> bool {
        !matches!(self, Self::SingleStep)
    }

    /// The name of the class.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nop5 => "nop5",
            Self::Emulated => "emulated",
            Self::SingleStep => "single-step",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why no probe may be placed on an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// Not an instruction (or one that does not end within the function).
    #[error("the bytes are no instruction")]
    Invalid,
    /// It has an es, cs, ss, ds (also `notrack`) or lock prefix (`is_prefix_bad`).
    #[error("the kernel refuses the instruction's prefix")]
    Prefix,
    /// Its opcode is not in the kernel's table of good instructions (`good_insns_64`,
    /// `good_2byte_insns`, `insn_masking_exception`), or it is a branch with a 16-bit operand.
    #[error("the kernel refuses the instruction")]
    Opcode,
    /// The kernel would emulate another instruction in its place: before 6.19 `xchg %r8,%rax` as a
    /// nop; and it compares the opcode byte of VEX, EVEX and XOP instructions with those of jumps
    /// and calls. Tried on 6.18: a probe on `vmovdqa %ymm0,(%rdi)`, taken for `jg`, loses the store.
    #[error("the kernel would mistake the instruction for another")]
    Misread,
}

/// A decoded instruction's bytes, taken apart as the kernel does.
struct Parts<'a> {
    prefixes: &'a [u8],
    rex: u8,
    /// The opcode and the bytes behind it.
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let count = bytes.iter().take_while(|b| is_legacy_prefix(**b)).count();
        let (prefixes, rest) = bytes.split_at(count);
        let (rex, rest) = match rest {
            [rex @ 0x40..=0x4f, rest @ ..] => (*rex, rest),
            rest => (0, rest),
        };
        (!rest.is_empty()).then_some(Self { prefixes, rex, rest })
    }

    fn has_prefix(&self, prefix: u8) -> bool {
        self.prefixes.contains(&prefix)
    }

    const fn rex_b(&self) -> bool {
        self.rex & 1 != 0
    }

    /// `0f 1f /0`.
    fn is_nopl(&self) -> bool {
        matches!(self.rest, [0x0f, 0x1f, modrm, ..] if modrm >> 3 & 7 == 0)
    }
}

const fn is_legacy_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
}

/// The class of the instruction whose bytes these are, all of them and no more.
///
/// `page_offset` is where in its page it begins: the kernel rewrites no nop across pages.
///
/// # Errors
///
/// When the kernel refuses the instruction or would misread it.
pub fn classify(bytes: &[u8], page_offset: u64, kernel: KernelVersion) -> Result<Class, Refusal> {
    let parts = Parts::of(bytes).ok_or(Refusal::Invalid)?;
    check(&parts, kernel)?;
    let optimised = bytes.len() == 5
        && kernel.optimises_nop5()
        && (parts.is_nopl() || parts.rest == [0x90])
        && page_offset % 4096 <= 4096 - 5;
    Ok(match parts.rest {
        _ if optimised => Class::Nop5,
        [0x90] if parts.has_prefix(0xf3) && kernel >= KernelVersion::EMULATES_ALL_NOPS => {
            Class::SingleStep
        }
        // xchg %r8,%rax: see `check`.
        [0x90] if parts.rex_b() => Class::SingleStep,
        [0x90] => Class::Emulated,
        // Without a prefix, or with 0x41: with another REX the instruction is longer than the form that the kernel
        // recognises.
        [0x50..=0x57] if parts.prefixes.is_empty() && matches!(parts.rex, 0 | 0x41) => {
            if kernel >= KernelVersion::EMULATES_PUSH { Class::Emulated } else { Class::SingleStep }
        }
        // Since 3.16; earlier releases do not matter here.
        [0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..] | [0x0f, 0x80..=0x8f, ..] => Class::Emulated,
        _ if is_emulated_nop(bytes, &parts, kernel) => Class::Emulated,
        _ => Class::SingleStep,
    })
}

/// The instruction of the dispatch site, [`DISPATCH_CODE`], that is probed most cheaply: its offset, and its class.
/// `page_offset` is the offset in its page at which the site begins.
pub fn dispatch_site(page_offset: u64, kernel: KernelVersion) -> (u64, Class) {
    let (short, long) = (0..DISPATCH_LONG_NOP, DISPATCH_LONG_NOP..DISPATCH_CODE.len() - 1);
    let class = |nop: &Range<usize>| {
        let (code, offset) = (&DISPATCH_CODE[nop.clone()], nop.start as u64);
        // SANITY: no kernel refuses nops; if one did, a site that is not cheap would do no harm.
        (offset, classify(code, page_offset + offset, kernel).unwrap_or(Class::SingleStep))
    };
    let (short, long) = (class(&short), class(&long));
    if long.1 < short.1 { long } else { short }
}

/// Nops other than `90`.
fn is_emulated_nop(bytes: &[u8], parts: &Parts<'_>, kernel: KernelVersion) -> bool {
    if kernel >= KernelVersion::EMULATES_ALL_NOPS {
        return parts.is_nopl() || is_self_move(parts);
    }
    kernel >= KernelVersion::EMULATES_LONG_NOPS && is_kernel_nop(bytes)
}

/// `mov %r,%r` of 64 bits.
fn is_self_move(parts: &Parts<'_>) -> bool {
    let [0x89, modrm] = *parts.rest else { return false };
    let (wide, r, b) = (parts.rex & 8 != 0, parts.rex >> 2 & 1, parts.rex & 1);
    wide && parts.prefixes.is_empty() && modrm >> 6 == 3 && r == b && modrm >> 3 & 7 == modrm & 7
}

/// `x86_nops`: one form for each length up to 11 (`arch/x86/include/asm/nops.h`).
fn is_kernel_nop(bytes: &[u8]) -> bool {
    match bytes {
        [0x66, 0x90]
        | [0x0f, 0x1f, 0x00]
        | [0x0f, 0x1f, 0x40, 0]
        | [0x0f, 0x1f, 0x44, 0, 0]
        | [0x66, 0x0f, 0x1f, 0x44, 0, 0]
        | [0x0f, 0x1f, 0x80, 0, 0, 0, 0] => true,
        [prefixes @ .., 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0] => {
            prefixes.len() <= 3 && prefixes.iter().all(|b| *b == 0x66)
        }
        _ => false,
    }
}

/// Checks that the kernel accepts the instruction and reads it right.
fn check(parts: &Parts<'_>, kernel: KernelVersion) -> Result<(), Refusal> {
    if parts.prefixes.iter().any(|p| matches!(p, 0x26 | 0x2e | 0x36 | 0x3e | 0xf0)) {
        return Err(Refusal::Prefix);
    }
    let wide_off = parts.has_prefix(0x66);
    match *parts.rest {
        // VEX, EVEX, XOP (8f with a map number of 8 and more; less is `pop`).
        [0xc4 | 0xc5 | 0x62, ..] => Err(Refusal::Misread),
        [0x8f, map, ..] if map & 0x1f >= 8 => Err(Refusal::Misread),
        // REX2 (APX): `push_setup_xol_ops` does not know it.
        [0xd5, ..] => Err(Refusal::Misread),
        [0x90] if parts.rex_b() && kernel < KernelVersion::EMULATES_ALL_NOPS => {
            Err(Refusal::Misread)
        }
        [0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, ..] | [0x0f, 0x80..=0x8f, ..] if wide_off => {
            Err(Refusal::Opcode)
        }
        // mov to ss holds back the trap of the next instruction.
        [0x8e, modrm, ..] if modrm >> 3 & 7 == 2 => Err(Refusal::Opcode),
        // The kernel does not reach its table of these in 64-bit mode (0f itself is "good"), but the table's comment
        // lists instructions that cannot work: system calls, ud2, descriptor tables, VMX.
        [0x0f, 0x00 | 0x01 | 0x05..=0x09 | 0x0b | 0x30 | 0x34 | 0x35 | 0x37, ..]
        | [0x0f, 0x78 | 0x79 | 0xae | 0xb9 | 0xff, ..] => Err(Refusal::Opcode),
        [opcode, ..] if is_bad_opcode(opcode) => Err(Refusal::Opcode),
        _ => Ok(()),
    }
}

/// The zeros of `good_insns_64`.
const fn is_bad_opcode(opcode: u8) -> bool {
    matches!(
        opcode,
        0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x27 | 0x2f | 0x37 | 0x3f
            | 0x60..=0x62
            | 0x6c..=0x6f
            | 0x82
            | 0x9a
            | 0xcc..=0xcf
            | 0xd4..=0xd6
            | 0xe4..=0xe7
            | 0xea
            | 0xec..=0xef
            | 0xf1
            | 0xf4
            | 0xfa
            | 0xfb
    )
}
