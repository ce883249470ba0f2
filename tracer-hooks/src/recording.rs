//! A recording of this process: how it begins, ends and is let go. Nothing here puts hooks into tables.

use core::sync::atomic::Ordering;

use tracer_common::loss::ShimLoss;
use tracer_common::shim::state;

use crate::lock::Lock;
use crate::phase::{Event, Phase};
use crate::runtime::RUNTIME;
use crate::sink::{Demand, Remains};
use crate::state::STATE;
use crate::track::Track;
use crate::{agents, announce, calls, symbols, sys};

/// Longest that anybody waits for another thread to begin or end a recording.
pub const SWITCH_WAIT_NS: u64 = 1_000_000_000;
/// Signals that are made before a live queue needs the first.
const FIRST_SIGNALS: usize = 512;

/// The lock of the thread that begins or ends a recording.
pub static SWITCH: Lock<()> = Lock::new(());

/// Whether the sink wants to record. Only an answer that was given under [`SWITCH`] may be acted on: an
/// earlier one can be of another recording.
fn wanted() -> bool {
    STATE.sink.get().is_some_and(|sink| sink.wanted(sys::now_ns()) == Demand::Record)
}

/// Begins to record, if that is wanted. Calls `between` again and again while it tells what is there.
pub fn activate(between: &mut dyn FnMut()) {
    let Some(switching) = SWITCH.lock_for(SWITCH_WAIT_NS) else { return };
    if STATE.phase.get().after(Event::Begin).is_none() || !wanted() {
        return;
    }
    let ready = STATE.is_ready();
    if ready {
        announce::prepare();
    }
    symbols::begin();
    let Some(&sink) = STATE.sink.get() else { return };
    // Calls first: each operation that is recorded is to have its call.
    sink.begins();
    // Pairs with the Acquire of a thread that finds the recording begun: `Context::recording`.
    STATE.epoch.fetch_add(1, Ordering::AcqRel);
    if STATE.phase.apply(Event::Begin).is_err() {
        calls::end();
        return;
    }
    sink.state(state::ACTIVE);
    drop(switching);
    if ready {
        if STATE.late.load(Ordering::Relaxed) {
            STATE.pool.top_up(FIRST_SIGNALS, || RUNTIME.create_signal());
        }
        announce::everything(between);
    }
}

/// Stops to record, unless that is still wanted; what is in flight is still looked after. Whether
/// nothing is recorded.
pub fn deactivate() -> bool {
    let Some(_switching) = SWITCH.lock_for(SWITCH_WAIT_NS) else { return false };
    if wanted() {
        return false;
    }
    if STATE.phase.apply(Event::End).is_ok() {
        release_queues();
    }
    true
}

/// A recording has ended: after this no thread instruments anything, for each looked at the phase
/// under its queue's lock.
pub fn release_queues() {
    // After a failure nothing more is put into packets.
    let context = STATE.context().filter(|_| !STATE.gave_up());
    for queue in STATE.registry.objects() {
        if let Some(context) = &context {
            STATE.has_rung(queue.finish(context), context.sink);
        }
        queue.release(&STATE.pool);
    }
    STATE.copies.release(&STATE.pool);
    let _ = STATE.phase.apply(Event::Release);
}

/// Whether what is in flight may still be worth waiting for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Something completed not long ago.
    Waiting,
    /// Nothing did: it may be a kernel that runs for hours, or a packet that was taken just before
    /// our signal was in it.
    Ended,
}

/// Has the sink give up what it records into, if nobody wants that any more; true when there is
/// nothing to give up and nothing to look after.
pub fn let_go(patience: Patience) -> bool {
    let Some(_switching) = SWITCH.try_lock() else { return false };
    let Some(&sink) = STATE.sink.get() else { return true };
    // Under the lock: a recording that begins meanwhile is not to lose its memory.
    match (STATE.phase.get(), patience) {
        (Phase::Active | Phase::Ended, _) => false,
        (Phase::Draining | Phase::Settling, Patience::Waiting) => {
            sink.let_go(Remains::InFlight);
            false
        }
        (Phase::Draining | Phase::Settling, Patience::Ended) => {
            // It is looked after as before, but the reader need not wait for it.
            if !sink.housekeeping(sys::now_ns()) {
                sink.lost(ShimLoss::UNFINISHED, in_flight());
                sink.state(state::DORMANT);
                sink.let_go(Remains::Nothing);
            }
            false
        }
        _ => sink.let_go(Remains::Nothing),
    }
}

/// Operations that have not completed.
pub fn in_flight() -> u64 {
    let pending = |track: &Track| track.pending() as u64;
    STATE.registry.objects().map(|q| pending(&q.track)).sum::<u64>() + pending(&STATE.copies.track)
}

/// Ends what is left of a recording if nothing is in flight any more.
pub fn finish_draining() {
    if STATE.phase.get() != Phase::Settling || in_flight() > 0 {
        return;
    }
    let Some(&sink) = STATE.sink.get() else { return };
    // The reader stops when it sees the new state.
    if sink.housekeeping(sys::now_ns()) {
        return;
    }
    let Some(_switching) = SWITCH.try_lock() else { return };
    if STATE.phase.apply(Event::Settle).is_ok() {
        STATE.pool.destroy_idle(|signal| RUNTIME.destroy_signal(signal));
        agents::forget_homes();
        sink.state(state::DORMANT);
    }
}

/// Ends what [`crate::state::State::give_up`] gave up: rings what is held back.
pub fn release_after_failure() {
    if STATE.phase.get() == Phase::Draining {
        release_queues();
    }
}

/// Lets the sink finish what it puts off.
pub fn flush(deadline: u64) {
    if let Some(sink) = STATE.sink.get() {
        while sys::now_ns() < deadline && sink.housekeeping(sys::now_ns()) {
            sys::sleep_ns(500_000);
        }
    }
}
