//! The types of the generated table.

use tracer_common::activity::Domain;

/// A function of the HIP or HSA runtime, or of roctx.
#[derive(Debug)]
pub struct Operation {
    /// The name that people know, also for functions with C++ linkage.
    pub name: &'static str,
    /// The symbol in the library; `None` for a function that is declared but reached only through an API table, or
    /// exported only by other releases.
    pub symbol: Option<&'static str>,
    /// [`Domain::HIP_API`], [`Domain::HSA_API`] or [`Domain::ROCTX`].
    pub domain: Domain,
    /// HIP: `HIP_API_ID_*`. HSA: roctracer's `hsa_api_id_t`. From 1024 up: our own, for functions
    /// that those have no id for, in alphabetical order of ROCm 5.2.3. From 2048 up: those that later
    /// releases have, in the order of these; HIP's own ids are others in each release. roctx:
    /// [`tracer_common::activity::roctx`].
    pub id: u16,
    /// In order of declaration.
    pub args: &'static [Argument],
    /// The type of its result; of kind [`Kind::Unknown`] when the prototype is unknown.
    pub ret: &'static Type,
}

impl Operation {
    /// The argument of that name.
    pub fn arg(&self, name: &str) -> Option<&'static Argument> {
        self.args.iter().find(|arg| arg.name == name)
    }
}

/// An argument and its place at entry.
#[derive(Debug)]
pub struct Argument {
    /// As the header names it, else `arg` and its index.
    pub name: &'static str,
    /// Its type.
    pub ty: &'static Type,
    /// The place of its first word. Further words follow in the next registers or stack words.
    pub place: ArgumentPlace,
}

impl Argument {
    pub(super) const fn words(&self) -> usize {
        self.ty.kind.words()
    }
}

/// The place of an argument at entry (System V ABI, x86-64).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgumentPlace {
    /// Index into `rdi, rsi, rdx, rcx, r8, r9`.
    Register(u8),
    /// 8-byte words above the return address.
    Stack(u8),
    /// `xmm` register: never captured.
    Vector(u8),
}

/// A C type.
#[derive(Debug)]
pub struct Type {
    /// As the header writes it.
    pub name: &'static str,
    /// The way in which a value is read.
    pub kind: Kind,
}

/// The way in which a value of a [`Type`] is read.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// The prototype is not known.
    Unknown,
    /// No value.
    Void,
    /// One byte, 0 or 1.
    Bool,
    /// Two's complement, this many bits; the rest of the register is garbage.
    Signed(u8),
    /// This many bits; the rest of the register is garbage.
    Unsigned(u8),
    /// Floating point, not captured.
    Float,
    /// A pointer or reference.
    Pointer,
    /// A pointer to a function.
    Function,
    /// `hipStream_t`.
    Stream,
    /// A struct of one 64-bit handle, such as `hsa_agent_t`.
    Handle,
    /// 32 bits, with names for values.
    Enumeration(&'static Enumeration),
    /// HIP's `dim3`: three 32-bit numbers in two words.
    Dim3,
    /// Another struct, of that many bytes, by value.
    Struct(u16),
}

impl Kind {
    pub(super) const fn words(self) -> usize {
        match self {
            Self::Unknown | Self::Void => 0,
            Self::Dim3 => 2,
            Self::Struct(bytes) => (bytes as usize).div_ceil(8),
            _ => 1,
        }
    }

    /// Whether a value can be printed once its words are known.
    pub(super) const fn printable(self) -> bool {
        !matches!(self, Self::Unknown | Self::Void | Self::Float | Self::Struct(_))
    }
}

/// Names of an enumeration's values.
#[derive(Debug)]
pub struct Enumeration {
    /// The enumeration's name.
    pub name: &'static str,
    /// In ascending order, one name for each value.
    pub values: &'static [(i64, &'static str)],
}

impl Enumeration {
    /// The name of a value.
    pub fn value_name(&self, value: i64) -> Option<&'static str> {
        let index = self.values.binary_search_by_key(&value, |(v, _)| *v).ok()?;
        self.values.get(index).map(|(_, name)| *name)
    }

    /// Whether any value is negative, and so the underlying type signed.
    pub(super) fn is_signed(&self) -> bool {
        self.values.first().is_some_and(|(value, _)| *value < 0)
    }
}

pub(super) const fn register(name: &'static str, ty: &'static Type, n: u8) -> Argument {
    Argument { name, ty, place: ArgumentPlace::Register(n) }
}

pub(super) const fn stack(name: &'static str, ty: &'static Type, n: u8) -> Argument {
    Argument { name, ty, place: ArgumentPlace::Stack(n) }
}

pub(super) const fn vector(name: &'static str, ty: &'static Type, n: u8) -> Argument {
    Argument { name, ty, place: ArgumentPlace::Vector(n) }
}
