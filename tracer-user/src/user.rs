//! The user for whom roctap runs, as whom code of others is run: plugins of roctracer's.
//!
//! Root is given up for good, for the whole process, before anything is opened for a plugin. Then roctap executes
//! itself once more, so that nothing is left of root's in its memory, among its descriptors or in its environment.

#![expect(unsafe_code, reason = "users, groups and descriptors of the whole process")]

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{getgid, getuid};

use crate::{files, privileges, program};

/// Why roctap is root still.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody is known whose rights would do.
    #[error(
        "plugins never run as root, and there is no user behind `sudo` (SUDO_UID, SUDO_GID) to run one as: \
         run `roctap export --plugin` as a user"
    )]
    Nobody,
    /// The kernel does not let it.
    #[error("plugins never run as root, and roctap cannot become user {user}: {action}: {cause}")]
    Refused {
        /// The user.
        user: u32,
        /// What was tried.
        action: &'static str,
        /// What the system said. Part of the message, hence no `source`.
        cause: io::Error,
    },
    /// Root could be had again, which must not be.
    #[error("plugins never run as root, and user {user} could become root again: nothing is run")]
    NotForGood {
        /// The user.
        user: u32,
    },
    /// This program cannot be executed by the user.
    #[error("user {user} cannot execute roctap: {cause}")]
    Execute {
        /// The user.
        user: u32,
        /// What the system said. Part of the message, hence no `source`.
        cause: io::Error,
    },
}

/// Whether this process is root, or could become it: by any of its user ids.
pub fn is_root() -> bool {
    user_ids().contains(&0)
}

/// Goes on without root: if this process is root, it becomes the user, executes this program once more with the same
/// arguments, and does not come back.
///
/// # Errors
///
/// If there is no such user, or root cannot be given up.
pub fn go_on_as_user() -> Result<(), Error> {
    if !is_root() {
        privileges::drop_all();
        return Ok(());
    }
    privileges::keep_for_becoming_user();
    let user = User::find()?;
    user.become_it()?;
    let mut again = Command::new(program::program());
    again.args(std::env::args_os().skip(1)).env_clear().envs(user.environment());
    Err(Error::Execute { user: user.id, cause: again.exec() })
}

struct User {
    id: u32,
    group: u32,
    /// Whether the process has root's groups.
    has_roots_groups: bool,
    account: Option<Account>,
}

/// What the system knows of a user.
struct Account {
    name: std::ffi::CString,
    home: OsString,
}

impl User {
    /// The user who started a program of root's, by its set-user-id bit or by `sudo`.
    fn find() -> Result<Self, Error> {
        let caller = getuid();
        if !caller.is_root() {
            let (id, group) = (caller.as_raw(), getgid().as_raw());
            return Ok(Self { id, group, has_roots_groups: false, account: Account::of(id) });
        }
        let (user, group) = files::behind_sudo().ok_or(Error::Nobody)?;
        if user.is_root() {
            return Err(Error::Nobody);
        }
        let (id, group) = (user.as_raw(), group.as_raw());
        Ok(Self { id, group, has_roots_groups: true, account: Account::of(id) })
    }

    fn become_it(&self) -> Result<(), Error> {
        let user = self.id;
        let check = |action, result: libc::c_int| match result {
            0 => Ok(()),
            _ => Err(Error::Refused { user, action, cause: io::Error::last_os_error() }),
        };
        // SAFETY: numbers, and a string that is there meanwhile.
        unsafe {
            if self.has_roots_groups {
                let groups = match &self.account {
                    Some(account) => libc::initgroups(account.name.as_ptr(), self.group),
                    None => libc::setgroups(0, std::ptr::null()),
                };
                check("its groups", groups)?;
            }
            check("its group", libc::setresgid(self.group, self.group, self.group))?;
            check("its id", libc::setresuid(user, user, user))?;
        }
        privileges::drop_all();
        // SAFETY: a number. It must fail.
        let is_root_again = unsafe { libc::setresuid(u32::MAX, 0, u32::MAX) } == 0;
        if is_root_again || user_ids() != [user; 3] || privileges::has_any() {
            return Err(Error::NotForGood { user });
        }
        // Keys of root's session are none of the user's session. Where the kernel has none, or forbids it, nobody gets
        // at them.
        // SAFETY: a number, and no name for the new one.
        unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, 0) };
        // Descriptors that root had from elsewhere are not the user's.
        // SAFETY: numbers; no descriptor is closed before another program is executed.
        let closed =
            unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        check("its descriptors", closed as libc::c_int)
    }

    /// What of root's environment is none of root's secrets, and names the user in root's place.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut kept: Vec<_> = std::env::vars_os().filter(|(name, _)| is_passed_on(name)).collect();
        if let Some(Account { name, home }) = &self.account {
            let name = OsStr::from_bytes(name.as_bytes());
            kept.push(("HOME".into(), home.clone()));
            kept.extend(["USER", "LOGNAME"].map(|variable| (variable.into(), name.into())));
        }
        kept
    }
}

impl Account {
    fn of(user: u32) -> Option<Self> {
        // SAFETY: it returns null, or an entry that is there until the next of such calls, which this thread makes:
        // there is no other yet.
        let entry = unsafe { libc::getpwuid(user).as_ref() }?;
        // SAFETY: strings, as the C library promises.
        let [name, home] = unsafe { [entry.pw_name, entry.pw_dir].map(|at| CStr::from_ptr(at)) };
        Some(Self { name: name.into(), home: OsStr::from_bytes(home.to_bytes()).into() })
    }
}

/// The real, effective and saved user id.
fn user_ids() -> [u32; 3] {
    let mut ids = [0; 3];
    let [real, effective, saved] = &mut ids;
    // SAFETY: places for numbers. It cannot fail with these; if it did, they would be root's.
    unsafe { libc::getresuid(real, effective, saved) };
    ids
}

/// Variables that say how a plugin is to work, and where its libraries are.
fn is_passed_on(name: &OsStr) -> bool {
    const NAMES: [&str; 7] =
        ["LANG", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "ROCTAP_LOG", "TERM", "TZ"];
    const BEGINNINGS: [&str; 3] = ["LC_", "ROCP_", "ROCTRACER_"];
    let begins = |beginning: &&str| name.as_bytes().starts_with(beginning.as_bytes());
    NAMES.iter().any(|known| name == *known) || BEGINNINGS.iter().any(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_roots_environment_the_plugins_part_is_passed_on() {
        for name in ["ROCP_OUTPUT_DIR", "LD_LIBRARY_PATH", "LC_ALL", "ROCTRACER_LOG"] {
            assert!(is_passed_on(OsStr::new(name)), "{name}");
        }
        for name in ["HOME", "AWS_SECRET_ACCESS_KEY", "SUDO_UID", "ROCTAP_SHIM", "SSH_AUTH_SOCK"] {
            assert!(!is_passed_on(OsStr::new(name)), "{name}");
        }
    }
}
