//! The capabilities that recording needs: checked before anything is done, and given up as soon as
//! they are not needed any more.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::probe::Method;

/// One capability and what it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// Its name, as in capabilities(7).
    pub name: &'static str,
    /// What cannot be done without it.
    pub purpose: &'static str,
    capability: CapabilitySet,
}

impl Need {
    /// Whether the calling thread has it, or `CAP_SYS_ADMIN` in its place.
    pub fn is_met(self) -> bool {
        let effective = effective();
        effective.contains(self.capability)
            || self.substitutable() && effective.contains(CapabilitySet::SYS_ADMIN)
    }

    /// `CAP_BPF`, `CAP_PERFMON` and `CAP_CHECKPOINT_RESTORE` were cut out of `CAP_SYS_ADMIN`.
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

/// Above this, `kernel.perf_event_paranoid` lets nobody but CAP_SYS_ADMIN open perf events: a patch of
/// Debian's and Ubuntu's.
const PARANOID: i32 = 2;

/// What is needed beside those to place probes in a way; found by trying each with exactly these.
pub fn placing(method: Method) -> Option<Need> {
    let purpose = match method {
        Method::Multi => return None,
        Method::Event if perf_event_paranoid() <= PARANOID => return None,
        Method::Event => {
            "open perf events, by which this kernel places probes (or set kernel.perf_event_paranoid to 2)"
        }
        Method::Single => {
            "place probes one by one, since this kernel has no uprobe_multi and tracefs cannot be written (root can, and who has CAP_DAC_OVERRIDE)"
        }
    };
    Some(Need { name: "CAP_SYS_ADMIN", purpose, capability: CapabilitySet::SYS_ADMIN })
}

/// The setting; 2, Linux's own, where it cannot be read.
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

/// What is missing to record at all.
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
pub fn check_placing(method: Method) -> Result<(), Missing> {
    check_all(placing(method))
}

fn check_all(needs: impl IntoIterator<Item = Need>) -> Result<(), Missing> {
    let missing: Vec<Need> = needs.into_iter().filter(|need| !need.is_met()).collect();
    if missing.is_empty() { Ok(()) } else { Err(Missing(missing)) }
}

/// Gives up, for the calling thread, all but what attaching to further processes and libraries needs,
/// where probes are placed by `method`. Not before files are created and the command is started: root
/// without its capabilities cannot write everywhere.
pub fn keep_for_attaching(method: Method) {
    let mut keep = PROBES
        .into_iter()
        .chain(RUNNING)
        .chain(placing(method))
        .fold(CapabilitySet::empty(), |set, need| set | need.capability);
    let substituted = PROBES.iter().any(|need| !effective().contains(need.capability));
    if substituted {
        keep |= CapabilitySet::SYS_ADMIN;
    }
    restrict(keep);
}

/// Gives up, for the calling thread, all but what putting the shim into a process needs.
pub fn keep_for_injecting() {
    let looking = RUNNING.iter().fold(CapabilitySet::empty(), |set, need| set | need.capability);
    // To read seccomp filters, and to give back the priority that a thread is stopped with.
    restrict(looking | CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_NICE);
}

/// Gives up all capabilities of the calling thread.
pub fn drop_all() {
    restrict(CapabilitySet::empty());
}

fn effective() -> CapabilitySet {
    capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective)
}

fn restrict(keep: CapabilitySet) {
    let Ok(now) = capabilities(None) else { return };
    let kept = CapabilitySets {
        effective: now.effective & keep,
        permitted: now.permitted & keep,
        inheritable: now.inheritable & keep,
    };
    if let Err(error) = set_capabilities(None, kept) {
        tracing::debug!("keeping all capabilities: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_is_gone_for_this_thread_alone() {
        let before = effective();
        let after = std::thread::spawn(|| {
            keep_for_attaching(Method::Multi);
            let kept = effective();
            drop_all();
            (kept, effective())
        });
        let (kept, none) = after.join().unwrap();
        assert!(!kept.contains(CapabilitySet::DAC_OVERRIDE | CapabilitySet::SYS_BOOT));
        assert_eq!(kept, before & kept);
        assert_eq!(none, CapabilitySet::empty());
        assert_eq!(effective(), before);
    }

    #[test]
    fn what_is_missing_is_named() {
        let text = Missing(PROBES.to_vec()).to_string();
        assert!(text.contains("CAP_BPF is needed to load BPF programs; CAP_PERFMON"), "{text}");
    }
}
