//! The capabilities that roctap needs: they are checked before anything is done, and all others are given up before any
//! data of a traced program is read.
//!
//! Each command calls one of the functions `keep_…` first, a recording those of [`Recording`]. They hold for the
//! calling thread and for the threads that it starts from then on. Capabilities that roctap uses itself are
//! *effective*; those that only its helpers need (processes of this program for one task) are *permitted* and in the
//! bounding set, so that helpers get them when they are executed, and no more. `docs/security.md` has the table.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_ambient_set,
    capability_is_in_bounding_set, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::placing::Placing;

/// One capability and its purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// Its name, as in capabilities(7).
    pub name: &'static str,
    /// The action that is impossible without it.
    pub purpose: &'static str,
    capability: CapabilitySet,
}

impl Need {
    /// Whether the calling thread has the capability, or `CAP_SYS_ADMIN` in its place.
    pub fn is_met(self) -> bool {
        let effective = effective();
        effective.contains(self.capability)
            || self.substitutable() && effective.contains(CapabilitySet::SYS_ADMIN)
    }

    /// Whether `CAP_SYS_ADMIN` includes the capability: `CAP_BPF`, `CAP_PERFMON` and `CAP_CHECKPOINT_RESTORE` were cut
    /// out of it.
    fn substitutable(self) -> bool {
        let parts = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::CHECKPOINT_RESTORE;
        parts.contains(self.capability)
    }
}

/// Needed to record anything.
pub const PROBES: [Need; 2] = [
    Need { name: "CAP_BPF", purpose: "load BPF programs", capability: CapabilitySet::BPF },
    Need { name: "CAP_PERFMON", purpose: "attach uprobes", capability: CapabilitySet::PERFMON },
];

/// Above this, `kernel.perf_event_paranoid` lets only processes with CAP_SYS_ADMIN open perf events: a patch of
/// Debian's and Ubuntu's.
const PARANOID: i32 = 2;

/// The capability that a way to place probes needs beside those; found by trying each way with exactly these.
pub fn needs_of(placing: Placing) -> Option<Need> {
    let purpose = match placing {
        Placing::Multi => return None,
        Placing::Event if perf_event_paranoid() <= PARANOID => return None,
        Placing::Event => {
            "open perf events, by which this kernel places probes (or set kernel.perf_event_paranoid to 2)"
        }
    };
    Some(Need { name: "CAP_SYS_ADMIN", purpose, capability: CapabilitySet::SYS_ADMIN })
}

/// The setting; 2, Linux's own default, if it cannot be read.
fn perf_event_paranoid() -> i32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(PARANOID)
}

/// Needed beside those for processes that run already.
pub const RUNNING: [Need; 3] = [
    Need {
        name: "CAP_SYS_PTRACE",
        purpose: "look into processes of other users, and put the shim into any (GPU times)",
        capability: CapabilitySet::SYS_PTRACE,
    },
    Need {
        name: "CAP_CHECKPOINT_RESTORE",
        purpose: "open mapped files that were replaced or are in another mount namespace",
        capability: CapabilitySet::CHECKPOINT_RESTORE,
    },
    Need {
        name: "CAP_DAC_OVERRIDE",
        purpose: "put the shim into processes of other users, whose memory is a file of theirs",
        capability: CapabilitySet::DAC_OVERRIDE,
    },
];

/// The capabilities that are missing to record at all.
#[derive(Debug, thiserror::Error)]
#[error("{}; run roctap as root, or give it these capabilities (`roctap doctor` lists all)", list(.0))]
pub struct Missing(Vec<Need>);

fn list(needs: &[Need]) -> String {
    let each = needs.iter().map(|need| format!("{} is needed to {}", need.name, need.purpose));
    each.collect::<Vec<_>>().join("; ")
}

/// Checks that BPF programs can be loaded and attached.
///
/// # Errors
///
/// The capabilities that are missing.
pub fn check() -> Result<(), Missing> {
    check_all(PROBES)
}

/// Checks that probes can be placed in a way.
///
/// # Errors
///
/// The capability that is missing.
pub fn check_placing(placing: Placing) -> Result<(), Missing> {
    check_all(needs_of(placing))
}

fn check_all(needs: impl IntoIterator<Item = Need>) -> Result<(), Missing> {
    let missing: Vec<Need> = needs.into_iter().filter(|need| !need.is_met()).collect();
    if missing.is_empty() { Ok(()) } else { Err(Missing(missing)) }
}

/// The rights to put the shim into a process, which a helper process does: those of [`RUNNING`], the right to read
/// seccomp filters, and the right to restore the priority of a thread that was stopped.
const INJECTING: CapabilitySet = RUNNING[0]
    .capability
    .union(RUNNING[1].capability)
    .union(RUNNING[2].capability)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_NICE);

/// The rights to see processes of other users, and to open the files that they map.
const LOOKING: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::CHECKPOINT_RESTORE);

/// The rights to create files, and to give them to the user behind `sudo`.
const WRITING: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::CHOWN).union(CapabilitySet::FOWNER);

/// The rights to load BPF programs and to place probes, in any way.
const PROBING: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::DAC_OVERRIDE);

/// The right to read files of other users: `CAP_DAC_OVERRIDE`, which also allows writing, only if the other one is
/// missing.
fn reading() -> CapabilitySet {
    let both = CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE;
    let narrow = CapabilitySet::DAC_READ_SEARCH;
    if held().permitted.contains(narrow) { narrow } else { both }
}

/// Keeps the rights that `doctor` and `probes` need to try and to measure.
pub fn keep_for_trying() {
    keep(PROBING | LOOKING | reading(), CapabilitySet::empty());
}

/// Keeps the rights to look into processes and libraries.
pub fn keep_for_looking() {
    keep(LOOKING | reading(), CapabilitySet::empty());
}

/// Keeps the rights to open a file of the user's.
pub fn keep_for_reading() {
    keep(reading(), CapabilitySet::empty());
}

/// Keeps the rights to open a file of the user's, and to create others.
pub fn keep_for_writing() {
    keep(reading() | WRITING, CapabilitySet::empty());
}

/// Keeps the rights to become another user, and [to end one's processes](keep_for_ending).
pub fn keep_for_becoming_user() {
    let ending = CapabilitySet::KILL;
    keep(CapabilitySet::SETUID | CapabilitySet::SETGID | ending, CapabilitySet::empty());
}

/// Keeps the right to end a process of another user, also by the signal that it gets when its parent has ended.
pub fn keep_for_ending() {
    keep(CapabilitySet::KILL, CapabilitySet::empty());
}

/// Keeps the rights to rename and to remove the caller's own files, in any directory.
pub fn keep_for_renaming() {
    keep(CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER, CapabilitySet::empty());
}

/// Keeps the rights to put a tool into a process, which helpers do; the tool's memory is a file of the process's user.
pub fn keep_for_tools() {
    keep(LOOKING | CapabilitySet::DAC_OVERRIDE, INJECTING);
}

/// Keeps the rights to put the shim into a process.
pub fn keep_for_injecting() {
    keep(INJECTING, CapabilitySet::empty());
}

/// Keeps the right to read the memory of a process by its number.
pub fn keep_for_memory() {
    keep(CapabilitySet::SYS_PTRACE, CapabilitySet::empty());
}

/// Gives up all capabilities of the calling thread.
pub fn drop_all() {
    keep(CapabilitySet::empty(), CapabilitySet::empty());
}

/// The rights that a recording keeps, from one stage to the next.
///
/// A right that is given up does not come back, and the rights of the recorded command must not depend on those that
/// roctap gave up: so the command's process exists before the first stage.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    helpers: CapabilitySet,
    /// Without `CAP_SYS_PTRACE` the kernel lets no process look into one that has more capabilities, as the command
    /// may have, which got all of roctap's.
    commands: CapabilitySet,
}

/// The facts about a recording on which its rights depend.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// Whether processes may get the shim.
    pub injects: bool,
    /// Whether a command is started, which has the rights that the calling thread has now.
    pub starts: bool,
}

impl Recording {
    /// To be called before any thread is started.
    pub fn begin(Recorded { injects, starts }: Recorded) -> Self {
        let none = CapabilitySet::empty();
        let permitted = held().permitted;
        let commands = match starts && !permitted.contains(CapabilitySet::SYS_PTRACE) {
            true if rustix::process::geteuid().is_root() => permitted,
            true => each(permitted).filter(|&one| is_ambient(one)).fold(none, CapabilitySet::union),
            false => none,
        };
        let helpers = if injects { INJECTING } else { none };
        let recording = Self { helpers, commands };
        let begin = PROBING | LOOKING | WRITING | reading() | CapabilitySet::SYS_NICE;
        keep(begin | recording.commands, recording.helpers);
        recording
    }

    /// The programs are loaded and the trace is created: keeps the rights to attach, and to prefer a thread.
    pub fn attach(self, placing: Placing) {
        keep(self.lasting(placing) | CapabilitySet::SYS_NICE, self.helpers);
    }

    /// Keeps the rights to attach to further processes and libraries, until the end.
    pub fn go_on(self, placing: Placing) {
        keep(self.lasting(placing), self.helpers);
    }

    fn lasting(self, placing: Placing) -> CapabilitySet {
        let mut lasting = PROBES
            .into_iter()
            .chain(needs_of(placing))
            .fold(LOOKING | self.commands, |set, need| set | need.capability);
        let substituted = PROBES.iter().any(|need| !effective().contains(need.capability));
        if substituted {
            lasting |= CapabilitySet::SYS_ADMIN;
        }
        // Root owns its files, tracefs among them.
        let tracefs = placing == Placing::Event && !rustix::process::geteuid().is_root();
        let writes = tracefs || !self.helpers.is_empty();
        lasting | if writes { CapabilitySet::DAC_OVERRIDE } else { reading() }
    }
}

/// Whether the program's file gave this process more rights than the user who started it has: by its set-user-id bit,
/// or by capabilities.
#[expect(unsafe_code, reason = "no crate at hand wraps getauxval")]
pub fn exceed_the_callers() -> bool {
    // SAFETY: the call takes a number and reads a value that the kernel left at the program's start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether the calling thread may trace every process.
pub fn can_trace_all() -> bool {
    effective().contains(CapabilitySet::SYS_PTRACE)
}

/// Whether the calling thread has, or could have, any capability.
pub fn has_any() -> bool {
    !held().permitted.is_empty()
}

fn held() -> CapabilitySets {
    let none = CapabilitySet::empty();
    let nothing = CapabilitySets { effective: none, permitted: none, inheritable: none };
    capabilities(None).unwrap_or(nothing)
}

fn effective() -> CapabilitySet {
    held().effective
}

/// The capabilities of a set, one by one, including those that have no name here.
fn each(set: CapabilitySet) -> impl Iterator<Item = CapabilitySet> {
    (0..u64::BITS)
        .map(|bit| CapabilitySet::from_bits_retain(1 << bit))
        .filter(move |&one| set.contains(one))
}

fn is_ambient(one: CapabilitySet) -> bool {
    capability_is_in_ambient_set(one).unwrap_or(false)
}

/// Gives up, for the calling thread and those that it starts, all rights except those that it uses and those that
/// programs need which it executes. From here on, executing a program gives no further rights, as it else does to
/// root.
fn keep(used: CapabilitySet, helpers: CapabilitySet) {
    let now = held();
    let mut failed = set_no_new_privs(true).err();
    // First, since this takes a capability. A thread without that capability cannot get further rights by executing a
    // program either.
    for one in each(!helpers).filter(|&one| capability_is_in_bounding_set(one).unwrap_or(false)) {
        if now.effective.contains(CapabilitySet::SETPCAP) {
            failed = remove_capability_from_bounding_set(one).err().or(failed);
        }
    }
    for one in each(!helpers).filter(|&one| is_ambient(one)) {
        failed = configure_capability_in_ambient_set(one, false).err().or(failed);
    }
    let kept = CapabilitySets {
        effective: now.effective & used,
        permitted: now.permitted & (used | helpers),
        inheritable: now.inheritable & helpers,
    };
    failed = set_capabilities(None, kept).err().or(failed);
    if let Some(error) = failed {
        tracing::warn!("some of roctap's rights could not be given up: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounding() -> CapabilitySet {
        each(CapabilitySet::all())
            .filter(|&one| capability_is_in_bounding_set(one).unwrap_or(false))
            .fold(CapabilitySet::empty(), CapabilitySet::union)
    }

    #[test]
    fn what_is_given_up_is_gone_for_this_thread_alone() {
        let (before, bounds) = (held(), bounding());
        let after = std::thread::spawn(|| {
            let recording = Recording::begin(Recorded { injects: true, starts: false });
            recording.go_on(Placing::Multi);
            let (kept, bounds) = (held(), bounding());
            drop_all();
            (kept, bounds, held(), rustix::thread::no_new_privs().unwrap())
        });
        let (kept, bounded, none, no_new_privs) = after.join().unwrap();
        let used = PROBES
            .iter()
            .chain(&RUNNING)
            .fold(CapabilitySet::empty(), |set, need| set | need.capability);
        assert_eq!(kept.permitted, before.permitted & (used | INJECTING));
        assert!(before.effective.contains(kept.effective));
        assert!(!kept.effective.intersects(CapabilitySet::SYS_NICE | CapabilitySet::CHOWN));
        if before.effective.contains(CapabilitySet::SETPCAP) {
            assert_eq!(kept.effective, before.effective & used);
            assert_eq!(bounded, bounds & INJECTING);
        }
        assert!(none.effective.is_empty() && none.permitted.is_empty() && no_new_privs);
        assert_eq!((held(), bounding()), (before, bounds));
        assert!(!rustix::thread::no_new_privs().unwrap_or(true) || before.permitted.is_empty());
    }

    #[test]
    fn what_is_missing_is_named() {
        let text = Missing(PROBES.to_vec()).to_string();
        assert!(text.contains("CAP_BPF is needed to load BPF programs; CAP_PERFMON"), "{text}");
    }
}
