//! Tools are configured, initialized, and finalized once, at the end of the process or when they ask for it. A tool
//! that was put into a running process is finalized when roctap asks for it, and can be put into it again.

#![expect(unsafe_code, reason = "exports, and functions of tools")]

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use std::ffi::{CStr, OsStr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::thread::sleep;
use std::time::{Duration, Instant};

use capi_common::hsa_tools;
use capi_sources::client_thread::InCallback;
use rocprofiler::sdk::stage;
use rocprofiler::status::{Result, Status};
use rocprofiler::threads::CallbackThread;
use roctracer::pool::EXIT_WAIT;
use tracer_common::loss::ShimLoss;
use tracer_common::tool::state;
use tracer_hooks::lock::{Guard, Lock};
use tracer_hooks::{Timing, contained, sys};

use crate::answer::{self, of, to};
use crate::calls::{self, markers};
use crate::intercept_tables::{self, table};
use crate::layout::{VERSION_NUMBER, VERSION_TEXT};
use crate::records::{Initialization, Runtime};
use crate::tools::{self, ClientId, Configure, Configured, FoundTool, find};
use crate::{SDK, code_objects, late, log, process, runtimes, sources, work};

/// The number of the first tool.
const FIRST_CLIENT: u32 = 0x3_0000;

/// A tool that takes part.
struct Client {
    handle: u32,
    /// The begin of the library that has its `rocprofiler_configure`.
    library: Option<usize>,
    /// The tool's id, to which it may keep a pointer: it finalizes itself only with this handle.
    id: NonNull<ClientId>,
    configured: Configured,
}

// SAFETY: what a tool's functions are called with is the tool's, and its id stays where it is.
unsafe impl Send for Client {}

impl Client {
    /// The handle that the tool has left in its id.
    fn own(&self) -> u32 {
        // SAFETY: it lives for ever; only the tool writes it, before it is finalized.
        unsafe { (*self.id.as_ptr()).handle }
    }
}

static CLIENTS: Lock<Vec<Client>> = Lock::new(Vec::new());
/// A tool that is to be configured although nothing finds it.
static FORCED: Lock<Option<Configure>> = Lock::new(None);
/// The number of the next one.
static NEXT: AtomicU32 = AtomicU32::new(FIRST_CLIENT);

/// Held by the thread that initializes tools.
static INITIALIZATION: Lock<()> = Lock::new(());
/// A runtime has begun meanwhile, and did not wait for the tools.
static IS_MISSED: AtomicBool = AtomicBool::new(false);
/// The process exits: nothing begins any more.
static EXITS: AtomicBool = AtomicBool::new(false);

/// The number of threads that finalize a tool that wanted to be.
static ITSELF: AtomicUsize = AtomicUsize::new(0);

/// The time that one of these locks is waited for: its owner may have been stopped, or may wait for the thread that
/// comes here.
const WAIT_NS: u64 = 1_000_000_000;

/// Between two looks of an exit that waits for another thread.
const LOOK: Duration = Duration::from_millis(1);

thread_local! {
    /// The thread initializes tools, or finalizes them. They may call a runtime that has us initialize them, and exit.
    static IS_IN_TOOLS: Cell<bool> = const { Cell::new(false) };
    /// The thread loads a tool that was put in, which may configure itself.
    static LOADS: Cell<bool> = const { Cell::new(false) };
}

fn lock<T>(lock: &Lock<T>) -> Option<Guard<'_, T>> {
    lock.lock_for(WAIT_NS)
}

/// Finds tools, configures all of them, and initializes them then; once. A thread that comes meanwhile waits, but not
/// for long: a runtime goes on without tools, and is recorded when they are there.
pub fn initialize() {
    if SDK.initialized() == stage::OVER || process::is_forked() {
        return;
    }
    let is_free = !IS_IN_TOOLS.get();
    let Some(_initialization) = is_free.then(|| lock(&INITIALIZATION)).flatten() else {
        IS_MISSED.store(true, Ordering::Relaxed);
        // Pairs with the fence below: either that thread sees `IS_MISSED`, or the caller sees what is wanted.
        fence(Ordering::SeqCst);
        return;
    };
    if SDK.begin_initialization() {
        initialize_those(|| find(lock(&FORCED).and_then(|forced| *forced)));
    }
}

/// Configures and initializes these tools. The caller has begun the initialization.
fn initialize_those(tools: impl FnOnce() -> Vec<FoundTool>) {
    IS_IN_TOOLS.set(true);
    // Also when a tool has thrown: others are not initialized a second time.
    let ends = AtEnd(|| {
        SDK.end_initialization();
        IS_IN_TOOLS.set(false);
    });
    process::begins();
    // A tool may exit.
    sys::at_exit(at_exit);
    configure(tools());
    initialize_all();
    // Once more: objects that the tools have constructed are destroyed after the tools are finalized.
    sys::at_exit(at_exit);
    drop(ends);
    fence(Ordering::SeqCst);
    if IS_MISSED.load(Ordering::Relaxed) {
        contained(sources::begin_late);
        code_objects::tell_all(calls::is_in_hsa);
    }
    contained(markers::ask);
}

/// A tool is loaded into the running process, and configured and initialized alone, as if none had ever been. It is
/// told of everything from now on, and of code objects that are loaded already.
///
/// # Errors
///
/// The reason for which it takes no part.
pub fn begin_late(path: &CStr) -> core::result::Result<(), String> {
    const BUSY: &str = "the process has tools already, or they are being initialized or finalized";
    const OVER: &str = "the process exits";
    let refused = |why| format!("{} takes no part: {why}", path.to_string_lossy());
    if process::is_forked() || exits() {
        return Err(refused(OVER));
    }
    let initialization = lock(&INITIALIZATION).ok_or_else(|| refused(BUSY))?;
    {
        let mut clients = lock(&CLIENTS).ok_or_else(|| refused(BUSY))?;
        let is_free = clients.is_empty() || SDK.finalized() == stage::OVER;
        if !is_free || SDK.begin_anew().is_err() {
            return Err(refused(BUSY));
        }
        clients.clear();
    }
    code_objects::forget();
    let _of_former_tools = work::losses().count();
    let loaded = load(path);
    drop(initialization);
    fence(Ordering::SeqCst);
    let takes_part = lock(&CLIENTS).is_some_and(|clients| !clients.is_empty());
    if exits() || !takes_part {
        end_all();
        let otherwise = || refused("its rocprofiler_configure returned null");
        return Err(if exits() { refused(OVER) } else { loaded.err().unwrap_or_else(otherwise) });
    }
    // The runtime is in use.
    contained(sources::begin_late);
    code_objects::tell_all(calls::is_in_hsa);
    Ok(())
}

/// Loads a tool and has it initialized, unless it has seen to that by itself.
fn load(path: &CStr) -> core::result::Result<(), String> {
    IS_IN_TOOLS.set(true);
    LOADS.set(true);
    let tool = tools::load(path);
    LOADS.set(false);
    if SDK.initialized() == stage::OVER {
        return Ok(());
    }
    let (tool, refused) = tool.map_or_else(|why| (None, Err(why)), |tool| (Some(tool), Ok(())));
    initialize_those(|| tool.into_iter().collect());
    refused
}

fn exits() -> bool {
    EXITS.load(Ordering::Relaxed)
}

/// Finalizes the tool that was put into the running process, unless the exit of the process does that, and ends the
/// threads and services that were there for it.
pub fn end_late() {
    late::tell(state::ENDS);
    if !process::is_forked() && end_all() {
        late::end(state::ENDED);
    }
}

/// Finalizes all tools, and ends the threads and services that were there for them; false if another thread does so, or
/// has.
fn end_all() -> bool {
    let is_first = finalize_all();
    if is_first {
        calls::follow();
        SDK.end();
        contained(tracer_hooks::deactivate);
    }
    is_first
}

/// Calls a function when it is dropped, also by an exception.
struct AtEnd<F: Fn()>(F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Asks each tool for the functions to call. A tool that answers null takes no part.
fn configure(tools: Vec<FoundTool>) {
    for (priority, tool) in (0..).zip(tools) {
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        tools::set_current(handle);
        let id = NonNull::from(Box::leak(Box::new(ClientId::new(handle))));
        log::info(format_args!("tool {priority}: {}", tool.place));
        let version = VERSION_TEXT.as_ptr();
        // SAFETY: the tool's function, with what it is promised.
        let configured =
            unsafe { (tool.configure)(VERSION_NUMBER, version, priority, id.as_ptr()) };
        // SAFETY: null, or a structure that is there now.
        let Some(&configured) = (unsafe { configured.as_ref() }) else {
            log::info(format_args!("tool {priority} takes no part"));
            leave_out(handle);
            continue;
        };
        if configured.size < size_of::<Configured>() {
            log::error(format_args!(
                "the tool of {} is left out: rocprofiler_configure returned a structure of {} bytes, not {}",
                tool.place,
                configured.size,
                size_of::<Configured>()
            ));
            leave_out(handle);
            continue;
        }
        let library = sys::library_of(tool.configure as usize);
        if let Some(mut clients) = lock(&CLIENTS) {
            clients.push(Client { handle, library, id, configured });
        }
    }
}

/// The tool that a function belongs to: the one that is being configured or initialized, or, when all have been, the
/// one of the same library.
pub fn client_of(function: usize) -> u32 {
    let is_over = SDK.initialized() == stage::OVER;
    let library = is_over.then(|| sys::library_of(function)).flatten();
    let is_it = |client: &&Client| library.is_some() && client.library == library;
    let client = lock(&CLIENTS).and_then(|clients| clients.iter().find(is_it).map(|it| it.handle));
    client.unwrap_or_else(tools::current)
}

/// A tool takes no part: the services that it has asked for already belong to nobody.
fn leave_out(handle: u32) {
    SDK.end_contexts(handle);
    silence(handle, Instant::now());
}

/// Initializes the tools, when all of them have been configured.
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
            tools::set_current(handle);
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
        ITSELF.fetch_add(1, Ordering::SeqCst);
        let is_in_tools = IS_IN_TOOLS.replace(true);
        // Also when a tool has thrown.
        let ends = AtEnd(|| {
            IS_IN_TOOLS.set(is_in_tools);
            ITSELF.fetch_sub(1, Ordering::SeqCst);
        });
        finalize_those(|client| (client.handle, client.own()) == (id.handle, id.handle));
        drop(ends);
        calls::follow();
    }
}

/// The process exits. Waits for other threads that initialize or finalize tools: objects that tools use are destroyed
/// afterwards. A tool's finalize function may throw, and its exception ends the process.
extern "C-unwind" fn at_exit() {
    EXITS.store(true, Ordering::Relaxed);
    // Pairs with the fence in `begin_late`: either this thread finds the tool that has begun, or that thread finds that
    // the process exits.
    fence(Ordering::SeqCst);
    if process::is_forked() {
        return;
    }
    wait_until(|| SDK.initialized() != stage::DURING);
    late::tell(state::ENDS);
    let is_over = finalize_all() || wait_until(|| SDK.finalized() == stage::OVER);
    // In a callback it may be this thread for which it would wait.
    if !CallbackThread::is_any_current() && !InCallback::is_current() {
        wait_until(|| ITSELF.load(Ordering::SeqCst) == 0);
    }
    if is_over {
        late::end(state::ENDED);
    }
}

/// Waits for another thread, which initializes tools or finalizes them, but not for ever. Returns whether it has done
/// so.
fn wait_until(has_done: impl Fn() -> bool) -> bool {
    /// One deadline, however often the process is told that it exits.
    static UNTIL: OnceLock<Instant> = OnceLock::new();
    let until = *UNTIL.get_or_init(|| Instant::now() + 2 * EXIT_WAIT);
    while !has_done() && !IS_IN_TOOLS.get() && Instant::now() < until {
        sleep(LOOK);
    }
    has_done()
}

/// Finalizes all tools, once. Returns whether this was the first time.
fn finalize_all() -> bool {
    /// The number of operations that users were told of.
    static REPORTED: AtomicUsize = AtomicUsize::new(0);
    let is_first = SDK.begin_finalization();
    if is_first {
        let is_in_tools = IS_IN_TOOLS.replace(true);
        // Also when a tool has thrown.
        let ends = AtEnd(|| {
            SDK.end_finalization();
            IS_IN_TOOLS.set(is_in_tools);
        });
        let behind = finalize_those(|_| true);
        let all = work::refused();
        let refused = all - REPORTED.swap(all, Ordering::Relaxed) + behind;
        if refused > 0 {
            log::warn(format_args!(
                "{refused} operations of GPUs were not recorded, since a callback took too long"
            ));
        }
        for (cause, count) in work::losses() {
            log::warn(format_args!("lost {count}: {}", cause.describe()));
        }
        drop(ends);
    }
    is_first
}

/// Stops what tools have started, delivers the written records, and calls the tools' functions, each once. No function
/// of theirs is called after that. Returns the number of operations of GPUs that waited for callbacks even then.
fn finalize_those(is_meant: impl Fn(&Client) -> bool) -> usize {
    let mut meant = Vec::new();
    for client in lock(&CLIENTS).iter_mut().flat_map(|clients| clients.iter_mut()) {
        if is_meant(client) {
            let finalize = client.configured.finalize.take();
            meant.push((client.handle, finalize, client.configured.tool_data));
        }
    }
    meant.iter().for_each(|&(handle, ..)| SDK.end_contexts(handle));
    let unfinished = work::drain_last();
    // Callbacks that come back may have been behind for long: the following steps have time of their own.
    let until = Instant::now() + EXIT_WAIT;
    if unfinished > 0 {
        log::warn(format_args!("lost {unfinished}: {}", ShimLoss::UNFINISHED.describe()));
    }
    // All are delivered at once: a callback that does not return holds up its own thread alone.
    let buffers = |handle| SDK.buffers(handle).into_iter();
    meant.iter().flat_map(|&(handle, ..)| buffers(handle)).for_each(|buffer| {
        buffer.flush(Some(Instant::now()));
    });
    let mut stuck = Vec::new();
    for &(handle, ..) in &meant {
        if SDK.completions(handle).filter(|completions| !completions.wait(until)).count() > 0 {
            log::warn(format_args!(
                "a callback of GPU work has not returned for {} s: the tool is not called for the work that has ended since",
                EXIT_WAIT.as_secs()
            ));
            stuck.push(handle);
        }
    }
    code_objects::end(|service| meant.iter().any(|&(handle, ..)| handle == service.client()));
    let mut behind = 0;
    for (handle, finalize, data) in meant {
        let left: Vec<_> = buffers(handle).filter(|one| !one.flush(Some(until))).collect();
        let is_late = !left.is_empty() && Instant::now() >= until;
        if is_late {
            log::warn(format_args!(
                "the callback of a buffer has not returned for {} s: what was recorded then is not delivered",
                EXIT_WAIT.as_secs()
            ));
            stuck.push(handle);
        }
        behind = behind.max(work::behind());
        if !silence(handle, until) && !stuck.contains(&handle) {
            log::warn(format_args!(
                "a callback has not returned for {} s: its tool is finalized meanwhile",
                EXIT_WAIT.as_secs()
            ));
        }
        let lost: u64 = left.iter().map(|buffer| buffer.undelivered()).sum();
        if lost > 0 {
            let why = match is_late {
                true => "the callback of their buffer has not returned",
                false => {
                    "their tool is finalized in a callback, which does not wait for the thread that was to deliver them"
                }
            };
            log::warn(format_args!("lost {lost} records: {why}"));
        }
        if let Some(finalize) = finalize {
            // SAFETY: the tool's function, with its data.
            unsafe { finalize(data) };
        }
    }
    behind
}

/// A tool is called no more. Waits, until a time, for calls that are under way. Returns whether they have returned.
fn silence(handle: u32, until: Instant) -> bool {
    SDK.silence(handle, until) & intercept_tables::silence(handle, until)
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

/// Has a tool configured that nothing finds, and all others with it, before a runtime is there. One that was put into the
/// running process may do so while it is loaded, for itself.
///
/// # Safety
///
/// `configure` is what its type says, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_force_configure(configure: Option<Configure>) -> u32 {
    if let Some(configure) = configure
        && LOADS.replace(false)
    {
        let place = "rocprofiler_force_configure".to_owned();
        initialize_those(|| vec![FoundTool { configure, place }]);
        return answer::SUCCESS;
    }
    let forced = of(|| {
        let configure = configure.ok_or(Status::InvalidArgument)?;
        let mut forced = lock(&FORCED).ok_or(Status::Error)?;
        if SDK.initialized() != stage::NOT_YET || forced.is_some() {
            return Err(Status::ConfigurationLocked);
        }
        *forced = Some(configure);
        Ok(())
    });
    if forced == answer::SUCCESS {
        // AMD's librocprofiler-register looks for tools in the environment, and among functions that the linker finds.
        if hsa_tools::is_alone() {
            hsa_tools::set_variable("ROCPROFILER_REGISTER_FORCE_LOAD", OsStr::new("1"));
        }
        initialize();
        // The runtime may be in use already.
        of(|| {
            sources::begin_late();
            Ok(())
        });
        code_objects::tell_all(calls::is_in_hsa);
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
        return answer::number(Status::InvalidArgument) as c_int;
    }
    if process::is_forked() {
        return answer::SUCCESS as c_int;
    }
    initialize();
    // SAFETY: as the caller promises; not null.
    let name = unsafe { CStr::from_ptr(name) };
    log::info(format_args!("{}: its tables were handed over", name.to_string_lossy()));
    // SAFETY: as the caller promises.
    let tables = unsafe { core::slice::from_raw_parts(tables, count as usize) };
    let (kinds, runtime, taken): (&[u32], _, _) = match name.to_bytes() {
        b"hsa" => {
            // Nobody tells of its end, unless it loads this library as a tool as well.
            // SAFETY: as the caller promises; there is one.
            unsafe { sources::runtime_begins(tables[0], Timing::Unheld) };
            (&[table::HSA], Some(Runtime::Hsa), 0)
        }
        b"hip" => {
            // Its tables are looked for, as in releases that hand none over.
            sources::begin();
            (&[table::HIP_RUNTIME], Some(Runtime::Hip), 0)
        }
        b"hip_compiler" => {
            sources::begin();
            (&[table::HIP_COMPILER], None, 0)
        }
        b"roctx" => {
            // SAFETY: as above; AMD's has the same three.
            let taken = of(|| unsafe { take_over_markers(tables) });
            (&table::MARKERS, Some(Runtime::Marker), taken as c_int)
        }
        b"rccl" => (&[table::RCCL], Some(Runtime::Rccl), 0),
        _ => (&[], None, answer::number(Status::InvalidArgument) as c_int),
    };
    for (&kind, &table) in kinds.iter().zip(tables).filter(|(_, table)| !table.is_null()) {
        // SAFETY: as the caller promises.
        unsafe { intercept_tables::tell(kind, version, instance, table) };
    }
    if let Some(runtime) = runtime {
        runtimes::begins(Initialization { runtime, version, instance });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_belongs_to_the_tool_of_its_library() {
        unsafe extern "C-unwind" fn ours(_: ClientId) {}
        let (ours, of_libc) = (ours as *const () as usize, libc::abort as *const () as usize);
        let configured =
            Configured { size: 0, initialize: None, finalize: None, tool_data: ptr::null_mut() };
        let client = |handle, function| Client {
            handle,
            library: sys::library_of(function),
            id: NonNull::from(Box::leak(Box::new(ClientId::new(handle)))),
            configured,
        };
        let both = [client(1, ours), client(2, of_libc)];
        lock(&CLIENTS).expect("free").extend(both);
        tools::set_current(2);
        assert!(SDK.begin_initialization());
        assert_eq!(client_of(ours), 2, "the one that is being initialized");
        SDK.end_initialization();
        let nobodys = &raw const *Box::new(0) as usize;
        assert_eq!([ours, of_libc, nobodys].map(client_of), [1, 2, 2]);
    }
}
