//! The types of the generated table.

/// ROCm before 5.3.1.
pub const FIRST: u8 = 1;
/// From there to 5.7.
pub const FIVE: u8 = 2;
/// ROCm 6 and 7.
pub const LATER: u8 = 4;

/// A function with arguments, as some releases report it.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// The releases, a bit for each.
    pub releases: u8,
    /// Its arguments, in order.
    pub fields: &'static [Field],
}

/// An argument.
#[derive(Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its place: bytes from the begin of `hip_api_data_t`.
    pub at: u16,
    /// The kind of its type.
    pub kind: Kind,
    /// The field `<name>__val`, for a copy of the value that the argument points at.
    pub copy: Option<Copy>,
}

/// A copy of the value that an argument points at. HIP makes the place, and leaves it to the tracer to fill it.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// Its place.
    pub at: u16,
    /// Its size.
    pub bytes: u16,
    /// The kind of its type.
    pub kind: Kind,
}

/// The kind of a field; numbers with their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Two's complement, or an enumeration that has negative values.
    Signed(u8),
    /// A number, a boolean, or an enumeration.
    Unsigned(u8),
    /// Floating point.
    Float(u8),
    /// An address.
    Pointer,
    /// The address of a string.
    Text,
    /// HIP's `dim3`.
    Dim3,
    /// Another structure.
    Struct,
}

pub(super) const fn plain(name: &'static str, at: u16, kind: Kind) -> Field {
    Field { name, at, kind, copy: None }
}

pub(super) const fn copied(
    name: &'static str,
    at: u16,
    kind: Kind,
    copy_at: u16,
    bytes: u16,
    copy_kind: Kind,
) -> Field {
    Field { name, at, kind, copy: Some(Copy { at: copy_at, bytes, kind: copy_kind }) }
}
