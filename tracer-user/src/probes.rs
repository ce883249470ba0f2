//! `roctap probes`: the places at which the functions of a library or process would be probed, and the cost.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::{
    calibrate::{self, Cost},
    discover::{self, FileId, Image, Library, Runtime, Subject},
    plan::{
        Binary, Class, FunctionPlan, LiveProcess, Planner, Probed, ProcessMemory, ReachedBy,
        ReturnProbe,
    },
    privileges,
    shown::{self, clean},
};

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
enum Format {
    /// Columns for people
    #[default]
    Table,
    /// One JSON document
    Json,
}

/// Options of `roctap probes`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  roctap probes /opt/rocm/lib/libamdhip64.so      the functions of a library
  roctap probes -p 4711 --format json             those of a running process
The costs are measured on this machine, which needs the privileges of `roctap record`. Without them
they are those of another machine with kernel 6.18, and a warning says so.")]
pub struct Options {
    /// Library file
    #[arg(value_name = "LIBRARY", required_unless_present = "pid", conflicts_with = "pid")]
    library: Option<PathBuf>,

    /// Running process
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,

    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Printed for the class of a function at which the kernel allows no probe.
const NO_CLASS: &str = "none";

/// One planned function, as it is printed.
#[derive(Serialize)]
struct Row {
    symbol: String,
    aliases: Vec<String>,
    /// Offset in the library's file; none if no probe can be placed.
    site: Option<u64>,
    /// Offset from the function's entry.
    moved_by: u64,
    instruction: String,
    class: &'static str,
    /// Entry and return probe together, ns per call; the entry probe alone if there is no return probe.
    expected_ns: Option<u32>,
    return_probe: bool,
    /// The probed function: the `exported` one, the `implementation` behind it, or only its `stub`.
    reached: &'static str,
    /// The place to which another tool has redirected the function: a file, or anonymous memory.
    redirected_to: Option<String>,
    notes: Vec<String>,
}

/// The plan of one library.
#[derive(Serialize)]
struct LibraryPlan {
    library: String,
    functions: Vec<Row>,
}

/// Runs `roctap probes`.
///
/// # Errors
///
/// When the library or process cannot be read, or has none of the functions.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    privileges::keep_for_trying();
    match (&options.library, options.pid) {
        (_, Some(pid)) => drop(Subject::open(pid)?.by_number(discover::process_info)?),
        (Some(path), None) => drop(identity(path)?),
        (None, None) => {}
    }
    let costs = Costs::measure();
    privileges::keep_for_looking();
    let plans = match (&options.library, options.pid) {
        (_, Some(pid)) => Subject::open(pid)?.by_number(plan_process)?,
        (Some(path), None) => vec![plan_file(path)?],
        (None, None) => bail!("name a library or a process"),
    };
    let plans: Vec<LibraryPlan> = plans
        .into_iter()
        .map(|(library, plans)| LibraryPlan {
            library: shown::text_of(library.as_os_str().as_encoded_bytes()),
            functions: plans.into_iter().map(|plan| row(plan, &costs)).collect(),
        })
        .collect();
    let text = match options.format {
        Format::Table => plans.iter().map(table).collect(),
        Format::Json => shown::json(&plans)?,
    };
    shown::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn identity(path: &Path) -> anyhow::Result<FileId> {
    FileId::of(path).with_context(|| format!("{}: cannot be opened", path.display()))
}

/// The libraries of a running process.
fn plan_process(pid: u32) -> anyhow::Result<Vec<(PathBuf, Vec<FunctionPlan>)>> {
    let libraries = discover::libraries(pid)?;
    if libraries.is_empty() {
        bail!("process {pid} maps neither libamdhip64 nor libhsa-runtime64");
    }
    let process = LiveProcess::open(pid)?;
    libraries.iter().map(|library| plan(library, Some(&process))).collect()
}

/// Plans a library on disk. Its name tells its API, else its exported symbols do.
fn plan_file(path: &Path) -> anyhow::Result<(PathBuf, Vec<FunctionPlan>)> {
    let id = identity(path)?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let image = Image::open(path)?;
    let mut by_export = Runtime::ALL.into_iter();
    let runtime = Runtime::of_file_name(&name).map_or_else(
        || {
            let owned = |r: &Runtime| {
                image.functions(|symbol| r.owns_symbol(symbol)).map(|found| !found.is_empty())
            };
            by_export.find_map(|r| owned(&r).map(|any| any.then_some(r)).transpose()).transpose()
        },
        |runtime| Ok(Some(runtime)),
    )?;
    let Some(runtime) = runtime else {
        bail!("{}: exports no function of HIP, HSA or roctx", path.display());
    };
    let (path, open_path) = (path.to_owned(), path.canonicalize()?);
    let library = Library { runtime, path, open_path, id, held: None };
    plan(&library, None)
}

fn plan(
    library: &Library,
    process: Option<&dyn ProcessMemory>,
) -> anyhow::Result<(PathBuf, Vec<FunctionPlan>)> {
    let owned = |name: &str| library.runtime.owns_symbol(name);
    let functions = Image::open(&library.open_path)?.functions(owned)?;
    if functions.is_empty() {
        let (path, api) = (library.path.display(), library.runtime.name());
        bail!("{path}: exports no function of the {api} API; stripped, or another library?");
    }
    let binary = Binary::open(&library.open_path)?;
    let plans = Planner::for_running_kernel().plan_library(&binary, &functions, process);
    Ok((library.path.clone(), plans))
}

/// The costs of probes: measured on this machine, else on another one.
struct Costs(Vec<Cost>);

impl Costs {
    fn measure() -> Self {
        Self(calibrate::measure().map(|costs| costs.classes).unwrap_or_else(|error| {
            tracing::warn!("costs are those of another machine: {error}");
            Vec::new()
        }))
    }

    fn ns(&self, class: Class, return_probe: bool) -> u32 {
        let measured = self.0.iter().find(|cost| cost.class == class);
        match (measured, return_probe) {
            (Some(cost), true) => cost.entry_and_return_ns.round() as u32,
            (Some(cost), false) => cost.entry_ns.round() as u32,
            (None, true) => class.entry_and_return_ns(),
            (None, false) => class.entry_ns(),
        }
    }
}

fn row(plan: FunctionPlan, costs: &Costs) -> Row {
    let site = plan.site.as_ref();
    let return_probe = site.is_some_and(|s| s.return_probe == ReturnProbe::Allowed);
    let (reached, redirected_to) = match &plan.reached {
        ReachedBy::Exported => ("exported", None),
        ReachedBy::Implementation { .. } => ("implementation", None),
        ReachedBy::Stub { .. } => ("stub", None),
        ReachedBy::Redirected { target, probed, .. } => {
            let reached = match probed {
                Probed::Stub => "stub",
                Probed::Implementation { .. } => "implementation",
            };
            (reached, Some(target.to_string()))
        }
    };
    Row {
        site: site.map(|s| s.file_offset),
        moved_by: site.map_or(0, |s| s.function_offset),
        instruction: site.map(|s| s.instruction.clone()).unwrap_or_default(),
        class: site.map_or(NO_CLASS, |s| s.class.name()),
        expected_ns: site.map(|s| costs.ns(s.class, return_probe)),
        return_probe,
        reached,
        redirected_to,
        notes: plan.notes.iter().map(ToString::to_string).collect(),
        symbol: plan.symbol,
        aliases: plan.aliases,
    }
}

fn table(plan: &LibraryPlan) -> String {
    let mut text = format!("{}\n", clean(&plan.library));
    let widest = plan.functions.iter().map(|row| row.symbol.len()).max().unwrap_or(0);
    let heads = ["function", "site", "ns", "class", "instruction", "remarks"];
    let [function, site, ns, class, instruction, remarks] = heads;
    let _ = writeln!(
        text,
        "  {function:widest$}  {site:>12}  {ns:>6}  {class:11}  {instruction:24}  {remarks}"
    );
    for row in &plan.functions {
        let site = row.site.map_or("-".to_owned(), |at| match row.moved_by {
            0 => format!("0x{at:x}"),
            moved => format!("0x{at:x} +{moved}"),
        });
        let ns = row.expected_ns.map_or("-".to_owned(), |ns| ns.to_string());
        let mut remarks: Vec<String> = Vec::new();
        if row.reached != "exported" {
            remarks.push(row.reached.to_owned());
        }
        remarks.extend(row.redirected_to.iter().map(|to| format!("redirected to {to}")));
        if row.site.is_some() && !row.return_probe {
            remarks.push("entry only".to_owned());
        }
        if !row.aliases.is_empty() {
            remarks.push(format!("also {}", row.aliases.join(", ")));
        }
        remarks.extend(row.notes.iter().cloned());
        let line = format!(
            "  {:widest$}  {site:>12}  {ns:>6}  {:11}  {:24}  {}",
            row.symbol,
            row.class,
            row.instruction,
            remarks.join("; ")
        );
        let _ = writeln!(text, "{}", clean(line.trim_end()));
    }
    let classes = [Class::Nop5, Class::Emulated, Class::SingleStep].map(Class::name);
    for class in classes.into_iter().chain([NO_CLASS]) {
        let of_class = || plan.functions.iter().filter(|row| row.class == class);
        let names: usize = of_class().map(|row| 1 + row.aliases.len()).sum();
        if names > 0 {
            let _ = writeln!(text, "  {class}: {} sites, {names} functions", of_class().count());
        }
    }
    text
}
