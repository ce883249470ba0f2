//! The symbols that a library exports, compared with a committed list.
//!
//! A list is `tracer-capi/abi/<soname>.txt`, its lines `<name>@@<version> <kind>` with a `function` or an `object`, or
//! `<name>@<version> <kind>` for a symbol that only programs find that ask for that version, or `<name> <kind>` where
//! symbols have no versions.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, bail};
use object::{
    elf::{SHN_ABS, STB_LOCAL, STT_FUNC, STT_GNU_IFUNC, STT_OBJECT, STT_TLS},
    read::elf::{Dyn as _, ElfFile64, Sym as _},
};

use crate::{Library, entries, source_directory};

impl Library {
    /// Compares what a library exports with the committed list.
    ///
    /// # Errors
    ///
    /// If the library is not as the list says, with each difference; or cannot be read.
    pub fn check(&self, library: &Path) -> anyhow::Result<()> {
        let bytes = fs::read(library).with_context(|| format!("reading {}", library.display()))?;
        let exported =
            exported(&bytes).with_context(|| format!("symbols of {}", library.display()))?;
        let list = source_directory()?.join("abi").join(format!("{}.txt", self.soname));
        let list =
            fs::read_to_string(&list).with_context(|| format!("reading {}", list.display()))?;
        let wanted = wanted(&list)?;
        let mut differences: Vec<String> =
            wanted.difference(&exported).map(|symbol| format!("missing: {symbol}")).collect();
        differences
            .extend(exported.difference(&wanted).map(|symbol| format!("not listed: {symbol}")));
        let soname = soname(&bytes)?;
        if soname != self.soname {
            differences.push(format!("soname is {soname:?}"));
        }
        if !differences.is_empty() {
            bail!("{} is not as listed:\n  {}", self.soname, differences.join("\n  "));
        }
        Ok(())
    }
}

/// The symbols of a list, as [`exported`] writes them.
fn wanted(list: &str) -> anyhow::Result<BTreeSet<String>> {
    let mut wanted = BTreeSet::new();
    for entry in entries(list) {
        let symbol = entry.split_whitespace().collect::<Vec<_>>().join(" ");
        if !wanted.insert(symbol) {
            bail!("listed twice: {entry}");
        }
    }
    Ok(wanted)
}

/// All symbols that a library defines for others.
fn exported(bytes: &[u8]) -> anyhow::Result<BTreeSet<String>> {
    let file = ElfFile64::<object::Endianness>::parse(bytes)?;
    let endian = file.endian();
    let versions = file.elf_section_table().versions(endian, bytes)?;
    let mut exported = BTreeSet::new();
    let symbols = file.elf_dynamic_symbol_table();
    for (index, symbol) in symbols.enumerate() {
        if symbol.is_undefined(endian) || symbol.st_bind() == STB_LOCAL {
            continue;
        }
        let name = String::from_utf8_lossy(symbols.symbol_name(endian, symbol)?);
        let index = versions.as_ref().map(|versions| versions.version_index(endian, index));
        let version = match (&versions, index) {
            (Some(versions), Some(index)) => versions.version(index)?,
            _ => None,
        };
        let version = version.map(|version| String::from_utf8_lossy(version.name()).into_owned());
        // GNU ld makes a symbol of each version, other linkers do not. Nobody can call it.
        if symbol.st_shndx(endian) == SHN_ABS && version.as_deref() == Some(&*name) {
            continue;
        }
        let kind = match symbol.st_type() {
            STT_FUNC | STT_GNU_IFUNC => "function",
            STT_OBJECT => "object",
            STT_TLS => "thread-local",
            _ => "other",
        };
        let is_hidden = index.is_some_and(|index| index.is_hidden());
        exported.insert(match version {
            Some(version) if is_hidden => format!("{name}@{version} {kind}"),
            Some(version) => format!("{name}@@{version} {kind}"),
            None => format!("{name} {kind}"),
        });
    }
    Ok(exported)
}

fn soname(bytes: &[u8]) -> anyhow::Result<String> {
    let file = ElfFile64::<object::Endianness>::parse(bytes)?;
    let endian = file.endian();
    let sections = file.elf_section_table();
    let (dynamic, strings) =
        sections.dynamic(endian, bytes)?.context("it has no dynamic section")?;
    let strings = sections.strings(endian, bytes, strings)?;
    let entry = dynamic.iter().find(|entry| entry.d_tag(endian) == object::elf::DT_SONAME.into());
    let name = entry.context("it has no soname")?.string(endian, strings)?;
    Ok(String::from_utf8_lossy(name).into_owned())
}
