//! Sizes, offsets and constants of the headers, compared with a committed list by the C compiler.
//!
//! A line of `tracer-capi/abi/layouts.txt` is one of
//!
//! ```text
//! program                            what follows is compiled by itself: its headers do not go with those above
//! define <name> <value>              a macro, before all headers
//! header <path>                      the headers that what follows is in
//! type <type> <size> <alignment>
//! field <type> <field> <offset> <size>
//! constant <name> <value>
//! ```

use std::{fmt::Write as _, fs, path::Path, process::Command};

use anyhow::{Context as _, bail};

use crate::{entries, include_directory, source_directory};

/// A language, and how its compiler is told to accept nothing else.
#[derive(Clone, Copy, Debug)]
pub enum Language {
    /// C99.
    C,
    /// C++11.
    Cpp,
}

impl Language {
    /// The oldest of each that clients use.
    pub const ALL: [Self; 2] = [Self::C, Self::Cpp];

    /// A compiler that finds our headers, and `check.h` for clients, and takes no extension silently.
    ///
    /// # Errors
    ///
    /// If there is no directory of headers.
    pub fn compiler(self) -> anyhow::Result<Command> {
        let (program, standard) = match self {
            Self::C => ("cc", "-std=c99"),
            Self::Cpp => ("c++", "-std=c++11"),
        };
        let mut command = Command::new(program);
        command.args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic-errors", "-pthread"]);
        command.arg("-I").arg(include_directory()?);
        command.arg("-I").arg(source_directory()?.join("build/clients"));
        Ok(command)
    }

    /// The ending of a source's name.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cpp => "cpp",
        }
    }
}

/// Compares the headers with the list, in C99 and C++11. `scratch` is a directory for the program that
/// does it.
///
/// # Errors
///
/// If anything differs, with what the compiler said.
pub fn check(scratch: &Path) -> anyhow::Result<()> {
    let list = source_directory()?.join("abi/layouts.txt");
    let list = fs::read_to_string(&list).with_context(|| format!("reading {}", list.display()))?;
    let programs = programs(&list)?;
    fs::create_dir_all(scratch)?;
    let all = programs.iter().flat_map(|program| Language::ALL.map(|language| (program, language)));
    for (program, language) in all {
        let source = scratch.join(format!("layouts.{}", language.extension()));
        fs::write(&source, program).with_context(|| format!("writing {}", source.display()))?;
        let output = language
            .compiler()?
            .arg("-fsyntax-only")
            .arg(&source)
            .output()
            .context("cannot run the C compiler")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("the headers are not as abi/layouts.txt says, in {language:?}:\n{said}");
        }
    }
    Ok(())
}

/// Programs that compile only if the list is right.
fn programs(list: &str) -> anyhow::Result<Vec<String>> {
    let entries: Vec<&str> = entries(list).collect();
    entries.split(|&entry| entry == "program").map(program).collect()
}

/// One of them: C99 has no static assertion, but no array of a negative size either.
fn program(entries: &[&str]) -> anyhow::Result<String> {
    let (mut defines, mut headers) = (String::new(), String::new());
    let mut checks = String::new();
    for (number, entry) in entries.iter().enumerate() {
        let words: Vec<&str> = entry.split_whitespace().collect();
        let mut check = |condition: &str, name: &str| {
            let name: String =
                name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            writeln!(checks, "typedef char is_{name}_{number}[({condition}) ? 1 : -1];")
        };
        match words.as_slice() {
            ["define", name, value] => writeln!(defines, "#define {name} {value}")?,
            ["header", path] => writeln!(headers, "#include <{path}>")?,
            ["type", ty, size, alignment] => {
                check(&format!("sizeof({ty}) == {size}"), ty)?;
                let aligned = format!("struct align_{number} {{ char c; {ty} v; }};");
                writeln!(checks, "{aligned}")?;
                let condition = format!("offsetof(struct align_{number}, v) == {alignment}");
                writeln!(checks, "typedef char aligned_{number}[({condition}) ? 1 : -1];")?;
            }
            ["field", ty, field, offset, size] => {
                let name = format!("{ty}_{field}");
                check(
                    &format!(
                        "offsetof({ty}, {field}) == {offset} && sizeof((({ty}*)0)->{field}) == {size}"
                    ),
                    &name,
                )?;
            }
            ["constant", name, value] => check(&format!("(int)({name}) == {value}"), name)?,
            _ => bail!("abi/layouts.txt: cannot read {entry:?}"),
        }
    }
    Ok(format!("{defines}#include <stddef.h>\n{headers}{checks}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiles(list: &str) -> bool {
        let programs = programs(list).expect("programs");
        let directory = std::env::temp_dir().join(format!("layouts-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let results = Language::ALL.map(|language| {
            let source = directory.join(format!("test.{}", language.extension()));
            programs.iter().all(|program| {
                fs::write(&source, program).expect("write");
                let mut compiler = language.compiler().expect("a compiler");
                compiler.arg("-fsyntax-only").arg(&source).output().expect("cc").status.success()
            })
        });
        assert_eq!(results[0], results[1], "C and C++ agree");
        fs::remove_dir_all(&directory).expect("remove");
        results[0]
    }

    #[test]
    fn what_differs_does_not_compile() {
        assert!(compiles("header stdlib.h\ntype div_t 8 4\nfield div_t rem 4 4\nconstant 3 3"));
        assert!(!compiles("header stdlib.h\ntype div_t 12 4"));
        assert!(!compiles("header stdlib.h\ntype div_t 8 8"));
        assert!(!compiles("header stdlib.h\nfield div_t rem 0 4"));
        assert!(!compiles("header stdlib.h\nfield div_t rem 4 8"));
        assert!(!compiles("constant 3 4"));
        assert!(programs("size div_t 8").is_err());
        assert!(compiles("constant 3 3\nprogram\nheader stdlib.h\ntype div_t 8 4"));
        assert!(!compiles("constant 3 3\nprogram\nconstant 3 4"));
    }

    #[test]
    fn the_headers_are_as_listed() {
        let directory = std::env::temp_dir().join(format!("headers-{}", std::process::id()));
        check(&directory).expect("the headers");
        fs::remove_dir_all(&directory).expect("remove");
    }
}
