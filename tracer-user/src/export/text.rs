//! The files of roctracer's file plugin, line by line as it writes them (roctracer 4.1).
//!
//! The trace is read twice: once for the facts that lines need before their turn comes (names of the kernels that calls
//! launched, all tables, the files that will be written), once to write. The first pass keeps 24 bytes for each of the
//! first 2²⁵ dispatches.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::Path;

use tracer_common::activity::{Domain, roctx};
use tracer_common::bpf::flag;
use tracer_text::File;
use tracer_text::lines::{AsyncCopy, Call, HipCall, HsaCall, Mark, Operation};
use tracer_text::names::operation_name;

use super::calls::{CallFormat, call_times, is_untimed};
use super::error::ExportError;
use super::exported::Exported;
use super::launched::{Launched, launches};
use super::left_out::LeftOut;
use super::output::Output;
use crate::shown::clean;
use crate::trace::lookup::{Tables, UNKNOWN_KERNEL, command_name};
use crate::trace::{Reading, Trace};
use tracer_records::model::{ApiCall, Event, StringId, op_flag};

/// The most files that are written: a trace that was made up can name any number of processes.
const MAX_FILES: usize = 1 << 14;

/// The destination of an event.
enum Destination {
    /// Into this file of this process.
    File(u32, File),
    /// Nowhere; counted here.
    Nowhere(fn(&mut LeftOut) -> &mut u64),
}

fn place(event: &Event) -> Destination {
    let record = event.record();
    let (process_id, flags) = match event {
        Event::Api(_) => {
            return match record.domain {
                Domain::HIP_API => Destination::File(record.process_or_device, File::HipApi),
                Domain::HSA_API => Destination::File(record.process_or_device, File::HsaApi),
                Domain::ROCTX => Destination::File(record.process_or_device, File::Roctx),
                _ => Destination::Nowhere(|left_out| &mut left_out.other_calls),
            };
        }
        Event::Dispatch(e) => (e.process_id, u32::from(e.flags)),
        Event::Copy(e) => (e.process_id, e.flags),
        Event::Barrier(e) => (e.process_id, e.flags),
    };
    if flags & u32::from(op_flag::INCOMPLETE) != 0 {
        return Destination::Nowhere(|left_out| &mut left_out.incomplete);
    }
    match (record.domain, event) {
        (Domain::HSA_OPS, Event::Copy(_)) => Destination::File(process_id, File::AsyncCopy),
        (Domain::HSA_OPS, _) => Destination::Nowhere(|left_out| &mut left_out.hsa_operations),
        // roctracer drops these operations: its post-processing needs the call.
        _ if record.correlation_id == 0 => {
            Destination::Nowhere(|left_out| &mut left_out.without_call)
        }
        _ => Destination::File(process_id, File::HccOps),
    }
}

/// The facts that lines need before their turn.
struct Index {
    tables: Tables,
    files: BTreeSet<(u32, File)>,
    launched: Launched,
}

impl Index {
    fn of(trace: &Trace) -> Self {
        let mut files = BTreeSet::new();
        let mut launched = Launched::default();
        let Ok(Reading { tables, .. }) = trace.for_each_event(|event| {
            if let Destination::File(process_id, kind) = place(event)
                && files.len() < MAX_FILES
            {
                files.insert((process_id, kind));
            }
            launched.add(event);
            Ok::<(), Infallible>(())
        });
        launched.sort();
        Self { tables, files, launched }
    }

    /// Whether a call may have launched a kernel that is not kept.
    fn may_lack_kernel_of(&self, call: &ApiCall) -> bool {
        let record = &call.record;
        let function = self.tables.operation(record.domain.0, record.op);
        self.launched.may_lack(&function, (record.process_or_device, record.correlation_id))
    }

    /// The first kernel that a call launched; the call is given by process and correlation id.
    fn kernel_of(&self, call: (u32, u64)) -> Option<Cow<'_, str>> {
        self.launched.of(call).map(|dispatch| self.tables.kernel_name(&dispatch))
    }
}

/// Exports `trace` into the directory `dir`, else to standard output.
pub fn export(
    trace: &Trace,
    calls: &dyn CallFormat,
    dir: Option<&Path>,
    force: bool,
) -> Result<Exported, ExportError> {
    let index = Index::of(trace);
    let files = Vec::from_iter(index.files.iter().copied());
    let mut outputs = match dir {
        Some(dir) => {
            let name = |(id, file): &(u32, File)| file.of_process(*id);
            Output::files(dir, &Vec::from_iter(files.iter().map(name)), force)?
        }
        None => vec![Output::stdout()],
    };
    let mut left_out = LeftOut::default();
    let reading = trace.for_each_event(|event| {
        let file = match place(event) {
            Destination::Nowhere(counter) => {
                *counter(&mut left_out) += 1;
                return Ok(());
            }
            Destination::File(process_id, kind) => (process_id, kind),
        };
        let at = if dir.is_none() { Ok(0) } else { files.binary_search(&file) };
        let Some(output) = at.ok().and_then(|at| outputs.get_mut(at)) else {
            left_out.further_files += 1;
            return Ok(());
        };
        if let Event::Api(call) = event
            && file.1 == File::Roctx
        {
            line_of_mark(output, &index.tables, call)
        } else if let Event::Api(call) = event {
            left_out.untimed_calls += u64::from(is_untimed(call));
            left_out.unnamed_launches += u64::from(index.may_lack_kernel_of(call));
            line_of_call(output, &index, calls, call)
        } else {
            line_of_operation(output, &index.tables, file.0, event)
        }
    })?;
    outputs.into_iter().try_for_each(Output::finish)?;
    Ok(Exported { reading, left_out })
}

fn line_of_call(
    output: &mut Output,
    index: &Index,
    calls: &dyn CallFormat,
    call: &ApiCall,
) -> Result<(), ExportError> {
    let record = &call.record;
    let (begin_ns, end_ns) = call_times(call);
    let name = index.tables.operation(record.domain.0, record.op);
    let (args, result) = (calls.args(call), calls.ret(call));
    let (args, result) = (&*clean(&args), &*clean(&result));
    let call = Call {
        begin_ns,
        end_ns,
        process_id: record.process_or_device,
        thread_id: record.thread_id,
        correlation_id: record.correlation_id,
    };
    if record.domain == Domain::HSA_API {
        let line = HsaCall { call, name: &name, args, result };
        return output.write(format_args!("{line}\n"));
    }
    let kernel = launches(&name)
        .then(|| index.kernel_of((call.process_id, call.correlation_id)))
        .flatten()
        .filter(|kernel| kernel != UNKNOWN_KERNEL);
    let line = HipCall { call, name: &name, args, result, kernel: kernel.as_deref() };
    output.write(format_args!("{line}\n"))
}

fn line_of_mark(output: &mut Output, tables: &Tables, call: &ApiCall) -> Result<(), ExportError> {
    let record = &call.record;
    let (begin_ns, _) = call_times(call);
    let id = match record.op {
        roctx::START => call.ret,
        roctx::STOP => call.args[0],
        _ => 0,
    };
    let is_known = call.flags & flag::UNREADABLE == 0;
    let message = tables.text(record.bytes_or_name as StringId);
    let message = if is_known { &*message } else { "?" };
    let line = Mark {
        time_ns: begin_ns,
        process_id: record.process_or_device,
        thread_id: record.thread_id,
        operation: record.op,
        id,
        message,
    };
    output.write(format_args!("{line}\n"))
}

fn line_of_operation(
    output: &mut Output,
    tables: &Tables,
    process_id: u32,
    event: &Event,
) -> Result<(), ExportError> {
    let record = event.record();
    let (begin_ns, end_ns, correlation_id) =
        (record.begin_ns, record.end_ns, record.correlation_id);
    if record.domain == Domain::HSA_OPS {
        let line = AsyncCopy { begin_ns, end_ns, correlation_id, process_id };
        return output.write(format_args!("{line}\n"));
    }
    let name = match event {
        Event::Dispatch(dispatch) => kernel_name(&tables.kernel_name(dispatch)),
        _ => command_name(record.op, record.kind).to_owned(),
    };
    let (device, queue) = (record.process_or_device, record.queue_id);
    let name = &*name;
    let line = Operation { begin_ns, end_ns, device, queue, name, correlation_id, process_id };
    output.write(format_args!("{line}\n"))
}

/// The name of a kernel in `hcc_ops_trace.txt`.
fn kernel_name(kernel: &str) -> String {
    if kernel == UNKNOWN_KERNEL {
        return "KernelExecution".to_owned();
    }
    operation_name(kernel)
}

#[cfg(test)]
mod tests {
    use tracer_common::activity::ActivityRecord;
    use tracer_records::model::{Dispatch, Metadata};
    use tracer_records::sink::RecordSink as _;

    use super::*;
    use crate::trace::{Existing, Writer};

    fn index(fill: impl FnOnce(&mut Writer)) -> Index {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t");
        let mut writer = Writer::create(&path, &Metadata::default(), Existing::Refuse).unwrap();
        fill(&mut writer);
        writer.finish(Default::default()).unwrap();
        Index::of(&Trace::open(&path).unwrap())
    }

    #[test]
    fn processes_can_have_the_same_correlation_ids() {
        let index = index(|writer| {
            for (process_id, name) in [(2, "two"), (1, "one")] {
                let mut dispatch = Dispatch { process_id, ..Dispatch::default() };
                dispatch.demangled = writer.string(1, name);
                dispatch.record.correlation_id = 7;
                writer.push(Event::Dispatch(dispatch)).unwrap();
            }
        });
        let names = [1, 2, 3].map(|process_id| index.kernel_of((process_id, 7)));
        assert_eq!(names, [Some("one".into()), Some("two".into()), None]);
    }

    #[test]
    fn no_trace_has_files_without_end() {
        let index = index(|writer| {
            for process_or_device in 0..MAX_FILES as u32 + 10 {
                let domain = Domain::HIP_API;
                let record = ActivityRecord { domain, process_or_device, ..Default::default() };
                writer.push(Event::Api(ApiCall { record, ..Default::default() })).unwrap();
            }
        });
        assert_eq!(index.files.len(), MAX_FILES);
    }

    #[test]
    fn a_kernel_without_a_name_is_a_command() {
        assert_eq!(kernel_name(UNKNOWN_KERNEL), "KernelExecution");
        assert_eq!(kernel_name("ns::k(int)"), "k");
    }
}
