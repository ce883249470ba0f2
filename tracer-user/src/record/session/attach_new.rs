//! Attaching to the processes that [`super::watch`] has found, those of `record -a`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::Session;
use crate::discover::{self, Runtime, Subject};

/// The longest time that is spent on looking at processes before other work is done.
const LOOK_FOR: Duration = Duration::from_millis(20);

impl Session {
    /// Attaches to the ROCm processes that have appeared.
    pub(super) fn attach_new(&mut self, now: Instant) -> anyhow::Result<()> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let mut left = None;
        for pid in watch.candidates(now) {
            if now.elapsed() > LOOK_FOR {
                left = Some(pid);
                break;
            }
            if self.processes.is_alive(pid) {
                continue;
            }
            let Ok(subject) = Subject::open(pid) else { continue };
            let is_wanted = |runtime: Runtime| runtime.is_of_rocm() || self.plans.wants(runtime);
            if !self.watch.as_ref().is_some_and(|watch| watch.is_refused(&subject))
                && subject
                    .by_number(discover::libraries)
                    .is_ok_and(|found| found.iter().any(|library| is_wanted(library.runtime)))
            {
                self.attach_found(Arc::new(subject));
            }
        }
        if let Some(watch) = &mut self.watch {
            watch.looked(now, Instant::now(), left);
        }
        Ok(())
    }

    /// Attaches to a process that nobody named. A failure is that process's alone.
    fn attach_found(&mut self, subject: Arc<Subject>) {
        let Some(watch) = &mut self.watch else { return };
        if watch.is_own(&subject) {
            watch.refuse(&subject);
            return;
        }
        if let Err(error) = self.attach_running(Arc::clone(&subject)) {
            self.give_up(&subject, &error);
        }
    }

    /// A process that nobody named is not traced.
    pub(super) fn give_up(&mut self, subject: &Subject, error: &anyhow::Error) {
        if subject.is_alive() {
            if let Some(watch) = &mut self.watch {
                watch.refuse(subject);
            }
            self.recorder.notice(&format!("process {} is not traced: {error:#}", subject.pid()));
        }
    }
}
