//! `roctap doctor` and `roctap ps`: the possibilities of this machine and of its processes.

use std::process::ExitCode;

use crate::{
    calibrate::{Cost, Costs},
    discover::{self, Image, Library, ProcessInfo, Runtime, Subject},
    inject,
    plan::{Binary, FunctionPlan, LiveProcess, Planner, ProcessMemory},
    privileges::{self, Need},
    probe,
    record::{GpuSource, Prospect},
    shown::{self, line, print},
    trial::{self, TrialResult},
};

enum Finding {
    /// All is well.
    Good,
    /// Something is not possible.
    Limited,
    /// Nothing is possible.
    Bad,
}

/// Say what this machine and its ROCm processes allow, and why not
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Each finding begins with ok, limited (something will be missing from traces) or MISSING (nothing can be
recorded).

Exit status: 1 if anything is MISSING, or a process cannot be looked at, else 0."
)]
pub struct Options {
    /// Measure what probes cost on this machine (about a second; nothing is stored)
    #[arg(long)]
    calibrate: bool,

    /// What a running process allows, from outside: nothing is done to it (may be given several times)
    #[arg(short, long = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "calibrate")]
    pids: Vec<u32>,
}

/// The output of `roctap doctor`. A reader that has closed it is no error.
#[derive(Default)]
struct Findings {
    text: String,
    impossible: bool,
}

impl Findings {
    fn line(&mut self, finding: &Finding, what: &str, meaning: &str) {
        let mark = match finding {
            Finding::Good => "ok     ",
            Finding::Limited => "limited",
            Finding::Bad => "MISSING",
        };
        self.impossible |= matches!(finding, Finding::Bad);
        let (what, meaning) = (line(what), line(meaning));
        self.text.push_str(&format!("{mark}  {what}\n         {meaning}\n"));
    }
}

/// Runs `roctap doctor`: exit status 1 when recording is impossible.
///
/// # Errors
///
/// When standard output cannot be written.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if options.pids.is_empty() {
        privileges::keep_for_trying();
    } else {
        privileges::keep_for_looking();
    }
    if options.calibrate {
        return calibrate();
    }
    let mut findings = Findings::default();
    programs(&mut findings);
    if !options.pids.is_empty() {
        for &pid in &options.pids {
            process(&mut findings, pid)?;
        }
        print(&findings.text)?;
        return Ok(if findings.impossible { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    kernel(&mut findings);
    capabilities(&mut findings);
    privileges::keep_for_looking();
    match crate::shim::Shim::find() {
        Ok(shim) => findings.line(
            &Finding::Good,
            &format!("shim {}", shim.path.display()),
            "commands started by roctap record have GPU times",
        ),
        Err(error) => findings.line(&Finding::Limited, "shim", &error.to_string()),
    }
    libraries(&mut findings);
    let running = rocm_processes();
    let colon = if running.is_empty() { "" } else { ":" };
    let processes = process_table(&running);
    print(&format!(
        "{}\n{} running ROCm process(es){colon}\n{processes}",
        findings.text,
        running.len()
    ))?;
    Ok(if findings.impossible { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn calibrate() -> anyhow::Result<ExitCode> {
    let mut text = "instruction  entry ns  entry + return ns\n".to_owned();
    let Costs { classes, dispatch_ns } = crate::calibrate::measure()?;
    for Cost { class, entry_ns, entry_and_return_ns } in classes {
        text.push_str(&format!("{class:11}  {entry_ns:8.0}  {entry_and_return_ns:17.0}\n"));
    }
    text.push_str(&format!(
        "The probe at the shim's dispatch site adds {dispatch_ns:.0} ns to each kernel.\n"
    ));
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the BPF programs are built in. Prints nothing if they are: the line about the kernel says it.
fn programs(findings: &mut Findings) {
    if let Err(error) = probe::built() {
        findings.line(&Finding::Bad, "BPF programs", &error.to_string());
    }
}

/// Whether calls can be recorded, found out by recording one.
fn kernel(findings: &mut Findings) {
    let kernel = format!("kernel {}", rustix::system::uname().release().to_string_lossy());
    let trial = match (probe::built(), privileges::check()) {
        (Ok(()), Ok(())) => trial::run(None, None).map_err(|error| error.to_string()),
        (Err(_), _) => Err("not tried, for want of the BPF programs".to_owned()),
        (_, Err(_)) => Err("not tried, for want of the capabilities below".to_owned()),
    };
    match trial {
        Ok(TrialResult { placing, load }) => {
            let meaning = format!(
                "the BPF programs were loaded in {} ms, a probe was placed and a call recorded; probes: {placing}",
                load.as_millis()
            );
            findings.line(&Finding::Good, &kernel, &meaning);
        }
        Err(why) => findings.line(&Finding::Bad, &kernel, &why),
    }
    if let Err(own) = crate::program::check_namespaces() {
        findings.line(&Finding::Bad, "namespaces", &own.to_string());
    }
}

fn capabilities(findings: &mut Findings) {
    for need in privileges::PROBES.into_iter().chain(privileges::RUNNING) {
        let Need { name, purpose, .. } = need;
        if need.is_met() {
            findings.line(&Finding::Good, name, purpose);
        } else if privileges::PROBES.contains(&need) {
            findings.line(&Finding::Bad, name, &format!("needed to {purpose}; run with sudo"));
        } else {
            findings.line(&Finding::Limited, name, &format!("not held: cannot {purpose}"));
        }
    }
}

/// The running processes that map a runtime library, with those libraries.
fn rocm_processes() -> Vec<(ProcessInfo, Vec<Library>)> {
    discover::process_ids()
        .into_iter()
        .filter_map(|pid| {
            let subject = Subject::open(pid).ok()?;
            let libraries = subject.by_number(discover::libraries).ok()?;
            let libraries =
                Some(libraries).filter(|all| all.iter().any(|l| l.runtime.is_of_rocm()))?;
            Some((
                ProcessInfo { pid, ..subject.by_number(discover::process_info).ok()? },
                libraries,
            ))
        })
        .collect()
}

fn libraries(findings: &mut Findings) {
    let found = discover::candidates(std::ffi::OsStr::new(""));
    for runtime in Runtime::ALL {
        let mut of_runtime = found.iter().filter(|l| l.runtime == runtime).peekable();
        if of_runtime.peek().is_none() && runtime.is_of_rocm() {
            let what = format!("{}*", runtime.file_prefixes().join("*, "));
            let meaning = "not in the linker's cache, LD_LIBRARY_PATH or /opt/rocm*; programs that bring their own copy are found when they run";
            findings.line(&Finding::Limited, &what, meaning);
        }
        for library in of_runtime {
            self::library(findings, library, None);
        }
    }
}

/// Whether the functions of a library can be found, and probed at little cost, as far as its file, and the `process`
/// that has mapped it, tell.
fn library(findings: &mut Findings, library: &Library, process: Option<&dyn ProcessMemory>) {
    let what = format!("{} {}", library.path.display(), library.version());
    let functions = Image::open(&library.open_path)
        .and_then(|image| image.functions(|name| library.runtime.owns_symbol(name)));
    let planned = functions.map_err(anyhow::Error::from).and_then(|functions| {
        let binary = Binary::open(&library.open_path)?;
        Ok(Planner::for_running_kernel().plan_library(&binary, &functions, process))
    });
    let plans = match planned {
        Ok(plans) => plans,
        Err(error) => return findings.line(&Finding::Limited, &what, &format!("{error:#}")),
    };
    let names = |plans: &mut dyn Iterator<Item = &FunctionPlan>| -> usize {
        plans.map(|plan| plan.names().count()).sum()
    };
    let is_cheap = |plan: &&FunctionPlan| plan.site.as_ref().is_some_and(|s| s.class.is_cheap());
    let (all, cheap) = (names(&mut plans.iter()), names(&mut plans.iter().filter(is_cheap)));
    let found = format!("{all} functions of the {} API are found", library.runtime.name());
    if cheap * 2 >= all {
        findings.line(&Finding::Good, &what, &found);
    } else {
        let meaning = format!(
            "{found}, of which {cheap} can be probed at little cost; others by --allow-slow alone, and those of HSA, and of HIP 6 and 7, by the shim"
        );
        findings.line(&Finding::Limited, &what, &meaning);
    }
}

/// The parts of a running process that can be recorded, and the source of each.
fn process(findings: &mut Findings, pid: u32) -> anyhow::Result<()> {
    let subject = Subject::open(pid)?;
    let info = subject.by_number(discover::process_info)?;
    findings.text.push_str(&format!("process {pid}: {}\n", line(&info.command)));
    let libraries = subject.by_number(discover::libraries)?;
    if libraries.is_empty() {
        let meaning = "neither libamdhip64 nor libhsa-runtime64; roctap record -p waits for them";
        findings.line(&Finding::Limited, "no ROCm library is mapped", meaning);
    }
    let memory = subject.by_number(|pid| anyhow::Ok(LiveProcess::open(pid)?)).ok();
    let memory = memory.as_ref().map(|memory| memory as &dyn ProcessMemory);
    libraries.iter().for_each(|library| self::library(findings, library, memory));
    if let Err(reason) = inject::check(&subject).map_err(anyhow::Error::from) {
        let meaning = format!(
            "few GPU times: API calls, kernels and their names are seen from outside: {reason:#}"
        );
        findings.line(&Finding::Limited, "the shim cannot be put into it", &meaning);
        return Ok(());
    }
    findings.line(
        &Finding::Good,
        "the shim can be put into it",
        "as far as is seen from outside: seccomp filters and limits are looked at when one thread is stopped for it, for less than a millisecond on an idle machine",
    );
    match Prospect::of(&subject, inject::Access::Read) {
        Ok(None) => {}
        Err(error) => {
            let why = format!("{error:#}");
            findings.line(&Finding::Limited, "few GPU times, seen from outside", &why);
        }
        Ok(Some(prospect)) => {
            if prospect.loaded.is_some() {
                let meaning = "an earlier recording left it; it is used again";
                findings.line(&Finding::Good, "the shim is in it already", meaning);
            }
            match prospect.why_none() {
                None => findings.line(&Finding::Good, "GPU times", &GpuSource::Tables.to_string()),
                Some(why) => {
                    findings.line(&Finding::Limited, "few GPU times, seen from outside", &why);
                }
            }
        }
    }
    Ok(())
}

fn process_table(running: &[(discover::ProcessInfo, Vec<discover::Library>)]) -> String {
    let row = |(process, libraries): &(discover::ProcessInfo, Vec<discover::Library>)| {
        let names: Vec<String> =
            libraries.iter().map(|l| format!("{} {}", l.runtime.name(), l.version())).collect();
        let (command, names) = (line(&process.command), names.join(", "));
        format!("{:>8}  {command}  [{}]\n", process.pid, line(&names))
    };
    running.iter().map(row).collect()
}

/// Runs `roctap ps`.
///
/// # Errors
///
/// When standard output cannot be written.
pub fn ps() -> anyhow::Result<ExitCode> {
    privileges::keep_for_looking();
    let running = rocm_processes();
    if running.is_empty() {
        shown::say(
            "no running process maps libamdhip64 or libhsa-runtime64 (as far as this user may look)",
        );
    }
    print(&process_table(&running))?;
    Ok(ExitCode::SUCCESS)
}
