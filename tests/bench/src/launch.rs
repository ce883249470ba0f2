//! What a kernel launch costs more under `roctap record`: the probes' share and the shim's.

use std::{
    os::fd::AsRawFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Context as _;
use roctap::shim::{Extent, Reader, SharedMemory};
use rustix::time::{ClockId, clock_gettime};
use tracer_common::shim::{Layout, MEMORY_ENV, control};

use crate::{
    place::{Places, Private},
    stats::{Series, ratio},
    table::Table,
    target::Target,
    tool::Tool,
};

/// Launches in a round of a variant.
const LAUNCHES: u64 = 4096;

/// The variants, in the order in which they are measured.
const VARIANTS: [Variant; 7] = [
    Variant { name: "(untraced launch)", kind: Kind::Untraced },
    Variant { name: "HIP probes: --gpu off", kind: Kind::Record(&["--gpu", "off"]) },
    Variant { name: "shim, no probe at all", kind: Kind::ShimAlone },
    Variant {
        name: "shim and its probe: --include none-such",
        kind: Kind::Record(&["--include", "none-such"]),
    },
    Variant { name: "all: roctap record", kind: Kind::Record(&[]) },
    Variant { name: "all, attached late: roctap record -p", kind: Kind::Late(&[]) },
    Variant { name: "the same, --gpu uprobes", kind: Kind::Late(&["--gpu", "uprobes"]) },
];

struct Variant {
    name: &'static str,
    kind: Kind,
}

/// How `bench_target` is run.
enum Kind {
    Untraced,
    /// Under `roctap record` with options.
    Record(&'static [&'static str]),
    /// Untraced at first, then under `roctap record -p` with options.
    Late(&'static [&'static str]),
    /// With the shim and somebody who reads what it writes, but no `roctap record`.
    ShimAlone,
}

/// Reads what a shim writes and throws it away, every 10 ms as `roctap record` does.
struct Drain {
    stop: Arc<AtomicBool>,
    frames: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Drain {
    fn start(memory: SharedMemory) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let frames = Arc::new(AtomicU64::new(0));
        let (asked, taken) = (Arc::clone(&stop), Arc::clone(&frames));
        let mut reader = Reader::new(memory);
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                let now = clock_gettime(ClockId::Boottime);
                let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
                reader.memory().word(control::HEARTBEAT_NS).store(now_ns, Ordering::Relaxed);
                reader.drain(Extent::Everything, |_, _| {
                    taken.fetch_add(1, Ordering::Relaxed);
                });
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self { stop, frames, thread: Some(thread) }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A running variant. Dropped in this order: the target ends before its libraries go.
struct Running {
    target: Target,
    drain: Option<Drain>,
    tool: Option<Tool>,
    private: Private,
}

fn start(places: &Places, kind: &Kind) -> anyhow::Result<Running> {
    let private = places.copy_libraries()?;
    let program = places.bench_target();
    let mut drain = None;
    let mut command = match kind {
        Kind::Untraced | Kind::Late(_) => private.command(&program)?,
        Kind::ShimAlone => {
            let memory = SharedMemory::create(Layout::DEFAULT)?;
            let path =
                format!("/proc/{}/fd/{}", std::process::id(), memory.descriptor().as_raw_fd());
            let mut command = private.command(&program)?;
            command.env("HSA_TOOLS_LIB", private.path("libroctap_shim.so")).env(MEMORY_ENV, path);
            drain = Some(Drain::start(memory));
            command
        }
        Kind::Record(options) => {
            let mut command = private.command(&places.roctap)?;
            command.arg("record").args(*options).arg("-o").arg(private.path("trace"));
            command.arg("--").arg(&program);
            command
        }
    };
    let started = Target::start(&mut command).and_then(|mut target| {
        // The first launch initialises the runtime.
        target.ask(&format!("launch {LAUNCHES}"))?;
        Ok(target)
    });
    let target = started.with_context(|| private.complaints())?;
    let tool = match kind {
        Kind::Late(options) => {
            let mut command = private.command(&places.roctap)?;
            command.arg("record").args(*options).arg("-p").arg(target.pid().to_string());
            Some(Tool::start(command.arg("-o").arg(private.path("trace")))?)
        }
        _ => None,
    };
    Ok(Running { target, drain, tool, private })
}

/// Measures and prints.
pub fn run(places: &Places, rounds: u32) -> anyhow::Result<()> {
    let mut running: Vec<Running> =
        VARIANTS.iter().map(|v| start(places, &v.kind)).collect::<Result<_, _>>()?;
    let mut series = vec![Series::default(); VARIANTS.len()];
    for _ in 0..rounds {
        for (running, series) in running.iter_mut().zip(&mut series) {
            let answer = running.target.ask(&format!("launch {LAUNCHES}"));
            let answer = answer.with_context(|| running.private.complaints())?;
            series.push(answer.cost());
        }
    }
    let mut table = Table::new(
        "launch: ns added to a kernel launch by <<<>>>; median (quartiles)",
        &["variant", "wall", "thread CPU", "CPU / probes alone"],
    );
    let (untraced, probes) = (&series[0], series[1].above(&series[0]).cpu().median());
    for (variant, series) in VARIANTS.iter().zip(&series) {
        let base = matches!(variant.kind, Kind::Untraced);
        let shown = if base { series.clone() } else { series.above(untraced) };
        table.row([
            variant.name.to_owned(),
            shown.wall().shown(),
            shown.cpu().shown(),
            if base { String::new() } else { ratio(shown.cpu().median(), probes) },
        ]);
    }
    table.print();
    report_ends(running);
    Ok(())
}

/// Lets the targets end, and shows what `roctap record` said of its losses.
fn report_ends(running: Vec<Running>) {
    for (Running { target, drain, tool, private }, variant) in running.into_iter().zip(&VARIANTS) {
        drop(target);
        // It ends when its target has.
        let _ = tool.map(Tool::wait);
        if let Some(drain) = drain {
            let frames = drain.frames.load(Ordering::Relaxed);
            println!("  {}: {frames} records", variant.name);
        }
        let said = private.complaints();
        for line in said.lines().filter(|line| line.contains("lost") || line.contains("API calls"))
        {
            println!("  {}: {line}", variant.name);
        }
    }
}
