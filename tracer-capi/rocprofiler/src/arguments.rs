//! The arguments of functions, as callbacks get them: a structure for each function, with its arguments in their order.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::LazyLock;

use crate::kinds::Kind;

/// An argument.
#[derive(Debug)]
pub struct Argument {
    /// Its name.
    pub name: CString,
    /// Its type in C.
    pub ty: CString,
    /// Where it is in the structure.
    pub at: usize,
    /// Its size.
    pub bytes: usize,
    /// The class of its type.
    pub class: Class,
}

/// The way in which a value is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// A number without a sign, an enumeration, a handle.
    Unsigned,
    /// A number with a sign.
    Signed,
    /// 0 or 1.
    Bool,
    /// Floating point.
    Float,
    /// The address of characters that end in NUL.
    Text,
    /// An address.
    Pointer,
    /// Three numbers of 32 bits.
    Dim3,
    /// Another structure.
    Struct,
}

impl Argument {
    /// The number of times that it can be followed: 1 of a pointer, 2 of a pointer to pointers.
    pub fn indirections(&self) -> usize {
        let ty = self.ty.to_bytes();
        let is_function = ty.windows(2).any(|two| two == b"(*");
        if is_function { 1 } else { ty.iter().filter(|&&byte| byte == b'*').count() }
    }
}

/// Functions with the types and names of their arguments: those of the headers of release 0.5, and those that came with 1.0.
/// `dim3` by value is `rocprofiler_dim3_t` there; numbers of OpenGL have their type in C here.
const FUNCTIONS: &str = include_str!("../arguments.txt");

static ALL: LazyLock<HashMap<&str, Vec<Argument>>> =
    LazyLock::new(|| functions().map(|(name, list)| (name, arguments_of(list))).collect());

static BY_KIND: LazyLock<[Vec<&[Argument]>; Kind::ALL.len()]> = LazyLock::new(|| {
    Kind::ALL.map(|kind| {
        let names = kind.operations().unwrap_or_default().iter().map(|name| name.to_bytes());
        names.map(|name| str::from_utf8(name).map_or(&[][..], of_function)).collect()
    })
});

/// The arguments of an operation of a kind; none of one that is no function.
pub fn arguments(kind: Kind, operation: u32) -> &'static [Argument] {
    let all = BY_KIND.get(kind as usize).and_then(|all| all.get(operation as usize));
    all.copied().unwrap_or_default()
}

fn of_function(name: &str) -> &'static [Argument] {
    ALL.get(name).map(Vec::as_slice).unwrap_or_default()
}

/// Each function and its list of arguments, as text.
fn functions() -> impl Iterator<Item = (&'static str, &'static str)> {
    FUNCTIONS.lines().filter_map(|line| line.strip_suffix(')')?.split_once('('))
}

/// Types and names of a list of arguments.
fn declarations(list: &str) -> Vec<(String, &str)> {
    let mut depth = 0;
    let is_between = |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    };
    let all = list.split(is_between).map(str::trim).filter(|one| !one.is_empty());
    all.filter_map(declaration).collect()
}

fn declaration(text: &str) -> Option<(String, &str)> {
    if let Some((result, rest)) = text.split_once("(*") {
        let (name, takes) = rest.split_once(')')?;
        return Some((format!("{result}(*){takes}"), name));
    }
    let (ty, name) = text.rsplit_once(' ')?;
    Some((ty.to_owned(), name))
}

fn arguments_of(list: &str) -> Vec<Argument> {
    let mut end = 0_usize;
    let place = |(ty, name): (String, &str)| {
        let (class, bytes, alignment) = form(&ty)?;
        let at = end.next_multiple_of(alignment);
        end = at + bytes;
        let (name, ty) = (CString::new(name).ok()?, CString::new(ty).ok()?);
        Some(Argument { name, ty, at, bytes, class })
    };
    declarations(list).into_iter().filter_map(place).collect()
}

/// Class, size and alignment of a type; none of one that is not known.
fn form(ty: &str) -> Option<(Class, usize, usize)> {
    let ty = ty.strip_prefix("enum ").or(ty.strip_prefix("struct ")).unwrap_or(ty);
    let of = |class, bytes| Some((class, bytes, bytes));
    if matches!(ty, "const char*" | "char*") {
        return of(Class::Text, 8);
    }
    if ty.ends_with('*') || ty.contains("(*)") || POINTERS.contains(&ty) {
        return of(Class::Pointer, 8);
    }
    if let Some((_, bytes, alignment)) = STRUCTURES.iter().find(|(name, ..)| *name == ty) {
        return Some((Class::Struct, *bytes, *alignment));
    }
    match ty {
        "bool" => of(Class::Bool, 1),
        "unsigned char" => of(Class::Unsigned, 1),
        "uint16_t" | "unsigned short" => of(Class::Unsigned, 2),
        "int" | "int32_t" | "hipDevice_t" | "hsa_file_t" => of(Class::Signed, 4),
        "unsigned int" | "uint32_t" | "hsa_queue_type32_t" => of(Class::Unsigned, 4),
        "size_t" | "uint64_t" | "unsigned long long" | "roctx_range_id_t" | "roctx_thread_id_t" => {
            of(Class::Unsigned, 8)
        }
        "hsa_signal_value_t" => of(Class::Signed, 8),
        "float" => of(Class::Float, 4),
        "rocprofiler_dim3_t" => Some((Class::Dim3, 12, 4)),
        _ if HANDLES.contains(&ty) => of(Class::Unsigned, 8),
        _ if ENUMERATIONS.contains(&ty) => of(Class::Unsigned, 4),
        _ => None,
    }
}

/// Structures that are passed by value, with size and alignment.
const STRUCTURES: [(&str, usize, usize); 5] = [
    ("hipExtent", 24, 8),
    ("hipPitchedPtr", 32, 8),
    ("hipIpcEventHandle_t", 64, 1),
    ("hipIpcMemHandle_t", 64, 1),
    ("hsa_ext_control_directives_t", 144, 8),
];

/// Structures of one number of 64 bits.
const HANDLES: [&str; 18] = [
    "hsa_agent_t",
    "hsa_amd_memory_pool_t",
    "hsa_amd_vmem_alloc_handle_t",
    "hsa_cache_t",
    "hsa_callback_data_t",
    "hsa_code_object_reader_t",
    "hsa_code_object_t",
    "hsa_code_symbol_t",
    "hsa_executable_symbol_t",
    "hsa_executable_t",
    "hsa_ext_image_t",
    "hsa_ext_program_t",
    "hsa_ext_sampler_t",
    "hsa_isa_t",
    "hsa_region_t",
    "hsa_signal_group_t",
    "hsa_signal_t",
    "hsa_wavefront_t",
];

/// Names of pointers, to structures and to functions.
const POINTERS: [&str; 31] = [
    "hipArray_const_t",
    "hipArray_t",
    "hipCtx_t",
    "hipDeviceptr_t",
    "hipEvent_t",
    "hipExternalMemory_t",
    "hipExternalSemaphore_t",
    "hipFunction_t",
    "hipGraphExec_t",
    "hipGraphNode_t",
    "hipGraph_t",
    "hipGraphicsResource_t",
    "hipHostFn_t",
    "hipLinkState_t",
    "hipMemGenericAllocationHandle_t",
    "hipMemPool_t",
    "hipMipmappedArray_const_t",
    "hipMipmappedArray_t",
    "hipModule_t",
    "hipStreamCallback_t",
    "hipStream_t",
    "hipSurfaceObject_t",
    "hipTextureObject_t",
    "hipUserObject_t",
    "hsa_amd_deallocation_callback_t",
    "hsa_amd_queue_intercept_handler",
    "hsa_amd_runtime_queue_notifier",
    "hsa_amd_signal_handler",
    "hsa_amd_system_event_callback_t",
    "hsa_ext_module_t",
    "hsa_ext_program_iterate_modules_cb_t",
];

/// Enumerations.
const ENUMERATIONS: [&str; 56] = [
    "hipArray_Format",
    "hipChannelFormatKind",
    "hipDeviceAttribute_t",
    "hipDeviceP2PAttr",
    "hipError_t",
    "hipFuncAttribute",
    "hipFuncCache_t",
    "hipFunction_attribute",
    "hipGraphMemAttributeType",
    "hipJitInputType",
    "hipKernelNodeAttrID",
    "hipLimit_t",
    "hipMemAllocationGranularity_flags",
    "hipMemAllocationHandleType",
    "hipMemPoolAttr",
    "hipMemRangeAttribute",
    "hipMemRangeHandleType",
    "hipMemcpyKind",
    "hipMemoryAdvise",
    "hipPointer_attribute",
    "hipSharedMemConfig",
    "hipStreamCaptureMode",
    "hipTextureAddressMode",
    "hipTextureFilterMode",
    "hsa_access_permission_t",
    "hsa_agent_info_t",
    "hsa_amd_agent_memory_pool_info_t",
    "hsa_amd_coherency_type_t",
    "hsa_amd_copy_direction_t",
    "hsa_amd_memory_pool_info_t",
    "hsa_amd_memory_type_t",
    "hsa_amd_queue_priority_t",
    "hsa_amd_sdma_engine_id_t",
    "hsa_cache_info_t",
    "hsa_code_object_info_t",
    "hsa_code_object_type_t",
    "hsa_code_symbol_info_t",
    "hsa_default_float_rounding_mode_t",
    "hsa_executable_info_t",
    "hsa_executable_state_t",
    "hsa_executable_symbol_info_t",
    "hsa_ext_image_data_layout_t",
    "hsa_ext_image_geometry_t",
    "hsa_ext_program_info_t",
    "hsa_flush_mode_t",
    "hsa_fp_type_t",
    "hsa_isa_info_t",
    "hsa_machine_model_t",
    "hsa_profile_t",
    "hsa_queue_info_attribute_t",
    "hsa_region_info_t",
    "hsa_signal_condition_t",
    "hsa_status_t",
    "hsa_system_info_t",
    "hsa_wait_state_t",
    "hsa_wavefront_info_t",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    /// One of a type that is not known would be missing.
    #[test]
    fn every_function_of_the_interface_has_arguments() {
        let (mut known, mut count) = (0, 0);
        for (name, list) in functions() {
            let of = of_function(name);
            assert_eq!(of.len(), declarations(list).len(), "{name}({list})");
            known += 1;
            count += of.len();
        }
        assert_eq!((known, known), (FUNCTIONS.lines().count(), ALL.len()));
        assert!(count > 2000, "{count}");
        for kind in Kind::ALL.into_iter().filter(|&kind| kind != Kind::HipStream) {
            let name = kind.name().to_bytes();
            let apis = [&b"HIP"[..], b"HSA", b"MARKER"];
            let is_function = apis.iter().any(|&api| name.starts_with(api));
            for operation in kind.operations().unwrap_or_default() {
                let is_known = ALL.contains_key(operation.to_str().expect("a name"));
                assert_eq!(is_known, is_function, "{operation:?}");
            }
        }
    }

    fn argument(function: &str, name: &CStr) -> &'static Argument {
        let all = of_function(function);
        all.iter().find(|argument| *argument.name == *name).expect("an argument")
    }

    #[test]
    fn arguments_are_where_a_compiler_has_them() {
        let places = |function| -> Vec<_> { of_function(function).iter().map(|a| a.at).collect() };
        assert_eq!(places("hipMalloc"), [0, 8]);
        assert_eq!(places("hipLaunchKernel"), [0, 8, 20, 32, 40, 48]);
        assert_eq!(places("hipIpcOpenMemHandle"), [0, 8, 72]);
        assert_eq!(places("hsa_queue_create"), [0, 8, 12, 16, 24, 32, 36, 40]);
        assert_eq!(places("hsa_system_extension_supported"), [0, 2, 4, 8]);
        assert!(places("hsa_init").is_empty());
        let callback = argument("hsa_iterate_agents", c"callback");
        assert_eq!(&*callback.ty, c"hsa_status_t (*)(hsa_agent_t, void*)");
        assert_eq!((callback.class, callback.indirections()), (Class::Pointer, 1));
        assert_eq!(argument("hipMalloc", c"ptr").indirections(), 2);
        assert_eq!(argument("hipModuleLoad", c"fname").class, Class::Text);
        let runtime = Kind::HipRuntimeApi;
        let malloc = runtime.operations().expect("some").iter().position(|n| &**n == c"hipMalloc");
        let malloc = arguments(runtime, malloc.expect("one") as u32);
        assert_eq!(malloc.len(), 2);
        assert!(arguments(runtime, 10_000).is_empty());
        assert!(arguments(Kind::MemoryCopy, 1).is_empty());
    }
}
