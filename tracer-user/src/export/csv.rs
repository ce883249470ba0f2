//! rocprofv3's tables (rocprofiler-sdk 1.0, ROCm 7.0), one file each for all processes.
//!
//! The tables are as rocprofv3 writes them: every header and every text in double quotes, numbers bare. Unlike in
//! rocprofv3's, quotes inside a text are doubled, so that every CSV reader takes them, and all five files are written,
//! even without rows; calls have one column more, their result.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

use tracer_common::activity::Domain;

use super::calls::{CallFormat, call_times};
use super::error::ExportError;
use super::exported::Exported;
use super::left_out::LeftOut;
use super::output::Output;
use crate::ranges::{Calls, Ranges};
use crate::trace::Trace;
use crate::trace::lookup::{Direction, Tables};
use tracer_records::api;
use tracer_records::model::{ApiCall, Copy, Dispatch, Event, op_flag};

const KERNEL_COLUMNS: &[&str] = &[
    "Kind",
    "Agent_Id",
    "Queue_Id",
    "Stream_Id",
    "Thread_Id",
    "Dispatch_Id",
    "Kernel_Id",
    "Kernel_Name",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
    "LDS_Block_Size",
    "Scratch_Size",
    "VGPR_Count",
    "Accum_VGPR_Count",
    "SGPR_Count",
    "Workgroup_Size_X",
    "Workgroup_Size_Y",
    "Workgroup_Size_Z",
    "Grid_Size_X",
    "Grid_Size_Y",
    "Grid_Size_Z",
];

const API_COLUMNS: &[&str] = &[
    "Domain",
    "Function",
    "Process_Id",
    "Thread_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
    "Result",
];

/// The columns of calls without a result.
const MARKER_COLUMNS: &[&str] = API_COLUMNS.split_at(7).0;

const COPY_COLUMNS: &[&str] = &[
    "Kind",
    "Direction",
    "Stream_Id",
    "Source_Agent_Id",
    "Destination_Agent_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
];

/// The files, with their columns.
const FILES: [(&str, &[&str]); 5] = [
    ("kernel_trace.csv", KERNEL_COLUMNS),
    ("hip_api_trace.csv", API_COLUMNS),
    ("hsa_api_trace.csv", API_COLUMNS),
    ("memory_copy_trace.csv", COPY_COLUMNS),
    ("marker_api_trace.csv", MARKER_COLUMNS),
];

/// rocprofv3 gives the size of LDS in the blocks in which it is allocated.
const LDS_BLOCK: u64 = 512;

/// The most streams that are told apart: a trace can have any number.
const MAX_STREAMS: usize = 1 << 20;

struct Files {
    kernel: Output,
    hip: Output,
    hsa: Output,
    copy: Output,
    marker: Output,
    /// Marks and ranges, which are written when all calls have been read.
    roctx: Calls,
    streams: Streams,
    left_out: LeftOut,
}

/// Numbers streams as rocprofv3 does: 0 is the default stream, others count up as they appear.
#[derive(Default)]
struct Streams {
    /// By process id and handle.
    numbers: HashMap<(u32, u64), u64>,
}

impl Streams {
    /// The number of a stream. `left_out` counts streams that have no number of their own.
    fn number(&mut self, process_id: u32, handle: u64, left_out: &mut LeftOut) -> u64 {
        if handle == 0 {
            return 0;
        }
        let next = self.numbers.len() as u64 + 1;
        match self.numbers.entry((process_id, handle)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) if next <= MAX_STREAMS as u64 => *new.insert(next),
            Entry::Vacant(_) => {
                left_out.further_streams += 1;
                next
            }
        }
    }
}

/// Exports `trace` into the directory `dir`.
pub fn export(
    trace: &Trace,
    calls: &dyn CallFormat,
    dir: &Path,
    force: bool,
) -> Result<Exported, ExportError> {
    // Names may come after the events that they belong to, so the tables are read first.
    let tables = trace.tables().tables;
    let names = FILES.map(|(name, _)| name.to_owned());
    let mut outputs = Output::files(dir, &names, force)?;
    for (output, (_, columns)) in outputs.iter_mut().zip(FILES) {
        output.write(format_args!("\"{}\"\n", columns.join("\",\"")))?;
    }
    let Ok([kernel, hip, hsa, copy, marker]) = <[Output; 5]>::try_from(outputs) else {
        unreachable!("one output for each name")
    };
    let (streams, left_out, roctx) = Default::default();
    let mut files = Files { kernel, hip, hsa, copy, marker, roctx, streams, left_out };
    let reading = trace.for_each_event(|event| files.row(&tables, calls, event))?;
    files.markers(&tables)?;
    let Files { kernel, hip, hsa, copy, marker, left_out, streams: _, roctx: _ } = files;
    [kernel, hip, hsa, copy, marker].into_iter().try_for_each(Output::finish)?;
    Ok(Exported { reading, left_out })
}

impl Files {
    fn row(
        &mut self,
        tables: &Tables,
        calls: &dyn CallFormat,
        event: &Event,
    ) -> Result<(), ExportError> {
        let incomplete = u32::from(op_flag::INCOMPLETE);
        match event {
            Event::Api(call) => self.call(tables, calls, call),
            Event::Dispatch(e) if u32::from(e.flags) & incomplete == 0 => self.dispatch(tables, e),
            Event::Copy(e) if e.flags & incomplete == 0 => self.copy(tables, e),
            Event::Dispatch(_) | Event::Copy(_) => {
                self.left_out.incomplete += 1;
                Ok(())
            }
            Event::Barrier(_) => {
                self.left_out.barriers += 1;
                Ok(())
            }
        }
    }

    fn call(
        &mut self,
        tables: &Tables,
        calls: &dyn CallFormat,
        call: &ApiCall,
    ) -> Result<(), ExportError> {
        let record = &call.record;
        let name = tables.operation(record.domain.0, record.op);
        let (output, domain) = match record.domain {
            Domain::HIP_API => (&mut self.hip, hip_domain(&name)),
            Domain::HSA_API => (&mut self.hsa, hsa_domain(&name)),
            Domain::ROCTX => {
                self.roctx.add(call);
                return Ok(());
            }
            _ => {
                self.left_out.other_calls += 1;
                return Ok(());
            }
        };
        let untimed = record.begin_ns == 0 || record.end_ns == 0;
        self.left_out.untimed_calls += u64::from(untimed);
        let (begin_ns, end_ns) = call_times(call);
        output.write(format_args!(
            "\"{domain}\",\"{}\",{},{},{},{begin_ns},{end_ns},\"{}\"\n",
            cell(&name),
            record.process_or_device,
            record.thread_id,
            record.correlation_id,
            // Of numbers and names of the headers: nothing in it needs an escape.
            calls.ret(call),
        ))
    }

    /// Marks, and ranges with their begins and ends.
    fn markers(&mut self, tables: &Tables) -> Result<(), ExportError> {
        let calls = std::mem::take(&mut self.roctx);
        self.left_out.further_marks += calls.left_out;
        let Ranges { marks, ranges, .. } = calls.put_together();
        let marks = marks.iter().map(|mark| {
            (mark.time_ns, mark.time_ns, mark.thread, mark.correlation_id, mark.message)
        });
        let mut rows = Vec::from_iter(marks);
        for range in &ranges {
            self.left_out.untimed_calls += u64::from(range.duration_ns().is_none());
            let begin_ns = range.time_ns();
            let end_ns = range.duration_ns().map_or(begin_ns, |ns| begin_ns + ns);
            rows.push((begin_ns, end_ns, range.thread, range.correlation_id, range.message));
        }
        // A range comes before those that it encloses.
        rows.sort_by_key(|&(begin_ns, end_ns, ..)| (begin_ns, Reverse(end_ns)));
        for (begin_ns, end_ns, (process_id, thread_id), correlation_id, message) in rows {
            let text = message.map_or(Cow::Borrowed("(unknown)"), |id| tables.text(id));
            self.marker.write(format_args!(
                "\"MARKER_CORE_RANGE_API\",\"{}\",{process_id},{thread_id},{correlation_id},{begin_ns},{end_ns}\n",
                cell(&text),
            ))?;
        }
        Ok(())
    }

    fn dispatch(&mut self, tables: &Tables, dispatch: &Dispatch) -> Result<(), ExportError> {
        let record = &dispatch.record;
        let kernel = tables.kernels.get(&dispatch.kernel_id).cloned().unwrap_or_default();
        let [wx, wy, wz] = dispatch.workgroup;
        let [gx, gy, gz] = dispatch.grid;
        self.kernel.write(format_args!(
            "\"KERNEL_DISPATCH\",\"Agent {}\",{},{},{},{},{},\"{}\",{},{},{},{},{},{},{},{},\
             {wx},{wy},{wz},{gx},{gy},{gz}\n",
            record.process_or_device,
            record.queue_id,
            self.streams.number(dispatch.process_id, dispatch.stream, &mut self.left_out),
            record.thread_id,
            dispatch.dispatch_id,
            dispatch.kernel_id,
            cell(&tables.kernel_name(dispatch)),
            record.correlation_id,
            record.begin_ns,
            record.end_ns,
            u64::from(dispatch.group_bytes).next_multiple_of(LDS_BLOCK),
            dispatch.private_bytes,
            kernel.vgpr_count,
            kernel.accum_vgpr_count,
            kernel.sgpr_count,
        ))
    }

    fn copy(&mut self, tables: &Tables, copy: &Copy) -> Result<(), ExportError> {
        let record = &copy.record;
        self.copy.write(format_args!(
            "\"MEMORY_COPY\",\"{}\",{},\"Agent {}\",\"Agent {}\",{},{},{}\n",
            direction(tables.direction(copy)),
            self.streams.number(copy.process_id, copy.stream, &mut self.left_out),
            copy.src_node,
            copy.dst_node,
            record.correlation_id,
            record.begin_ns,
            record.end_ns,
        ))
    }
}

/// The table of a HIP function: calls that the compiler puts into programs have a table of their own.
fn hip_domain(function: &str) -> &'static str {
    if api::is_called_by_compiler(function) { "HIP_COMPILER_API" } else { "HIP_RUNTIME_API" }
}

fn hsa_domain(function: &str) -> &'static str {
    let starts = |prefix| function.starts_with(prefix);
    if starts("hsa_amd_") {
        "HSA_AMD_EXT_API"
    } else if starts("hsa_ext_image_") || starts("hsa_ext_sampler_") {
        "HSA_IMAGE_EXT_API"
    } else if starts("hsa_ext_program_") {
        "HSA_FINALIZE_EXT_API"
    } else {
        "HSA_CORE_API"
    }
}

fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::HostToHost => "MEMORY_COPY_HOST_TO_HOST",
        Direction::HostToDevice => "MEMORY_COPY_HOST_TO_DEVICE",
        Direction::DeviceToHost => "MEMORY_COPY_DEVICE_TO_HOST",
        Direction::DeviceToDevice => "MEMORY_COPY_DEVICE_TO_DEVICE",
        Direction::Fill | Direction::Unknown => "MEMORY_COPY_NONE",
    }
}

/// The characters by which spreadsheets recognise a formula at the beginning of a text, even in quotes.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

/// The inside of a quoted field, for a name that a program chose. An apostrophe tells a spreadsheet that the field is a
/// text.
fn cell(text: &str) -> Cow<'_, str> {
    let text_mark = if text.starts_with(FORMULA) { "'" } else { "" };
    if text_mark.is_empty() && !text.contains('"') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{text_mark}{}", text.replace('"', "\"\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains() {
        assert_eq!(hip_domain("__hipRegisterFatBinary"), "HIP_COMPILER_API");
        assert_eq!(hip_domain("hipMalloc"), "HIP_RUNTIME_API");
        assert_eq!(hsa_domain("hsa_init"), "HSA_CORE_API");
        assert_eq!(hsa_domain("hsa_amd_memory_async_copy"), "HSA_AMD_EXT_API");
        assert_eq!(hsa_domain("hsa_ext_image_create"), "HSA_IMAGE_EXT_API");
        assert_eq!(hsa_domain("hsa_ext_program_create"), "HSA_FINALIZE_EXT_API");
    }

    #[test]
    fn streams_are_numbered_as_they_appear() {
        let mut streams = Streams::default();
        let numbers = [(1, 0), (1, 80), (2, 80), (1, 80), (2, 0)];
        let numbers = numbers
            .map(|(process, handle)| streams.number(process, handle, &mut LeftOut::default()));
        assert_eq!(numbers, [0, 1, 2, 1, 0]);
    }

    #[test]
    fn quotes_are_doubled() {
        assert_eq!(cell("k<\"a\">"), "k<\"\"a\"\">");
    }

    #[test]
    fn no_name_is_a_formula() {
        assert_eq!(cell("=HYPERLINK(\"x\")"), "'=HYPERLINK(\"\"x\"\")");
        for name in ["+1", "-1", "@a", "＝1"] {
            assert_eq!(cell(name), format!("'{name}"));
        }
        for name in ["", "k", "'=1", "operator-(int)", "\\t=1"] {
            assert_eq!(cell(name), name);
        }
    }
}
