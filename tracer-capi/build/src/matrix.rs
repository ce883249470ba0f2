//! `MATRIX.md` of a package: a library's functions, with the clients of its tests that call each.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};

/// A heading, and the functions below it with what there is to say of each.
pub type Section = (&'static str, &'static [(&'static str, &'static str)]);

/// The clients of a package's tests: their words, by their names.
#[derive(Debug)]
pub struct Words(BTreeMap<String, String>);

impl Words {
    /// Those of the package whose directory (`CARGO_MANIFEST_DIR`) this is.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub fn of(package: &str) -> anyhow::Result<Self> {
        let mut words = BTreeMap::new();
        for entry in fs::read_dir(Path::new(package).join("tests/clients"))? {
            let file = entry?.path();
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Not what stands in the place of a library.
            if !name.starts_with("fake_") && !name.starts_with("old_") {
                words.insert(name, fs::read_to_string(&file)?);
            }
        }
        Ok(Self(words))
    }

    /// The names of those that use a function.
    pub fn callers(&self, function: &str) -> impl Iterator<Item = &str> {
        let callers = self.0.iter().filter(move |(_, text)| uses(text, function));
        callers.map(|(name, _)| name.as_str())
    }

    /// The text of a matrix, behind what it begins with.
    fn matrix(&self, begin: &str, sections: &[Section]) -> anyhow::Result<String> {
        let mut text = begin.to_owned();
        for (section, functions) in sections {
            write!(text, "\n## {section}\n\n| function | called by | notes |\n|---|---|---|\n")?;
            for (function, notes) in *functions {
                let by: Vec<String> =
                    self.callers(function).map(|name| format!("`{name}`")).collect();
                writeln!(text, "| `{function}` | {} | {notes} |", by.join(", "))?;
            }
        }
        Ok(text)
    }

    /// Compares the package's `MATRIX.md` with what it must be. With `ROCTAP_BLESS` in the environment it is written first.
    ///
    /// # Errors
    ///
    /// If it differs.
    pub fn check(&self, package: &str, begin: &str, sections: &[Section]) -> anyhow::Result<()> {
        let path: PathBuf = Path::new(package).join("MATRIX.md");
        let matrix = self.matrix(begin, sections)?;
        if std::env::var_os("ROCTAP_BLESS").is_some() {
            fs::write(&path, &matrix)?;
        }
        let written = fs::read_to_string(&path).context("MATRIX.md")?;
        ensure!(written == matrix, "{} differs: ROCTAP_BLESS=1 rewrites it", path.display());
        Ok(())
    }
}

fn uses(text: &str, function: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(function).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + function.len()..]);
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::uses;

    #[test]
    fn a_function_is_used_where_its_whole_name_stands() {
        assert!(uses("x = f(1);", "f") && uses("f", "f") && uses("ff f", "f"));
        assert!(!uses("ff(1); f_(); _f()", "f"));
    }
}
