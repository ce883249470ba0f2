//! Debian's cloud kernels, fetched with apt (which checks their signatures) and kept.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::{
    apt::{Apt, patiently},
    run::{output_of, run},
    setup,
};

/// A kernel to boot.
pub struct Kernel {
    /// What `uname -r` says in it.
    pub release: String,
    /// The compressed kernel.
    pub vmlinuz: PathBuf,
}

/// Suites of Debian's security archive that have kernels which the machine's own may lack.
const OTHER_SUITES: [&str; 1] = ["bullseye-security"];

/// The newest cloud kernel of `version` (such as 6.1, or 6.12.101), from the suites that this machine
/// has configured or else from older ones.
pub fn fetch(version: &str) -> anyhow::Result<Kernel> {
    if numbers(version).len() < 2 {
        bail!("{version:?} is no kernel version: name it as in 6.12");
    }
    let cache = setup::data_directory()?.join("kernels");
    fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
    let sources = [
        Apt::of_this_machine(),
        Apt::of_suites(&cache.join("apt"), "debian-security", &OTHER_SUITES)?,
    ];
    // Without asking the network, if one is there: tests do not need the newest of an hour ago.
    for apt in &sources {
        if let Some(package) = newest(apt, version)
            && let Some(kernel) = package.kept(&cache)
        {
            return Ok(kernel);
        }
    }
    let mut offered = Vec::new();
    for apt in &sources {
        let found = apt.run(&["update", "-qq"]).and_then(|()| {
            newest(apt, version).map(|package| package.fetch(apt, &cache)).transpose()
        });
        match (found, any_kept(&cache, version)) {
            (Ok(Some(kernel)), _) => return Ok(kernel),
            (Ok(None), _) => offered.extend(releases(apt)),
            (Err(error), Some(kept)) => {
                println!("kernels: taking {}, which was kept: {error:#}", kept.release);
                return Ok(kept);
            }
            (Err(error), None) => return Err(error),
        }
    }
    offered.sort_by_key(|release| numbers(release));
    bail!("apt offers no cloud kernel {version}, but these: {}", offered.join(", "));
}

/// The newest kernel of `version` among those that were fetched before.
fn any_kept(cache: &Path, version: &str) -> Option<Kernel> {
    let wanted = numbers(version);
    let kept = fs::read_dir(cache).ok()?.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let release = release(name.split_once('_')?.0)?;
        let vmlinuz = entry.path().join("vmlinuz");
        let is_it = numbers(release).starts_with(&wanted) && vmlinuz.exists();
        is_it.then(|| Kernel { release: release.to_owned(), vmlinuz })
    });
    kept.max_by_key(|kernel| numbers(&kernel.release))
}

/// A package in a version.
struct Package {
    name: String,
    version: String,
    release: String,
}

impl Package {
    fn directory(&self, cache: &Path) -> PathBuf {
        cache.join(format!("{}_{}", self.name, self.version))
    }

    /// The kernel, if it was fetched before.
    fn kept(&self, cache: &Path) -> Option<Kernel> {
        let vmlinuz = self.directory(cache).join("vmlinuz");
        vmlinuz.exists().then(|| Kernel { release: self.release.clone(), vmlinuz })
    }

    fn fetch(&self, apt: &Apt, cache: &Path) -> anyhow::Result<Kernel> {
        if let Some(kernel) = self.kept(cache) {
            return Ok(kernel);
        }
        println!("kernels: fetching {} {}", self.name, self.version);
        let directory = self.directory(cache);
        // Under another name until it is whole.
        let partial = cache.join(format!("partial-{}-{}", self.release, std::process::id()));
        fs::create_dir_all(&partial)?;
        let package = format!("{}={}", self.name, self.version);
        patiently(|| {
            run(apt.command("apt-get").args(["download", "-qq", &package]).current_dir(&partial))
        })?;
        let deb = fs::read_dir(&partial)?.next().context("apt-get downloaded nothing")??.path();
        run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&partial))?;
        let vmlinuz = partial.join("boot").join(format!("vmlinuz-{}", self.release));
        fs::create_dir_all(&directory)?;
        fs::rename(&vmlinuz, directory.join("vmlinuz"))
            .with_context(|| format!("keeping {}", vmlinuz.display()))?;
        fs::remove_dir_all(&partial)?;
        self.kept(cache).context("a kernel that was just fetched")
    }
}

/// The kernels that apt knows of, not all of which it can have.
fn releases(apt: &Apt) -> Vec<String> {
    let names = output_of(apt.command("apt-cache").args(["pkgnames", "linux-image-"]));
    let names = names.unwrap_or_default();
    names.lines().filter_map(release).map(str::to_owned).collect()
}

/// The newest kernel of `version` that can be had.
fn newest(apt: &Apt, version: &str) -> Option<Package> {
    let wanted = numbers(version);
    let mut releases = releases(apt);
    releases.retain(|release| numbers(release).starts_with(&wanted));
    releases.sort_by_key(|release| numbers(release));
    releases.into_iter().rev().find_map(|release| {
        let name = format!("linux-image-{release}");
        let policy = output_of(apt.command("apt-cache").args(["policy", &name]))?;
        let candidate = |line: &str| line.trim().strip_prefix("Candidate: ").map(str::to_owned);
        let version = policy.lines().find_map(candidate)?;
        (version != "(none)").then_some(Package { name, version, release })
    })
}

/// The release of a package, if that is a cloud kernel, and not one that depends on the newest.
fn release(package: &str) -> Option<&str> {
    let release = package.strip_prefix("linux-image-")?;
    (release.ends_with("-cloud-amd64") && numbers(release).len() > 3).then_some(release)
}

/// The numbers of a version, by which it is compared: those of `6.12.101+deb12-cloud-amd64` are 6, 12,
/// 101, 12 and 64.
pub fn numbers(version: &str) -> Vec<u32> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_from_what_lies_beside_them() {
        let kernel = "linux-image-6.12.117+deb12-cloud-amd64";
        assert_eq!(release(kernel), Some("6.12.117+deb12-cloud-amd64"));
        assert!(release("linux-image-6.1.0-56-cloud-amd64").is_some());
        for other in [
            "linux-image-cloud-amd64",
            "linux-image-6.12-cloud-amd64",
            "linux-image-6.1.0-56-cloud-amd64-dbg",
            "linux-image-6.1.0-56-cloud-amd64-unsigned",
            "linux-image-6.1.0-56-amd64",
        ] {
            assert_eq!(release(other), None, "{other}");
        }
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("6.1.0-56-cloud-amd64") > numbers("6.1.0-9-cloud-amd64"));
        assert!(numbers("6.12.107+deb12-cloud-amd64").starts_with(&numbers("6.12")));
        assert!(!numbers("6.12.107+deb12-cloud-amd64").starts_with(&numbers("6.1")));
    }
}
