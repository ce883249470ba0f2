//! The mappings of a process: `/proc/PID/maps`.

use std::{
    borrow::Cow,
    ffi::OsStr,
    io,
    ops::Range,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// The text of `/proc/PID/maps`.
pub struct Maps(Vec<u8>);

/// A line of the text: one mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map<'t> {
    /// The addresses.
    pub range: Range<u64>,
    /// Whether it can be written to.
    pub writable: bool,
    /// Whether it can be executed.
    pub executable: bool,
    /// The offset in its file at which it begins.
    pub offset: u64,
    /// Its file's device: major and minor number.
    pub device: (u32, u32),
    /// Its file's inode.
    pub inode: u64,
    /// Its file, as the kernel shows it; none for other memory.
    pub path: Option<&'t Path>,
}

impl Maps {
    /// Reads the mappings of process `pid`.
    ///
    /// # Errors
    ///
    /// When there is no such process, or it may not be read.
    pub fn of(pid: u32) -> io::Result<Self> {
        super::text(format!("/proc/{pid}/maps").as_ref()).map(Self)
    }

    /// Takes a text as that of a process.
    pub fn from_text(text: &[u8]) -> Self {
        Self(text.to_owned())
    }

    /// The mappings of the lines that are well-formed.
    pub fn iter(&self) -> impl Iterator<Item = Map<'_>> {
        self.0.split(|&byte| byte == b'\n').filter_map(line)
    }
}

/// `5575a0000000-5575a0021000 r-xp 00002000 fe:00 1234      /usr/bin/cat`
fn line(text: &[u8]) -> Option<Map<'_>> {
    let mut rest = text;
    let mut field = || {
        let (field, behind) = rest.split_at(rest.iter().position(|&byte| byte == b' ')?);
        rest = behind.get(1..)?;
        std::str::from_utf8(field).ok()
    };
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = field()?.split_once('-')?;
    let range = hex(start)?..hex(end)?;
    let permissions = field()?;
    let offset = hex(field()?)?;
    let (major, minor) = field()?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let device = (number(major)?, number(minor)?);
    let inode = field()?.parse().ok()?;
    let name = rest.trim_ascii_start();
    // Other memory has no name, or one like "[heap]".
    let path = name.starts_with(b"/").then(|| Path::new(OsStr::from_bytes(name)));
    let has = |at: usize, letter| permissions.as_bytes().get(at) == Some(&letter);
    let (writable, executable) = (has(1, b'w'), has(2, b'x'));
    let map = Map { range, writable, executable, offset, device, inode, path };
    (map.range.start < map.range.end).then_some(map)
}

impl Map<'_> {
    /// The file's path without the text that the kernel adds when the file's name is gone.
    pub fn plain_path(&self) -> Option<PathBuf> {
        let bytes = self.path?.as_os_str().as_bytes();
        let plain = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
        Some(OsStr::from_bytes(plain).into())
    }

    /// Its file's name, empty for other memory.
    pub fn file_name(&self) -> Cow<'_, str> {
        let name = self.path.and_then(Path::file_name);
        name.map(OsStr::to_string_lossy).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let text =
            b"7f10-7f20 r-xp 00002000 fe:1f 1234                       /usr/lib/a b.so (deleted)\n\
            7f20-7f30 rw-p 00000000 00:00 0 \n\
            7f30-7f40 rw-p 00000000 00:00 0                          [heap]\n\
            7f40-7f50 rw-p 00000000 00:00 9                          /SYSV\xff\n\
            nonsense\n7f50-7f10 r--p 0 0:0 0 /x\n7f50-7f60 r--p";
        let maps = Maps::from_text(text);
        let all: Vec<Map<'_>> = maps.iter().collect();
        assert_eq!(all.len(), 4);
        assert_eq!(
            (all[0].range.clone(), all[0].offset, all[0].inode),
            (0x7f10..0x7f20, 0x2000, 1234)
        );
        assert_eq!((all[0].device, all[0].executable), ((0xfe, 0x1f), true));
        assert_eq!(all[0].plain_path().unwrap(), Path::new("/usr/lib/a b.so"));
        assert_eq!([all[1].path, all[2].path], [None, None]);
        assert!(!all[1].executable && all[1].writable && !all[0].writable);
        assert_eq!(all[3].path.unwrap().as_os_str().as_bytes(), b"/SYSV\xff");
    }

    #[test]
    fn our_own_program_is_mapped() {
        let own = std::env::current_exe().unwrap();
        let maps = Maps::of(std::process::id()).unwrap();
        assert!(maps.iter().any(|map| map.executable && map.path == Some(&own)));
    }
}
