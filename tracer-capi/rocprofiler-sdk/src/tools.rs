//! Tools: libraries that define `rocprofiler_configure`, found in every place where one can be.

#![expect(unsafe_code, reason = "the dynamic linker's functions")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr;

use capi_common::{hsa_tools, loaded};
use rocprofiler::kinds::Kind;
use rocprofiler::status::{Result, Status};
use tracer_hooks::sys;

use crate::{layout, log};

/// `rocprofiler_client_id_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ClientId {
    /// Bytes of this structure.
    #[cfg(feature = "v1")]
    pub size: usize,
    /// The name that the tool gives itself; it may be null.
    pub name: *const c_char,
    /// Its number.
    pub handle: u32,
}

impl ClientId {
    /// The id of a tool that has not given itself a name.
    pub fn new(handle: u32) -> Self {
        Self {
            #[cfg(feature = "v1")]
            size: size_of::<Self>(),
            name: ptr::null(),
            handle,
        }
    }
}

/// `rocprofiler_tool_configure_result_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Configured {
    /// Bytes of this structure, as the tool knows it.
    pub size: usize,
    /// Called when all tools were asked. It may throw.
    pub initialize: Option<unsafe extern "C-unwind" fn(Finalize, *mut c_void) -> c_int>,
    /// Called once, at the end.
    pub finalize: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
    /// The argument of both functions.
    pub tool_data: *mut c_void,
}

/// The function by which a tool is finalized before the end of the process.
pub type Finalize = unsafe extern "C-unwind" fn(ClientId);

/// `rocprofiler_configure`: version, version as text, tools before it, its id.
pub type Configure =
    unsafe extern "C-unwind" fn(u32, *const c_char, u32, *mut ClientId) -> *const Configured;

static CURRENT: AtomicU32 = AtomicU32::new(0);

/// The number of the tool that is being configured or initialized; of the last one, if none is.
pub fn current() -> u32 {
    CURRENT.load(Ordering::Relaxed)
}

/// Sets the number of that tool.
pub fn set_current(handle: u32) {
    CURRENT.store(handle, Ordering::Relaxed);
}

/// The argument of a tool's function, on whichever thread.
#[derive(Clone, Copy)]
pub struct Argument(pub *mut c_void);

// SAFETY: the argument is the tool's, which has its functions called on other threads.
unsafe impl Send for Argument {}
// SAFETY: as above.
unsafe impl Sync for Argument {}

impl Argument {
    pub fn get(self) -> *mut c_void {
        self.0
    }
}

/// Operations of a kind that a tool asks for; none means all.
///
/// # Safety
///
/// As many operations as `count` says are at `operations` for as long as they are used, or it is null.
pub unsafe fn operations<'a>(
    kind: Kind,
    operations: *const i32,
    count: usize,
) -> Result<&'a [i32]> {
    if count == 0 {
        return Ok(&[]);
    }
    if operations.is_null() {
        return Err(Status::InvalidArgument);
    }
    // SAFETY: as the caller promises; not null.
    let wanted = unsafe { core::slice::from_raw_parts(operations, count) };
    let all = layout::operations(kind)?.len();
    let is_one = |&one: &i32| usize::try_from(one).is_ok_and(|one| one < all);
    if wanted.iter().all(is_one) { Ok(wanted) } else { Err(Status::OperationNotFound) }
}

/// A tool, and the place where it was found.
pub struct FoundTool {
    pub configure: Configure,
    pub place: String,
}

const CONFIGURE: &CStr = c"rocprofiler_configure";
/// Names libraries of tools, with colons between them.
const LIBRARIES: &str = "ROCP_TOOL_LIBRARIES";

/// All tools, in their order: one that is forced, those that the environment names, that of the program, and those of all
/// libraries that are loaded.
pub fn find(forced: Option<Configure>) -> Vec<FoundTool> {
    let mut tools = Tools(Vec::new());
    if let Some(configure) = forced {
        tools.add(configure, || "rocprofiler_force_configure".to_owned());
    }
    let named = std::env::var_os(LIBRARIES).unwrap_or_default();
    for name in named.as_bytes().split(|&byte| byte == b':').filter(|name| !name.is_empty()) {
        tools.add_named(OsStr::from_bytes(name));
    }
    for handle in [libc::RTLD_DEFAULT, libc::RTLD_NEXT] {
        if let Some(configure) = configure_of(handle) {
            let file = || hsa_tools::path_of(configure as usize);
            tools.add(configure, || file().unwrap_or_default().display().to_string());
        }
    }
    for path in loaded::paths() {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: it loads nothing.
        let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
        if handle.is_null() {
            continue;
        }
        match configure_of(handle) {
            // It stays loaded: its functions are called at the end.
            Some(configure) => tools.add(configure, || path.to_string_lossy().into_owned()),
            None => {
                // SAFETY: it was opened above; a library that others have loaded stays.
                unsafe { libc::dlclose(handle) };
            }
        }
    }
    tools.0
}

/// The tools, with each function once.
struct Tools(Vec<FoundTool>);

impl Tools {
    fn add(&mut self, configure: Configure, place: impl FnOnce() -> String) {
        if !self.0.iter().any(|found| ptr::fn_addr_eq(found.configure, configure)) {
            self.0.push(FoundTool { configure, place: place() });
        }
    }

    /// A library that the environment names.
    fn add_named(&mut self, name: &OsStr) {
        let Ok(path) = CString::new(name.as_bytes()) else { return };
        match load(&path) {
            Ok(FoundTool { configure, place }) => self.add(configure, || place),
            Err(why) => log::error(format_args!("{LIBRARIES}: {why}")),
        }
    }
}

/// Loads a tool, which stays loaded.
///
/// # Errors
///
/// The reason for which it is no tool.
pub fn load(path: &CStr) -> core::result::Result<FoundTool, String> {
    let shown = path.to_string_lossy();
    // SAFETY: a library that the user has asked for, as the dynamic linker loads it.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: the text of the error, which stays until the next call.
        let reason = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
        let reason = reason.map_or_else(Default::default, CStr::to_string_lossy);
        return Err(format!("the tool {shown} cannot be loaded: {reason}"));
    }
    let configure = configure_of(handle)
        .ok_or_else(|| format!("{shown} is no tool: it has no function rocprofiler_configure"))?;
    // Another library of this kind may come first among those that it needs.
    // SAFETY: a handle that is open.
    let called = unsafe { libc::dlsym(handle, c"rocprofiler_create_context".as_ptr()) }.addr();
    if called != 0 && sys::library_of(called) != sys::library_of(load as *const () as usize) {
        let other = hsa_tools::path_of(called).unwrap_or_default();
        return Err(format!(
            "the tool {shown} needs another library than this one: {}",
            other.display()
        ));
    }
    Ok(FoundTool { configure, place: shown.into_owned() })
}

fn configure_of(handle: *mut c_void) -> Option<Configure> {
    // SAFETY: a handle that is open, or one of the special ones.
    let found = unsafe { libc::dlsym(handle, CONFIGURE.as_ptr()) };
    // SAFETY: a function of this type, by its name.
    (!found.is_null()).then(|| unsafe { core::mem::transmute::<*mut c_void, Configure>(found) })
}
