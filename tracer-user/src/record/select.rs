//! Which functions of a library are probed, and under which operation ids.

use std::collections::HashMap;

use globset::{GlobSet, GlobSetBuilder};
use tracer_common::{activity::Domain, bpf::Cookie};

use super::Options;
use crate::{
    api,
    discover::{ElfError, Function, Image, Library, Runtime},
    probe::Site,
};

/// First operation id for functions that the operation table does not know: those of other
/// releases. The table's own ids stay below.
const FIRST_FOREIGN_ID: u16 = 0x8000;

/// Chooses functions.
pub struct Selection {
    apis: Vec<Runtime>,
    include: Option<GlobSet>,
    exclude: GlobSet,
    foreign: HashMap<(Domain, String), u16>,
}

impl Selection {
    /// The selection that the command line asks for.
    ///
    /// # Errors
    ///
    /// When the globs are too large together.
    pub fn new(options: &Options) -> Result<Self, globset::Error> {
        let set = |globs: &[globset::Glob]| {
            let mut builder = GlobSetBuilder::new();
            globs.iter().for_each(|glob| {
                builder.add(glob.clone());
            });
            builder.build()
        };
        let include = (!options.include.is_empty()).then(|| set(&options.include)).transpose()?;
        Ok(Self {
            apis: options.api.clone(),
            include,
            exclude: set(&options.exclude)?,
            foreign: HashMap::new(),
        })
    }

    /// Whether any function of the runtime can be chosen.
    pub fn wants(&self, runtime: Runtime) -> bool {
        self.apis.contains(&runtime)
    }

    fn accepts(&self, runtime: Runtime, name: &str) -> bool {
        runtime.owns_symbol(name)
            && self.include.as_ref().is_none_or(|globs| globs.is_match(name))
            && !self.exclude.is_match(name)
    }

    /// The places to probe in a library.
    ///
    /// # Errors
    ///
    /// When the library cannot be read.
    pub fn sites(&mut self, library: &Library) -> Result<Vec<Site>, ElfError> {
        let runtime = library.runtime;
        let image = Image::open(&library.open_path)?;
        let functions = image.functions(|name| self.accepts(runtime, name))?;
        Ok(without_aliases(runtime, functions)
            .map(|function| Site {
                cookie: self.cookie(runtime.domain(), &function.name),
                file_offset: function.file_offset,
                symbol: function.name,
            })
            .collect())
    }

    fn cookie(&mut self, domain: Domain, name: &str) -> Cookie {
        if let Some(operation) = api::by_name(name).filter(|o| o.domain == domain) {
            return api::cookie(operation);
        }
        let next = FIRST_FOREIGN_ID.saturating_add(self.foreign.len() as u16);
        let operation = *self.foreign.entry((domain, name.to_owned())).or_insert(next);
        Cookie { domain: domain.0 as u8, operation, ..Cookie::default() }
    }

    /// Functions that got ids of their own: domain, id, name.
    pub fn foreign(&self) -> impl Iterator<Item = (Domain, u16, &str)> {
        self.foreign.iter().map(|((domain, name), &id)| (*domain, id, name.as_str()))
    }
}

/// Names that share an address cannot be told apart by a probe there, and two probes at one place
/// would count each call twice: one name is kept, if possible one of the runtime's own table.
fn without_aliases(
    runtime: Runtime,
    mut functions: Vec<Function>,
) -> impl Iterator<Item = Function> {
    let rank = |name: &str| {
        let known = api::by_name(name).filter(|o| o.domain == runtime.domain());
        known.map_or(u16::MAX, |operation| operation.id)
    };
    functions.sort_by_cached_key(|f| (f.file_offset, rank(&f.name), f.name.clone()));
    functions.dedup_by(|alias, kept| {
        let same = alias.file_offset == kept.file_offset;
        if same {
            tracing::info!("{} has the code of {} and is recorded as that", alias.name, kept.name);
        }
        same
    });
    functions.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_is_kept_for_each_address() {
        let function = |name: &str, file_offset| Function {
            name: name.to_owned(),
            address: file_offset,
            size: 8,
            file_offset,
        };
        let functions = vec![
            function("hsa_signal_store_release", 16),
            function("hsa_signal_store_screlease", 16),
            function("hsa_init", 32),
        ];
        let kept: Vec<String> = without_aliases(Runtime::Hsa, functions).map(|f| f.name).collect();
        assert_eq!(kept, ["hsa_signal_store_screlease", "hsa_init"]);
    }
}
