//! A full record of an API call, against what the kernel's probes cost when they do nothing.

use std::time::Duration;

use roctap::{
    discover::{Library, Runtime},
    probe::{Attachment, Follow, Programs, Reader, Records, Settings, Site},
};
use tracer_common::bpf::phase;

use crate::{
    place::Places,
    sites,
    stats::{Series, ratio},
    table::Table,
    target::{Answer, Target},
};

/// The called function. It does next to nothing, and its first instruction is of the kind that the
/// kernel emulates, as with nearly all HIP functions.
const FUNCTION: &str = "hipGetErrorName";
/// Calls in a round of a probed variant.
const CALLS: u64 = 100_000;

/// The programs, their reader, and the place that is probed.
struct Bench {
    programs: Programs,
    reader: Reader,
    library: Library,
    sites: Vec<Site>,
    target: Target,
    records_bytes: u64,
}

fn bytes_of(records: Records) -> u64 {
    records.iter().map(|part| part.len() as u64).sum()
}

impl Bench {
    fn ask(&mut self, calls: u64) -> anyhow::Result<Answer> {
        let (reader, bytes) = (&mut self.reader, &mut self.records_bytes);
        self.target.ask_while(&format!("hip {calls}"), || {
            *bytes += bytes_of(reader.take(Duration::from_millis(10)));
            Ok(())
        })
    }

    fn probed(&mut self, attachment: Attachment) -> anyhow::Result<Answer> {
        self.programs.set_phase(phase::ATTACHED)?;
        self.ask(CALLS / 10)?;
        let answer = self.ask(CALLS)?;
        drop(attachment);
        self.records_bytes += bytes_of(self.reader.take_all());
        Ok(answer)
    }

    fn floor(&mut self) -> anyhow::Result<Answer> {
        let pid = self.target.pid();
        let attached = self.programs.attach_floor(pid, &self.library.open_path, &self.sites)?;
        self.probed(attached)
    }

    fn full(&mut self) -> anyhow::Result<Answer> {
        self.programs.set_phase(phase::ATTACHING)?;
        let pid = self.target.pid();
        let attached = self.programs.attach(pid, &self.library.open_path, &self.sites)?;
        self.probed(attached)
    }
}

/// Measures and prints.
pub fn run(places: &Places, rounds: u32) -> anyhow::Result<()> {
    let private = places.copy_libraries()?;
    let target = Target::start(&mut private.command(&places.bench_target())?)?;
    let programs = Programs::load(Settings::new(32 << 20, Follow::Nobody))?;
    let library = private.library(target.pid(), Runtime::Hip)?;
    let sites = sites::one(target.pid(), &library, FUNCTION)?;
    let reader = Reader::new(&programs)?;
    let mut bench = Bench { programs, reader, library, sites, target, records_bytes: 0 };
    let mut series = [Series::default(), Series::default(), Series::default()];
    for _ in 0..rounds {
        series[0].push(bench.ask(CALLS * 10)?.cost());
        series[1].push(bench.floor()?.cost());
        series[2].push(bench.full()?.cost());
    }
    let recorded = bench.records_bytes / size_of::<tracer_common::bpf::ApiRecord>() as u64;
    let called = u64::from(rounds) * (CALLS + CALLS / 10);
    print(&series);
    println!("  {recorded} of {called} calls recorded; losses {:?}", bench.programs.losses()?);
    Ok(())
}

fn print([untraced, floor, full]: &[Series; 3]) {
    let mut table = Table::new(
        format!("api: ns added to a call of {FUNCTION}; median (quartiles)"),
        &["variant", "wall", "thread CPU", "wall / floor", "CPU / floor"],
    );
    let own = [untraced.wall().shown(), untraced.cpu().shown()];
    let [wall, cpu] = own;
    table.row(["(untraced call)".to_owned(), wall, cpu, String::new(), String::new()]);
    let floor = floor.above(untraced);
    for (name, added) in [("floor: empty programs", &floor), ("full record", &full.above(untraced))]
    {
        let (wall, cpu) = (added.wall(), added.cpu());
        table.row([
            name.to_owned(),
            wall.shown(),
            cpu.shown(),
            ratio(wall.median(), floor.wall().median()),
            ratio(cpu.median(), floor.cpu().median()),
        ]);
    }
    table.print();
}
