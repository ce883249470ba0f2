//! The places to probe, planned as `roctap record` plans them.

use anyhow::Context as _;
use roctap::{
    discover::{Image, Library},
    plan::{Binary, FunctionPlan, LiveProcess, Planner, ReturnProbe},
    probe::Site,
};
use tracer_common::bpf::Capture;
use tracer_records::api;

/// All API functions of a library that process `pid` has loaded, one for each place.
pub fn all(pid: u32, library: &Library) -> anyhow::Result<Vec<Site>> {
    matching(pid, library, |name| library.runtime.owns_symbol(name))
}

/// One function.
pub fn one(pid: u32, library: &Library, name: &str) -> anyhow::Result<Vec<Site>> {
    let sites = matching(pid, library, |symbol| symbol == name)?;
    sites.first().with_context(|| format!("no cheap place in {name}"))?;
    Ok(sites)
}

fn matching(
    pid: u32,
    library: &Library,
    wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<Vec<Site>> {
    let functions = Image::open(&library.open_path)?.functions(wanted)?;
    let binary = Binary::open(&library.open_path)?;
    let process = LiveProcess::open(pid)?;
    let plans = Planner::for_running_kernel().plan_library(&binary, &functions, Some(&process));
    Ok(plans.into_iter().filter_map(|plan| site(library, plan)).collect())
}

/// The site of a plan, if probing it is possible and cheap.
fn site(library: &Library, plan: FunctionPlan) -> Option<Site> {
    let place = plan.site.filter(|site| site.class.is_cheap())?;
    let domain = library.runtime.domain();
    let operation = api::by_name(&plan.symbol).filter(|o| o.domain == domain);
    let unknown = Capture { domain: domain.0 as u8, operation: 0x8000, ..Capture::default() };
    let mut capture = operation.map_or(unknown, api::captured);
    if place.return_probe != ReturnProbe::Allowed {
        capture.entry_only = 1;
    }
    Some(Site { capture, file_offset: place.file_offset, symbol: plan.symbol })
}
