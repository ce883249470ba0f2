//! A call or an activity becomes a line.

#![expect(unsafe_code, reason = "strings and data of the tool's")]

use core::ffi::{CStr, c_char, c_void};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::{process, ptr};

use capi_common::hip::{self, Functions, arguments};
use capi_common::plugin::TRACED_PROCESS;
use capi_common::{hsa, messages};
use tracer_common::activity::{ActivityRecord, Domain, op};
use tracer_records::commands;
use tracer_text::lines::{AsyncCopy, Call, HipCall, HsaCall, Mark, Operation};
use tracer_text::{File, clean};

use crate::kernels::Kernels;
use crate::output::{NotWritten, Output};
use crate::runtime::agents;

/// The number of sorts of records of which it is said that they have no place: made-up records can name any number.
const MOST_NAMED: usize = 256;

/// The reason for which a record was not written.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum Error {
    /// Its file cannot be written.
    #[error(transparent)]
    NotWritten(#[from] NotWritten),
    /// A file cannot be written: that was said.
    #[error("what was in memory cannot be written")]
    NotFlushed,
    /// The data in memory is that of another call.
    #[error("there is no such call")]
    NoSuchCall,
}

/// The options in the environment.
#[derive(Default)]
pub struct Options {
    /// `ROCP_OUTPUT_DIR`.
    pub directory: Option<PathBuf>,
    /// `ROCP_TRUNCATE_NAMES`.
    pub truncate_names: bool,
    /// `ROCTAP_TRACED_PROCESS`: the process whose records are handed over, where that is another one.
    pub process_id: Option<u32>,
}

impl Options {
    /// The options of the environment.
    pub fn of_environment() -> Self {
        let truncate = std::env::var("ROCP_TRUNCATE_NAMES").unwrap_or_default();
        // As `atoi` reads it.
        let digits = truncate.trim_start();
        let digits: String = digits
            .strip_prefix(['+', '-'])
            .unwrap_or(digits)
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        Self {
            directory: std::env::var_os("ROCP_OUTPUT_DIR").map(PathBuf::from),
            truncate_names: digits.contains(|digit| digit != '0'),
            process_id: std::env::var(TRACED_PROCESS).ok().and_then(|id| id.parse().ok()),
        }
    }
}

/// Writes the records that the tool hands over.
pub struct Plugin {
    process_id: u32,
    truncate_names: bool,
    output: Output,
    kernels: Kernels,
    /// None before the first call, unless HIP was there at the begin.
    hip: Option<&'static Functions>,
    /// The functions of HSA, likewise.
    hsa: Option<&'static hsa::Functions>,
    /// The records that have no place in the files, and of which that was said: domain and operation.
    left_out: BTreeSet<(u32, u32)>,
}

/// `roctx_api_data_t`.
#[repr(C)]
struct MarkData {
    message: *const c_char,
    id: u64,
}

impl Plugin {
    /// Writes the files that are written first.
    pub fn new(options: Options, begin_ns: u64) -> Result<Self, Error> {
        let Options { directory, truncate_names, process_id } = options;
        let process_id = process_id.unwrap_or_else(process::id);
        let mut output = Output::new(process_id, directory);
        for agent in agents() {
            output.line(File::HsaHandles, agent)?;
        }
        output.line(File::BeginTime, begin_ns)?;
        let mut plugin = Self {
            process_id,
            truncate_names,
            output,
            kernels: Kernels::default(),
            // Now, if it is there: in a call the dynamic linker might be waited for.
            hip: Some(Functions::find()).filter(|hip| hip.are_loaded()),
            hsa: Some(hsa::Functions::find()).filter(|hsa| hsa.are_loaded()),
            left_out: BTreeSet::new(),
        };
        plugin.flush()?;
        Ok(plugin)
    }

    /// Writes the lines that are in memory.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.output.flush() { Ok(()) } else { Err(Error::NotFlushed) }
    }

    /// Writes a call.
    ///
    /// # Safety
    ///
    /// `data` is null or what callbacks of the record's domain are given, and the kernel's name in the record
    /// is null or a string.
    pub unsafe fn call(
        &mut self,
        record: &ActivityRecord,
        data: *const c_void,
    ) -> Result<(), Error> {
        match record.domain {
            // SAFETY: as the caller promises.
            Domain::ROCTX => unsafe { self.mark(record, data) },
            // SAFETY: as the caller promises.
            Domain::HSA_API => unsafe { self.hsa_call(record, data) },
            // SAFETY: as the caller promises.
            Domain::HIP_API => unsafe { self.hip_call(record, data) },
            Domain(domain) => {
                self.leave_out(domain, u32::MAX, "calls");
                Ok(())
            }
        }
    }

    /// # Safety
    ///
    /// As of [`Plugin::call`].
    unsafe fn mark(&mut self, record: &ActivityRecord, data: *const c_void) -> Result<(), Error> {
        // SAFETY: as the caller promises.
        let data = unsafe { data.cast::<MarkData>().as_ref() }.ok_or(Error::NoSuchCall)?;
        // SAFETY: as the caller promises.
        let message = unsafe { string(data.message) }.map(CStr::to_string_lossy);
        let message = message.unwrap_or_default();
        let line = Mark {
            time_ns: record.begin_ns,
            process_id: record.process_or_device,
            thread_id: record.thread_id,
            operation: record.op,
            id: data.id,
            message: &clean(&message),
        };
        Ok(self.output.line(File::Roctx, line)?)
    }

    /// # Safety
    ///
    /// As of [`Plugin::call`].
    unsafe fn hsa_call(
        &mut self,
        record: &ActivityRecord,
        data: *const c_void,
    ) -> Result<(), Error> {
        /// `HSA_API_ID_hsa_shut_down`.
        const SHUT_DOWN: u32 = 1;
        // SAFETY: as the caller promises.
        let data = unsafe { hsa::Data::at(data) }.ok_or(Error::NoSuchCall)?;
        let functions = self.hsa.get_or_insert_with(hsa::Functions::find);
        let text = data.text(functions.get(record.op).ok_or(Error::NoSuchCall)?);
        let end_ns = if record.op == SHUT_DOWN { record.begin_ns } else { record.end_ns };
        let call = Call { end_ns, ..call_of(record, data.correlation_id()) };
        let line = HsaCall { call, name: text.name, args: &text.args, result: &text.result };
        Ok(self.output.line(File::HsaApi, line)?)
    }

    /// # Safety
    ///
    /// As of [`Plugin::call`].
    unsafe fn hip_call(
        &mut self,
        record: &ActivityRecord,
        data: *const c_void,
    ) -> Result<(), Error> {
        // SAFETY: as the caller promises.
        let data = unsafe { hip::Data::at(data) }.ok_or(Error::NoSuchCall)?;
        let hip = self.hip.get_or_insert_with(Functions::find);
        let name = hip.name(record.op).and_then(|name| name.to_str().ok());
        let name = name.ok_or(Error::NoSuchCall)?;
        let args = arguments(data, hip::fields(name, hip.release()));
        // SAFETY: as the caller promises.
        let kernel = unsafe { string(name_of(record)) };
        let kernel = kernel.map(|symbol| self.kernels.names(symbol).of_call(self.truncate_names));
        let call = call_of(record, data.correlation_id());
        let line = HipCall { call, name, args: &args, result: "", kernel };
        Ok(self.output.line(File::HipApi, line)?)
    }

    /// Writes an activity.
    ///
    /// # Safety
    ///
    /// The kernel's name in a record of a dispatch is null or a string.
    pub unsafe fn activity(&mut self, record: &ActivityRecord) -> Result<(), Error> {
        let ActivityRecord { begin_ns, end_ns, correlation_id, .. } = *record;
        let process_id = self.process_id;
        match (record.domain, record.op) {
            // rocprof's post-processing wants the call.
            (Domain::HIP_OPS, _) if correlation_id == 0 => Ok(()),
            (Domain::HIP_OPS, operation) => {
                let name = if operation == op::DISPATCH { name_of(record) } else { ptr::null() };
                // SAFETY: as the caller promises.
                let name = match unsafe { string(name) } {
                    Some(symbol) => &self.kernels.names(symbol).operation,
                    None => commands::name(record.kind).unwrap_or("Unknown"),
                };
                let line = Operation {
                    begin_ns,
                    end_ns,
                    device: record.process_or_device,
                    queue: record.queue_id,
                    name,
                    correlation_id,
                    process_id,
                };
                Ok(self.output.line(File::HccOps, line)?)
            }
            (Domain::HSA_OPS, op::COPY) => {
                let line = AsyncCopy { begin_ns, end_ns, correlation_id, process_id };
                Ok(self.output.line(File::AsyncCopy, line)?)
            }
            (Domain(domain), operation) => {
                self.leave_out(domain, operation, "activities");
                Ok(())
            }
        }
    }

    /// Says, once, that there is no place for something.
    fn leave_out(&mut self, domain: u32, operation: u32, what: &str) {
        if self.left_out.len() < MOST_NAMED && self.left_out.insert((domain, operation)) {
            let domain = Domain(domain).name();
            match operation {
                u32::MAX => messages::warn(format_args!(
                    "the file plugin has no file for {what} of the domain {domain}: left out"
                )),
                _ => messages::warn(format_args!(
                    "the file plugin has no file for {what} {operation} of the domain {domain}: left out"
                )),
            }
        }
    }
}

fn call_of(record: &ActivityRecord, correlation_id: u64) -> Call {
    Call {
        begin_ns: record.begin_ns,
        end_ns: record.end_ns,
        process_id: record.process_or_device,
        thread_id: record.thread_id,
        correlation_id,
    }
}

fn name_of(record: &ActivityRecord) -> *const c_char {
    ptr::with_exposed_provenance(record.bytes_or_name as usize)
}

/// The string at an address; none for null.
///
/// # Safety
///
/// It is null or a string, as long as it is used.
unsafe fn string<'a>(at: *const c_char) -> Option<&'a CStr> {
    // SAFETY: as the caller promises.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) })
}
