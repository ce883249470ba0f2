//! A small trace, built by code: two processes, nested calls, open calls, kernels, copies, losses.

use std::path::Path;

use roctap::trace::{Existing, Writer};
use tracer_common::activity::{ActivityRecord, Domain, kind, op, roctx};
use tracer_common::bpf::flag;
use tracer_records::model::{
    Agent, ApiCall, Barrier, ClockOffsets, Copy, Dispatch, Event, Kernel, Metadata, ProbedLibrary,
    Process, op_flag,
};
use tracer_records::sink::RecordSink as _;

/// When the recording began, ns.
const T0: u64 = 5_000_000_000;
const HIP: Process2 = Process2 { id: 4242, thread: 4243 };
const HSA: Process2 = Process2 { id: 5151, thread: 5151 };
const HIP_MALLOC: u32 = 5;
const HIP_LAUNCH: u32 = 10;
const HIP_MEMCPY: u32 = 11;
const HIP_SYNC: u32 = 12;
const HIP_REGISTER: u32 = 13;
const HSA_INIT: u32 = 0;
const HSA_WAIT: u32 = 20;
const HSA_COPY: u32 = 30;
const STREAM: u64 = 0x5581_2345_6780;

struct Process2 {
    id: u32,
    thread: u32,
}

struct Sample {
    writer: Writer,
    next: u64,
}

impl Sample {
    fn call(&mut self, domain: Domain, process: &Process2, op: u32, at: u64, ns: u64) -> ApiCall {
        self.next += 1;
        ApiCall {
            record: ActivityRecord {
                domain,
                op,
                correlation_id: self.next,
                begin_ns: T0 + at,
                end_ns: T0 + at + ns,
                process_or_device: process.id,
                thread_id: process.thread,
                ..Default::default()
            },
            args: [0x7f00_0000_0000, 64, 3, 4, 5, 6],
            ..Default::default()
        }
    }

    fn hip(&mut self, op: u32, at: u64, ns: u64) -> ApiCall {
        self.call(Domain::HIP_API, &HIP, op, at, ns)
    }

    fn push(&mut self, event: Event) {
        self.writer.push(event).unwrap();
    }

    fn dispatch(&mut self, call: &ApiCall, kernel_id: u32, names: (u32, u32), at: u64, ns: u64) {
        let hip = call.record.domain == Domain::HIP_API;
        let process_id = call.record.process_or_device;
        self.push(Event::Dispatch(Dispatch {
            record: ActivityRecord {
                domain: if hip { Domain::HIP_OPS } else { Domain::HSA_OPS },
                kind: kind::KERNEL,
                op: op::DISPATCH,
                correlation_id: call.record.correlation_id,
                begin_ns: if ns == 0 { 0 } else { T0 + at },
                end_ns: if ns == 0 { 0 } else { T0 + at + ns },
                process_or_device: 1,
                thread_id: call.record.thread_id,
                queue_id: 2,
                bytes_or_name: names.0.into(),
                ..Default::default()
            },
            process_id,
            demangled: names.1,
            kernel_id,
            dispatch_id: call.record.correlation_id * 10,
            enqueue_ns: call.record.begin_ns + 100,
            grid: [1024, 1024, 1],
            workgroup: [64, 1, 1],
            flags: if ns == 0 { op_flag::INCOMPLETE } else { 0 },
            group_bytes: 600,
            private_bytes: 16,
            stream: STREAM,
        }));
    }

    fn copy(&mut self, call: &ApiCall, command: u32, nodes: (u32, u32), at: u64, ns: u64) {
        let hip = call.record.domain == Domain::HIP_API;
        self.push(Event::Copy(Copy {
            record: ActivityRecord {
                domain: if hip { Domain::HIP_OPS } else { Domain::HSA_OPS },
                kind: command,
                op: op::COPY,
                correlation_id: call.record.correlation_id,
                begin_ns: T0 + at,
                end_ns: T0 + at + ns,
                process_or_device: 1,
                thread_id: call.record.thread_id,
                queue_id: 0,
                bytes_or_name: 4 << 20,
                ..Default::default()
            },
            process_id: call.record.process_or_device,
            src_node: nodes.0,
            dst_node: nodes.1,
            enqueue_ns: T0 + at - 100,
            ..Default::default()
        }));
    }
}

/// Writes the trace to `path`; without its end when `finished` is false.
pub fn write(path: &Path, finished: bool) {
    let clock = ClockOffsets { boottime_ns: T0, monotonic_ns: T0 - 7, realtime_ns: T0 + 9 };
    let metadata = Metadata {
        roctap_version: "0.1.0".into(),
        host: "node7".into(),
        kernel: "6.14.0".into(),
        command: "roctap record -o t.roctap -a".into(),
        clock,
    };
    let mut writer = Writer::create(path, &metadata, Existing::Refuse).unwrap();
    tables(&mut writer);
    let template = (
        writer.string(0, "_Z15addition_kernelIfEvPT_PKfS3_ii"),
        writer
            .string(0, "void addition_kernel<float>(float*, float const*, float const*, int, int)"),
    );
    let lambda = (
        writer.string(0, "_ZZN3app4Step3runEvENKUliE_clEi"),
        writer.string(0, "app::Step::run()::{lambda(int)#1}::operator()(int) const"),
    );
    // No demangled name: whoever shows it demangles it.
    let raw = (writer.string(0, "_Z5scalePfi"), 0);
    let mut sample = Sample { writer, next: 0 };
    first_process(&mut sample, template, lambda, raw);
    sample.writer.flush_chunk().unwrap();
    second_process(&mut sample, template);
    ranges(&mut sample);
    if finished {
        let end = ClockOffsets { boottime_ns: T0 + 2_500_000_000, ..clock };
        sample.writer.finish(end).unwrap();
    } else {
        sample.writer.flush_chunk().unwrap();
    }
}

fn tables(writer: &mut Writer) {
    let hip = Domain::HIP_API.0;
    for (id, name) in [
        (HIP_MALLOC, "hipMalloc"),
        (HIP_LAUNCH, "hipLaunchKernel"),
        (HIP_MEMCPY, "hipMemcpy"),
        (HIP_SYNC, "hipDeviceSynchronize"),
        (HIP_REGISTER, "__hipRegisterFatBinary"),
    ] {
        writer.operation(hip, id, name);
    }
    let hsa = Domain::HSA_API.0;
    writer.operation(hsa, HSA_INIT, "hsa_init");
    writer.operation(hsa, HSA_WAIT, "hsa_signal_wait_scacquire");
    writer.operation(hsa, HSA_COPY, "hsa_amd_memory_async_copy");
    writer.operation(Domain::ROCTX.0, roctx::MARK, "roctxMarkA");
    let library = |path: &str, version: &str, probed, entry_only| ProbedLibrary {
        path: path.into(),
        version: version.into(),
        probed,
        entry_only,
    };
    writer.process(
        HIP.id,
        Process {
            command: "./train --epochs 3".into(),
            attached_ns: T0,
            gpu_tier: "tools: HSA_TOOLS_LIB at start".into(),
            clock_error_ns: 1_000,
            libraries: vec![
                library("/opt/rocm/lib/libamdhip64.so.5", "5.2.3", 412, 1),
                library("/opt/rocm/lib/libhsa-runtime64.so.1", "", 190, 0),
            ],
            ..Default::default()
        },
    );
    writer.process(
        HSA.id,
        Process { command: "./copy\n--both".into(), attached_ns: T0 + 5, ..Default::default() },
    );
    writer.thread(HIP.id, HIP.thread, "worker");
    for process in [HIP.id, HSA.id] {
        writer.agent(process, 0, Agent { name: "cpu".into(), gpu: false, index: 0 });
        writer.agent(process, 1, Agent { name: "gfx90a".into(), gpu: true, index: 0 });
    }
    let name = writer.string(0, "_Z15addition_kernelIfEvPT_PKfS3_ii");
    let registers = (12, 4, 32);
    let (vgpr_count, accum_vgpr_count, sgpr_count) = registers;
    writer.kernel(HIP.id, 11, Kernel { name, vgpr_count, accum_vgpr_count, sgpr_count });
    writer.loss(0, "API calls: ring buffer full", 0);
    writer.loss(HIP.id, "shim: ring full", 17);
    writer.loss(HIP.id, "process events: ring buffer full", 0);
    writer.notice("libamdhip64.so.5: 3 functions have no symbol");
}

fn first_process(sample: &mut Sample, template: Names, lambda: Names, raw: Names) {
    let register = sample.hip(HIP_REGISTER, 1_000, 700);
    sample.push(Event::Api(register));
    let malloc = sample.hip(HIP_MALLOC, 2_000, 150_000);
    let nested = sample.call(Domain::HSA_API, &HIP, HSA_INIT, 3_000, 90_000);
    sample.push(Event::Api(ApiCall { parent_id: malloc.record.correlation_id, ..nested }));
    sample.push(Event::Api(ApiCall { flags: flag::OUT_VALUE, ..malloc }));
    let copy = sample.hip(HIP_MEMCPY, 160_000, 900_000);
    sample.copy(&copy, kind::COPY_HOST_TO_DEVICE, (0, 1), 200_000, 800_000);
    sample.push(Event::Api(copy));
    for n in 0..3 {
        let at = 1_100_000 + n * 50_000;
        let launch = sample.hip(HIP_LAUNCH, at, 4_500 + n);
        sample.push(Event::Api(launch));
        sample.dispatch(&launch, 11, template, at + 8_000, 14_036 + n * 1_000);
    }
    let launch = sample.hip(HIP_LAUNCH, 1_300_000, 5_000);
    sample.dispatch(&launch, 12, lambda, 1_310_000, 2_000_000);
    sample.push(Event::Api(launch));
    let launch = sample.hip(HIP_LAUNCH, 1_400_000, 5_000);
    sample.dispatch(&launch, 13, raw, 0, 0);
    sample.push(Event::Api(launch));
    // Calls that fail, with an error that has a name and one that has none.
    for (at, ret) in [(1_450_000, 2), (1_452_000, 2), (1_454_000, 54_321)] {
        let failed = sample.hip(HIP_MALLOC, at, 1_000);
        sample.push(Event::Api(ApiCall { ret, ..failed }));
    }
    let sync = sample.hip(HIP_SYNC, 1_500_000, 0);
    let barrier = ActivityRecord {
        domain: Domain::HIP_OPS,
        kind: kind::MARKER,
        op: op::BARRIER,
        begin_ns: T0 + 3_400_000,
        end_ns: T0 + 3_400_500,
        process_or_device: 1,
        queue_id: 2,
        ..sync.record
    };
    sample.push(Event::Barrier(Barrier {
        record: barrier,
        process_id: HIP.id,
        ..Default::default()
    }));
    let mut open = sync;
    open.record.end_ns = 0;
    open.flags = flag::OPEN_AT_END;
    sample.push(Event::Api(open));
}

fn second_process(sample: &mut Sample, template: Names) {
    let mut wait = sample.call(Domain::HSA_API, &HSA, HSA_WAIT, 0, 40_000);
    wait.record.begin_ns = 0;
    wait.flags = flag::OPEN_AT_START;
    sample.push(Event::Api(wait));
    let copy = sample.call(Domain::HSA_API, &HSA, HSA_COPY, 50_000, 3_000);
    sample.push(Event::Api(copy));
    // The command says nothing: the agents tell the direction.
    sample.copy(&copy, 0, (1, 0), 55_000, 400_000);
    sample.dispatch(&copy, 0, (template.0, template.1), 60_000, 30_000);
    let mut unknown = copy;
    unknown.record.correlation_id = 0;
    unknown.record.domain = Domain::HIP_API;
    sample.dispatch(&unknown, 0, (0, 0), 100_000, 1_000);
}

/// Marks and ranges around the calls of the first process: nested, started and stopped, of which one end was not
/// seen, with messages of all kinds.
fn ranges(sample: &mut Sample) {
    let range = 7;
    let mark = |sample: &mut Sample, number: u64, op: u32, at: u64, text: &str, flags: u16| {
        let message = sample.writer.string(HIP.id, text);
        let mut call = sample.call(Domain::ROCTX, &HIP, op, at, 0);
        (call.record.end_ns, call.record.bytes_or_name) = (0, message.into());
        (call.extra[0], call.flags) = (number, flags | flag::ENTRY_ONLY);
        match op {
            roctx::START => {
                (call.ret, call.record.end_ns) = (range, call.record.begin_ns + 400);
                call.flags = flags;
            }
            roctx::STOP => call.args[0] = range,
            _ => {}
        }
        sample.push(Event::Api(call));
    };
    mark(sample, 1, roctx::POP, 500, "", 0);
    mark(sample, 2, roctx::PUSH, 155_000, "epoch 1", 0);
    mark(sample, 3, roctx::START, 1_090_000, "steps", 0);
    // The rings are read in turns.
    mark(sample, 6, roctx::POP, 1_260_000, "", 0);
    mark(sample, 4, roctx::PUSH, 1_095_000, "=step \"1\"", 0);
    mark(sample, 5, roctx::MARK, 1_200_000, "half\nway", 0);
    mark(sample, 7, roctx::PUSH, 1_295_000, "=step \"1\"", 0);
    mark(sample, 8, roctx::POP, 1_310_000, "", 0);
    mark(sample, 9, roctx::MARK, 1_320_000, "", flag::UNREADABLE);
    mark(sample, 10, roctx::MARK, 1_330_000, "", 0);
    mark(sample, 11, roctx::STOP, 1_350_000, "", 0);
    mark(sample, 12, roctx::POP, 1_440_000, "", 0);
    mark(sample, 13, roctx::PUSH, 1_460_000, "a message that is far too lon…", flag::CUT);
}

type Names = (u32, u32);
