//! Becoming the user for whom roctap runs, to run code of others as that user: plugins of roctracer's.
//!
//! Root is given up for good before anything is opened for a plugin: a child gives it up and executes roctap once
//! more, so that nothing of root's is left in its memory, among its descriptors or in its environment. Its parent
//! passes its output on ([`child`]). Rights that a set-user-id or set-group-id bit of roctap's file gave are given up
//! in the same way.

#![expect(unsafe_code, reason = "users, groups and descriptors of the whole process")]

mod child;

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{getgid, getuid};

use crate::{files, privileges, program};

/// The reason why roctap still is root.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No user is known as whom the plugin could run.
    #[error(
        "plugins never run as root, and there is no user behind `sudo` (SUDO_UID, SUDO_GID) to run one as: \
         run `roctap export --plugin` as a user"
    )]
    Nobody,
    /// `sudo` knows a user whom the system does not know.
    #[error(
        "plugins never run as root, and the system finds no account of user {user}, who is behind `sudo` \
         (`getent passwd {user}`)"
    )]
    NoAccount {
        /// The user.
        user: u32,
    },
    /// `sudo -u OTHER`.
    #[error(
        "a plugin would have the rights of user {user}, though `sudo` was called by user {caller}: run roctap as the \
         user whose plugin it is, without `sudo`"
    )]
    AnothersRights {
        /// The user that this process has the rights of.
        user: u32,
        /// The user who called `sudo`.
        caller: u32,
    },
    /// `sudo -g GROUP`.
    #[error(
        "a plugin would have the rights of group {group}, though `sudo` was called by a user of group {callers}: run \
         roctap without `sudo -g`"
    )]
    AnothersGroup {
        /// The group that this process has the rights of.
        group: u32,
        /// The group of the user who called `sudo`.
        callers: u32,
    },
    /// The child that is to become the user failed.
    #[error("plugins never run as root, and the process that is to become the user: {0}")]
    Child(io::Error),
    /// The child failed after it had become the user.
    #[error("the user's process, which has the plugin fed: {0}")]
    Ended(io::Error),
    /// The kernel does not let roctap become the user.
    #[error("plugins never run as root, and roctap cannot become user {user}: {action}: {cause}")]
    Refused {
        /// The user.
        user: u32,
        /// The attempted action.
        action: &'static str,
        /// The system's error. Part of the message, hence no `source`.
        cause: io::Error,
    },
    /// The process could become root again, which must not be.
    #[error("plugins never run as root, and user {user} could become root again: nothing is run")]
    NotForGood {
        /// The user.
        user: u32,
    },
    /// The user cannot execute this program.
    #[error("user {user} cannot execute roctap: {cause}")]
    Execute {
        /// The user.
        user: u32,
        /// The system's error. Part of the message, hence no `source`.
        cause: io::Error,
    },
}

/// Whether this process has the rights of one user: all its user ids are that user's, who is not root, and all its
/// group ids are one group's.
pub fn is_plain_user() -> bool {
    let [user, ..] = user_ids();
    let [group, ..] = group_ids();
    user != 0 && user_ids() == [user; 3] && group_ids() == [group; 3]
}

/// Goes on without root. If this process has other rights than those of one user, a child becomes the user and executes
/// this program once more with the same arguments; when the child has ended, its status is returned.
///
/// To be called before any thread is started.
///
/// # Errors
///
/// If there is no such user, or root cannot be given up.
pub fn go_on_as_user() -> Result<Option<ExitCode>, Error> {
    if is_plain_user() {
        privileges::drop_all();
        let user = getuid().as_raw();
        let [group, ..] = group_ids();
        return match (sudo_caller("SUDO_UID"), sudo_caller("SUDO_GID")) {
            (Some(caller), _) if caller != user => Err(Error::AnothersRights { user, caller }),
            (_, Some(callers)) if callers != group => Err(Error::AnothersGroup { group, callers }),
            _ => Ok(None),
        };
    }
    privileges::keep_for_becoming_user();
    let user = User::find()?;
    let parent = rustix::process::getpid();
    if let Some(child) = child::start().map_err(Error::Child)? {
        // Without this the child, which is another user's, would not get the signal of its parent's end.
        privileges::keep_for_ending();
        return child.wait().map(Some).map_err(Error::Ended);
    }
    user.become_it()?;
    child::end_with(parent).map_err(Error::Child)?;
    let mut again = Command::new(program::program());
    again.args(std::env::args_os().skip(1)).env_clear().envs(user.environment());
    Err(Error::Execute { user: user.id, cause: again.exec() })
}

/// The user who called `sudo`, or that user's group, by the variable in which `sudo` puts it.
fn sudo_caller(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.parse().ok()
}

struct User {
    id: u32,
    group: u32,
    /// Whether the process has root's groups.
    has_roots_groups: bool,
    account: Option<Account>,
}

/// The account of a user, from the system.
struct Account {
    name: std::ffi::CString,
    group: u32,
    home: OsString,
}

impl User {
    /// The user who started a program with the rights of others, by a bit of its file or by `sudo`.
    fn find() -> Result<Self, Error> {
        let caller = getuid();
        if !caller.is_root() {
            let (id, group) = (caller.as_raw(), getgid().as_raw());
            return Ok(Self { id, group, has_roots_groups: false, account: Account::of(id) });
        }
        let (user, _) = files::behind_sudo().ok_or(Error::Nobody)?;
        if user.is_root() {
            return Err(Error::Nobody);
        }
        let id = user.as_raw();
        // The group is the account's too, not that of the environment.
        let account = Account::of(id).ok_or(Error::NoAccount { user: id })?;
        Ok(Self { id, group: account.group, has_roots_groups: true, account: Some(account) })
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
        let is_its_own = user_ids() == [user; 3] && group_ids() == [self.group; 3];
        if is_root_again || !is_its_own || privileges::has_any() {
            return Err(Error::NotForGood { user });
        }
        // Keys of root's session must not get into the user's session. If the kernel has no keys, or forbids them (a
        // container's filter forbids all calls for keys), no process can reach them.
        // SAFETY: a number, and no name for the new one.
        let joined =
            unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, 0) };
        let cause = io::Error::last_os_error();
        if joined < 0 && !matches!(cause.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
            return Err(Error::Refused {
                user,
                action: "a session of its own for its keys",
                cause,
            });
        }
        // Through its descriptor the user would have root's directory, which the user may not enter.
        let entered = std::env::current_dir().and_then(std::env::set_current_dir);
        entered.map_err(|cause| Error::Refused {
            user,
            action: "its working directory, which is to be one that it may enter",
            cause,
        })?;
        // Descriptors that root had from elsewhere must not get to the user.
        // SAFETY: numbers; no descriptor is closed before another program is executed.
        let closed =
            unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        check("its descriptors", closed as libc::c_int)
    }

    /// The part of root's environment that holds no secrets of root's, with the user named in root's place.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut kept: Vec<_> = std::env::vars_os().filter(|(name, _)| is_passed_on(name)).collect();
        if let Some(Account { name, home, .. }) = &self.account {
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
        let home = OsStr::from_bytes(home.to_bytes()).into();
        Some(Self { name: name.into(), group: entry.pw_gid, home })
    }
}

/// The real, effective and saved user id.
fn user_ids() -> [u32; 3] {
    let mut ids = [0; 3];
    let [real, effective, saved] = &mut ids;
    // SAFETY: places for numbers. It cannot fail with these; if it did, the ids would be root's.
    unsafe { libc::getresuid(real, effective, saved) };
    ids
}

/// The real, effective and saved group id.
fn group_ids() -> [u32; 3] {
    let mut ids = [0; 3];
    let [real, effective, saved] = &mut ids;
    // SAFETY: places for numbers. It cannot fail with these.
    unsafe { libc::getresgid(real, effective, saved) };
    ids
}

/// Whether a variable tells how a plugin is to work, or where its libraries are.
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
