//! Functions that another tool has redirected, and the notices about them.

use std::{collections::BTreeMap, path::Path};

use crate::plan::{FunctionPlan, Probed, ReachedBy};

/// The redirected functions of a library, by the target of the redirection and the probed function.
#[derive(Default)]
pub struct Redirections(BTreeMap<(String, String), Vec<String>>);

impl Redirections {
    /// Adds a plan of `library`, if it is one for redirected functions.
    pub fn add(&mut self, plan: &FunctionPlan, library: &Path) {
        let ReachedBy::Redirected { target, probed, .. } = &plan.reached else { return };
        let what = match probed {
            Probed::Implementation { .. } => "implementation",
            Probed::Stub => "stub",
        };
        let probed = format!("the {what} in {} is probed", library.display());
        let names = plan.names().map(str::to_owned);
        self.0.entry((target.to_string(), probed)).or_default().extend(names);
    }

    /// The notices for process `pid`.
    pub fn notices(&self, pid: u32) -> Vec<String> {
        let notice = |((to, probed), names): (&(String, String), &Vec<String>)| {
            let who = match names.as_slice() {
                [name] => format!("{name} has"),
                [name, ..] => format!("{} functions, {name} among them, have", names.len()),
                [] => String::new(),
            };
            format!("process {pid}: {who} been redirected to {to}; {probed}")
        };
        self.0.iter().map(notice).collect()
    }
}
