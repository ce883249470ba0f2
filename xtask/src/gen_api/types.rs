//! C types, as far as printing a value and finding its register needs them.

use anyhow::{Result, ensure};

use super::clang::{Headers, bare};

/// Mirrors `Kind` of the table, see there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Unknown,
    Void,
    Bool,
    Signed(u8),
    Unsigned(u8),
    Float,
    Pointer,
    Function,
    Stream,
    Handle,
    Enumeration(String),
    Dim3,
    Struct(u64),
}

/// A type of an argument or a result.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Type {
    /// As the header writes it.
    pub name: String,
    pub kind: Kind,
}

impl Type {
    pub fn unknown() -> Self {
        Self { name: "?".into(), kind: Kind::Unknown }
    }

    /// Classifies a type by its spelling and its resolved form.
    pub fn new(headers: &Headers, written: &str, resolved: &str) -> Result<Self> {
        let kind = kind(headers, bare(written), bare(resolved))?;
        Ok(Self { name: written.replace("struct ", "").replace("enum ", ""), kind })
    }

    /// 8-byte words in registers or on the stack.
    pub fn words(&self) -> u64 {
        match self.kind {
            Kind::Void | Kind::Unknown => 0,
            Kind::Dim3 => 2,
            Kind::Struct(bytes) => bytes.div_ceil(8),
            _ => 1,
        }
    }
}

fn kind(headers: &Headers, written: &str, resolved: &str) -> Result<Kind> {
    if written == "hipStream_t" {
        return Ok(Kind::Stream);
    }
    if resolved.contains("(*") {
        return Ok(Kind::Function);
    }
    if resolved.ends_with(['*', '&']) {
        return Ok(Kind::Pointer);
    }
    // `hsa_queue_type32_t` is a uint32_t that holds an `hsa_queue_type_t`.
    if let Some(stem) = written.strip_suffix("32_t")
        && headers.enumerations.contains_key(&format!("{stem}_t"))
    {
        return Ok(Kind::Enumeration(format!("{stem}_t")));
    }
    Ok(match resolved {
        "void" => Kind::Void,
        "bool" => Kind::Bool,
        "char" | "signed char" => Kind::Signed(8),
        "short" => Kind::Signed(16),
        "int" => Kind::Signed(32),
        "long" | "long long" => Kind::Signed(64),
        "unsigned char" => Kind::Unsigned(8),
        "unsigned short" => Kind::Unsigned(16),
        "unsigned int" => Kind::Unsigned(32),
        "unsigned long" | "unsigned long long" => Kind::Unsigned(64),
        "float" | "double" => Kind::Float,
        "dim3" => Kind::Dim3,
        name if headers.enumerations.contains_key(name) => Kind::Enumeration(name.into()),
        name => record(headers, name)?,
    })
}

fn record(headers: &Headers, name: &str) -> Result<Kind> {
    let size = headers.sizes.get(name).copied().unwrap_or(0);
    // Results are spelled with their typedef, which clang measured as well.
    match name {
        "hsa_signal_value_t" => return Ok(Kind::Signed(64)),
        "uint64_t" | "size_t" => return Ok(Kind::Unsigned(64)),
        "uint32_t" => return Ok(Kind::Unsigned(32)),
        _ => {}
    }
    ensure!(size > 0, "type {name} is not understood");
    ensure!(size > 16 || !headers.with_floats.contains(name), "{name} is passed in SSE registers");
    Ok(if size == 8 { Kind::Handle } else { Kind::Struct(size) })
}
