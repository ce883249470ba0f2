//! Tools are configured, initialized, and finalized once, at the end of the process or when they ask for it. One that was
//! put into a running process is finalized when that is asked for, and can be put into it again.

#![expect(unsafe_code, reason = "exports, and functions of tools")]

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use std::ffi::CStr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::Instant;

use rocprofiler::sdk::stage;
use rocprofiler::status::{Result, Status};
use roctracer::pool::EXIT_WAIT;
use tracer_common::tool::state;
use tracer_hooks::lock::{Guard, Lock};
use tracer_hooks::{contained, sys};

use crate::answer::{VERSION_NUMBER, of, to};
use crate::calls::{self, markers};
use crate::intercept_tables::{self, table};
use crate::tools::{ClientId, Configure, Configured, Found, find};
use crate::{SDK, code_objects, late, log, process, sources, work};

const VERSION_TEXT: &CStr = c"0.5.0";
/// The number of the first tool.
const FIRST_CLIENT: u32 = 0x3_0000;

/// A tool that takes part.
struct Client {
    handle: u32,
    /// What it has as its id, and may keep a pointer to: only with this handle it finalizes itself.
    id: NonNull<ClientId>,
    configured: Configured,
}

// SAFETY: what a tool's functions are called with is the tool's, and its id stays where it is.
unsafe impl Send for Client {}

impl Client {
    /// The handle that the tool has left in its id.
    fn own(&self) -> u32 {
        // SAFETY: it lives for ever; who writes it is the tool, before it is finalized.
        unsafe { (*self.id.as_ptr()).handle }
    }
}

static CLIENTS: Lock<Vec<Client>> = Lock::new(Vec::new());
/// A tool that is to be configured although nothing finds it.
static FORCED: Lock<Option<Configure>> = Lock::new(None);
/// The tool that is being initialized.
static CURRENT: AtomicU32 = AtomicU32::new(0);

/// Held by the thread that initializes tools.
static INITIALIZATION: Lock<()> = Lock::new(());
/// A runtime has begun meanwhile, and nobody waited for the tools.
static IS_MISSED: AtomicBool = AtomicBool::new(false);
/// The process exits: nothing begins any more.
static EXITS: AtomicBool = AtomicBool::new(false);

/// How long one of these is waited for: whoever has it may have been stopped, or may wait for who comes here.
const WAIT_NS: u64 = 1_000_000_000;

thread_local! {
    /// The thread initializes tools, which may call a runtime that has us initialize them.
    static INITIALIZES: Cell<bool> = const { Cell::new(false) };
}

fn lock<T>(lock: &Lock<T>) -> Option<Guard<'_, T>> {
    lock.lock_for(WAIT_NS)
}

/// The number of the tool that is being initialized.
pub fn current_client() -> u32 {
    CURRENT.load(Ordering::Relaxed)
}

/// Finds tools, configures all of them, and initializes them then; once. Who comes meanwhile waits, but not for long: a
/// runtime goes on without tools, and is recorded when they are there.
pub fn initialize() {
    if SDK.initialized() == stage::OVER || process::is_forked() {
        return;
    }
    let is_free = !INITIALIZES.get();
    let Some(_initialization) = is_free.then(|| INITIALIZATION.lock_or_lose(WAIT_NS)).flatten()
    else {
        IS_MISSED.store(true, Ordering::Relaxed);
        // Pairs with the one below: either is it seen there, or the caller sees what is wanted.
        fence(Ordering::SeqCst);
        return;
    };
    if SDK.begin_initialization() {
        initialize_those(|| find(lock(&FORCED).and_then(|forced| *forced)));
    }
}

/// Configures and initializes these tools. The caller has begun that.
fn initialize_those(tools: impl FnOnce() -> Vec<Found>) {
    static AT_EXIT: Once = Once::new();
    INITIALIZES.set(true);
    // Also when a tool has thrown: others are not initialized a second time.
    let ends = AtEnd(|| {
        SDK.end_initialization();
        INITIALIZES.set(false);
    });
    process::begins();
    AT_EXIT.call_once(|| sys::at_exit(at_exit));
    configure(tools());
    initialize_all();
    drop(ends);
    fence(Ordering::SeqCst);
    if IS_MISSED.load(Ordering::Relaxed) {
        contained(sources::begin);
    }
    contained(markers::ask);
}

/// Why a tool that was put into the running process takes no part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There are others.
    Busy,
    /// The process exits, or is a forked child.
    Over,
    /// It does not want to.
    ByItself,
}

/// A tool has been put into the running process: it is configured and initialized alone, as if none had ever been. It gets
/// what happens from now on, and code objects that are loaded already.
///
/// # Errors
///
/// [`Refused`].
pub fn begin_late(tool: Found) -> core::result::Result<(), Refused> {
    if process::is_forked() || EXITS.load(Ordering::Relaxed) {
        return Err(Refused::Over);
    }
    let initialization = INITIALIZATION.lock_for(WAIT_NS).ok_or(Refused::Busy)?;
    {
        let mut clients = lock(&CLIENTS).ok_or(Refused::Busy)?;
        let is_free = clients.is_empty() || SDK.finalized() == stage::OVER;
        if !is_free || SDK.begin_anew().is_err() {
            return Err(Refused::Busy);
        }
        clients.clear();
    }
    code_objects::forget();
    initialize_those(|| vec![tool]);
    drop(initialization);
    fence(Ordering::SeqCst);
    if EXITS.load(Ordering::Relaxed) {
        finalize_all();
        return Err(Refused::Over);
    }
    if lock(&CLIENTS).is_none_or(|clients| clients.is_empty()) {
        finalize_all();
        return Err(Refused::ByItself);
    }
    // The runtime is in use.
    contained(sources::begin);
    code_objects::tell_all();
    Ok(())
}

/// The tool that was put into the running process is finalized, unless the exit of the process does that, and what was there
/// for it ends.
pub fn end_late() {
    late::tell(state::ENDS);
    if !process::is_forked() && finalize_all() {
        calls::follow();
        intercept_tables::forget();
        SDK.end_threads();
        contained(tracer_hooks::deactivate);
        late::end(state::ENDED);
    }
}

/// Calls its function when it is dropped, also by an exception.
struct AtEnd<F: Fn()>(F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Asks each tool what is to be called. One that answers null takes no part.
fn configure(tools: Vec<Found>) {
    for (priority, tool) in tools.into_iter().enumerate() {
        let priority = priority as u32;
        let handle = FIRST_CLIENT + priority;
        let id = NonNull::from(Box::leak(Box::new(ClientId { name: ptr::null(), handle })));
        log::info(format_args!("tool {priority}: {}", tool.place));
        let version = VERSION_TEXT.as_ptr();
        // SAFETY: the tool's function, with what it is promised.
        let configured =
            unsafe { (tool.configure)(VERSION_NUMBER, version, priority, id.as_ptr()) };
        // SAFETY: null, or a structure that is there now.
        let Some(&configured) = (unsafe { configured.as_ref() }) else {
            log::info(format_args!("tool {priority} takes no part"));
            continue;
        };
        if configured.size < size_of::<Configured>() {
            log::error(format_args!(
                "the tool of {} is left out: rocprofiler_configure returned a structure of {} bytes, not {}",
                tool.place,
                configured.size,
                size_of::<Configured>()
            ));
            continue;
        }
        if let Some(mut clients) = lock(&CLIENTS) {
            clients.push(Client { handle, id, configured });
        }
    }
}

/// When all of them have been configured.
fn initialize_all() {
    for place in 0.. {
        let clients = lock(&CLIENTS);
        let client = clients.as_ref().and_then(|clients| clients.get(place));
        let Some((handle, configured)) = client.map(|client| (client.handle, client.configured))
        else {
            break;
        };
        drop(clients);
        if let Some(initialize) = configured.initialize {
            CURRENT.store(handle, Ordering::Relaxed);
            // SAFETY: the tool's function, with its data.
            unsafe { initialize(finalize_itself, configured.tool_data) };
        }
    }
}

/// A tool wants to be finalized.
///
/// # Safety
///
/// For any id.
unsafe extern "C-unwind" fn finalize_itself(id: ClientId) {
    if !process::is_forked() {
        finalize_those(|client| (client.handle, client.own()) == (id.handle, id.handle));
        calls::follow();
    }
}

/// The process exits.
extern "C" fn at_exit() {
    EXITS.store(true, Ordering::Relaxed);
    // Pairs with the one in `begin_late`: either has a tool begun that is found here, or it finds that the process exits.
    fence(Ordering::SeqCst);
    if !process::is_forked() {
        late::tell(state::ENDS);
        if finalize_all() {
            late::end(state::ENDED);
        }
    }
}

/// Finalizes all tools, once; whether this was the first time.
fn finalize_all() -> bool {
    let is_first = SDK.begin_finalization();
    if is_first {
        finalize_those(|_| true);
        SDK.end_finalization();
        let refused = work::refused();
        if refused > 0 {
            log::warn(format_args!(
                "{refused} operations of GPUs were not recorded, since a callback took too long"
            ));
        }
    }
    is_first
}

/// Stops what tools have started, delivers what was written, and calls their functions, each once. Nothing of theirs is
/// called after that.
fn finalize_those(is_meant: impl Fn(&Client) -> bool) {
    let until = Instant::now() + EXIT_WAIT;
    let mut meant = Vec::new();
    for client in lock(&CLIENTS).iter_mut().flat_map(|clients| clients.iter_mut()) {
        if is_meant(client) {
            let finalize = client.configured.finalize.take();
            meant.push((client.handle, finalize, client.configured.tool_data));
        }
    }
    meant.iter().for_each(|&(handle, ..)| SDK.end_contexts(handle));
    work::drain(None, Some(until));
    // All are delivered at once: a callback that does not return holds up its own thread alone.
    let buffers = |handle| SDK.buffers(handle).into_iter();
    meant.iter().flat_map(|&(handle, ..)| buffers(handle)).for_each(|buffer| {
        buffer.flush(Some(Instant::now()));
    });
    for &(handle, ..) in &meant {
        if SDK.completions(handle).filter(|completions| !completions.wait(until)).count() > 0 {
            log::warn(format_args!(
                "a callback of work of GPUs has not returned for {} s: what was done then is not told",
                EXIT_WAIT.as_secs()
            ));
        }
    }
    code_objects::end(|service| meant.iter().any(|&(handle, ..)| handle == service.client()));
    for (handle, finalize, data) in meant {
        if buffers(handle).filter(|buffer| !buffer.flush(Some(until))).count() > 0 {
            log::warn(format_args!(
                "the callback of a buffer has not returned for {} s: what was recorded then is not delivered",
                EXIT_WAIT.as_secs()
            ));
        }
        buffers(handle).for_each(rocprofiler::buffer::Buffer::end);
        SDK.silence(handle);
        if let Some(finalize) = finalize {
            // SAFETY: the tool's function, with its data.
            unsafe { finalize(data) };
        }
    }
}

/// 0 before tools are initialized, -1 meanwhile, 1 from then on.
///
/// # Safety
///
/// `status` is valid for a write, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_is_initialized(status: *mut c_int) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { to(status, || Ok(SDK.initialized())) }
}

/// 0 before tools are finalized, -1 meanwhile, 1 from then on.
///
/// # Safety
///
/// `status` is valid for a write, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_is_finalized(status: *mut c_int) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { to(status, || Ok(SDK.finalized())) }
}

/// Has a tool configured that nothing finds, and all others with it, before a runtime is there.
///
/// # Safety
///
/// `configure` is what its type says, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_force_configure(configure: Option<Configure>) -> u32 {
    let forced = of(|| {
        let configure = configure.ok_or(Status::InvalidArgument)?;
        let mut forced = lock(&FORCED).ok_or(Status::Error)?;
        if SDK.initialized() != stage::NOT_YET || forced.is_some() {
            return Err(Status::ConfigurationLocked);
        }
        *forced = Some(configure);
        Ok(())
    });
    if forced == Status::Success as u32 {
        initialize();
        // The runtime may be in use already.
        of(|| {
            sources::begin();
            Ok(())
        });
        code_objects::tell_all();
    }
    forced
}

/// A runtime hands its tables over, by `librocprofiler-register`. Returns 0, or a status.
///
/// # Safety
///
/// `name` is a string, and so many tables are at `tables`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_set_api_table(
    name: *const c_char,
    version: u64,
    instance: u64,
    tables: *mut *mut c_void,
    count: u64,
) -> c_int {
    if name.is_null() || tables.is_null() || count == 0 {
        return Status::InvalidArgument as c_int;
    }
    initialize();
    // SAFETY: as the caller promises; not null.
    let name = unsafe { CStr::from_ptr(name) };
    log::info(format_args!("{}: its tables were handed over", name.to_string_lossy()));
    // SAFETY: as the caller promises.
    let tables = unsafe { core::slice::from_raw_parts(tables, count as usize) };
    let (kinds, taken): (&[u32], _) = match name.to_bytes() {
        b"hsa" => {
            // SAFETY: as the caller promises; there is one.
            unsafe { sources::runtime_begins(tables[0]) };
            (&[table::HSA], 0)
        }
        b"hip" | b"hip_compiler" => {
            // Its calls do not come through its tables, but there it is.
            sources::begin();
            let is_compiler = name.to_bytes() == b"hip_compiler";
            (if is_compiler { &[table::HIP_COMPILER] } else { &[table::HIP_RUNTIME] }, 0)
        }
        b"roctx" => {
            // SAFETY: as above; AMD's has the same three.
            let taken = of(|| unsafe { take_over_markers(tables) });
            (&table::MARKERS, taken as c_int)
        }
        b"rccl" => (&[table::RCCL], 0),
        _ => (&[], Status::InvalidArgument as c_int),
    };
    for (&kind, &table) in kinds.iter().zip(tables).filter(|(_, table)| !table.is_null()) {
        // SAFETY: as the caller promises.
        unsafe { intercept_tables::tell(kind, version, instance, table) };
    }
    taken
}

/// The tables of roctx: marks and ranges, pauses, names.
///
/// # Safety
///
/// Each is a table that stays, or null.
unsafe fn take_over_markers(tables: &[*mut c_void]) -> Result {
    let Some(&tables) = tables.first_chunk() else { return Err(Status::InvalidArgument) };
    if tables.contains(&ptr::null_mut()) {
        return Err(Status::InvalidArgument);
    }
    // SAFETY: as the caller promises; not null.
    unsafe { markers::take_over(tables) }
}
