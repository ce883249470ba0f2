//! Which functions of a library are probed, and under which operation ids.

use std::collections::HashMap;

use globset::{GlobSet, GlobSetBuilder};
use tracer_common::{activity::Domain, bpf::Cookie};

use super::Options;
use crate::{
    api,
    discover::{ElfError, Image, Library, Runtime},
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
        Ok(functions
            .into_iter()
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
