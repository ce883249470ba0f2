//! The process in which the plugin runs: it loads the plugin, hands the records of one traced process over, and ends.
//!
//! There the plugin can do what its user can, and no more: it does not run as root, has no controlling terminal, and no
//! descriptors but standard output, standard error and the trace.

#![expect(unsafe_code, reason = "an inherited descriptor, and what the plugin's functions take")]

use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use capi_common::hip::Functions;
use capi_common::hsa;
use capi_common::plugin::{self, Plugin};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};
use tracer_common::activity::{ActivityRecord, Domain, roctx};
use tracer_common::bpf::flag;
use tracer_records::api;
use tracer_records::model::{ApiCall, Dispatch, Event, StringId};

use super::answer::{self, HandedOver};
use super::data::Data;
use super::records::{Destination, of_call, of_work, place};
use super::stdin;
use crate::export::launched::{Launched, launches};
use crate::trace::lookup::Tables;
use crate::trace::{Reading, Trace};
use crate::{privileges, shown, user};

/// The hidden subcommand.
pub const HOST: &str = "__plugin";

/// The most records of work that are handed over at once: as many as the tool's buffers of 2 MiB hold.
const BATCH: usize = (2 << 20) / size_of::<ActivityRecord>();

/// Runs the process. The trace is its standard input.
pub fn host(arguments: &[OsString]) -> anyhow::Result<()> {
    let [parent, say, process_id, plugin, trace] = arguments else {
        bail!("{HOST} is for roctap's own use")
    };
    ensure!(
        user::is_plain_user(),
        "plugins never run as root, nor with other rights than a user's"
    );
    privileges::drop_all();
    // Through its controlling terminal a process can type in the place of its user, who may be root.
    setsid().context("leaving the terminal")?;
    // Not by a signal that the plugin can have a handler for.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let is_parent = |id| parent.to_str() == Some(&Pid::as_raw(Some(id)).to_string());
    ensure!(getppid().is_some_and(is_parent), "roctap has ended");
    let mut say = inherited(say)?;
    let file = File::from(stdin::take()?);
    let process_id = process_id.to_str().and_then(|id| id.parse().ok()).context("a process")?;
    let trace = Trace::of(Path::new(trace), file)?;
    let handed_over = feed(&trace, process_id, Path::new(plugin)).unwrap_or_else(|error| {
        shown::say(&error.to_string());
        None
    });
    Ok(say.write_all(answer::of(handed_over).as_bytes())?)
}

/// The descriptor of this number, which this process alone has from its parent.
fn inherited(number: &OsStr) -> anyhow::Result<File> {
    let number: i32 = number.to_str().and_then(|n| n.parse().ok()).context("not a descriptor")?;
    // SAFETY: nothing else in this process owns it.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(number) });
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC)?;
    Ok(file)
}

/// Loads the plugin and hands everything over.
fn feed(
    trace: &Trace,
    process_id: u32,
    plugin: &Path,
) -> Result<Option<HandedOver>, plugin::Error> {
    let is_its = |event: &Event| matches!(place(event), Destination::Of(of) if of == process_id);
    let mut launched = Launched::default();
    let Ok(Reading { tables, .. }) = trace.for_each_event(|event| {
        if is_its(event) {
            launched.add(event);
        }
        Ok::<(), Infallible>(())
    });
    launched.sort();
    let plugin = Plugin::load(plugin)?;
    // After the plugin was loaded, which may have loaded HIP.
    let mut feed = RecordFeed::new(&plugin, &tables, &launched);
    let fed = trace
        .for_each_event(|event| if is_its(event) { feed.event(event) } else { Ok(()) })
        .and_then(|_| feed.hand_work_over());
    let RecordFeed { events, unnumbered, .. } = feed;
    if let Err(error) = &fed {
        // Before the plugin is finalized: it may never return from that.
        shown::say(&error.to_string());
    }
    // SAFETY: no other function of the plugin is called any more.
    unsafe { plugin.finalize() };
    Ok(fed.is_ok().then_some(HandedOver { events, unnumbered }))
}

/// A function of the plugin's has returned an error.
#[derive(Debug, thiserror::Error)]
#[error("the plugin {plugin} failed: {function} returned {status}, for {what}")]
struct Failed {
    plugin: String,
    function: &'static str,
    status: i32,
    what: String,
}

/// The tables and buffers for handing records over.
struct RecordFeed<'a> {
    plugin: &'a Plugin,
    tables: &'a Tables,
    launched: &'a Launched,
    hip: &'static Functions,
    hsa: &'static hsa::Functions,
    /// The numbers of HIP's functions, by name; none if the trace has the numbers.
    numbers: Option<HashMap<&'static str, u32>>,
    data: Data,
    /// Strings that records point at.
    strings: HashMap<StringId, CString>,
    work: Vec<ActivityRecord>,
    events: u64,
    unnumbered: u64,
}

impl<'a> RecordFeed<'a> {
    fn new(plugin: &'a Plugin, tables: &'a Tables, launched: &'a Launched) -> Self {
        let hip = Functions::find();
        let numbers =
            hip.are_loaded().then(|| hip.all().map(|(number, name)| (name, number)).collect());
        Self {
            plugin,
            tables,
            launched,
            hip,
            hsa: hsa::Functions::find(),
            numbers,
            data: Data::new(),
            strings: HashMap::new(),
            work: Vec::with_capacity(BATCH),
            events: 0,
            unnumbered: 0,
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), Failed> {
        self.events += 1;
        match event {
            Event::Api(call) if call.record.domain == Domain::ROCTX => self.mark(call),
            Event::Api(call) => self.call(call),
            Event::Dispatch(_) | Event::Copy(_) | Event::Barrier(_) => self.work(event),
        }
    }

    /// Hands over a call of HIP or HSA. A call of a function without a number is counted: a plugin has tables of a
    /// fixed size.
    fn call(&mut self, call: &ApiCall) -> Result<(), Failed> {
        let ActivityRecord { domain, op, process_or_device, correlation_id, .. } = call.record;
        let function = u16::try_from(op).ok().and_then(|op| api::by_id(domain, op));
        let numbered = function.and_then(|function| {
            let number = match domain {
                Domain::HIP_API => match &self.numbers {
                    Some(numbers) => *numbers.get(function.name)?,
                    None => self.hip.name(op).map(|_| op)?,
                },
                _ => self.hsa.number_of(function.name)?,
            };
            Some((function, number))
        });
        let Some((function, number)) = numbered else {
            self.unnumbered += 1;
            return Ok(());
        };
        let mut record = of_call(call, number);
        if domain == Domain::HIP_API {
            self.data.fill_hip(call, function, function.name, self.hip.release());
            let launched = launches(function.name)
                .then(|| self.launched.of((process_or_device, correlation_id)))
                .flatten();
            record.bytes_or_name = launched.map_or(0, |dispatch| self.kernel(&dispatch));
        } else if let Some(function) = self.hsa.get(number) {
            self.data.fill_hsa(call, function);
        }
        self.hand_call_over(&record, function.name)
    }

    fn mark(&mut self, call: &ApiCall) -> Result<(), Failed> {
        if call.record.op > roctx::STOP {
            self.unnumbered += 1;
            return Ok(());
        }
        let record = of_call(call, call.record.op);
        let (message, id) = match call.record.op {
            roctx::START => (true, call.ret),
            roctx::STOP => (false, call.args[0]),
            op => (roctx::has_message(op), 0),
        };
        let is_known = message && call.flags & flag::UNREADABLE == 0;
        let message = if is_known { self.string(call.record.bytes_or_name as StringId) } else { 0 };
        self.data.fill_mark(message, id);
        // A mark is a moment, and belongs to no call.
        let record = ActivityRecord { end_ns: 0, correlation_id: 0, ..record };
        self.hand_call_over(&record, "a mark or range")
    }

    fn hand_call_over(&mut self, record: &ActivityRecord, what: &str) -> Result<(), Failed> {
        // SAFETY: data of the record's domain, whose strings stay.
        let status = unsafe { self.plugin.write_call(record, self.data.address()) };
        let what = || format!("{what}, correlation id {}", record.correlation_id);
        self.check("roctracer_plugin_write_callback_record", status, what)
    }

    fn work(&mut self, event: &Event) -> Result<(), Failed> {
        let name = if let Event::Dispatch(dispatch) = event { self.kernel(dispatch) } else { 0 };
        self.work.push(of_work(event, name));
        if self.work.len() == BATCH { self.hand_work_over() } else { Ok(()) }
    }

    fn hand_work_over(&mut self) -> Result<(), Failed> {
        let count = self.work.len();
        if count == 0 {
            return Ok(());
        }
        let records = self.work.as_ptr_range();
        // SAFETY: records, whose names stay.
        let status = unsafe { self.plugin.write_activities(records.start, records.end) };
        self.work.clear();
        let what = || format!("{count} records of work");
        self.check("roctracer_plugin_write_activity_records", status, what)
    }

    fn check(
        &self,
        function: &'static str,
        status: i32,
        what: impl FnOnce() -> String,
    ) -> Result<(), Failed> {
        if status == 0 {
            return Ok(());
        }
        let plugin = shown::path(self.plugin.path());
        Err(Failed { plugin, function, status, what: what() })
    }

    /// The address of a kernel's name, as the linker knows it; null if it is not known.
    fn kernel(&mut self, dispatch: &Dispatch) -> u64 {
        let raw = dispatch.record.bytes_or_name as StringId;
        [raw, dispatch.demangled]
            .map(|id| if id == 0 { 0 } else { self.string(id) })
            .into_iter()
            .find(|&address| address != 0)
            .unwrap_or(0)
    }

    /// The address of a string of the trace; null if it has none.
    fn string(&mut self, id: StringId) -> u64 {
        let tables = self.tables;
        let string = self.strings.entry(id).or_insert_with(|| {
            let text = tables.strings.get(&id).map_or("", String::as_str);
            // The text may be made up, or cut: a string of C ends at its first zero.
            let end = text.find('\0').unwrap_or(text.len());
            CString::new(&text[..end]).unwrap_or_default()
        });
        string.as_ptr().expose_provenance() as u64
    }
}
