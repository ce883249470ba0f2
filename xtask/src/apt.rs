//! apt, which checks the signatures of what it fetches: with this machine's sources, or with others that
//! leave the machine's own alone.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context as _;

use crate::run::run;

/// The keys that Debian signs with, as Debian installs them.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// apt, with some sources.
pub struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// With the sources of this machine.
    pub fn of_this_machine() -> Self {
        Self { options: own_downloads() }
    }

    /// With suites of one of Debian's archives (`debian`, or `debian-security`) as the only sources. What
    /// apt keeps of them is in `home`.
    pub fn of_suites(home: &Path, archive: &str, suites: &[&str]) -> anyhow::Result<Self> {
        let lists = home.join("lists");
        fs::create_dir_all(lists.join("partial"))
            .with_context(|| format!("creating {}", lists.display()))?;
        let mirror = mirror(archive);
        let list = home.join("sources.list");
        let lines: String = suites
            .iter()
            .map(|suite| format!("deb [signed-by={KEYS}] {mirror} {suite} main\n"))
            .collect();
        fs::write(&list, lines).with_context(|| format!("writing {}", list.display()))?;
        let mut options = own_downloads();
        options.extend([
            format!("Dir::Etc::sourcelist={}", list.display()),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State::Lists={}", lists.display()),
            // Else the machine's own would be written for each in turn.
            "Dir::Cache::pkgcache=".to_owned(),
            "Dir::Cache::srcpkgcache=".to_owned(),
        ]);
        Ok(Self { options })
    }

    /// As for a system on which nothing is installed; packages are kept in `archives`.
    pub fn for_an_empty_system(mut self, home: &Path) -> anyhow::Result<(Self, PathBuf)> {
        let (status, archives) = (home.join("status"), home.join("archives"));
        fs::write(&status, "").with_context(|| format!("writing {}", status.display()))?;
        fs::create_dir_all(archives.join("partial"))
            .with_context(|| format!("creating {}", archives.display()))?;
        self.options.extend([
            format!("Dir::State::status={}", status.display()),
            format!("Dir::Cache::archives={}", archives.display()),
        ]);
        Ok((self, archives))
    }

    /// A program of apt's.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
        command.args(self.options.iter().flat_map(|option| ["-o", option]));
        command
    }

    /// Runs `apt-get`, again after a pause where it fails: archives are not always there.
    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<()> {
        patiently(|| run(self.command("apt-get").args(arguments)))
    }
}

/// How long to wait before a download is tried again.
const PAUSES: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(30)];

/// Does what the network may prevent, and again after each pause.
pub fn patiently<T>(mut attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    for pause in PAUSES {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) => {
                println!("{error:#}; once more in {} s", pause.as_secs());
                std::thread::sleep(pause);
            }
        }
    }
    attempt()
}

/// apt's own user cannot write to a directory of root's, and would say so. A file that does not come is
/// asked for again.
fn own_downloads() -> Vec<String> {
    ["APT::Sandbox::User=root", "Acquire::Retries=5"].map(str::to_owned).into()
}

/// Where this machine has an archive of Debian's from.
fn mirror(archive: &str) -> String {
    let sources = fs::read_to_string("/etc/apt/sources.list.d/debian.sources").unwrap_or_default();
    let uris = sources.lines().filter_map(|line| line.strip_prefix("URIs:")).map(str::trim);
    let is_it = |uri: &&str| uri.trim_end_matches('/').ends_with(&format!("/{archive}"));
    uris.filter(is_it)
        .map(str::to_owned)
        .next()
        .unwrap_or_else(|| format!("http://deb.debian.org/{archive}"))
}
