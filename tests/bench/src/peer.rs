//! roctap, with full records, against bpftrace, which only counts.
//!
//! Five processes run throughout, each with libraries of its own: one untraced, two started by `roctap
//! record`, where the shim records HSA calls, one of them with the two functions that `<<<>>>` calls
//! beside the launch, one under `roctap record --gpu off -p`, with probes alone for all of it, and one
//! under `bpftrace -p`. The rounds alternate between them.

use std::{
    collections::BTreeMap, convert::Infallible, path::Path, process::Command, time::Duration,
};

use anyhow::{Context as _, bail};
use roctap::{
    discover::{Image, Runtime},
    trace::Trace,
};
use tracer_records::model::Event;

use crate::{
    place::{Places, Private},
    stats::{Series, number, ratio},
    table::Table,
    target::Target,
    tool::Tool,
};

/// Functions that bpftrace's detaching is timed with: all of them would take minutes.
const DETACHED: usize = 40;

/// What is measured: request, and how often in each of the processes.
const REQUESTS: [(&str, &str, [u64; SUBJECTS]); 4] = [
    ("call of hipGetErrorName", "hip", [200_000, 20_000, 20_000, 20_000, 20_000]),
    ("call of hsa_signal_load_relaxed", "hsa", [200_000, 20_000, 20_000, 2_000, 2_000]),
    (
        "kernel launch by <<<>>> (2 calls of the compiler, 1 of HIP)",
        "launch",
        [2_048, 2_048, 2_048, 512, 512],
    ),
    ("kernel launch by hipLaunchKernel (1 call of HIP)", "bare", [2_048, 2_048, 2_048, 512, 512]),
];

/// What programs call, and with it what the compiler has them call.
const APIS: &str = "hip,hsa";
const ALL_APIS: &str = "hip,hip-compiler,hsa";

/// The processes.
const UNTRACED: usize = 0;
const STARTED: usize = 1;
const STARTED_ALL: usize = 2;
const ATTACHED: usize = 3;
const PEER: usize = 4;
const SUBJECTS: usize = 5;

/// A process and its libraries; the process ends first.
struct Subject {
    target: Target,
    private: Private,
}

impl Subject {
    fn start(places: &Places) -> anyhow::Result<Self> {
        let private = places.copy_libraries()?;
        let command = private.command(&places.bench_target())?;
        Self::ready(command, private)
    }

    /// The same under `roctap record`, from the start.
    fn start_recorded(places: &Places, apis: &str) -> anyhow::Result<Self> {
        let private = places.copy_libraries()?;
        let mut command = private.command(&places.roctap)?;
        command.args(["record", "--api", apis, "-o"]).arg(private.path("trace"));
        command.arg("--").arg(places.bench_target());
        Self::ready(command, private)
    }

    fn ready(mut command: Command, private: Private) -> anyhow::Result<Self> {
        let target = Target::start(&mut command).and_then(|mut target| {
            target.ask("launch 512")?;
            Ok(target)
        });
        let target = target.with_context(|| private.complaints())?;
        Ok(Self { target, private })
    }

    fn record(&self, places: &Places) -> anyhow::Result<Tool> {
        let mut command = self.private.command(&places.roctap)?;
        command.args(["record", "--api", ALL_APIS, "--gpu", "off", "-o"]);
        command.arg(self.private.path("trace")).args(["-p", &self.target.pid().to_string()]);
        Tool::start(&mut command).with_context(|| self.private.complaints())
    }

    /// The functions that bpftrace can probe. It refuses symbols without a size: older names of
    /// functions that it probes under the newer name.
    fn functions(&self, runtime: Runtime) -> anyhow::Result<Vec<String>> {
        let library = self.private.library(self.target.pid(), runtime)?;
        let image = Image::open(&library.open_path)?;
        let functions = image.functions(|name| runtime.owns_symbol(name))?;
        let path = library.path.display();
        let sized = functions.into_iter().filter(|function| function.size > 0);
        Ok(sized.map(|function| format!("{path}:{}", function.name)).collect())
    }

    fn bpftrace(&self, functions: &[String]) -> anyhow::Result<Tool> {
        let probes = |kind: &str| {
            let points: Vec<_> = functions.iter().map(|f| format!("{kind}:{f}")).collect();
            format!("{} {{ @ = count(); }}", points.join(","))
        };
        let script = self.private.path("count.bt");
        std::fs::write(&script, format!("{}\n{}\n", probes("uprobe"), probes("uretprobe")))?;
        let mut command = bpftrace(&script);
        command.args(["-p", &self.target.pid().to_string()]);
        command.stderr(std::fs::File::create(self.private.path("stderr"))?);
        Tool::start(&mut command).with_context(|| self.private.complaints())
    }
}

fn bpftrace(script: &Path) -> Command {
    let program = std::env::var_os("BPFTRACE").unwrap_or_else(|| "bpftrace".into());
    let mut command = Command::new(program);
    command.env("BPFTRACE_MAX_PROBES", "8192").arg(script);
    command
}

/// Measures and prints.
pub fn run(places: &Places, rounds: u32) -> anyhow::Result<()> {
    let version = Command::new(bpftrace(Path::new("")).get_program())
        .arg("--version")
        .output()
        .context("bpftrace cannot be run: install it, or name one with BPFTRACE")?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    let mut subjects = [
        Subject::start(places)?,
        Subject::start_recorded(places, APIS)?,
        Subject::start_recorded(places, ALL_APIS)?,
        Subject::start(places)?,
        Subject::start(places)?,
    ];
    let functions = [Runtime::Hip, Runtime::Hsa]
        .map(|runtime| subjects[PEER].functions(runtime))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?
        .concat();
    // Before anything else: a detaching that goes on in the kernel slows others down.
    let small = subjects[UNTRACED].bpftrace(&functions[..DETACHED.min(functions.len())])?;
    let small_stop = small.stop()?;
    let peer = subjects[PEER].bpftrace(&functions)?;
    let own = subjects[ATTACHED].record(places)?;
    for (what, request, calls) in REQUESTS {
        let mut series = [const { Series::new() }; SUBJECTS];
        for _ in 0..rounds {
            for (subject, (series, calls)) in subjects.iter_mut().zip(series.iter_mut().zip(calls))
            {
                series.push(subject.target.ask(&format!("{request} {calls}"))?.cost());
            }
        }
        costs(&format!("probes: ns added to a {what}; median (quartiles)"), &version, &series);
    }
    let (own_start, peer_start) = (own.started_in, peer.started_in);
    let own_stop = own.stop()?;
    check_recorded(&subjects[ATTACHED].private.path("trace"), ATTACHED, rounds)?;
    peer.abandon()?;
    let scaled = small_stop.mul_f64(functions.len() as f64 / DETACHED as f64);
    let mut table = Table::new(
        format!(
            "probes: ms to start and to stop with all HIP and HSA functions ({})",
            functions.len()
        ),
        &["tracer", "start to recording", "^C to end", "sum"],
    );
    let row = |table: &mut Table, name: String, start: Duration, stop: Duration| {
        let ms = |time: Duration| number(time.as_secs_f64() * 1e3);
        table.row([name, ms(start), ms(stop), ms(start + stop)]);
    };
    row(&mut table, "roctap record".to_owned(), own_start, own_stop);
    row(&mut table, format!("{version}, end scaled from {DETACHED} functions"), peer_start, scaled);
    table.print();
    println!("  {version}: {} ms to end with {DETACHED} functions", small_stop.as_millis());
    let [_, started, started_all, attached, _] = subjects;
    let said = attached.private.complaints();
    said.lines().filter(|line| line.contains("lost")).for_each(|line| println!("  -p: {line}"));
    for (process, Subject { target, private }) in [(STARTED, started), (STARTED_ALL, started_all)] {
        // With its input it ends, and roctap with it.
        drop(target);
        let said = private.complaints();
        let losses = said.lines().filter(|line| line.contains("lost"));
        losses.for_each(|line| println!("  -- CMD: {line}"));
        check_recorded(&private.path("trace"), process, rounds)?;
    }
    Ok(())
}

/// A tracer that left the called functions out would be cheap.
fn check_recorded(trace: &Path, process: usize, rounds: u32) -> anyhow::Result<()> {
    let mut recorded = BTreeMap::<u32, u64>::new();
    Trace::open(trace)?.for_each_event(|event| {
        if let Event::Api(call) = event {
            *recorded.entry(call.record.domain.0).or_default() += 1;
        }
        Ok::<_, Infallible>(())
    })?;
    for ((what, _, calls), runtime) in REQUESTS.iter().zip(Runtime::ALL) {
        let made = calls[process] * u64::from(rounds);
        let seen = recorded.get(&runtime.domain().0).copied().unwrap_or(0);
        if seen < made {
            bail!("{what}: {seen} calls recorded of {made} and more: the function is not recorded");
        }
    }
    Ok(())
}

fn costs(title: &str, version: &str, series: &[Series; SUBJECTS]) {
    let [untraced, started, started_all, attached, peer] = series;
    let heads = ["variant", "wall", "thread CPU", "wall / bpftrace", "CPU / bpftrace"];
    let mut table = Table::new(title, &heads);
    let (wall, cpu) = (untraced.wall().shown(), untraced.cpu().shown());
    table.row(["(untraced)".to_owned(), wall, cpu, String::new(), String::new()]);
    let peer = peer.above(untraced);
    for (name, added) in [
        (format!("roctap record --api {APIS} -- CMD"), &started.above(untraced)),
        (format!("the same, --api {ALL_APIS}"), &started_all.above(untraced)),
        ("the same with probes alone, --gpu off -p".to_owned(), &attached.above(untraced)),
        (format!("{version}, count()"), &peer),
    ] {
        let (wall, cpu) = (added.wall(), added.cpu());
        table.row([
            name,
            wall.shown(),
            cpu.shown(),
            ratio(wall.median(), peer.wall().median()),
            ratio(cpu.median(), peer.cpu().median()),
        ]);
    }
    table.print();
}
