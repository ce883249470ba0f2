//! From the begin of the runtime to the end of the process.

#![expect(unsafe_code, reason = "what runs at the end, and in a forked child")]

use std::fmt::Arguments;
use std::io::{self, Write as _};
use std::path::Path;
use std::process;

use capi_common::messages;
use capi_common::quiet::quiet;
use tracer_common::activity::{Domain, op};
use tracer_hooks::contained;

use crate::calls::{on_delivered, on_hip, on_hsa, on_mark, write_waiting_marks};
use crate::kernels::is_hip_loaded;
use crate::options::{Control, Options};
use crate::periods;
use crate::plugin::Plugin;
use crate::roctracer;
use crate::state::{self, Tool, phase};

/// The reason for which nothing is traced.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Options(#[from] crate::options::Error),
    #[error(
        "nothing is asked for: ROCTRACER_DOMAIN has none of hip, hsa, sys, roctx (in lower case), and ROCP_INPUT names no \
         file with a <trace> of HIP, HSA, GPU or rocTX"
    )]
    NothingWanted,
    #[error(transparent)]
    Roctracer(#[from] roctracer::Error),
    #[error("another tool uses roctracer in this process: one can at a time")]
    TwoTools,
    #[error(transparent)]
    Plugin(#[from] capi_common::plugin::Error),
}

/// The process begins. Marks are recorded from here on: a program may make some before it uses a GPU.
pub fn process_begins() {
    // Errors in the options are said when the runtime begins.
    if let Ok(Options { roctx: true, .. }) = Options::of(|name| std::env::var_os(name))
        && let Ok(roctracer) = state::load_roctracer()
    {
        let _ = roctracer.enable_calls(Domain::ROCTX, &[], on_mark);
    }
}

/// The runtime has begun, for the first time or again. `directory` is that of this library.
pub fn runtime_begins(directory: &Path) {
    match state::advance(phase::WAITING, phase::BEGINNING) {
        Ok(()) => {}
        // Another runtime than before: the wanted calls and work are asked for again.
        Err(phase::ACTIVE) => {
            if let Some(Err(error)) = state::active().map(|tool| enable(tool, &|_| {})) {
                messages::warn(format_args!("{error}"));
            }
            return;
        }
        Err(_) => return,
    }
    if let Err(error) = begin(directory) {
        messages::error(format_args!("{error}; nothing is traced"));
        state::set(phase::REFUSED);
    }
}

fn begin(directory: &Path) -> Result<(), Error> {
    let options = Options::of(|name| std::env::var_os(name))?;
    for refused in &options.refused {
        messages::warn(format_args!("ROCTRACER_DOMAIN: {refused} is not served"));
    }
    let Options { roctx, hsa_calls, hsa_work, hip_calls, hip_work, .. } = &options;
    let is_hip_wanted = hip_calls.is_some() || *hip_work;
    if !roctx && hsa_calls.is_none() && !hsa_work && !is_hip_wanted {
        return Err(Error::NothingWanted);
    }
    let roctracer = state::load_roctracer()?;
    if roctracer.has_pool() {
        return Err(Error::TwoTools);
    }
    let plugin = Plugin::load(&directory.join(&options.plugin))?;
    let has_hip = is_hip_loaded();
    if is_hip_wanted && !has_hip {
        messages::warn(format_args!(
            "the program has no HIP: no calls and no work of HIP to trace"
        ));
    }
    let tool = Tool::make(roctracer, plugin, options);
    if has_hip {
        // Now, since in a call the dynamic linker might be waited for.
        tool.hip();
    }
    say_what_is_wanted(&tool.options);
    roctracer.open_pool(tool.options.buffer_bytes, on_delivered)?;
    // SAFETY: functions of this library, which stays.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
        libc::atexit(at_exit);
    }
    state::set(phase::ACTIVE);
    match tool.options.control {
        Control::Always => {}
        Control::Stopped => roctracer.stop(),
        Control::Periods { delay, length, rate } => {
            roctracer.stop();
            periods::control(roctracer, delay, length, rate);
        }
    }
    if let Some(every) = tool.options.flush_every {
        periods::flush(every, || flush(tool));
    }
    enable(tool, &|line| print(line))?;
    let too_many = write_waiting_marks(tool);
    if too_many > 0 {
        messages::warn(format_args!("{too_many} marks of before the runtime's begin are missing"));
    }
    Ok(())
}

/// The lines that AMD's tool writes.
fn say_what_is_wanted(options: &Options) {
    let input = options.input.as_ref();
    let input = input.map_or(String::new(), |path| format!(" input from \"{}\"", path.display()));
    print(format_args!("ROCtracer ({}):{input}", process::id()));
    if options.roctx {
        print(format_args!("    rocTX-trace()"));
    }
    match options.control {
        Control::Always => {}
        Control::Stopped => print(format_args!("ROCtracer: trace start disabled")),
        Control::Periods { delay, length, rate } => {
            let [delay, length, rate] = [delay, length, rate].map(|time| time.as_micros());
            print(format_args!(
                "ROCtracer: trace control: delay({delay}us), length({length}us), rate({rate}us)"
            ));
        }
    }
    if let Some(every) = options.flush_every {
        let every = every.as_micros();
        print(format_args!("ROCtracer: trace control flush rate({every}us)"));
    }
}

fn print(line: Arguments<'_>) {
    // Where a line cannot be written, nobody reads it.
    let _ = quiet(|| {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush())
    });
}

/// Enables the wanted calls and work, and says which these are.
fn enable(tool: &Tool, say: &dyn Fn(Arguments<'_>)) -> Result<(), roctracer::Error> {
    let Options { roctx, hsa_calls, hsa_work, hip_calls, hip_work, .. } = &tool.options;
    let roctracer = tool.roctracer;
    if *roctx {
        roctracer.enable_calls(Domain::ROCTX, &[], on_mark)?;
    }
    if let Some(names) = hsa_calls {
        let unknown = roctracer.enable_calls(Domain::HSA_API, names, on_hsa)?;
        say(format_args!("    HSA-trace({})", shown(Domain::HSA_API, names, &unknown)));
    }
    if *hsa_work {
        say(format_args!("    HSA-activity-trace()"));
        roctracer.enable_work(Domain::HSA_OPS, Some(op::COPY))?;
    }
    if hip_calls.is_some() || *hip_work {
        let calls = match hip_calls {
            Some(names) => {
                let unknown = roctracer.enable_calls(Domain::HIP_API, names, on_hip)?;
                shown(Domain::HIP_API, names, &unknown)
            }
            None => String::new(),
        };
        if *hip_work {
            roctracer.enable_work(Domain::HIP_OPS, None)?;
        }
        say(format_args!("    HIP-trace({calls})"));
    }
    Ok(())
}

/// The end of the process.
fn end(tool: &Tool) {
    periods::end();
    // Callbacks stay enabled, and do nothing any more: to disable one waits for the calls that threads are in, which may
    // be for ever.
    if !tool.plugin.begin_to_end() {
        // The pool's thread may be the one that does not come back.
        return;
    }
    for done in [tool.roctracer.flush(), tool.roctracer.close_pool()] {
        if let Err(error) = done {
            messages::warn(format_args!("{error}"));
        }
    }
    tool.plugin.end();
}

/// The text in parentheses for the functions that are traced.
fn shown(domain: Domain, names: &[String], unknown: &[&str]) -> String {
    if names.is_empty() {
        return "*".into();
    }
    for name in unknown {
        let domain = domain.name();
        messages::warn(format_args!("unable to trace {name}: {domain} has no such function"));
    }
    let known = names.iter().filter(|name| !unknown.contains(&name.as_str()));
    known.fold("-*".to_owned(), |all, name| format!("{all} {name}"))
}

/// Delivers and writes the recorded activities.
fn flush(tool: &Tool) {
    if let Err(error) = tool.roctracer.flush() {
        messages::warn(format_args!("{error}"));
    }
    tool.plugin.flush();
}

/// The runtime ends; another one may begin.
pub fn runtime_ends() {
    if let Some(tool) = state::active() {
        flush(tool);
    }
}

extern "C" fn at_exit() {
    if state::advance(phase::ACTIVE, phase::ENDED).is_ok()
        && let Some(tool) = state::own()
    {
        contained(|| end(tool));
    }
}

/// Files and threads are the parent's.
extern "C" fn in_child() {
    state::set(phase::CHILD);
}
