//! The reader of the records: how many it manages, and what it costs at a given rate.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use roctap::{
    discover::{Library, Runtime},
    join::{Joiner, Mode},
    probe::{Attachment, Follow, Programs, Reader, Settings, each_record},
    trace::{Existing, Writer},
};
use rustix::time::{ClockId, clock_gettime};
use tracer_common::bpf::{ApiRecord, kind, phase};
use tracer_common::loss::BpfLoss;
use tracer_records::model::{ClockOffsets, Metadata};
use zerocopy::FromBytes as _;

use crate::{
    place::Places,
    sites,
    stats::{Sample, number},
    table::Table,
    target::Target,
    tool::Tool,
};

/// Rounds of filling and draining.
const ROUNDS: u32 = 11;
/// Bytes of each CPU's ring: the whole fill fits in one of them.
const RING_BYTES: u32 = 64 << 20;
/// Calls a second of the steady rate, and for how many seconds.
const RATE: (u64, u64) = (500_000, 5);

/// Measures and prints.
pub fn run(places: &Places) -> anyhow::Result<()> {
    capacity(places)?;
    share(places)
}

/// Times of draining, each an average over one fill.
#[derive(Default)]
struct Drained {
    records: u64,
    wall_ns: Sample,
    cpu_ns: Sample,
    bytes: Sample,
}

fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The records of a full ring through reader, joiner and writer.
fn capacity(places: &Places) -> anyhow::Result<()> {
    let private = places.copy_libraries()?;
    let mut target = Target::start(&mut private.command(&places.bench_target())?)?;
    target.ask("launch 512")?;
    let mut programs = Programs::load(Settings::new(RING_BYTES, Follow::Nobody))?;
    let library = private.library(target.pid(), Runtime::Hip)?;
    let mut table = Table::new(
        "consumer: draining full rings into a trace file; median (quartiles)",
        &["records", "M/s (wall)", "ns/record: wall", "CPU", "bytes in the file"],
    );
    for (name, request) in
        [("240 000 equal calls", "hip 240000"), ("80 000 launches", "launch 80000")]
    {
        let mut drained = Drained::default();
        for round in 0..ROUNDS {
            let attached = attach(&mut programs, &library, target.pid())?;
            target.ask(request)?;
            drop(attached);
            let trace = private.path(&format!("{name}-{round}"));
            drain(&programs, &trace, &mut drained)?;
            std::fs::remove_file(trace)?;
        }
        let lost = programs.losses()?[BpfLoss::API_RING_FULL.0 as usize];
        if lost > 0 {
            bail!("{lost} records did not fit into the rings");
        }
        table.row([
            format!("{name} ({} records)", drained.records / u64::from(ROUNDS)),
            number(1e3 / drained.wall_ns.median()),
            drained.wall_ns.shown(),
            drained.cpu_ns.shown(),
            drained.bytes.shown(),
        ]);
    }
    table.print();
    Ok(())
}

fn attach(programs: &mut Programs, library: &Library, pid: u32) -> anyhow::Result<Attachment> {
    programs.set_phase(phase::ATTACHING)?;
    let attached = programs.attach(pid, &library.open_path, &sites::all(pid, library)?)?;
    programs.set_phase(phase::ATTACHED)?;
    Ok(attached)
}

/// Does what a recording session does with its records. Nobody has read the rings so far.
fn drain(programs: &Programs, trace: &Path, drained: &mut Drained) -> anyhow::Result<()> {
    let writer = Writer::create(trace, &Metadata::default(), Existing::Refuse)?;
    let mut joiner = Joiner::new(Mode::default(), Box::new(writer));
    let (began, began_cpu) = (Instant::now(), cpu_ns());
    let mut reader = Reader::new(programs)?;
    let (mut wall, mut cpu, mut count) = (Duration::ZERO, 0.0, 0u64);
    let torn = || anyhow!("a record that is cut off");
    loop {
        let mut records = reader.take(Duration::from_millis(50));
        if records.is_empty() {
            records = reader.take_all();
        }
        if records.is_empty() {
            break;
        }
        for (kind, record) in each_record(&records) {
            match kind {
                kind::API => {
                    joiner.api(&ApiRecord::read_from_bytes(record).map_err(|_| torn())?)?;
                    count += 1;
                }
                // The first call of a thread is told as well.
                kind::CALLER => {}
                kind => bail!("a record of kind {kind} among the API calls"),
            }
        }
        reader.give_back(records);
        joiner.sink().flush()?;
        (wall, cpu) = (began.elapsed(), cpu_ns() - began_cpu);
    }
    let each = |ns: f64| ns / count.max(1) as f64;
    drained.records += count;
    drained.wall_ns.push(each(wall.as_nanos() as f64));
    drained.cpu_ns.push(each(cpu));
    joiner.finish(ClockOffsets::default())?;
    drained.bytes.push(each(std::fs::metadata(trace)?.len() as f64));
    Ok(())
}

/// What `roctap record` uses of a CPU at a steady rate.
fn share(places: &Places) -> anyhow::Result<()> {
    let private = places.copy_libraries()?;
    let mut target = Target::start(&mut private.command(&places.bench_target())?)?;
    let mut command = private.command(&places.roctap)?;
    command.args(["record", "-p", &target.pid().to_string(), "-o"]).arg(private.path("trace"));
    let tool = Tool::start(&mut command)?;
    let (began, cpu) = (Instant::now(), tool.cpu_time()?);
    let idle = {
        std::thread::sleep(Duration::from_secs(1));
        (tool.cpu_time()? - cpu).as_secs_f64() / began.elapsed().as_secs_f64()
    };
    let (began, cpu) = (Instant::now(), tool.cpu_time()?);
    let answer = target.ask(&format!("rate {} {}", RATE.0, RATE.1))?;
    // What is in the rings at the end belongs to it too.
    std::thread::sleep(Duration::from_millis(50));
    let (cpu, wall) = (tool.cpu_time()? - cpu, began.elapsed());
    tool.stop()?;
    let bytes = std::fs::metadata(private.path("trace")).context("no trace")?.len();
    let mut table = Table::new(
        "consumer: roctap record at a steady rate",
        &["calls/s", "CPU share", "ns/call", "idle CPU share", "bytes/call", "losses"],
    );
    let said = private.complaints();
    let lost = said.lines().find(|line| line.contains("lost")).unwrap_or("?").to_owned();
    table.row([
        number(answer.calls as f64 / (answer.wall_ns as f64 / 1e9)),
        format!("{:.2} %", cpu.as_secs_f64() / wall.as_secs_f64() * 100.0),
        number(cpu.as_nanos() as f64 / answer.calls as f64),
        format!("{:.2} %", idle * 100.0),
        number(bytes as f64 / answer.calls as f64),
        lost,
    ]);
    table.print();
    Ok(())
}
