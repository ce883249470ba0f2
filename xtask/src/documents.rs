//! The documents for users, and what they lead to.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::Context as _;

/// Those at the root; all of `docs` are there beside.
pub const AT_ROOT: [&str; 2] = ["README.md", "CHANGELOG.md"];

/// The files that documents below `root` link to, with the document that does, both from there.
///
/// # Errors
///
/// When a document cannot be read.
pub fn links(root: &Path) -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
    let mut documents: Vec<PathBuf> = AT_ROOT.iter().map(PathBuf::from).collect();
    let mut directories = vec![PathBuf::from("docs")];
    while let Some(directory) = directories.pop() {
        let all = root.join(&directory);
        for entry in fs::read_dir(&all).with_context(|| format!("reading {}", all.display()))? {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            let kind = if entry.file_type()?.is_dir() { &mut directories } else { &mut documents };
            kind.push(path);
        }
    }
    let mut links = Vec::new();
    for document in documents.into_iter().filter(|path| path.extension() == Some("md".as_ref())) {
        let text = fs::read_to_string(root.join(&document))
            .with_context(|| format!("reading {}", document.display()))?;
        let below = document.parent().unwrap_or(Path::new(""));
        for target in targets(&text) {
            links.push((document.clone(), plain(&below.join(target))));
        }
    }
    Ok(links)
}

/// What Markdown links to, but for the web and for places in the same text.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = ends.filter_map(|target| target.split('#').next());
    files.filter(|file| !file.is_empty() && !file.contains(':') && !file.contains(' '))
}

/// Without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_lead_to_files() {
        let root = crate::run::root();
        let links = links(&root).expect("documents");
        assert!(links.len() > 50, "{}", links.len());
        for (document, target) in links {
            assert!(root.join(&target).exists(), "{}: {}", document.display(), target.display());
        }
    }

    #[test]
    fn targets_are_found() {
        let text = "[a](b.md#c), [d](#e) [f](https://g.h) `[0](1 2)` [i](../j/k.rs)";
        assert!(targets(text).eq(["b.md", "../j/k.rs"]));
        assert_eq!(plain(Path::new("docs/formats/../../j/k.rs")), Path::new("j/k.rs"));
    }
}
