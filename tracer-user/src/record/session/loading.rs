//! Libraries that a process loads while it is traced.
//!
//! The process's dynamic linker tells when it has mapped a library, and the thread that loads the library is stopped
//! until the library has its probes: it can be called only when it has been relocated. If the linker does not tell, or
//! the thread has gone on, roctap sees a little later what is mapped, and the trace says so.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tracer_common::{activity::Domain, bpf::LoadRecord};

use super::{Session, injections::Occasion};
use crate::{
    clock,
    discover::{self, Ended, Library, Loader, Runtime, Subject},
    record::{
        pause::Pause,
        removal::Removal,
        target::{MappingsLook, Target},
    },
};

/// Whether a library that a process maps can be called, as far as is known.
fn may_be_called(process: &Subject, library: &Library) -> bool {
    let looked = process.by_number(|pid| Ok::<_, Ended>(discover::may_be_called(pid, library)));
    looked.unwrap_or(true)
}

impl Session {
    /// Has process `pid`'s dynamic linker tell what it loads. If that is impossible, roctap looks through the mappings
    /// now and then.
    pub(super) fn watch_loader(&mut self, pid: u32) {
        let Some(target) = self.processes.get_mut(pid) else { return };
        let placed = self.plans.loader(&target.subject, &mut self.recorder).and_then(|found| {
            let is_known = |loader: &Arc<Loader>| {
                target.loader.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, loader))
            };
            let Some(loader) = found.filter(|loader| !is_known(loader)) else { return Ok(()) };
            let probes = self.probes.place_loader(&target.subject, &loader)?;
            if let Some((_, earlier)) = target.loader.replace((loader, probes)) {
                target.removals.push((Domain::HSA_API, Removal::begin(earlier)));
            }
            Ok(())
        });
        if let Err(error) = placed {
            tracing::info!("process {pid}: its dynamic linker is not probed: {error:#}");
        }
    }

    /// Process `pid` has mapped or unmapped libraries, and told so each time.
    pub(super) fn libraries_changed(&mut self, pid: u32, loads: &[LoadRecord]) {
        let (Some(target), [first, .., last] | [first @ last]) =
            (self.processes.get_mut(pid), loads)
        else {
            return;
        };
        let subject = Arc::clone(&target.subject);
        let Ok(pages) = subject.by_number(discover::mapped_pages) else { return };
        if target.seen.is_some_and(|seen| seen.pages == pages) {
            return;
        }
        let Some(libraries) = self.look_at_libraries(pid, pages) else { return };
        let new: Vec<&Library> = libraries.iter().filter(|l| self.is_new(pid, l)).collect();
        if new.is_empty() {
            return;
        }
        let pause = Pause::of_thread(&subject, last.header.tid);
        let may_be_called = |library: &&Library| may_be_called(&subject, library);
        // Libraries that are mapped together are relocated one after the other, and called when all of them are.
        let in_time = pause.is_some()
            && match loads {
                [_] => !new.iter().all(may_be_called),
                _ => !new.iter().any(may_be_called),
            };
        let late = Duration::from_nanos(clock::now_ns().saturating_sub(first.time_ns));
        let uses_gpu = self.take_up(pid, libraries, (!in_time).then_some(late));
        drop(pause);
        if uses_gpu {
            self.give_shim(pid, Occasion::Later);
        }
    }

    /// The libraries that process `pid` maps, of `pages` in all.
    pub(super) fn look_at_libraries(&mut self, pid: u32, pages: u64) -> Option<Vec<Library>> {
        let target = self.processes.get_mut(pid)?;
        let at = Instant::now();
        let libraries = target.subject.by_number(discover::libraries);
        target.seen = Some(MappingsLook { at, pages, took: at.elapsed() });
        libraries.ok()
    }

    /// Whether process `pid` maps a library that is to be probed, and its dynamic linker is about to report the
    /// library: the record is on its way. If the linker does not report it, the next look finds the same library.
    pub(super) fn linker_will_report(&mut self, pid: u32, libraries: &[Library]) -> bool {
        let is_new = libraries.iter().any(|library| self.is_new(pid, library));
        let Some(target) = self.processes.get_mut(pid) else { return false };
        let waits = is_new && target.loader.is_some() && !target.waits_for_loader;
        target.waits_for_loader = waits;
        if waits {
            target.seen = None;
        }
        waits
    }

    /// Whether a library is to be probed in a process, and is not yet.
    fn is_new(&self, pid: u32, library: &Library) -> bool {
        let is_known = |target: &Target| {
            target.planned.contains_key(&library.id) || target.refused.contains(&library.id)
        };
        self.plans.wants(library.runtime) && !self.processes.get(pid).is_none_or(is_known)
    }

    /// Probes the new ones of the libraries that a process maps; `late` is set if they may have been called before they
    /// were found. Returns whether one is the HSA runtime.
    pub(super) fn take_up(
        &mut self,
        pid: u32,
        libraries: Vec<Library>,
        late: Option<Duration>,
    ) -> bool {
        let count = |runtime| libraries.iter().filter(|l| l.runtime == runtime).count();
        let (uses_gpu, has_other_hip) = (count(Runtime::Hsa) > 0, count(Runtime::Hip) > 1);
        self.see_from_outside(pid, &libraries);
        for library in libraries {
            if !self.is_new(pid, &library) {
                continue;
            }
            // The file has been touched since it was planned.
            let again =
                |target: &Target| target.planned.keys().any(|id| id.has_inode_of(library.id));
            let again = self.processes.get(pid).is_some_and(again);
            let attached = self.attach(pid, &library);
            // The probes are in place: if the library cannot be called yet, its first call will meet them.
            let target = self.processes.get(pid);
            let is_late = target.is_none_or(|target| may_be_called(&target.subject, &library));
            let late = late.filter(|_| is_late);
            if library.runtime == Runtime::Hip
                && has_other_hip
                && !again
                && let Some(target) = self.processes.get_mut(pid)
            {
                target.beside_shim.insert(library.id);
            }
            match (attached, late) {
                (Ok(()), Some(late)) if !again => {
                    self.departed.was_late = true;
                    self.recorder.notice(&format!(
                        "process {pid}: {} was found up to {:.1} ms after it was mapped; earlier calls are not in the trace",
                        library.path.display(),
                        late.as_secs_f64() * 1e3
                    ));
                }
                (Ok(()), _) => {}
                (Err(error), _) => {
                    let target = self.processes.get_mut(pid);
                    if target.is_some_and(|target| target.explain(library.id)) {
                        self.recorder.notice(&format!("process {pid}: {error:#}"));
                    }
                }
            }
        }
        uses_gpu
    }
}
