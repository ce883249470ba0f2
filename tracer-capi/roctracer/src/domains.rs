//! Domains, their operations, and the names of those.
//!
//! Ids and names of functions are those of the runtimes that are loaded, which differ between releases. Until one is
//! loaded, they are those of ROCm 5.2.3's headers ([`tracer_records::api`]).

use std::ffi::CStr;
use std::ops::Range;
use std::sync::OnceLock;

use capi_common::hsa::{self, Functions};
use tracer_common::activity::Domain;
use tracer_records::{api, commands};

use crate::error::Error;

/// Operations of `HSA_OPS` (`hsa_op_id_t`).
const HSA_OPS: [&str; 4] = ["DISPATCH", "COPY", "BARRIER", "PCSAMPLE"];
/// Operations of `HSA_EVT` (`hsa_evt_id_t`).
const HSA_EVENTS: [&str; 6] = ["ALLOCATE", "DEVICE", "MEMCOPY", "SUBMIT", "KSYMBOL", "CODEOBJ"];
/// Kernels, copies, barriers (`hip_op_id_t`).
const HIP_OPS: u32 = 3;
/// Operations of `ROCTX` (`roctx_api_id_t`).
const ROCTX: u32 = 5;
/// One past `HIP_API_ID_LAST`. The ids begin with 1, 0 being none.
const HIP_API_END: u32 = 334;
/// More functions than HIP has in any release.
pub const MOST_HIP_FUNCTIONS: u32 = 1024;
/// The functions of the HIP runtime that is loaded, by id.
static LOADED_HIP: OnceLock<HipFunctions> = OnceLock::new();

/// Names by id; none where an id is no function's.
type HipFunctions = Vec<Option<&'static CStr>>;

/// HIP is loaded, and has these functions; what `name` says of ids below [`MOST_HIP_FUNCTIONS`]. Once.
pub fn set_hip_functions(name: impl Fn(u32) -> Option<&'static CStr>) {
    let mut functions: HipFunctions = (0..MOST_HIP_FUNCTIONS).map(name).collect();
    let end = functions.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    functions.truncate(end);
    let _ = LOADED_HIP.set(functions);
}

/// The name of a function of HIP, if that is loaded: [`operation_name`] for C.
pub fn loaded_hip_function(op: u32) -> Option<&'static CStr> {
    *LOADED_HIP.get()?.get(op as usize)?
}

/// The operations of a domain.
///
/// # Errors
///
/// [`Error::InvalidDomain`] for a domain that there is not, or of which nothing can be traced.
pub fn operations(domain: Domain) -> Result<Range<u32>, Error> {
    Ok(match domain {
        // After the functions comes `HSA_API_ID_DISPATCH`, which is none.
        Domain::HSA_API => 0..Functions::found().count() + 1,
        Domain::HSA_OPS => 0..HSA_OPS.len() as u32,
        Domain::HIP_OPS => 0..HIP_OPS,
        Domain::HIP_API => 1..LOADED_HIP.get().map_or(HIP_API_END, |hip| hip.len() as u32),
        Domain::EXT_API => 0..0,
        Domain::ROCTX => 0..ROCTX,
        Domain::HSA_EVT => 0..HSA_EVENTS.len() as u32,
        Domain(domain) => return Err(Error::InvalidDomain { domain }),
    })
}

/// More operations than a domain has, whichever runtime will be loaded.
///
/// # Errors
///
/// As [`operations`].
pub fn all_operations(domain: Domain) -> Result<Range<u32>, Error> {
    Ok(match domain {
        Domain::HSA_API => 0..hsa::MOST_FUNCTIONS,
        Domain::HIP_API => 1..MOST_HIP_FUNCTIONS,
        domain => operations(domain)?,
    })
}

/// The name of an operation. In the domain `HIP_OPS` it is that of the kind of command, whatever the
/// operation.
///
/// # Errors
///
/// [`Error::InvalidDomain`] for a domain whose operations have no names, [`Error::InvalidArgument`] for an
/// operation that it does not have.
pub fn operation_name(domain: Domain, op: u32, kind: u32) -> Result<&'static str, Error> {
    let of_hsa = |names: &[&'static str], what| {
        names.get(op as usize).copied().ok_or(Error::InvalidOperation { what })
    };
    let name = match domain {
        Domain::HSA_API | Domain::HIP_API => function_name(domain, op),
        Domain::HSA_OPS => return of_hsa(&HSA_OPS, "OPS"),
        Domain::HSA_EVT => return of_hsa(&HSA_EVENTS, "EVT"),
        Domain::HIP_OPS => commands::name(kind),
        Domain::EXT_API => Some("EXT_API"),
        Domain(domain) => return Err(Error::InvalidDomain { domain }),
    };
    name.ok_or(Error::InvalidArgument)
}

/// The operation of that name, of which the domains `HIP_API` and `HSA_API` have any.
///
/// # Errors
///
/// [`Error::LimitedDomain`] for other domains, [`Error::InvalidName`] for a name that none has.
pub fn operation_of(domain: Domain, name: &str) -> Result<u32, Error> {
    if !matches!(domain, Domain::HSA_API | Domain::HIP_API) {
        return Err(Error::LimitedDomain { domain: domain.0 });
    }
    let invalid = || Error::InvalidName { name: name.into(), domain: domain.0 };
    if domain == Domain::HSA_API {
        return Functions::found().number_of(name).ok_or_else(invalid);
    }
    if let Some(hip) = LOADED_HIP.get() {
        let is_it = |function: &Option<&CStr>| {
            function.is_some_and(|its| its.to_bytes() == name.as_bytes())
        };
        return hip.iter().position(is_it).map(|op| op as u32).ok_or_else(invalid);
    }
    api::by_name(name)
        .filter(|op| op.domain == domain && op.name == name)
        .map(|op| u32::from(op.id))
        // Functions that roctracer has no id for have one of ours, which its clients do not know.
        .filter(|op| operations(domain).is_ok_and(|operations| operations.contains(op)))
        .ok_or_else(invalid)
}

/// The names of all operations, in no order; some more than once. Of HIP's functions, those of ROCm 5.2.3.
pub fn all_names() -> impl Iterator<Item = &'static str> {
    let named = [Domain::HIP_API, Domain::HSA_OPS, Domain::HSA_EVT, Domain::EXT_API];
    let of = |domain| {
        let ops = operations(domain).unwrap_or_default();
        ops.start..ops.end.max(1)
    };
    let functions = named.into_iter().flat_map(move |domain| {
        of(domain).filter_map(move |op| operation_name(domain, op, 0).ok())
    });
    let of_hsa = hsa::ALL.iter().map(|function| function.operation.name);
    functions.chain(of_hsa).chain(commands::ALL.iter().map(|(_, name)| *name))
}

fn function_name(domain: Domain, op: u32) -> Option<&'static str> {
    if domain == Domain::HSA_API {
        return Functions::found().get(op).map(|function| function.operation.name);
    }
    if LOADED_HIP.get().is_some() {
        return loaded_hip_function(op)?.to_str().ok();
    }
    operations(domain).ok().filter(|operations| operations.contains(&op))?;
    Some(api::by_id(domain, u16::try_from(op).ok()?)?.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_operations_of_functions_belong_together() {
        for (domain, known) in [(Domain::HIP_API, 329), (Domain::HSA_API, 186)] {
            let mut named = 0;
            for op in operations(domain).expect("a domain") {
                if let Ok(name) = operation_name(domain, op, 0) {
                    assert_eq!(operation_of(domain, name), Ok(op), "{name}");
                    named += 1;
                }
            }
            assert_eq!(named, known, "{domain:?}");
        }
        assert_eq!(operation_name(Domain::HIP_API, 107, 0), Ok("hipLaunchKernel"));
        assert_eq!(operation_of(Domain::HSA_API, "hsa_init"), Ok(0));
    }

    #[test]
    fn what_there_is_not() {
        for op in [0, HIP_API_END, 1024, u32::MAX] {
            assert_eq!(operation_name(Domain::HIP_API, op, 0), Err(Error::InvalidArgument));
        }
        // `HSA_API_ID_DISPATCH` is no function.
        assert_eq!(operation_name(Domain::HSA_API, 186, 0), Err(Error::InvalidArgument));
        assert_eq!(operation_name(Domain::HIP_OPS, 0, 0xFFFF), Err(Error::InvalidArgument));
        let unknown = Err(Error::InvalidName { name: "hipNothing".into(), domain: 3 });
        assert_eq!(operation_of(Domain::HIP_API, "hipNothing"), unknown);
        // It is one of HSA's, and one that roctracer has no id for.
        assert!(operation_of(Domain::HIP_API, "hsa_init").is_err());
        assert!(operation_of(Domain::HIP_API, "hipLaunchKernel_spt").is_err());
        for domain in [Domain::KFD_API, Domain::ROCTX, Domain(8)] {
            let invalid = Err(Error::InvalidDomain { domain: domain.0 });
            assert_eq!(operation_name(domain, 0, 0), invalid);
        }
        for domain in [Domain::HSA_OPS, Domain::HIP_OPS, Domain::EXT_API, Domain(8)] {
            let limited = Err(Error::LimitedDomain { domain: domain.0 });
            assert_eq!(operation_of(domain, "DISPATCH"), limited);
        }
        assert_eq!(operations(Domain::KFD_API), Err(Error::InvalidDomain { domain: 4 }));
        assert_eq!(operations(Domain(8)), Err(Error::InvalidDomain { domain: 8 }));
    }

    #[test]
    fn names_of_gpu_work_and_events() {
        assert_eq!(operation_name(Domain::HIP_OPS, 2, 0x11F0), Ok("KernelExecution"));
        assert_eq!(operation_name(Domain::HIP_OPS, 0, 0x1201), Ok("CopyDeviceToHost2D"));
        assert_eq!(operation_name(Domain::HSA_OPS, 1, 0), Ok("COPY"));
        assert_eq!(operation_name(Domain::HSA_EVT, 5, 0), Ok("CODEOBJ"));
        let invalid = Err(Error::InvalidOperation { what: "EVT" });
        assert_eq!(operation_name(Domain::HSA_EVT, 6, 0), invalid);
        assert_eq!(operation_name(Domain::EXT_API, 77, 0), Ok("EXT_API"));
    }
}
