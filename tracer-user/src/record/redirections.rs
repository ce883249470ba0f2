//! Functions that another tool has redirected, and what the user is told of them.

use std::{collections::BTreeMap, path::Path};

use crate::plan::{Note, Plan, Probed, Reached};

/// What the functions of one notice have in common: where they are redirected to; what is probed; why
/// not the wrapper, where that was asked for.
type Kind = (String, Probed, Option<String>);

/// The redirected functions of a library.
#[derive(Default)]
pub struct Redirections(BTreeMap<Kind, Vec<String>>);

impl Redirections {
    /// Takes note of a plan, if it is one for redirected functions.
    pub fn add(&mut self, plan: &Plan) {
        let Reached::Redirected { target, probed, .. } = &plan.reached else { return };
        let probed = match probed {
            // Each begins elsewhere.
            Probed::Implementation { .. } => Probed::Implementation { file_offset: 0 },
            probed => probed.clone(),
        };
        let why_not = plan.notes.iter().find_map(|note| match note {
            Note::NoWrapper(why) => Some(why.to_string()),
            _ => None,
        });
        let names = plan.names().map(str::to_owned);
        self.0.entry((target.to_string(), probed, why_not)).or_default().extend(names);
    }

    /// The notices, of the tables of process `pid`: which choice was made, and how to make the other.
    pub fn notices(&self, pid: u32, library: &Path) -> Vec<String> {
        let library = library.display();
        let notice = |((to, probed, why_not), names): (&Kind, &Vec<String>)| {
            let count = names.len();
            let example = names.first().map_or("", String::as_str);
            let of_library = match probed {
                Probed::Stub => format!("their stubs in {library} are probed"),
                _ => format!("their implementations in {library} are probed"),
            };
            let choice = match (probed, why_not) {
                (Probed::Wrapper { .. }, _) => {
                    "they are probed there; --redirected implementation probes them in the library"
                        .to_owned()
                }
                (_, Some(why)) => format!("not probed there: {why}; {of_library}"),
                (_, None) => {
                    format!(
                        "{of_library}; --redirected wrapper probes them where they are redirected to"
                    )
                }
            };
            format!(
                "process {pid}: {count} functions, {example} among them, have been redirected to {to}; {choice}"
            )
        };
        self.0.iter().map(notice).collect()
    }
}
