//! Services are found by their kind: those that want an event, and those that want it just now.

use std::sync::atomic::Ordering;

use super::Sdk;
use super::service::{Service, Services};
use crate::completions::Completions;
use crate::kinds::Kind;

impl Sdk {
    /// The threads that call the callbacks of a client for work that is done.
    pub fn completions(&self, client: u32) -> impl Iterator<Item = &'static Completions> + use<> {
        let own = self.services_of_work().filter(move |service| service.client() == client);
        own.filter_map(Service::completions)
    }

    /// The services of kernels and copies.
    pub(super) fn services_of_work(&self) -> impl Iterator<Item = &'static Service> + use<> {
        let all = [Kind::KernelDispatch, Kind::MemoryCopy].map(|kind| self.services(kind));
        all.into_iter().flatten()
    }

    /// Whether any active context wants anything of a kind.
    #[inline]
    pub fn is_wanted(&self, kind: Kind) -> bool {
        self.active[kind as usize].load(Ordering::Relaxed) != 0
    }

    /// Whether any tool has asked for a kind.
    #[inline]
    pub fn has_services(&self, kind: Kind) -> bool {
        !self.services(kind).is_empty()
    }

    fn services(&self, kind: Kind) -> &'static [Service] {
        self.plan().map_or(&[], |plan| &plan.services[kind as usize])
    }

    /// The services that want an operation of a kind just now; without an operation, those that want any.
    #[inline]
    pub fn wanting(&self, kind: Kind, operation: Option<usize>) -> Services {
        if !self.is_wanted(kind) {
            return Services::default();
        }
        self.those(kind, Services::all(), |service| {
            operation.is_none_or(|operation| service.means(operation))
                && service.context.is_active()
        })
    }

    /// The services of a kind that are wanted just now, and those of contexts that have one of these services of another
    /// kind, which were wanted a moment ago.
    #[inline]
    pub fn wanting_beside(&self, kind: Kind, other: Kind, services: Services) -> Services {
        self.those(kind, Services::all(), |service| {
            let is_beside = || self.each(other, services).any(|one| one.place == service.place);
            service.context.is_active() || is_beside()
        })
    }

    /// Those services of a kind.
    #[inline]
    pub fn each(
        &self,
        kind: Kind,
        services: Services,
    ) -> impl Iterator<Item = &'static Service> + use<> {
        self.numbered(kind, services).map(|(_, service)| service)
    }

    /// As [`Self::each`], with the numbers of the services among all of the kind, from 0 to 63.
    #[inline]
    pub fn numbered(
        &self,
        kind: Kind,
        services: Services,
    ) -> impl Iterator<Item = (usize, &'static Service)> + use<> {
        let is_one = move |place: usize| services.bits >> place & 1 != 0;
        let plan = self.plan().filter(|plan| services.are_of(plan));
        let all = plan.map_or(&[][..], |plan| &plan.services[kind as usize]);
        all.iter().enumerate().filter(move |&(place, _)| is_one(place))
    }

    /// The number of services of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.services(kind).len()
    }

    /// Those of these services of a kind for which `holds` does.
    #[inline]
    pub fn those(
        &self,
        kind: Kind,
        services: Services,
        holds: impl Fn(&Service) -> bool,
    ) -> Services {
        let Some(plan) = self.plan().filter(|plan| services.are_of(plan)) else {
            return Services::default();
        };
        let mut those = Services { plan: plan.number, bits: 0 };
        for (place, service) in plan.services[kind as usize].iter().enumerate() {
            let is_one = services.bits >> place & 1 != 0;
            those.bits |= u64::from(is_one && holds(service)) << place;
        }
        those
    }
}
