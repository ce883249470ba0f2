//! What waiting for the GPU costs more under `roctap record`: the time of a synchronisation, and the CPU
//! that the shim's thread and roctap take meanwhile.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use anyhow::Context as _;
use clap::Args;

use crate::{
    place::{Places, Private},
    stats::{Sample, number},
    table::Table,
    target::{Answer, Target},
};

/// Durations of the kernels of `bench_target`, µs, by their number.
const KERNELS_US: [u64; 4] = [2, 20, 200, 2000];
/// Time that the GPU works in one round of a variant, all processes together, µs.
const WORK_US: u64 = 60_000;
/// Fewest and most synchronisations of a process in a round.
const ROUNDS: (u64, u64) = (20, 2000);
/// `hipDeviceScheduleSpin` and `hipDeviceScheduleBlockingSync`.
const WAITS: [(&str, u64); 2] = [("active", 1), ("blocking", 4)];
/// Name of the shim's thread.
const SHIM_THREAD: &str = "roctap-shim";

/// What is measured.
#[derive(Args)]
pub struct Options {
    /// wait: kernels, µs, of 2, 20, 200 and 2000
    #[arg(long, value_delimiter = ',', default_values_t = KERNELS_US)]
    wait_us: Vec<u64>,
    /// wait: launches before each synchronisation
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10])]
    wait_launches: Vec<u64>,
    /// wait: processes at once
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
    wait_processes: Vec<usize>,
}

/// A process that is measured, untraced or under `roctap record`. Dropped in this order: it ends before
/// its libraries go.
struct Running {
    target: Target,
    private: Private,
}

impl Running {
    fn start(places: &Places, traced: bool, flags: u64) -> anyhow::Result<Self> {
        let private = places.copy_libraries()?;
        let mut command = if traced {
            let mut command = private.command(&places.roctap)?;
            command.args(["record", "-o"]).arg(private.path("trace"));
            command.arg("--").arg(places.bench_target());
            command
        } else {
            private.command(&places.bench_target())?
        };
        let durations = KERNELS_US.map(|us| format!("bench_wait_{us}={}", us * 1000));
        // A GPU takes no CPU: the emulator sleeps until what runs has ended.
        command.env("EMUGPU_WORKING_POLL_US", "10000");
        let target = Target::start(command.env("EMUGPU_KERNEL_NS", durations.join(",")));
        let mut target = target.with_context(|| private.complaints())?;
        target.ask(&format!("flags {flags}"))?;
        // The first launch of a kernel loads it.
        for kernel in 0..KERNELS_US.len() {
            target.ask(&format!("wait 20 1 {kernel}"))?;
        }
        Ok(Self { target, private })
    }

    /// CPU time so far of the shim's thread, and of all of roctap.
    fn cpu(&self) -> anyhow::Result<(Duration, Duration)> {
        let shim = cpu_by_thread(self.target.pid())?.remove(SHIM_THREAD).unwrap_or_default();
        let roctap = match self.target.child_id() {
            id if id == self.target.pid() => Duration::ZERO,
            id => cpu_by_thread(id)?.into_values().sum(),
        };
        Ok((shim, roctap))
    }
}

/// CPU time of a process's threads by name.
fn cpu_by_thread(pid: u32) -> anyhow::Result<BTreeMap<String, Duration>> {
    let mut times = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(Path::new(name)));
        // A thread may end meanwhile.
        let (Ok(name), Ok(stat)) = (read("comm"), read("schedstat")) else { continue };
        let ran = stat.split(' ').next().and_then(|ns| ns.parse().ok());
        *times.entry(name.trim().to_owned()).or_default() +=
            Duration::from_nanos(ran.context("schedstat begins with the time on a CPU")?);
    }
    Ok(times)
}

/// What one round of some processes measured; means over the processes.
#[derive(Clone, Copy, Default)]
struct Round {
    wall_us: f64,
    median_us: f64,
    high_us: f64,
    /// Of a CPU, for each process.
    shim: f64,
    roctap: f64,
}

/// Has all processes do the same at the same time.
fn measure(group: &mut [Running], request: &str) -> anyhow::Result<Round> {
    let before: Vec<_> = group.iter().map(Running::cpu).collect::<Result<_, _>>()?;
    for running in group.iter_mut() {
        running.target.request(request)?;
    }
    let answers: Vec<Answer> =
        group.iter_mut().map(|running| running.target.answer(request)).collect::<Result<_, _>>()?;
    let mut round = Round::default();
    let share = 1.0 / group.len() as f64;
    for ((running, before), answer) in group.iter().zip(before).zip(answers) {
        let after = running.cpu()?;
        let of_wall = |cpu: Duration| cpu.as_nanos() as f64 / answer.wall_ns.max(1) as f64;
        let waits = answer.waits.with_context(|| format!("{request}: no times of waits"))?;
        round.wall_us += share * answer.cost().wall_ns / 1e3;
        round.median_us += share * waits.median_ns as f64 / 1e3;
        round.high_us += share * waits.high_ns as f64 / 1e3;
        round.shim += share * of_wall(after.0.saturating_sub(before.0));
        round.roctap += share * of_wall(after.1.saturating_sub(before.1));
    }
    Ok(round)
}

/// Measures and prints.
pub fn run(places: &Places, options: &Options, rounds: u32) -> anyhow::Result<()> {
    for &processes in &options.wait_processes {
        let mut table = Table::new(
            format!(
                "wait: {processes} processes; a launch or ten, then a synchronisation; medians"
            ),
            &[
                "wait, kernel, launches",
                "round µs",
                "traced /",
                "sync µs",
                "traced +",
                "p99 µs",
                "traced +",
                "shim CPU %",
                "roctap CPU %",
            ],
        );
        for (wait, flags) in WAITS {
            let start = |traced| -> anyhow::Result<Vec<Running>> {
                (0..processes).map(|_| Running::start(places, traced, flags)).collect()
            };
            let (mut untraced, mut traced) = (start(false)?, start(true)?);
            for &us in &options.wait_us {
                let kernel = KERNELS_US.iter().position(|&known| known == us);
                let kernel = kernel.with_context(|| format!("no kernel takes {us} µs"))?;
                for &launches in &options.wait_launches {
                    let each = us * launches.max(1) * processes as u64;
                    let count = (WORK_US / each.max(1)).clamp(ROUNDS.0, ROUNDS.1);
                    let request = format!("wait {count} {launches} {kernel}");
                    let mut pairs = Vec::new();
                    for _ in 0..rounds {
                        let plain = measure(&mut untraced, &request)?;
                        pairs.push((plain, measure(&mut traced, &request)?));
                    }
                    let of = |value: &dyn Fn(&(Round, Round)) -> f64| {
                        number(pairs.iter().map(value).collect::<Sample>().median())
                    };
                    table.row([
                        format!("{wait}, {us} µs, {launches}"),
                        of(&|(plain, _)| plain.wall_us),
                        of(&|(plain, traced)| traced.wall_us / plain.wall_us),
                        of(&|(plain, _)| plain.median_us),
                        of(&|(plain, traced)| traced.median_us - plain.median_us),
                        of(&|(plain, _)| plain.high_us),
                        of(&|(plain, traced)| traced.high_us - plain.high_us),
                        of(&|(_, traced)| traced.shim * 100.0),
                        of(&|(_, traced)| traced.roctap * 100.0),
                    ]);
                }
            }
            for running in traced {
                let said = running.private.complaints();
                for line in said.lines().filter(|line| line.contains("lost")) {
                    println!("  {line}");
                }
            }
        }
        table.print();
    }
    Ok(())
}
