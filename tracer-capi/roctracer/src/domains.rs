//! Domains, their operations, and the names of those.
//!
//! Ids and names of functions are those of the runtimes that are loaded, which differ between releases. Until one is
//! loaded, they are those of ROCm 5.2.3's headers.

use std::ops::Range;

use capi_common::{hip, hsa};
use tracer_common::activity::Domain;
use tracer_records::commands;

use crate::error::Error;

/// Operations of `HSA_OPS` (`hsa_op_id_t`).
const HSA_OPS: [&str; 4] = ["DISPATCH", "COPY", "BARRIER", "PCSAMPLE"];
/// Operations of `HSA_EVT` (`hsa_evt_id_t`).
const HSA_EVENTS: [&str; 6] = ["ALLOCATE", "DEVICE", "MEMCOPY", "SUBMIT", "KSYMBOL", "CODEOBJ"];
/// Kernels, copies, barriers (`hip_op_id_t`).
const HIP_OPS: u32 = 3;
/// Operations of `ROCTX` (`roctx_api_id_t`).
const ROCTX: u32 = 5;

/// The operations of a domain.
///
/// # Errors
///
/// [`Error::InvalidDomain`] for a domain that there is not, or of which nothing can be traced.
pub fn operations(domain: Domain) -> Result<Range<u32>, Error> {
    Ok(match domain {
        // After the functions comes `HSA_API_ID_DISPATCH`, which is none.
        Domain::HSA_API => 0..hsa::Functions::found().count() + 1,
        Domain::HSA_OPS => 0..HSA_OPS.len() as u32,
        Domain::HIP_OPS => 0..HIP_OPS,
        // The ids begin with 1, 0 being none.
        Domain::HIP_API => 1..hip::Functions::found().end(),
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
        Domain::HIP_API => 1..hip::MOST_FUNCTIONS,
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
    let number = if domain == Domain::HSA_API {
        hsa::Functions::found().number_of(name)
    } else {
        hip::Functions::found().all().find(|&(_, its)| its == name).map(|(number, _)| number)
    };
    number.ok_or_else(|| Error::InvalidName { name: name.into(), domain: domain.0 })
}

/// The names of all operations but HIP's functions, in no order; some more than once.
pub fn all_names() -> impl Iterator<Item = &'static str> {
    let named = [Domain::HSA_OPS, Domain::HSA_EVT, Domain::EXT_API];
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
        return hsa::Functions::found().get(op).map(|function| function.operation.name);
    }
    hip::Functions::found().name(op)?.to_str().ok()
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
        for op in [0, 334, 1024, u32::MAX] {
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
