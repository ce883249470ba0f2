//! The records of an operation.

use capi_sources::gpu::{Agents, Work};
use tracer_common::activity::{ActivityRecord, Domain, kind, op};
use tracer_records::commands::rect;

/// The part of the record of `HIP_OPS` that the operation itself gives: of a kernel with its name, if it has one, on an
/// agent.
pub fn of_hip(work: Work, name: Option<&[u8]>, agent: u64, agents: &Agents) -> ActivityRecord {
    let process_or_device = agents.gpu(agent).unwrap_or(0);
    let domain = Domain::HIP_OPS;
    let mut record = ActivityRecord { domain, process_or_device, ..ActivityRecord::default() };
    match work {
        Work::Kernel(_) => {
            (record.op, record.kind) = match name.and_then(hips_own) {
                Some(kind) => (op::COPY, kind),
                None => (op::DISPATCH, kind::KERNEL),
            };
        }
        Work::Copy(copy) => {
            let (from, to) = (agents.gpu(copy.from), agents.gpu(copy.to));
            record.op = op::COPY;
            record.kind = match (from, to) {
                (Some(_), Some(_)) => kind::COPY_DEVICE_TO_DEVICE,
                (Some(_), None) => kind::COPY_DEVICE_TO_HOST,
                (None, _) => kind::COPY_HOST_TO_DEVICE,
            };
            record.process_or_device = to.or(from).unwrap_or(0);
            record.bytes_or_name = copy.bytes;
        }
        Work::Barrier => (record.op, record.kind) = (op::BARRIER, kind::MARKER),
    }
    record
}

/// The record of `HSA_OPS`, from that of `HIP_OPS`. HSA knows packets and copies; a command that HIP does by a kernel
/// is a kernel.
pub fn of_hsa(work: Work, record: &ActivityRecord) -> ActivityRecord {
    let op = if matches!(work, Work::Kernel(_)) { op::DISPATCH } else { record.op };
    ActivityRecord { domain: Domain::HSA_OPS, kind: 0, op, ..*record }
}

/// The command that HIP does by a kernel of its own, by the kernel's name.
fn hips_own(name: &[u8]) -> Option<u32> {
    let own = name.strip_prefix(b"__amd_rocclr_")?;
    let kinds: [(&[u8], u32); 3] = [
        (b"fillBuffer", kind::FILL),
        (b"copyBufferRect", rect::DEVICE_TO_DEVICE),
        (b"copyBuffer", kind::COPY_DEVICE_TO_DEVICE),
    ];
    kinds.iter().find(|(begin, _)| own.starts_with(begin)).map(|&(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use capi_sources::gpu::MemoryCopy;
    use tracer_common::shim::Agent;

    /// GPU 1 and a CPU.
    const GPU: u64 = 0x1000;
    const CPU: u64 = 0x2000;

    fn agents() -> Agents {
        let agent =
            |handle, device_type, index| Agent { handle, device_type, index, ..Agent::default() };
        [agent(GPU, 1, 1), agent(CPU, 0, 0)].into_iter().collect()
    }

    #[test]
    fn a_kernel_is_one_of_its_gpu() {
        let work = Work::Kernel(0x500);
        let record = of_hip(work, Some(b"one\0"), GPU, &agents());
        assert_eq!((record.domain, record.op, record.kind), (Domain::HIP_OPS, 0, kind::KERNEL));
        assert_eq!(record.process_or_device, 1);
        let record = of_hsa(work, &record);
        assert_eq!((record.domain, record.op, record.kind), (Domain::HSA_OPS, op::DISPATCH, 0));
        assert_eq!(record.process_or_device, 1);
    }

    #[test]
    fn copies_are_told_apart_by_their_agents() {
        for (from, to, kind) in [
            (CPU, GPU, kind::COPY_HOST_TO_DEVICE),
            (GPU, CPU, kind::COPY_DEVICE_TO_HOST),
            (GPU, GPU, kind::COPY_DEVICE_TO_DEVICE),
        ] {
            let copy = MemoryCopy { bytes: 77, from, to, ..MemoryCopy::default() };
            let record = of_hip(Work::Copy(copy), None, 0, &agents());
            assert_eq!((record.op, record.kind, record.bytes_or_name), (op::COPY, kind, 77));
            assert_eq!(record.process_or_device, 1);
        }
    }

    #[test]
    fn kernels_by_which_hip_copies_are_copies() {
        let work = Work::Kernel(0x500);
        for (name, kind) in [
            (&b"__amd_rocclr_fillBufferAligned\0"[..], kind::FILL),
            (b"__amd_rocclr_copyBuffer\0", kind::COPY_DEVICE_TO_DEVICE),
            (b"__amd_rocclr_copyBufferRectAligned\0", rect::DEVICE_TO_DEVICE),
        ] {
            let record = of_hip(work, Some(name), GPU, &agents());
            assert_eq!((record.op, record.kind), (op::COPY, kind));
            assert_eq!(of_hsa(work, &record).op, op::DISPATCH);
        }
        assert_eq!(hips_own(b"__amd_rocclr_scheduler\0"), None);
        assert_eq!(hips_own(b"fillBuffer\0"), None);
    }

    #[test]
    fn a_barrier_is_a_marker() {
        let record = of_hip(Work::Barrier, None, GPU, &agents());
        assert_eq!((record.op, record.kind), (op::BARRIER, kind::MARKER));
    }
}
