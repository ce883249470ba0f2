//! The functions of the table: which ones, their ids, and where their arguments are.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};

use super::clang::{Declaration, Headers, ours};
use super::types::{Kind, Type};

/// The first id of a function that roctracer has none for.
const FIRST_OWN_ID: u16 = 1024;

/// The first id of a function that the installed release does not have.
const FIRST_LATER_ID: u16 = 2048;

/// roctracer's order (script/hsaap.py of ROCm/roctracer): core, AMD extensions, images, each in
/// table order. It leaves the finalizer's table out.
const HSA_TABLE_ORDER: [&str; 3] = ["CoreApiTable", "AmdExtTable", "ImageExtTable"];

/// Enumerators that a header defines apart from the enumeration that they extend.
const EXTENSIONS: [(&str, &str); 6] = [
    ("HSA_STATUS_", "hsa_status_t"),
    ("HSA_EXT_STATUS_", "hsa_status_t"),
    ("HSA_AMD_AGENT_INFO_", "hsa_agent_info_t"),
    ("HSA_EXT_AGENT_INFO_", "hsa_agent_info_t"),
    ("HSA_AMD_REGION_INFO_", "hsa_region_info_t"),
    ("HSA_AMD_SYSTEM_INFO_", "hsa_system_info_t"),
];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Domain {
    Hsa,
    Hip,
}

/// Where an argument is when the function is entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgumentPlace {
    Register(u64),
    Stack(u64),
    Vector(u64),
}

pub struct Argument {
    pub name: String,
    pub ty: Type,
    pub place: ArgumentPlace,
}

pub struct Function {
    pub name: String,
    pub symbol: Option<String>,
    pub domain: Domain,
    pub id: u16,
    pub args: Vec<Argument>,
    pub ret: Type,
}

/// The whole table, in order of domain and id.
pub struct Table {
    pub functions: Vec<Function>,
    all_enumerations: BTreeMap<String, Vec<(i64, String)>>,
    /// Values that have one name in one release and another in another.
    ambiguous: BTreeSet<(String, i64)>,
    /// The next ids of functions of later releases, of HSA and of HIP.
    next: BTreeMap<Domain, u16>,
}

impl Table {
    /// Adds what a later release has. Ids are our own, since HIP's and roctracer's are others in each release; they
    /// stay as they are when releases are added behind.
    pub fn add_later(&mut self, headers: &Headers, exports: &[String]) -> Result<()> {
        let known = |f: &Function, name: &str| f.name == name || f.symbol.as_deref() == Some(name);
        let exported: BTreeSet<&str> = exports.iter().map(String::as_str).collect();
        let mut later: Vec<&Declaration> = headers
            .functions
            .values()
            .filter(|d| ours(&d.name) && exported.contains(d.symbol.as_str()))
            .filter(|d| !self.functions.iter().any(|f| known(f, &d.name) || known(f, &d.symbol)))
            .collect();
        later.sort_by(|a, b| a.name.cmp(&b.name));
        for declaration in later {
            let next = self.next.entry(domain(&declaration.name)).or_insert(FIRST_LATER_ID);
            let id = *next;
            *next = id.checked_add(1).context("too many functions")?;
            self.functions.push(Function { id, ..function(headers, declaration, true)? });
        }
        self.functions.sort_by_key(|f| (f.domain, f.id));
        for (name, values) in enumerations(headers)? {
            self.add_enumeration(&name, &values);
        }
        Ok(())
    }

    /// Adds an enumeration of a later release. A trace does not tell which release it was: a value that has
    /// another name there has none from then on.
    fn add_enumeration(&mut self, name: &str, later: &[(i64, String)]) {
        let Some(values) = self.all_enumerations.get_mut(name) else {
            self.all_enumerations.insert(name.into(), later.to_vec());
            return;
        };
        let value_of = |values: &[(i64, String)], name: &str| {
            values.iter().find(|(_, other)| other == name).map(|(value, _)| *value)
        };
        let moved = |values: &[(i64, String)], (value, name): &(i64, String)| {
            value_of(values, name).is_some_and(|other| other != *value)
        };
        let mut changed: BTreeSet<i64> = BTreeSet::new();
        changed.extend(later.iter().filter(|v| moved(values, v)).map(|(value, _)| *value));
        changed.extend(values.iter().filter(|v| moved(later, v)).map(|(value, _)| *value));
        values.extend(later.iter().cloned());
        self.ambiguous.extend(changed.into_iter().map(|value| (name.into(), value)));
    }

    /// The types in use.
    pub fn types(&self) -> BTreeSet<&Type> {
        let args = self.functions.iter().flat_map(|f| &f.args).map(|a| &a.ty);
        args.chain(self.functions.iter().map(|f| &f.ret)).collect()
    }

    /// The enumerations in use: one name for each value, in order of value.
    pub fn enumerations(&self) -> BTreeMap<&str, BTreeMap<i64, &str>> {
        let mut used = BTreeMap::new();
        for ty in self.types() {
            let Kind::Enumeration(name) = &ty.kind else { continue };
            let mut values = BTreeMap::new();
            for (value, enumerator) in self.all_enumerations.get(name).into_iter().flatten() {
                if self.ambiguous.contains(&(name.clone(), *value)) {
                    continue;
                }
                // Of several names for a value the first is the one that is not deprecated.
                values.entry(*value).or_insert(enumerator.as_str());
            }
            used.insert(name.as_str(), values);
        }
        used
    }
}

/// Joins declarations and exports.
pub fn table(headers: &Headers, hip: &[String], hsa: &[String]) -> Result<Table> {
    let exported: BTreeSet<&str> = hip.iter().chain(hsa).map(String::as_str).collect();
    let mut functions = Vec::new();
    for declaration in headers.functions.values().filter(|d| ours(&d.name)) {
        // Declared only: part of an extension table, or of another release. C++ helpers that are
        // not exported are inline.
        let is_exported = exported.contains(declaration.symbol.as_str());
        if is_exported || declaration.symbol == declaration.name {
            functions.push(function(headers, declaration, is_exported)?);
        }
    }
    for symbol in exported.iter().filter(|s| ours(s) && !headers.functions.contains_key(**s)) {
        eprintln!("{symbol}: exported, but no header declares it");
        functions.push(Function {
            name: (*symbol).into(),
            symbol: Some((*symbol).into()),
            domain: domain(symbol),
            id: 0,
            args: Vec::new(),
            ret: Type::unknown(),
        });
    }
    number(headers, &mut functions)?;
    functions.sort_by_key(|f| (f.domain, f.id));
    let (ambiguous, next) = Default::default();
    Ok(Table { functions, all_enumerations: enumerations(headers)?, ambiguous, next })
}

fn domain(name: &str) -> Domain {
    if name.starts_with("hsa_") { Domain::Hsa } else { Domain::Hip }
}

fn function(headers: &Headers, declaration: &Declaration, exported: bool) -> Result<Function> {
    let context = || format!("declaration of {}", declaration.name);
    let ret = Type::new(headers, &declaration.ret, &declaration.ret).with_context(context)?;
    // A result of more than 16 bytes is written through a hidden first pointer.
    let mut registers = u64::from(matches!(ret.kind, Kind::Struct(bytes) if bytes > 16));
    let (mut vectors, mut stack) = (0, 0);
    let mut args = Vec::new();
    for (index, (name, spelling)) in declaration.params.iter().enumerate() {
        let ty =
            Type::new(headers, &spelling.qual_type, spelling.resolved()).with_context(context)?;
        let words = ty.words();
        let in_memory = matches!(ty.kind, Kind::Struct(bytes) if bytes > 16);
        // System V ABI 3.2.3: an argument goes into registers whole or not at all, and later ones
        // may still use the registers that it left.
        let (next, limit, place): (&mut u64, u64, fn(u64) -> ArgumentPlace) = match ty.kind {
            Kind::Float => (&mut vectors, 8, ArgumentPlace::Vector),
            _ => (&mut registers, if in_memory { 0 } else { 6 }, ArgumentPlace::Register),
        };
        let place = if *next + words <= limit {
            *next += words;
            place(*next - words)
        } else {
            stack += words;
            ArgumentPlace::Stack(stack - words)
        };
        let name = if name.is_empty() { format!("arg{index}") } else { name.clone() };
        args.push(Argument { name, ty, place });
    }
    Ok(Function {
        name: declaration.name.clone(),
        symbol: exported.then(|| declaration.symbol.clone()),
        domain: domain(&declaration.name),
        id: 0,
        args,
        ret,
    })
}

/// Gives ids: HIP_API_ID_*, roctracer's `hsa_api_id_t`, and own ones for the rest.
fn number(headers: &Headers, functions: &mut [Function]) -> Result<()> {
    let mut known = BTreeMap::new();
    let hip = headers.enumerations.get("hip_api_id_t").context("no hip_api_id_t")?;
    for (value, name) in hip {
        let name = name.strip_prefix("HIP_API_ID_").unwrap_or(name);
        // HIP_API_ID_NONE is 0: functions that HIP itself has no id for.
        if *value > 0 && ours(name) {
            known.insert(name, u16::try_from(*value)?);
        }
    }
    let mut next = 0;
    for table in HSA_TABLE_ORDER {
        for name in headers.hsa_tables.get(table).with_context(|| format!("no {table}"))? {
            known.insert(name, next);
            next += 1;
        }
    }
    ensure!(known.values().all(|id| *id < FIRST_OWN_ID), "ids reach {FIRST_OWN_ID}");
    ensure!(functions.len() < usize::from(FIRST_LATER_ID - FIRST_OWN_ID), "too many functions");

    functions.sort_by(|a, b| (a.domain, &a.name).cmp(&(b.domain, &b.name)));
    for pair in functions.windows(2) {
        if let [a, b] = pair
            && a.name == b.name
        {
            bail!("{} is there twice", a.name);
        }
    }
    for domain in [Domain::Hsa, Domain::Hip] {
        let mut own = FIRST_OWN_ID..;
        for function in functions.iter_mut().filter(|f| f.domain == domain) {
            function.id = match known.get(function.name.as_str()) {
                Some(id) => *id,
                None => own.next().context("too many functions")?,
            };
        }
    }
    Ok(())
}

/// The headers' enumerations, with the parts that are defined elsewhere.
fn enumerations(headers: &Headers) -> Result<BTreeMap<String, Vec<(i64, String)>>> {
    let mut all = headers.enumerations.clone();
    for (prefix, extended) in EXTENSIONS {
        ensure!(all.contains_key(extended), "no {extended}");
        let extra: Vec<_> = headers
            .enumerations
            .iter()
            .filter(|(name, _)| name.as_str() != extended)
            .flat_map(|(_, values)| values)
            .filter(|(_, name)| name.starts_with(prefix))
            .cloned()
            .collect();
        all.entry(extended.into()).or_default().extend(extra);
    }
    Ok(all)
}
