//! Functions that another tool has redirected, and what the user is told of them.

use std::{collections::BTreeMap, path::Path};

use crate::plan::{FunctionPlan, Note, OutsideCode, Probed, Reached};

/// The redirected functions of a library, by where they are redirected to and what is done about it.
#[derive(Default)]
pub struct Redirections(BTreeMap<(String, String), Vec<String>>);

impl Redirections {
    /// Takes note of a plan of `library`, if it is one for redirected functions.
    pub fn add(&mut self, plan: &FunctionPlan, library: &Path) {
        let Reached::Redirected { target, probed, .. } = &plan.reached else { return };
        let done = done(plan, target, probed, library);
        let names = plan.names().map(str::to_owned);
        self.0.entry((target.to_string(), done)).or_default().extend(names);
    }

    /// The notices for process `pid`: which choice was made, and how to make the other.
    pub fn notices(&self, pid: u32) -> Vec<String> {
        let notice = |((to, done), names): (&(String, String), &Vec<String>)| {
            let who = match names.as_slice() {
                [name] => format!("{name} has"),
                [name, ..] => format!("{} functions, {name} among them, have", names.len()),
                [] => String::new(),
            };
            format!("process {pid}: {who} been redirected to {to}; {done}")
        };
        self.0.iter().map(notice).collect()
    }
}

fn done(plan: &FunctionPlan, target: &OutsideCode, probed: &Probed, library: &Path) -> String {
    let behind = match probed {
        Probed::Wrapper { .. } => {
            return "the wrapper there is probed (--redirected implementation for what is behind it)"
                .to_owned();
        }
        Probed::Implementation { .. } => "implementation",
        Probed::Stub => "stub",
    };
    let behind = format!("the {behind} in {} is probed", library.display());
    let why_not = plan.notes.iter().find(|note| matches!(note, Note::NoWrapper(_)));
    match why_not {
        Some(why_not) => format!("{why_not}; {behind}"),
        None if target.path.is_none() => behind,
        None => format!("{behind} (--redirected wrapper for what is there)"),
    }
}
