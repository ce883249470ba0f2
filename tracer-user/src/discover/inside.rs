//! The threads of a process that are inside a runtime library now.
//!
//! A call that is open when probes are placed has no return probe: its end is not seen. Unwinding the threads would
//! name the calls, but that means stopping them. This module looks from outside, at the stacks of threads that wait in
//! a system call, and can only tell that there may be such calls.

use std::{ops::Range, time::Duration};

use super::{DiscoverError, Runtime, process};
use crate::{
    clock::Patience,
    foreign::{self, Access, Maps, TargetMemory},
};

/// The number of bytes of a stack that are looked at.
const STACK_BYTES: usize = 16 << 10;
/// The most pieces of runtime libraries that are looked for.
const MAX_PIECES: usize = 64;
/// The most threads that are looked at.
const MAX_THREADS: usize = 4096;
/// The longest time for which they are looked at; afterwards only warnings are missing.
const LOOK_FOR: Duration = Duration::from_secs(2);

/// Threads at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Inside {
    /// Threads that wait and have a return address into a runtime library on their stack.
    pub waiting: usize,
    /// Threads that run: it cannot be told from outside where.
    pub running: usize,
}

/// Looks at the threads of process `pid`.
///
/// # Errors
///
/// When the process does not exist or may not be read.
pub fn threads_inside(pid: u32) -> Result<Inside, DiscoverError> {
    let process = process(pid)?;
    let maps = Maps::of(pid).map_err(|e| DiscoverError::proc(pid, "maps", e.into()))?;
    let code: Vec<Range<u64>> = maps
        .iter()
        .filter(|map| map.executable && Runtime::of_mapping(pid, map).is_some())
        .map(|map| map.range)
        .take(MAX_PIECES)
        .collect();
    let memory =
        TargetMemory::open(pid, Access::Read).map_err(|_| DiscoverError::NotPermitted { pid })?;
    let tasks = process.tasks().map_err(|e| DiscoverError::proc(pid, "task", e))?;
    let mut inside = Inside::default();
    let mut patience = Patience::of(LOOK_FOR);
    for task in tasks.flatten().take(MAX_THREADS) {
        if patience.has_ended() {
            break;
        }
        let state = foreign::text(format!("/proc/{pid}/task/{}/syscall", task.tid).as_ref());
        let Ok(state) = state else { continue };
        match stack_pointer(&foreign::lossy(&state)) {
            None => inside.running += 1,
            Some(sp) if returns_into(&memory, sp, &code) => inside.waiting += 1,
            Some(_) => {}
        }
    }
    Ok(inside)
}

/// The stack pointer in `/proc/PID/task/TID/syscall`: the last but one field; none for a thread that runs.
pub fn stack_pointer(state: &str) -> Option<u64> {
    let field = state.split_whitespace().rev().nth(1)?;
    u64::from_str_radix(field.strip_prefix("0x")?, 16).ok()
}

fn returns_into(memory: &TargetMemory, sp: u64, code: &[Range<u64>]) -> bool {
    let mut stack = vec![0; STACK_BYTES];
    // Fewer bytes than asked for if the stack ends before.
    let read = memory.read_at(&mut stack, sp).unwrap_or(0);
    stack[..read].as_chunks::<8>().0.iter().any(|word| {
        let address = u64::from_ne_bytes(*word);
        code.iter().any(|range| range.contains(&address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_pointer_is_read() {
        let waiting = "202 0x7f 0x189 0x0 0x0 0x0 0x1 0x7ffd1000 0x7f12\n";
        assert_eq!(stack_pointer(waiting), Some(0x7ffd_1000));
        assert_eq!(stack_pointer("-1 0x7ffd2000 0x7f12\n"), Some(0x7ffd_2000));
        assert_eq!(stack_pointer("running\n"), None);
    }

    #[test]
    fn a_program_without_rocm_is_not_inside() {
        let inside = threads_inside(std::process::id()).unwrap();
        assert_eq!(inside.waiting, 0);
    }
}
