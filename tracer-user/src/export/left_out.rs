//! Counts of events that an export could not show.

/// Counts of events that a format has no place for, or shows in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// GPU operations without a completion: they have no times.
    pub incomplete: u64,
    /// GPU operations whose call is not known, where the format demands one.
    pub without_call: u64,
    /// Kernels and barriers of HSA programs, which roctracer's text has no line for.
    pub hsa_operations: u64,
    /// Barriers, which rocprofv3's CSV has no table for.
    pub barriers: u64,
    /// Calls of other domains.
    pub other_calls: u64,
    /// GPU operations whose domain is none of these.
    pub other_work: u64,
    /// Calls that are exported with a duration of 0 ns, because their begin or end was not seen.
    pub untimed_calls: u64,
    /// Events of processes beyond the number for which files are written.
    pub further_files: u64,
    /// Launches without their kernel, because there are more than are kept.
    pub unnamed_launches: u64,
    /// GPU operations of streams beyond those that are numbered.
    pub further_streams: u64,
    /// Calls of roctx beyond the number that is matched into ranges.
    pub further_marks: u64,
    /// Events of processes beyond the number that is handed over to a plugin.
    pub further_processes: u64,
    /// Calls of functions that roctracer has no number for.
    pub unnumbered_calls: u64,
}

impl LeftOut {
    /// A sentence for each count that is not zero.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let &Self {
            incomplete,
            without_call,
            hsa_operations,
            barriers,
            other_calls,
            other_work,
            untimed_calls,
            further_files,
            unnamed_launches,
            further_streams,
            further_marks,
            further_processes,
            unnumbered_calls,
        } = self;
        let all = [
            (incomplete, "GPU operations left out, no completion was seen"),
            (
                without_call,
                "GPU operations left out, the format wants their call and none is known",
            ),
            (hsa_operations, "kernels and barriers of HSA calls left out, no line for them"),
            (barriers, "barriers left out, the format has no table for them"),
            (other_calls, "calls left out, the format has no place for their domain"),
            (other_work, "GPU operations left out, their domain has none"),
            (untimed_calls, "calls that last 0 ns in the export, begin or end was not seen"),
            (further_files, "events left out, their processes are too many for a file each"),
            (unnamed_launches, "launches without their kernel, there are too many of them"),
            (
                further_streams,
                "GPU operations whose stream has the last number, with all further ones",
            ),
            (
                further_marks,
                "marks, begins and ends of ranges left out, there are too many of them",
            ),
            (further_processes, "events left out, their processes are too many"),
            (unnumbered_calls, "calls left out, roctracer has no number for their functions"),
        ];
        let some = all.into_iter().filter(|(count, _)| *count > 0);
        some.map(|(count, what)| format!("{what}: {count}"))
    }
}
