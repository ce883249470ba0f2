//! The kernel's side of a recording: the BPF programs, the probes that run them, and what they record.

use std::{path::Path, time::Duration};

use tracer_common::bpf::{Capture, phase};
use tracer_common::loss::BpfLoss;

use crate::{
    discover::{Loader, Subject},
    losses::{Loss, Losses},
    probe::{
        Attachment, Follow, ProbeError, ProbeOwner, Programs, Reader, Records, Settings, Site,
    },
    record::{options::Options, select::Doorbells, target::Planned},
    shim::BackupReader,
};

/// The loss of records that are not of a known kind, or too short.
const NOT_UNDERSTOOD: &str = "BPF records: not understood";
/// The records that the thread that reads the BPF rings had taken, or had still to take, when it failed.
const UNREAD: &str = "BPF records: unread, since the thread that reads them failed (at least)";

fn owner(subject: &Subject) -> ProbeOwner {
    match subject.has_outlived_its_first_thread() {
        false => ProbeOwner::Process(subject.pid()),
        true => ProbeOwner::Outlived(subject.pid()),
    }
}

/// The programs, loaded.
pub struct Probes {
    pub programs: Programs,
    life: Attachment,
    /// Reads what the programs record.
    pub reader: Reader,
    #[cfg(feature = "bpf-log")]
    log: crate::probe::Log,
}

impl Probes {
    /// Loads the programs; nothing is probed yet, and no process is reported on.
    /// The thread that reads their records looks after the shims' rings, too.
    pub fn load(options: &Options, backup: &BackupReader) -> Result<Self, ProbeError> {
        let programs = Programs::load(Settings {
            ring_bytes: options.ring_bytes(),
            follow: match (options.all, options.no_follow) {
                (true, _) => Follow::Everyone,
                (false, false) => Follow::Children,
                (false, true) => Follow::Nobody,
            },
            placing: options.probes,
            preallocate: None,
        })?;
        let reader = Reader::with(&programs, backup.looks())?;
        Ok(Self {
            #[cfg(feature = "bpf-log")]
            log: crate::probe::Log::of(&programs),
            programs,
            life: Attachment::default(),
            reader,
        })
    }

    /// Begins to report forks, executions and ends of processes.
    pub fn follow(&mut self) -> Result<(), ProbeError> {
        self.life = self.programs.attach_life()?;
        Ok(())
    }

    /// Places the probes of a plan that are wanted, if its files are as they were when the plan was made. The probes
    /// stay if the process is still there after that.
    pub fn place(
        &mut self,
        subject: &Subject,
        planned: &Planned,
        wanted: impl Fn(&Site) -> bool,
    ) -> anyhow::Result<Attachment> {
        let sites: Vec<Site> = planned.sites.iter().filter(|site| wanted(site)).cloned().collect();
        planned.check()?;
        self.programs.set_phase(phase::ATTACHING)?;
        let placed = subject.by_number(|_| {
            let placed = self.programs.attach(owner(subject), &planned.file.path(), &sites)?;
            planned.check()?;
            anyhow::Ok(placed)
        });
        self.programs.set_phase(phase::ATTACHED)?;
        placed
    }

    /// Probes the dispatch site of a process's shim: an offset in its file.
    pub fn place_site(
        &self,
        subject: &Subject,
        file: &Path,
        offset: u64,
    ) -> anyhow::Result<Attachment> {
        subject
            .by_number(|_| Ok(self.programs.attach_dispatch_site(owner(subject), file, offset)?))
    }

    /// Probes where a process rings doorbells.
    pub fn place_doorbells(
        &self,
        subject: &Subject,
        doorbells: &Doorbells,
    ) -> anyhow::Result<Attachment> {
        let Doorbells { file, stores, ends, .. } = doorbells;
        subject.by_number(|_| {
            let placed =
                self.programs.attach_doorbells(owner(subject), &file.path(), stores, ends)?;
            file.check()?;
            Ok(placed)
        })
    }

    /// Probes the place where a process's dynamic linker tells that it changes what is loaded.
    pub fn place_loader(&self, subject: &Subject, loader: &Loader) -> anyhow::Result<Attachment> {
        let site = |&file_offset: &u64| Site {
            symbol: "_dl_debug_state".to_owned(),
            file_offset,
            capture: Capture::default(),
        };
        let sites: Vec<Site> = loader.calls.iter().map(site).collect();
        subject.by_number(|_| {
            let placed =
                self.programs.attach_loader(owner(subject), &loader.file.path(), &sites)?;
            loader.file.check()?;
            Ok(placed)
        })
    }

    /// The entry probes are about to be removed: a call that returns from now on without an entry does so because its
    /// entry probe is gone.
    pub fn begin_to_detach(&mut self) -> Result<(), ProbeError> {
        self.programs.set_phase(phase::DETACHING)
    }

    /// All probes are gone.
    pub fn end(&mut self) -> Result<(), ProbeError> {
        self.programs.set_phase(phase::ENDED)
    }

    /// The next batch of records: see [`Reader::take`].
    pub fn take(&mut self, timeout: Duration) -> Records {
        #[cfg(feature = "bpf-log")]
        self.log.show();
        self.reader.take(timeout)
    }

    /// All records that were made before this call.
    pub fn take_all(&mut self) -> Records {
        #[cfg(feature = "bpf-log")]
        self.log.show();
        self.reader.take_all()
    }
}

/// Records that the programs could not make, and those that nobody could read.
impl Losses for Probes {
    fn losses(&self) -> anyhow::Result<Vec<Loss>> {
        let causes = BpfLoss::ALL.map(BpfLoss::describe);
        let losses = causes.into_iter().zip(self.programs.losses()?).chain([
            (NOT_UNDERSTOOD, self.reader.malformed()),
            (UNREAD, self.reader.has_failed().into()),
        ]);
        Ok(losses.map(Loss::of_unknown).collect())
    }
}
