//! What the running kernel charges: for a probe by the class of its instruction, and for placing and
//! removing probes by the way in which that is done. `cargo xtask bench --kernels` runs this on other
//! kernels, so it starts no program that loads a compiler.

use std::time::Instant;

use roctap::{
    calibrate::{self, Cost, Costs},
    discover::Runtime,
    plan::Class,
    probe::{Attachment, Follow, Placing, Programs, Settings, Site},
};

use crate::{
    place::{Places, Private},
    sites,
    stats::{Sample, number, ratio},
    table::Table,
    target::Target,
};

/// Measures and prints.
pub fn run(places: &Places, rounds: u32) -> anyhow::Result<()> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    println!("\nkernel {release}");
    classes(rounds)?;
    methods(places, rounds)
}

/// An empty probe on an instruction of each class, in proportion to the entry of the emulated one.
fn classes(rounds: u32) -> anyhow::Result<()> {
    let measured = (0..rounds).map(|_| calibrate::measure()).collect::<Result<Vec<Costs>, _>>()?;
    let of = |class: Class, ns: fn(&Cost) -> f64| -> Sample {
        let costs = measured.iter().flat_map(|costs| &costs.classes);
        costs.filter(|cost| cost.class == class).map(ns).collect()
    };
    let base = of(Class::Emulated, |cost| cost.entry_ns).median();
    let mut table = Table::new(
        "classes: ns that an empty probe adds; median (quartiles)",
        &["instruction", "entry", "/ emulated", "entry + return", "/ emulated"],
    );
    for class in [Class::Nop5, Class::Emulated, Class::SingleStep] {
        let entry = of(class, |cost| cost.entry_ns);
        let both = of(class, |cost| cost.entry_and_return_ns);
        table.row([
            class.name().to_owned(),
            entry.shown(),
            ratio(entry.median(), base),
            both.shown(),
            ratio(both.median(), base),
        ]);
    }
    let dispatch: Sample = measured.iter().map(|costs| costs.dispatch_ns).collect();
    let none = String::new();
    let share = ratio(dispatch.median(), base);
    table.row(["the shim's dispatch site".to_owned(), dispatch.shown(), share, none.clone(), none]);
    table.print();
    Ok(())
}

/// Placing and removing the probes of the HSA runtime, in each way that the kernel has.
fn methods(places: &Places, rounds: u32) -> anyhow::Result<()> {
    let private = places.copy_libraries()?;
    let target = Target::start(&mut private.command(&places.bench_target())?)?;
    let mut table = Table::new(
        "methods: ms for the probes of functions of libamdhip64, entries and returns; median (quartiles)",
        &["method", "functions", "load", "place", "remove", "place + remove, a function"],
    );
    for placing in [Placing::Multi, Placing::Event] {
        let Ok(times) = Times::of(placing, &private, target.pid(), rounds) else {
            table.row([placing.to_string(), "none: the kernel has it not".to_owned()]);
            continue;
        };
        let Times { functions, load, place, remove } = times;
        let each = (place.median() + remove.median()) / functions as f64;
        let shown = [load.shown(), place.shown(), remove.shown(), number(each)];
        let [load, place, remove, each] = shown;
        table.row([placing.to_string(), functions.to_string(), load, place, remove, each]);
    }
    table.print();
    Ok(())
}

/// Times of one method, ms.
#[derive(Default)]
struct Times {
    functions: usize,
    load: Sample,
    place: Sample,
    remove: Sample,
}

impl Times {
    fn of(placing: Placing, private: &Private, pid: u32, rounds: u32) -> anyhow::Result<Self> {
        let library = private.library(pid, Runtime::Hip)?;
        let sites: Vec<Site> = sites::all(pid, &library)?;
        let mut times = Self { functions: sites.len(), ..Self::default() };
        for _ in 0..rounds {
            let settings =
                Settings { placing: Some(placing), ..Settings::new(4096, Follow::Nobody) };
            let (programs, ms) = timed(|| Programs::load(settings))?;
            times.load.push(ms);
            let (mut placed, ms) = timed(|| programs.attach(pid, &library.open_path, &sites))?;
            times.place.push(ms);
            let (_, ms) = timed(|| -> anyhow::Result<()> {
                drop(placed.take_entries());
                Attachment::remove_all([std::mem::take(&mut placed)]);
                Ok(())
            })?;
            times.remove.push(ms);
        }
        Ok(times)
    }
}

fn timed<T, E>(action: impl FnOnce() -> Result<T, E>) -> Result<(T, f64), E> {
    let began = Instant::now();
    let result = action()?;
    Ok((result, began.elapsed().as_secs_f64() * 1e3))
}
