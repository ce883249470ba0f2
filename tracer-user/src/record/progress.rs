//! The line that a terminal shows while recording: numbers alone. Text that a process chose would have to be made
//! harmless first, by [`crate::shown`], whose lints do not see what is shown here.
//!
//! A view of the events themselves is a sink around the trace's: `session/recorder.rs` says where.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::session::Session;
use crate::join::Counts;

/// The text of the line: the most important first, since a narrow terminal shows the beginning.
fn message(since: Duration, lost: u64, counts: Counts, rate: u64) -> String {
    format!(
        "recording {} s, {} lost: {} API calls, {} kernels, {} copies; {} events/s — Ctrl-C ends",
        since.as_secs(),
        HumanCount(lost),
        HumanCount(counts.calls),
        HumanCount(counts.dispatches),
        HumanCount(counts.copies),
        HumanCount(rate),
    )
}

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
        self.bar.set_message(message(began.elapsed(), session.lost(), counts, rate as u64));
        self.bar.tick();
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_come_first() {
        let counts = Counts { calls: 1_234_567, dispatches: 8, ..Counts::default() };
        let message = message(Duration::from_secs(61), 17, counts, 20_000);
        assert!(message.starts_with("recording 61 s, 17 lost: 1,234,567 API calls"), "{message}");
    }
}
