//! The headers of one release, as clang sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

/// Everything that declares a function of the two libraries.
///
/// C++, because `hipExtModuleLaunchKernel` and its like have C++ linkage. `AMD_INTERNAL_BUILD` only
/// picks the include path inside hsa_api_trace.h, whose own functions are extern "C" in the library
/// but not in the header.
const HEADERS: &str = r#"
#define __HIP_PLATFORM_AMD__ 1
#define AMD_INTERNAL_BUILD 1
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <hip/hip_runtime_api.h>
#include <hip/hip_ext.h>
#include <hip/hiprtc.h>
#include <hip/amd_detail/hip_prof_str.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <hsa/hsa_ext_image.h>
#include <hsa/hsa_ext_finalize.h>
#include <hsa/hsa_ven_amd_loader.h>
#include <hsa/hsa_ven_amd_aqlprofile.h>
extern "C" {
#include <hsa/hsa_api_trace.h>
}
"#;

/// Exported, but in no installed header: what the compiler calls behind `<<<>>>`, and the interface
/// to roctracer. The prototypes follow the definitions in hipamd, tag rocm-5.2.3 (hip_platform.cpp,
/// hip_activity.cpp), with its internal types as `void`.
const UNDECLARED: &str = r#"
extern "C" {
void** __hipRegisterFatBinary(const void* data);
void __hipRegisterFunction(void** modules, const void* hostFunction, char* deviceFunction,
                           const char* deviceName, unsigned threadLimit, void* tid, void* bid,
                           dim3* blockDim, dim3* gridDim, int* wSize);
void __hipRegisterManagedVar(void* hipModule, void** pointer, void* init_value, const char* name,
                             size_t size, unsigned align);
void __hipRegisterSurface(void** modules, void* var, char* hostVar, char* deviceVar, int type,
                          int ext);
void __hipRegisterTexture(void** modules, void* var, char* hostVar, char* deviceVar, int type,
                          int norm, int ext);
void __hipRegisterVar(void** modules, void* var, char* hostVar, char* deviceVar, int ext,
                      size_t size, int constant, int global);
void __hipUnregisterFatBinary(void** modules);
bool hipEnableActivityCallback(unsigned op, bool enable);
const char* hipGetCmdName(unsigned op);
void hipInitActivityCallback(void* id_callback, void* op_callback, void* arg);
}
"#;

/// A node of clang's syntax tree, as far as it matters here.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Node {
    kind: String,
    name: Option<String>,
    mangled_name: Option<String>,
    r#type: Spelling,
    value: Option<serde_json::Value>,
    inner: Vec<Node>,
}

/// A type as written, and with its outermost typedefs resolved.
#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default)]
pub struct Spelling {
    pub qual_type: String,
    pub desugared_qual_type: Option<String>,
}

impl Spelling {
    pub fn resolved(&self) -> &str {
        self.desugared_qual_type.as_deref().unwrap_or(&self.qual_type)
    }
}

/// A function's declaration.
pub struct Declaration {
    pub name: String,
    /// The symbol that the linker sees.
    pub symbol: String,
    pub ret: String,
    /// Name (empty where the header gives none) and type.
    pub params: Vec<(String, Spelling)>,
}

/// Whether a function of this name belongs into the table.
pub fn ours(name: &str) -> bool {
    ["hip", "__hip", "hsa_"].iter().any(|prefix| name.starts_with(prefix))
}

/// A type without top-level qualifiers and tags.
pub fn bare(spelling: &str) -> &str {
    let mut rest = spelling.trim();
    // `const T *` is a pointer: its qualifier belongs to the pointee and does no harm.
    for prefix in ["const ", "volatile ", "struct ", "enum ", "union "] {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    rest.strip_suffix("const").unwrap_or(rest).trim_end()
}

/// What the headers say.
#[derive(Default)]
pub struct Headers {
    /// By symbol; where a header declares twice, the declaration that names its parameters.
    pub functions: BTreeMap<String, Declaration>,
    /// Values and names in the header's order, by the enumeration's name.
    pub enumerations: BTreeMap<String, Vec<(i64, String)>>,
    /// Function names in the order of each API table of hsa_api_trace.h.
    pub hsa_tables: BTreeMap<String, Vec<String>>,
    /// `sizeof` of the structs that are passed or returned by value.
    pub sizes: BTreeMap<String, u64>,
    /// Structs with a floating-point member.
    pub with_floats: BTreeSet<String>,
    /// What HIP tells a tracer of a call, `hip_api_data_t`: the fields of each function's arguments.
    pub call_data: Vec<(String, Vec<DataField>)>,
}

/// A field of `hip_api_data_t`.
pub struct DataField {
    pub name: String,
    pub ty: Spelling,
    /// Bytes from the beginning of `hip_api_data_t`.
    pub at: u64,
    pub bytes: u64,
}

impl Headers {
    /// Those that are installed, or those of the release in `root`.
    pub fn parse(root: Option<&Path>) -> Result<Self> {
        let clang = Clang { program: find_clang()?, root };
        let source = format!("{HEADERS}{UNDECLARED}");
        let mut headers = Self::default();
        headers.visit(&clang.ast(&source, None)?)?;
        headers.measure(&clang, &source)?;
        headers.place_call_data(&clang, &source)?;
        Ok(headers)
    }

    fn visit(&mut self, node: &Node) -> Result<()> {
        for child in &node.inner {
            match child.kind.as_str() {
                "LinkageSpecDecl" | "NamespaceDecl" => self.visit(child)?,
                "FunctionDecl" => self.function(child),
                "EnumDecl" => self.enumeration(child)?,
                "CXXRecordDecl" => self.record(child),
                _ => {}
            }
        }
        Ok(())
    }

    fn function(&mut self, node: &Node) {
        let Some(name) = node.name.clone() else { return };
        let symbol = node.mangled_name.clone().unwrap_or_else(|| name.clone());
        // The return type is what precedes the parameters: no function here returns a function.
        let Some((ret, _)) = node.r#type.qual_type.split_once('(') else { return };
        let params: Vec<_> = node
            .inner
            .iter()
            .filter(|n| n.kind == "ParmVarDecl")
            .map(|n| (n.name.clone().unwrap_or_default(), n.r#type.clone()))
            .collect();
        let named = |d: &Declaration| d.params.iter().all(|(name, _)| !name.is_empty());
        if self.functions.get(&symbol).is_none_or(|old| !named(old)) {
            let declaration =
                Declaration { name, symbol: symbol.clone(), ret: ret.trim().into(), params };
            self.functions.insert(symbol, declaration);
        }
    }

    fn enumeration(&mut self, node: &Node) -> Result<()> {
        let mut next = 0;
        for constant in node.inner.iter().filter(|n| n.kind == "EnumConstantDecl") {
            let value = match constant.inner.iter().find_map(constant_value) {
                Some(text) => text.parse().with_context(|| format!("value {text}"))?,
                None => next,
            };
            next = value + 1;
            let name = constant.name.clone().context("an enumerator without a name")?;
            // The enumerator's type is the enumeration's name even where only a typedef names it.
            let of = bare(&constant.r#type.qual_type).to_owned();
            self.enumerations.entry(of).or_default().push((value, name));
        }
        Ok(())
    }

    fn record(&mut self, node: &Node) {
        let Some(name) = &node.name else { return };
        if name == "hip_api_data_s" {
            self.call_data = call_data(node);
        }
        let fields = || node.inner.iter().filter(|n| n.kind == "FieldDecl");
        if fields().any(|f| matches!(f.r#type.resolved(), "float" | "double" | "long double")) {
            self.with_floats.insert(name.clone());
        }
        if name.ends_with("Table") {
            let members = fields().filter_map(|f| f.name.as_deref()?.strip_suffix("_fn"));
            let members: Vec<String> = members.map(str::to_owned).collect();
            if !members.is_empty() {
                self.hsa_tables.insert(name.clone(), members);
            }
        }
    }

    /// Asks clang for the size of every struct that is passed by value.
    fn measure(&mut self, clang: &Clang<'_>, source: &str) -> Result<()> {
        let mut records = BTreeSet::new();
        for declaration in self.functions.values().filter(|d| ours(&d.name)) {
            let params = declaration.params.iter().map(|(_, ty)| ty.resolved());
            for ty in params.chain([declaration.ret.as_str()]) {
                let name = bare(ty);
                if is_identifier(name) && !self.enumerations.contains_key(name) {
                    records.insert(name.to_owned());
                }
            }
        }
        records.remove("void");
        let constants: String =
            records.iter().map(|r| format!("size_{r} = sizeof({r}),\n")).collect();
        let source = format!("{source}\nenum roctap_sizes : unsigned long {{\n{constants}}};\n");
        let tree = clang.ast(&source, Some("roctap_sizes"))?;
        for constant in tree.inner.iter().filter(|n| n.kind == "EnumConstantDecl") {
            let name = constant.name.as_deref().and_then(|n| n.strip_prefix("size_"));
            let size = constant.inner.iter().find_map(constant_value);
            let (name, size) = name.zip(size).context("clang gave no size")?;
            self.sizes.insert(name.to_owned(), size.parse()?);
        }
        ensure!(self.sizes.len() == records.len(), "clang did not give every struct's size");
        Ok(())
    }

    /// Asks clang where every field of `hip_api_data_t` is.
    fn place_call_data(&mut self, clang: &Clang<'_>, source: &str) -> Result<()> {
        let mut constants = String::new();
        for (at, (function, fields)) in self.call_data.iter().enumerate() {
            for (nth, field) in fields.iter().enumerate() {
                let field = format!("args.{function}.{}", field.name);
                constants += &format!(
                    "at_{at}_{nth} = offsetof(hip_api_data_t, {field}),\n\
                     bytes_{at}_{nth} = sizeof(((hip_api_data_t*)0)->{field}),\n"
                );
            }
        }
        let source = format!("{source}\nenum roctap_places : unsigned long {{\n{constants}}};\n");
        let tree = clang.ast(&source, Some("roctap_places"))?;
        let constants = tree.inner.iter().filter(|n| n.kind == "EnumConstantDecl");
        let mut values = constants.map(|constant| {
            let value = constant.inner.iter().find_map(constant_value);
            anyhow::Ok(value.context("clang gave no place")?.parse::<u64>()?)
        });
        let mut next = || values.next().context("clang did not give every place")?;
        for field in self.call_data.iter_mut().flat_map(|(_, fields)| fields) {
            (field.at, field.bytes) = (next()?, next()?);
        }
        ensure!(!self.call_data.is_empty(), "no header says what HIP tells of calls");
        Ok(())
    }
}

/// The structs in the union of arguments, each with the name of its function.
fn call_data(node: &Node) -> Vec<(String, Vec<DataField>)> {
    let mut functions = Vec::new();
    let unions = node.inner.iter().filter(|n| n.kind == "CXXRecordDecl");
    for arguments in unions {
        let mut fields = Vec::new();
        for member in &arguments.inner {
            match (member.kind.as_str(), &member.name) {
                ("CXXRecordDecl", _) => {
                    let members = member.inner.iter().filter(|n| n.kind == "FieldDecl");
                    let field = |n: &Node| DataField {
                        name: n.name.clone().unwrap_or_default(),
                        ty: n.r#type.clone(),
                        at: 0,
                        bytes: 0,
                    };
                    fields = members.map(field).collect();
                }
                ("FieldDecl", Some(name)) => {
                    functions.push((name.clone(), std::mem::take(&mut fields)));
                }
                _ => {}
            }
        }
    }
    functions
}

/// A single C identifier that is no keyword: a struct, union, enumeration or typedef.
fn is_identifier(name: &str) -> bool {
    let keyword = matches!(name, "bool" | "char" | "short" | "int" | "long" | "float" | "double");
    !keyword
        && !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name != "unsigned"
        && name != "signed"
}

/// The value of the first constant expression in a subtree.
fn constant_value(node: &Node) -> Option<String> {
    match &node.value {
        Some(serde_json::Value::String(text)) if node.kind == "ConstantExpr" => Some(text.clone()),
        _ => node.inner.iter().find_map(constant_value),
    }
}

fn find_clang() -> Result<String> {
    let named = std::env::var("CLANG").into_iter();
    let versions = (15..30).map(|v| format!("clang++-{v}"));
    for clang in named.chain(["clang++".to_owned()]).chain(versions) {
        if Command::new(&clang).arg("--version").output().is_ok_and(|o| o.status.success()) {
            return Ok(clang);
        }
    }
    bail!("no clang++ found: install Debian's clang-15, or name one in CLANG")
}

/// A compiler, and the root whose headers of HIP and HSA it takes.
struct Clang<'a> {
    program: String,
    root: Option<&'a Path>,
}

impl Clang<'_> {
    /// Parses a translation unit; `filter` picks one declaration.
    fn ast(&self, source: &str, filter: Option<&str>) -> Result<Node> {
        let name = format!("roctap-gen-api-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory)?;
        let file = directory.join("headers.cpp");
        std::fs::write(&file, source)?;
        let program = &self.program;
        let mut command = Command::new(program);
        command.args(["-std=c++17", "-fsyntax-only", "-Xclang", "-ast-dump=json"]);
        if let Some(root) = self.root {
            // Without the root's other headers, which may be too new for this compiler.
            for api in ["hip", "hsa"] {
                symlink(root.join("usr/include").join(api), directory.join(api))?;
            }
            command.arg("-I").arg(&directory);
        }
        if let Some(name) = filter {
            command.args(["-Xclang", "-ast-dump-filter", "-Xclang", name]);
        }
        let out = command.arg(&file).output().with_context(|| format!("run {program}"))?;
        std::fs::remove_dir_all(&directory)?;
        ensure!(
            out.status.success(),
            "{program} did not accept the headers:\n{}",
            String::from_utf8_lossy(&out.stderr)
        );
        // With a filter, a line of prose precedes the tree.
        let start = out.stdout.iter().position(|&b| b == b'{').context("clang gave no tree")?;
        let mut trees = serde_json::Deserializer::from_slice(&out.stdout[start..]);
        Node::deserialize(&mut trees).context("clang's tree")
    }
}
