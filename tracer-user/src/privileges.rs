//! The capabilities that recording needs: checked before anything is done, and given up as soon as
//! they are not needed any more.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

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
    Need {
        name: "CAP_PERFMON",
        purpose: "attach uprobes (kernels before 6.6: CAP_SYS_ADMIN)",
        capability: CapabilitySet::PERFMON,
    },
];

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

/// Checks that something can be recorded.
///
/// # Errors
///
/// The capabilities that are missing.
pub fn check() -> Result<(), Missing> {
    let missing: Vec<Need> = PROBES.into_iter().filter(|need| !need.is_met()).collect();
    if missing.is_empty() { Ok(()) } else { Err(Missing(missing)) }
}

/// Gives up, for the calling thread, all but what attaching to further processes and libraries needs.
/// Not before files are created and the command is started: root without its capabilities cannot
/// write everywhere.
pub fn keep_for_attaching() {
    let mut keep = PROBES
        .iter()
        .chain(&RUNNING)
        .fold(CapabilitySet::empty(), |set, need| set | need.capability);
    let substituted = PROBES.iter().any(|need| !effective().contains(need.capability));
    if substituted || !crate::doctor::has_uprobe_multi() {
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
            keep_for_attaching();
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
