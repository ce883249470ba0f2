//! The disk of the virtual machines: what the tests run, at the paths that it has on this machine.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use super::machine;
use crate::{
    artifacts::Artifacts,
    run::{output_of, root, run},
};

/// What the tests, roctap (which asks ldconfig where libraries are) and the first process call.
const PROGRAMS: [&str; 14] = [
    "sh", "cat", "dmesg", "env", "ldconfig", "ls", "mkdir", "mount", "setpriv", "sleep", "true",
    "umount", "uname", "unshare",
];
/// What programs open by name instead of being linked with it: HIP its compiler, the C library
/// what ends threads and what reads passwd.
const OPENED: [&str; 3] = ["libamd_comgr.so.2", "libgcc_s.so.1", "libnss_files.so.2"];
/// Where Debian keeps libraries.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
/// Where something is mounted, and where programs leave something. Nothing is mounted where the checkout
/// may be, in /tmp say: it would be hidden.
const DIRECTORIES: [&str; 8] = ["dev", "etc", "proc", "root", "run", "scratch", "sys", "tmp"];
/// Users, by whom programs are run.
const PASSWD: &str =
    "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n";

/// A program to run in a machine.
pub struct Run {
    pub path: PathBuf,
    pub arguments: Vec<String>,
    /// Of a test binary, which of its tests, where the command line chooses none.
    pub filter: Option<String>,
}

/// Makes the image `name` of a file system, on which the machine's first process runs programs.
pub fn build(built: &Artifacts, runs: &[Run], name: &str) -> anyhow::Result<PathBuf> {
    let directory = root().join("target/kernels");
    let stage = Stage::new(directory.join("root"))?;
    let mut programs = vec![built.roctap.clone()];
    programs.extend(runs.iter().map(|run| run.path.clone()));
    for name in PROGRAMS {
        programs.push(find(name)?);
    }
    programs.extend(
        OPENED.map(|name| Path::new(LIBRARIES).join(name)).into_iter().filter(|l| l.exists()),
    );
    let shim = built.roctap.with_file_name("libroctap_shim.so");
    for path in programs.iter().chain([&shim, &built.gpu, &built.apps]) {
        stage.add(path)?;
    }
    programs.extend(files(&built.gpu)?.into_iter().chain(files(&built.apps)?));
    for library in linked(&programs)? {
        stage.add(&library)?;
    }
    stage.settle(&init(built, runs)?)?;
    let image = directory.join(format!("{name}.ext4"));
    stage.pack(&image)?;
    Ok(image)
}

/// A directory that becomes the root of a file system.
struct Stage(PathBuf);

impl Stage {
    fn new(path: PathBuf) -> anyhow::Result<Self> {
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        for directory in DIRECTORIES {
            fs::create_dir_all(path.join(directory))?;
        }
        // Debian's /lib is a link into /usr, and programs name either.
        for name in ["bin", "sbin", "lib", "lib64"] {
            if let Ok(to) = fs::read_link(Path::new("/").join(name)) {
                fs::create_dir_all(path.join(&to))?;
                symlink(&to, path.join(name))?;
            }
        }
        Ok(Self(path))
    }

    /// Copies a file, a directory with its files, or a link with what it points at.
    fn add(&self, path: &Path) -> anyhow::Result<()> {
        let name = path.file_name().with_context(|| format!("{} has no name", path.display()))?;
        let parent = path.parent().unwrap_or(Path::new("/")).canonicalize();
        let path = parent.with_context(|| format!("finding {}", path.display()))?.join(name);
        let to = self.0.join(path.strip_prefix("/")?);
        if to.symlink_metadata().is_ok() {
            return Ok(());
        }
        let meta =
            path.symlink_metadata().with_context(|| format!("finding {}", path.display()))?;
        fs::create_dir_all(to.parent().context("below the stage")?)?;
        if meta.is_symlink() {
            let target = fs::read_link(&path)?;
            symlink(&target, &to)?;
            self.add(&path.with_file_name("").join(target))
        } else if meta.is_dir() {
            fs::create_dir_all(&to)?;
            files(&path)?.iter().try_for_each(|file| self.add(file))
        } else {
            fs::copy(&path, &to).with_context(|| format!("copying {}", path.display()))?;
            Ok(())
        }
    }

    /// Writes what no package has.
    fn settle(&self, init: &str) -> anyhow::Result<()> {
        let file = |name: &str| self.0.join(name);
        fs::write(file("etc/passwd"), PASSWD)?;
        fs::write(file("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
        fs::write(file("etc/ld.so.conf"), format!("{LIBRARIES}\n"))?;
        fs::write(file("init"), init)?;
        fs::set_permissions(file("init"), fs::Permissions::from_mode(0o755))?;
        run(Command::new("ldconfig").arg("-r").arg(&self.0))
    }

    /// Makes a file system of it, without mounting anything, and removes it.
    fn pack(self, image: &Path) -> anyhow::Result<()> {
        let used = output_of(Command::new("du").args(["-sm"]).arg(&self.0));
        let used = used.and_then(|printed| printed.split_whitespace().next()?.parse::<u64>().ok());
        let used = used.with_context(|| format!("du -sm {}", self.0.display()))?;
        let _ = fs::remove_file(image);
        // Room for its own tables and for what a test leaves. The file has holes where it is empty.
        let size = format!("{}M", used + used / 8 + 64);
        run(Command::new("mke2fs")
            .args(["-q", "-t", "ext4", "-O", "^has_journal", "-d"])
            .args([&self.0, image])
            .arg(size))?;
        println!("kernels: an image of {used} MB");
        fs::remove_dir_all(&self.0).with_context(|| format!("removing {}", self.0.display()))
    }
}

/// A program of this machine.
fn find(name: &str) -> anyhow::Result<PathBuf> {
    let places = ["/usr/bin", "/usr/sbin"].map(|directory| Path::new(directory).join(name));
    places.into_iter().find(|path| path.exists()).with_context(|| format!("there is no {name}"))
}

fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory);
    let entries = entries.with_context(|| format!("reading {}", directory.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// The libraries that programs and libraries are linked with, and the loader. What is no program is
/// passed over.
fn linked(programs: &[PathBuf]) -> anyhow::Result<BTreeSet<PathBuf>> {
    // Its exit status says that one of them was no dynamic program.
    let output = Command::new("ldd").args(programs).output().context("cannot run: ldd")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if let Some(missing) = printed.lines().find(|line| line.contains("=> not found")) {
        bail!("a library is missing: {}", missing.trim());
    }
    let libraries: BTreeSet<PathBuf> = printed.lines().filter_map(library).collect();
    if libraries.is_empty() {
        bail!("ldd named no library: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(libraries)
}

/// The path in a line of `ldd`.
fn library(line: &str) -> Option<PathBuf> {
    let (line, _) = line.split_once(" (0x")?;
    let path = line.split_once(" => ").map_or(line, |(_, path)| path).trim();
    path.starts_with('/').then(|| path.into())
}

/// The first process: runs the programs, and says how they ended. [`machine`] reads what it prints.
fn init(built: &Artifacts, runs: &[Run]) -> anyhow::Result<String> {
    let mut script = String::from(
        "#!/bin/sh
export PATH=/usr/sbin:/usr/bin HOME=/root TMPDIR=/scratch
mount -t devtmpfs none /dev
exec </dev/null >/dev/ttyS0 2>&1
mount -t proc none /proc
mount -t sysfs none /sys
mount -t tracefs none /sys/kernel/tracing
mount -t tmpfs -o mode=1777 none /scratch
cd /scratch
status=0
",
    );
    for (name, value) in built.environment() {
        script += &format!("export {name}={}\n", quoted(&value)?);
    }
    script += &format!(
        "only=
for word in $(cat /proc/cmdline); do
    case $word in {0}*) only=\"--exact ${{word#{0}}}\";; esac
done
IFS=' ,'
echo \"{1} $(uname -r)\"
",
        machine::ONLY,
        machine::BOOTED
    );
    for Run { path, arguments, filter } in runs {
        script += &quoted(path)?;
        for argument in arguments {
            script += " ";
            script += &quoted(Path::new(argument))?;
        }
        if let Some(filter) = filter {
            // Not quoted: each name is a word.
            script += &format!(" ${{only:-{}}}", quoted(Path::new(filter))?);
        }
        script += " || status=$?\n";
    }
    // What was printed last may have no end of line.
    script += &format!("echo; echo '{}'\ndmesg\n", machine::KERNEL_LOG);
    script += &format!("echo; echo \"{} $status\"\n", machine::ENDED);
    // The first process must not end. Whoever reads this ends the machine: what a terminal has not sent
    // yet would be lost in a reset.
    script += "exec sleep 1000000\n";
    Ok(script)
}

/// A path as a word of the shell's.
fn quoted(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(crate::run::quoted(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ldd() {
        let path = |line| library(line).map(|path| path.display().to_string());
        assert_eq!(
            path("\tlibm.so.6 => /lib/libm.so.6 (0x00007f)").as_deref(),
            Some("/lib/libm.so.6")
        );
        assert_eq!(path("\t/lib64/ld.so.2 (0x00007f)").as_deref(), Some("/lib64/ld.so.2"));
        assert_eq!(path("\tlinux-vdso.so.1 (0x00007f)"), None);
        assert_eq!(path("/bin/sh:"), None);
        assert_eq!(path("\tnot a dynamic executable"), None);
    }
}
