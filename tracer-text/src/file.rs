//! The files that the file plugin writes for a process.

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum File {
    /// Calls of HIP: [`crate::lines::HipCall`].
    HipApi,
    /// Calls of HSA: [`crate::lines::HsaCall`].
    HsaApi,
    /// Work of GPUs for HIP: [`crate::lines::Operation`].
    HccOps,
    /// Copies of HSA: [`crate::lines::AsyncCopy`].
    AsyncCopy,
    /// Marks and ranges: [`crate::lines::Mark`].
    Roctx,
    /// The handles of the HSA runtime's agents: [`crate::lines::Agent`].
    HsaHandles,
    /// The time when the tool began, alone in its line.
    BeginTime,
}

impl File {
    /// Its name behind the process id.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HipApi => "hip_api_trace.txt",
            Self::HsaApi => "hsa_api_trace.txt",
            Self::HccOps => "hcc_ops_trace.txt",
            Self::AsyncCopy => "async_copy_trace.txt",
            Self::Roctx => "roctx_trace.txt",
            Self::HsaHandles => "hsa_handles.txt",
            Self::BeginTime => "begin_ts_file.txt",
        }
    }

    /// Its name, of a process.
    pub fn of_process(self, process_id: u32) -> String {
        format!("{process_id}_{}", self.name())
    }
}
