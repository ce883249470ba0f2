//! The texts in `/proc`.

use std::{
    borrow::Cow,
    fs,
    io::{self, Read as _},
    path::Path,
};

/// The longest text: that of a process which has mapped half a million files.
const MAX_BYTES: u64 = 64 << 20;

/// Reads a file of `/proc`.
///
/// # Errors
///
/// When it cannot be read, or has no end in sight.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = beginning(path, MAX_BYTES + 1)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("longer than {} MiB", MAX_BYTES >> 20)));
    }
    Ok(bytes)
}

/// An identity of the program that a process or thread runs, which tells it from others that the process executes: its
/// auxiliary vector, in which the kernel notes the addresses that it has chosen for program, stack and vDSO, each time
/// anew. For a program that gives more rights it always chooses them.
///
/// # Errors
///
/// When the process has ended, or may not be traced.
pub fn program(pid: u32) -> io::Result<Vec<u8>> {
    read(format!("/proc/{pid}/auxv").as_ref())
}

/// The user of a process: the real one, since programs change the other. None if it cannot be determined.
pub fn real_user(pid: u32) -> Option<u32> {
    let status = read(format!("/proc/{pid}/status").as_ref()).ok()?;
    field(&lossy(&status), "Uid")?.split_whitespace().next()?.parse().ok()
}

/// Reads the beginning of a file of `/proc`.
///
/// # Errors
///
/// When it cannot be read.
pub fn beginning(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The bytes as text, whatever they are: the kernel cuts names of threads in the middle of a character.
pub fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The value of a line of `/proc/PID/status`, by the name that the line begins with.
pub fn field<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    let value = |line: &'t str| line.strip_prefix(name)?.strip_prefix(':');
    status.lines().find_map(value).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_an_end_is_not_read() {
        assert!(read("/dev/zero".as_ref()).unwrap_err().to_string().contains("64 MiB"));
        assert_eq!(beginning("/dev/zero".as_ref(), 3).unwrap(), [0; 3]);
        assert!(lossy(&read("/proc/self/status".as_ref()).unwrap()).starts_with("Name:"));
    }
}
