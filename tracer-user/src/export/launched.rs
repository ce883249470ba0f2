//! The kernels that calls launched, for formats that have the kernel beside the call.

use tracer_records::model::{Dispatch, Event, StringId};

/// Calls for which roctracer names the launched kernel. Not graph launches: these start many kernels.
const LAUNCHES: &[&str] = &[
    "hipDrvLaunchKernelEx",
    "hipExtLaunchKernel",
    "hipExtLaunchMultiKernelMultiDevice",
    "hipExtModuleLaunchKernel",
    "hipHccModuleLaunchKernel",
    "hipLaunchByPtr",
    "hipLaunchCooperativeKernel",
    "hipLaunchCooperativeKernelMultiDevice",
    "hipLaunchCooperativeKernel_spt",
    "hipLaunchKernel",
    "hipLaunchKernelExC",
    "hipLaunchKernel_spt",
    "hipModuleLaunchCooperativeKernel",
    "hipModuleLaunchCooperativeKernelMultiDevice",
    "hipModuleLaunchKernel",
];

/// The most dispatches whose kernel is known when their call is written.
const MAX_LAUNCHED: usize = 1 << 25;

/// Whether roctracer names the kernel that a function launches.
pub fn launches(function: &str) -> bool {
    LAUNCHES.contains(&function)
}

/// The kernels that calls launched, of a whole trace: 24 bytes for each of the first 2²⁵ dispatches.
#[derive(Default)]
pub struct Launched {
    /// (process and correlation id, names) of dispatches that have a call: processes can have the same ids.
    kernels: Vec<((u32, u64), (StringId, StringId))>,
}

impl Launched {
    /// Takes an event of the trace.
    pub fn add(&mut self, event: &Event) {
        if let Event::Dispatch(Dispatch { record, demangled, process_id, .. }) = event
            && record.correlation_id != 0
            && self.kernels.len() < MAX_LAUNCHED
        {
            let call = (*process_id, record.correlation_id);
            self.kernels.push((call, (*demangled, record.bytes_or_name as StringId)));
        }
    }

    /// To be called when all events were taken.
    pub fn sort(&mut self) {
        // A stable sort: of a call's dispatches the first stays first.
        self.kernels.sort_by_key(|(call, _)| *call);
    }

    /// The names of the first kernel that a call launched; the call is given by process and correlation id.
    pub fn of(&self, call: (u32, u64)) -> Option<Dispatch> {
        let at = self.kernels.partition_point(|(of, _)| *of < call);
        let (of, (demangled, raw)) = *self.kernels.get(at)?;
        let mut dispatch = Dispatch { demangled, ..Dispatch::default() };
        dispatch.record.bytes_or_name = raw.into();
        (of == call).then_some(dispatch)
    }

    /// Whether a call may have launched a kernel that is not kept.
    pub fn may_lack(&self, function: &str, call: (u32, u64)) -> bool {
        self.kernels.len() == MAX_LAUNCHED && launches(function) && self.of(call).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_are_sorted() {
        assert!(LAUNCHES.is_sorted());
    }
}
