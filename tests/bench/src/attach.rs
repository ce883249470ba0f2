//! How long attaching and detaching take.

use std::time::Instant;

use anyhow::Context as _;
use roctap::{
    discover::{Library, Runtime},
    probe::{Attachment, Follow, Programs, Settings},
};
use tracer_common::bpf::phase;

use crate::{
    place::{Places, Private},
    sites,
    stats::Sample,
    table::Table,
    target::Target,
    tool::Tool,
};

/// Times of one set of functions, ms.
#[derive(Default)]
struct Times {
    attach: Sample,
    detach: Sample,
}

impl Times {
    fn row(&self, table: &mut Table, what: &str) {
        let sum = self.attach.median() + self.detach.median();
        table.row([
            what.to_owned(),
            self.attach.shown(),
            self.detach.shown(),
            crate::stats::number(sum),
        ]);
    }
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Measures and prints.
pub fn run(places: &Places, rounds: u32) -> anyhow::Result<()> {
    let private = places.copy_libraries()?;
    let mut target = Target::start(&mut private.command(&places.bench_target())?)?;
    // A runtime that runs has its threads, and all its code mapped.
    target.ask("launch 512")?;
    let pid = target.pid();
    let heads = ["set", "attach", "detach", "sum"];
    let mut table = Table::new("attach: ms on a running process; median (quartiles)", &heads);
    let hip = private.library(pid, Runtime::Hip)?;
    let hsa = private.library(pid, Runtime::Hsa)?;
    let mut stops = Sample::default();
    let mut programs = Programs::load(Settings::new(1 << 20, Follow::Nobody))?;
    for set in [vec![&hip], vec![&hip, &hsa]] {
        let names: Vec<_> = set.iter().map(|library| library.runtime.name()).collect();
        let (times, count) = cycles(&mut programs, pid, &set, rounds)?;
        let what = format!("{}: plan and probes of {count} functions alone", names.join("+"));
        times.row(&mut table, &what);
    }
    for (apis, gpu) in [("hip", "uprobes"), ("hip,hsa", "uprobes"), ("hip", "inject")] {
        let (times, stopped) = whole(places, &private, pid, apis, gpu, rounds)?;
        let what = format!("record -p --api {apis} --gpu {gpu}: start to recording, ^C to end");
        times.row(&mut table, &what);
        if gpu == "inject" {
            stops = stopped;
        }
    }
    table.print();
    println!("  one thread of the target was stopped for {} ms; median (quartiles)", stops.shown());
    Ok(())
}

/// Plans, attaches and detaches again and again. Also tells how many functions were probed.
fn cycles(
    programs: &mut Programs,
    pid: u32,
    set: &[&Library],
    rounds: u32,
) -> anyhow::Result<(Times, usize)> {
    let (mut times, mut count) = (Times::default(), 0);
    for _ in 0..rounds {
        let began = Instant::now();
        programs.set_phase(phase::ATTACHING)?;
        let mut attached = Vec::new();
        count = 0;
        for library in set {
            let sites = sites::all(pid, library)?;
            count += sites.len();
            attached.push(programs.attach(pid, &library.open_path, &sites)?);
        }
        programs.set_phase(phase::ATTACHED)?;
        times.attach.push(ms(began));
        let began = Instant::now();
        programs.set_phase(phase::DETACHING)?;
        let entries: Vec<_> = attached.iter_mut().map(Attachment::take_entries).collect();
        Attachment::remove_all(entries);
        Attachment::remove_all(attached);
        times.detach.push(ms(began));
    }
    Ok((times, count))
}

/// The same as users meet it: with loading, planning, and writing the end of the trace.
fn whole(
    places: &Places,
    private: &Private,
    pid: u32,
    apis: &str,
    gpu: &str,
    rounds: u32,
) -> anyhow::Result<(Times, Sample)> {
    let (mut times, mut stops) = (Times::default(), Sample::default());
    for _ in 0..rounds {
        let mut command = private.command(&places.roctap)?;
        let options = ["--force", "--api", apis, "--gpu", gpu, "-p", &pid.to_string(), "-o"];
        command.arg("-v").arg("record").args(options).arg(private.path("trace"));
        // A thread of roctap's puts it in, while the others record calls already.
        let has_answered = || private.complaints().contains("the shim answered");
        let tool = Tool::start_until(&mut command, || gpu != "inject" || has_answered())?;
        times.attach.push(tool.started_in.as_secs_f64() * 1e3);
        times.detach.push(tool.stop()?.as_secs_f64() * 1e3);
        let trace = roctap::trace::Trace::open(&private.path("trace"))?;
        let tables = trace.tables().tables;
        let process = tables.processes.get(&pid).context("the trace names the target")?;
        stops.push(process.stopped_ns as f64 / 1e6);
    }
    Ok((times, stops))
}
