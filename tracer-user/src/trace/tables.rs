//! The side tables in pieces: the entries that a chunk adds to them, and the merging of the pieces.

use serde::{Deserialize, Serialize};

use super::limits::{MAX_NOTICES, MAX_TEXT, WithinLimits as _, cut};
use super::lookup::Tables;
use tracer_records::model::{Agent, ClockOffsets, Kernel, Process, StringId};

/// The entries that a chunk adds to the [`Tables`], without the strings. Stored as JSON: small beside the events,
/// readable, and fields can be added without a new version.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Increment {
    /// (domain, operation id, name).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<(u32, u32, StringId)>,
    /// (process id, process): the latest one counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<(u32, Process)>,
    /// (process id, thread id, name): the latest one counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<(u32, u32, StringId)>,
    /// (process id, node id, agent).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<(u32, u32, Agent)>,
    /// (kernel id, kernel).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<(u32, Kernel)>,
    /// (process id or 0, cause, count): counts are summed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<(u32, String, u64)>,
    /// Each text is kept once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// In the last chunk: the clocks when recording ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_clock: Option<ClockOffsets>,
}

impl Increment {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The memory that the entries take beside their texts.
    pub fn kept_bytes(&self) -> usize {
        let Self { operations, processes, threads, agents, kernels, losses, notices, end_clock: _ } =
            self;
        let libraries = processes.iter().map(|(_, process)| size_of_val(&*process.libraries));
        size_of_val(&**operations)
            + size_of_val(&**processes)
            + libraries.sum::<usize>()
            + size_of_val(&**threads)
            + size_of_val(&**agents)
            + size_of_val(&**kernels)
            + size_of_val(&**losses)
            + size_of_val(&**notices)
    }

    /// Merges the increment into `tables`; returns the clocks of the end if it has them.
    pub fn merge_into(self, tables: &mut Tables) -> Option<ClockOffsets> {
        let Self { operations, processes, threads, agents, kernels, losses, notices, end_clock } =
            self;
        tables.operations.extend(operations.into_iter().map(|(d, o, name)| ((d, o), name)));
        tables
            .processes
            .extend(processes.into_iter().map(|(p, process)| (p, process.within_limits())));
        tables.threads.extend(threads.into_iter().map(|(p, t, name)| ((p, t), name)));
        tables
            .agents
            .extend(agents.into_iter().map(|(p, n, agent)| ((p, n), agent.within_limits())));
        tables.kernels.extend(kernels);
        for (process_id, cause, count) in losses {
            let cause = cut(&cause, MAX_TEXT).into_owned();
            let sum = tables.losses.entry((process_id, cause)).or_default();
            *sum = sum.saturating_add(count);
        }
        for notice in notices {
            let notice = cut(&notice, MAX_TEXT).into_owned();
            if tables.notices.len() < MAX_NOTICES && !tables.notices.contains(&notice) {
                tables.notices.push(notice);
            }
        }
        end_clock
    }
}
