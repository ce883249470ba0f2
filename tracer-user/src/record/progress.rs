//! The line that a terminal shows while recording.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::session::Session;

/// Shows events, losses and time on standard error, if that is a terminal.
pub struct Progress {
    bar: ProgressBar,
    last: Cell<(Instant, u64)>,
}

impl Progress {
    pub fn new() -> Self {
        let bar = ProgressBar::no_length().with_style(ProgressStyle::default_spinner());
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(4));
        Self { bar, last: Cell::new((Instant::now(), 0)) }
    }

    pub fn show(&self, began: Instant, session: &Session) {
        let (at, before) = self.last.get();
        if self.bar.is_hidden() || at.elapsed() < Duration::from_millis(500) {
            return;
        }
        let counts = session.counts();
        let events = counts.calls + counts.dispatches + counts.copies + counts.barriers;
        let rate = (events - before) as f64 / at.elapsed().as_secs_f64();
        self.last.set((Instant::now(), events));
        self.bar.set_message(format!(
            "recording {:.0} s: {} API calls, {} kernels, {} copies; {} events/s; {} lost — Ctrl-C ends",
            began.elapsed().as_secs_f64(),
            HumanCount(counts.calls),
            HumanCount(counts.dispatches),
            HumanCount(counts.copies),
            HumanCount(rate as u64),
            HumanCount(session.lost()),
        ));
        self.bar.tick();
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
