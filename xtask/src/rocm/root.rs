//! A small Debian system with one release of ROCm in it, unpacked beside this machine's own.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, bail};

use crate::{
    apt::{Apt, patiently},
    kernels::numbers,
    run::{output_of, run},
    setup,
};

/// Suites of Debian with releases of ROCm later than this machine's, the oldest first.
const SUITES: [&str; 4] = ["trixie", "forky", "sid", "experimental"];
/// The package that a release of ROCm is known by.
const HIP: &str = "libamdhip64-dev";
/// What is in a root beside HIP and what that depends on: to compile and run the test programs, and to
/// run the tests.
const PACKAGES: [&str; 9] =
    ["hipcc", "bash", "coreutils", "dash", "grep", "libc-bin", "libelf1t64", "make", "zlib1g"];
/// How long apt's lists are taken to be new.
const LISTS_HOLD: Duration = Duration::from_secs(24 * 3600);
/// The file in a root that says which packages it consists of. Written last.
const MANIFEST: &str = "roctap-packages";

/// A root with a release of ROCm.
pub struct Root {
    /// Its directory.
    pub path: PathBuf,
    /// Which one: `6.4`.
    pub release: String,
    /// The packages in it, as `name_version_architecture.deb`.
    pub packages: Vec<String>,
}

impl Root {
    /// The version of a package, if it is in the root.
    pub fn version(&self, package: &str) -> Option<&str> {
        self.packages.iter().find_map(|file| {
            let (name, rest) = file.split_once('_')?;
            let (version, _) = rest.rsplit_once('_')?;
            (name == package).then_some(version)
        })
    }

    /// The version of the one library of `prefix` (`libamdhip64-`) that is in the root.
    pub fn library(&self, prefix: &str) -> Option<&str> {
        self.packages.iter().find_map(|file| {
            let (name, _) = file.split_once('_')?;
            let soname_version = name.strip_prefix(prefix)?;
            soname_version.parse::<u32>().ok()?;
            self.version(name)
        })
    }

    /// Where a compiler is, as the root's programs see it: its name ends with the one version that there is of it.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn compiler(&self, name: &str) -> anyhow::Result<PathBuf> {
        let directory = Path::new("usr/bin");
        let files = fs::read_dir(self.path.join(directory)).context("the root's programs")?;
        let is_one = |file: &OsString| {
            let version = file.to_str().and_then(|file| file.strip_prefix(name)?.strip_prefix('-'));
            version.is_some_and(|version| version.parse::<u32>().is_ok())
        };
        let found = files.flatten().map(|file| file.file_name()).find(is_one);
        let found = found.with_context(|| format!("the root has no {name}"))?;
        Ok(Path::new("/").join(directory).join(found))
    }
}

/// The root with the newest packages of `wanted`, a release (`6.4`) or a major one (`6`), that Debian has.
/// Made anew when they moved; where they cannot be had, one that was made before serves.
pub fn make(wanted: &str) -> anyhow::Result<Root> {
    let home = setup::data_directory()?.join("rocm");
    newest(&home, wanted).or_else(|error| match kept(&home, wanted) {
        Some(root) => {
            println!("rocm: using {}, which was made before: {error:#}", root.path.display());
            Ok(root)
        }
        None => Err(error),
    })
}

fn newest(home: &Path, wanted: &str) -> anyhow::Result<Root> {
    let (apt, archives) = Apt::of_suites(&home.join("apt"), "debian", &SUITES)?
        .for_an_empty_system(&home.join("apt"))?;
    if let Err(error) = update(&apt, &home.join("apt")) {
        println!("rocm: going on with the lists of packages that came: {error:#}");
    }
    let (suite, hip) = find(&apt, wanted)?;
    let release = release_of(&hip).with_context(|| format!("{HIP} {hip} is of no release"))?;
    let path = home.join(&release);
    let install = |more: &[&str]| {
        let mut command = apt.command("apt-get");
        command.args(["install", "-y", "-qq", "--no-install-recommends", "-t", suite]);
        command.args(more).arg(format!("{HIP}={hip}")).args(PACKAGES);
        command
    };
    let uris = output_of(&mut install(&["--print-uris"]))
        .with_context(|| format!("apt cannot install {HIP} {hip} of {suite}"))?;
    let mut packages: Vec<String> = uris
        .lines()
        .filter_map(|line| line.strip_prefix('\'')?.split(' ').nth(1).map(str::to_owned))
        .collect();
    packages.sort();
    if read(&path).as_ref() == Some(&packages) {
        return Ok(Root { path, release, packages });
    }
    println!("rocm: making a root with HIP {hip} from Debian {suite}: {} packages", packages.len());
    patiently(|| run(&mut install(&["--download-only"])))?;
    unpack(&path, &packages, &archives)?;
    // They are in the root now.
    for package in &packages {
        let _ = fs::remove_file(archives.join(package));
    }
    Ok(Root { path, release, packages })
}

/// The newest root of `wanted` that was made before.
fn kept(home: &Path, wanted: &str) -> Option<Root> {
    let roots = fs::read_dir(home).ok()?.flatten().filter_map(|entry| {
        let release = entry.file_name().into_string().ok()?;
        let path = entry.path();
        let packages = is_release(&release, wanted).then(|| read(&path)).flatten()?;
        Some(Root { path, release, packages })
    });
    roots.max_by_key(|root| numbers(&root.release))
}

/// The release that a version is one of: `6.4` of `6.4.3-5`.
fn release_of(version: &str) -> Option<String> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    Some(format!("{}.{}", numbers.next()?, numbers.next()?))
}

/// The packages of a root that is whole.
fn read(path: &Path) -> Option<Vec<String>> {
    let manifest = fs::read_to_string(path.join(MANIFEST)).ok()?;
    Some(manifest.lines().map(str::to_owned).collect())
}

/// Updates apt's lists, unless they are new.
fn update(apt: &Apt, home: &Path) -> anyhow::Result<()> {
    let updated = home.join("updated");
    let age = fs::metadata(&updated)
        .and_then(|meta| meta.modified())
        .ok()
        .and_then(|at| SystemTime::now().duration_since(at).ok());
    if age.is_none_or(|age| age > LISTS_HOLD) {
        apt.run(&["update", "-qq", "-o", "APT::Update::Error-Mode=any"])?;
        fs::write(&updated, "").with_context(|| format!("writing {}", updated.display()))?;
    }
    Ok(())
}

/// The first suite with `release`, and the version of HIP there.
fn find(apt: &Apt, release: &str) -> anyhow::Result<(&'static str, String)> {
    let mut offered = Vec::new();
    for suite in SUITES {
        let policy = output_of(apt.command("apt-cache").args(["policy", "-t", suite, HIP]));
        let candidate = policy.as_deref().unwrap_or_default().lines().find_map(|line| {
            line.trim().strip_prefix("Candidate: ").filter(|&version| version != "(none)")
        });
        let Some(version) = candidate else { continue };
        if is_release(version, release) {
            return Ok((suite, version.to_owned()));
        }
        offered.push(format!("{version} ({suite})"));
    }
    bail!("Debian has no HIP {release} at present, but these: {}", offered.join(", "))
}

/// Whether `6.4.3-5` is one of `6.4`, or of `6`.
pub fn is_release(version: &str, release: &str) -> bool {
    version
        .strip_prefix(release)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Unpacks the packages into `path`. No script of theirs runs.
fn unpack(path: &Path, packages: &[String], archives: &Path) -> anyhow::Result<()> {
    let partial = path.with_extension(format!("partial-{}", std::process::id()));
    fs::create_dir_all(&partial).with_context(|| format!("creating {}", partial.display()))?;
    // As Debian's installer does before the first package.
    for name in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(partial.join("usr").join(name))?;
        symlink(Path::new("usr").join(name), partial.join(name))?;
    }
    for package in packages {
        // A pipe through tar: `dpkg-deb -x` would put a directory in place of a link.
        let archive = archives.join(package);
        let mut extract = Command::new("dpkg-deb");
        extract.arg("--fsys-tarfile").arg(&archive).stdout(std::process::Stdio::piped());
        let mut extract = extract.spawn().context("cannot run dpkg-deb")?;
        let tar = Command::new("tar")
            .args(["-x", "--keep-directory-symlink", "-C"])
            .arg(&partial)
            .stdin(extract.stdout.take().context("no output of dpkg-deb")?)
            .status()
            .context("cannot run tar")?;
        if !tar.success() || !extract.wait()?.success() {
            bail!("cannot unpack {}", archive.display());
        }
    }
    for name in ["proc", "sys", "dev", "tmp", "run", "etc"] {
        fs::create_dir_all(partial.join(name))?;
    }
    run(Command::new("chroot").arg(&partial).arg("/sbin/ldconfig"))?;
    fs::write(partial.join(MANIFEST), packages.join("\n") + "\n")?;
    if path.exists() {
        fs::remove_dir_all(path).with_context(|| format!("removing {}", path.display()))?;
    }
    fs::rename(&partial, path).with_context(|| format!("keeping {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_belong_to_releases() {
        assert!(is_release("6.4.3-5", "6.4"));
        assert!(is_release("7.2.4-1~exp2", "7.2"));
        assert!(is_release("6.4.3-5", "6"));
        assert!(!is_release("6.40.3-5", "6.4"));
        assert!(!is_release("5.7.1-6", "6.4"));
        assert_eq!(release_of("7.2.4-1~exp2").as_deref(), Some("7.2"));
    }

    #[test]
    fn packages_are_found_by_name() {
        let packages = ["libamdhip64-6_6.4.3-5_amd64.deb", "libllvm21_1%3a21.1.8-13_amd64.deb"];
        let packages = packages.map(str::to_owned).to_vec();
        let root = Root { path: PathBuf::new(), release: "6.4".to_owned(), packages };
        assert_eq!(root.library("libamdhip64-"), Some("6.4.3-5"));
        assert_eq!(root.version("libllvm21"), Some("1%3a21.1.8-13"));
        assert_eq!(root.library("libamdhip-"), None);
    }
}
