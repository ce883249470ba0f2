//! External correlation ids: those that the program gives, and those that tools are asked for.

use std::sync::Arc;

use super::Sdk;
use super::configuration::ExternalIdRequester;
use super::service::{Context, Service, Services};
use crate::callback::{ExternalIdRequest, Request};
use crate::kinds::Kind;
use crate::status::{Result, Status};

/// The external correlation ids of a thread at a time: one for each context, none if no context has any.
#[derive(Clone, Default, Debug)]
pub struct Externals(Vec<u64>);

impl Externals {
    /// That of a service's context; 0 if there is none.
    pub fn of(&self, service: &Service) -> u64 {
        self.0.get(service.place).copied().unwrap_or(0)
    }

    /// Those that tools have answered with take the place of others.
    #[must_use]
    pub fn with(mut self, answers: &Answers) -> Self {
        for &(place, id) in &answers.0 {
            if self.0.len() <= place {
                self.0.resize(place + 1, 0);
            }
            self.0[place] = id;
        }
        self
    }
}

/// External correlation ids that tools have answered with, and the places of their contexts.
#[derive(Default, Debug)]
pub struct Answers(Vec<(usize, u64)>);

impl Sdk {
    /// Has a tool asked for the external ids of these kinds.
    ///
    /// # Errors
    ///
    /// [`Status::ConfigurationLocked`]; [`Status::ContextNotFound`]; [`Status::ServiceAlreadyConfigured`] if it is asked for
    /// one of them already, or twice.
    pub fn configure_ask(&self, context: u64, kinds: &[Kind], ask: ExternalIdRequest) -> Result {
        let mut configuration = self.configure()?;
        let context = configuration.context(context)?;
        let (place, ask) = (configuration.place(context), Arc::new(ask));
        let is_known = |known: &[(Kind, ExternalIdRequester)], kind| {
            known.iter().any(|(of, asked)| (*of, asked.place) == (kind, place))
        };
        let is_twice = |(at, kind): (usize, &Kind)| kinds.iter().take(at).any(|one| one == kind);
        if kinds.iter().any(|&kind| is_known(&configuration.asked, kind))
            || kinds.iter().enumerate().any(is_twice)
        {
            return Err(Status::ServiceAlreadyConfigured);
        }
        let asked = kinds
            .iter()
            .map(|&kind| (kind, ExternalIdRequester { context, place, ask: Arc::clone(&ask) }));
        configuration.asked.extend(asked);
        Ok(())
    }

    fn asked(&self, kind: Kind) -> &'static [ExternalIdRequester] {
        self.plan().map_or(&[], |plan| &plan.asked[kind as usize])
    }

    /// Whether the tool of any of these services of a kind is asked for external ids.
    #[inline]
    pub fn asks(&self, kind: Kind, services: Services) -> bool {
        let asked = self.asked(kind);
        !asked.is_empty()
            && self.each(kind, services).any(|s| asked.iter().any(|one| one.place == s.place))
    }

    /// Asks their tools, which may throw.
    pub fn ask(&self, kind: Kind, services: Services, request: &Request) -> Answers {
        let is_meant = |asked: &&ExternalIdRequester| {
            self.each(kind, services).any(|s| s.place == asked.place)
        };
        let answer = |asked: &ExternalIdRequester| {
            let _calling = asked.context.calls.begin()?;
            (asked.ask)(request).map(|id| (asked.place, id))
        };
        Answers(self.asked(kind).iter().filter(is_meant).filter_map(answer).collect())
    }

    /// The external ids of a thread. `process` is the number of the first thread.
    #[inline]
    pub fn externals(&self, thread: u64, process: u64) -> Externals {
        let contexts = self.plan().map_or(&[][..], |plan| &plan.contexts);
        let mut ids = Vec::new();
        if contexts.iter().any(|context| context.external.any())
            && ids.try_reserve_exact(contexts.len()).is_ok()
        {
            let innermost = |context: &&Context| context.external.innermost(thread, process);
            ids.extend(contexts.iter().map(innermost));
        }
        Externals(ids)
    }
}
