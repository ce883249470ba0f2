//! The operating system, as far as it is needed: clock, futex, thread, pages.
//!
//! Everything goes through libc and nothing through `std::thread` or `std::sync`: a standard thread
//! brings thread-locals with destructors, which must not exist in a library that lives in somebody
//! else's process until the very end of it.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How far this process's CLOCK_BOOTTIME is ahead of [`now_ns`].
static AHEAD_NS: AtomicU64 = AtomicU64::new(0);

/// Now, ns of CLOCK_BOOTTIME, the HSA system clock. The vDSO serves it without a system call.
#[inline]
pub fn now_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid for writes; the clock exists since Linux 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut t) };
    let ns = t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64;
    ns.wrapping_sub(ahead_ns())
}

/// How far this process's CLOCK_BOOTTIME is ahead of [`now_ns`], ns: not 0 in a time namespace of its own, once
/// [`take_machines_time`] was called.
#[inline]
pub fn ahead_ns() -> u64 {
    AHEAD_NS.load(Ordering::Relaxed)
}

/// [`now_ns`] is the machine's from now on, where that can be told: in the process's time namespace or outside.
pub fn take_machines_time() {
    if let Some(ahead_ns) = namespace_ns() {
        AHEAD_NS.store(ahead_ns, Ordering::Relaxed);
    }
}

/// How far CLOCK_BOOTTIME is ahead in the time namespace of this process. What the kernel tells is that of its
/// children's, which is the same unless the process has made them another.
fn namespace_ns() -> Option<u64> {
    if inode(c"/proc/self/ns/time")? != inode(c"/proc/self/ns/time_for_children")? {
        return None;
    }
    let understand = |value: &str| {
        let mut numbers = value.split_ascii_whitespace().map(str::parse::<i64>);
        let (seconds, ns) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(seconds.checked_mul(1_000_000_000)?.checked_add(ns)?.cast_unsigned())
    };
    line(c"/proc/self/timens_offsets", b"boottime", understand)
}

fn inode(path: &CStr) -> Option<u64> {
    // SAFETY: the path is NUL-terminated, and `stat` is valid for writes; zeros are a value of it.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        (libc::stat(path.as_ptr(), &raw mut stat) == 0).then_some(stat.st_ino)
    }
}

/// Ns of a clock that stands still while the machine is suspended, when nobody can do anything.
pub fn awake_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid for writes; the clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

/// Sleeps for about `ns`; returns early on a signal. Not by libc's function, at which a thread can be cancelled, and by a
/// system call that every program of several threads makes: a seccomp filter may kill for others.
pub fn sleep_ns(ns: u64) {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    futex_wait(&NEVER, 0, ns);
}

/// While this exists, the calling thread is not cancelled (`pthread_cancel`): our code holds locks, and
/// cancelling unwinds the stack, which ends the process where it meets ours.
pub struct Uncancelled {
    state: c_int,
    kind: c_int,
}

const CANCEL_DISABLE: c_int = 1;
const CANCEL_DEFERRED: c_int = 0;
const CANCEL_ASYNCHRONOUS: c_int = 1;

unsafe extern "C-unwind" {
    // They may unwind: a thread that was cancelled meanwhile, and asked to be at any instruction, is.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

impl Uncancelled {
    /// From now on.
    #[inline]
    pub fn begin() -> Self {
        let (mut state, mut kind) = (CANCEL_DISABLE, CANCEL_DEFERRED);
        // SAFETY: both are valid for writes.
        unsafe {
            pthread_setcancelstate(CANCEL_DISABLE, &raw mut state);
            pthread_setcanceltype(CANCEL_DEFERRED, &raw mut kind);
        }
        Self { state, kind }
    }

    /// As before. It need not return: nothing of ours may be held.
    #[inline]
    pub fn end(self) {
        // SAFETY: what the thread was.
        unsafe {
            pthread_setcancelstate(self.state, ptr::null_mut());
            if self.kind == CANCEL_ASYNCHRONOUS {
                // Of the two only this looks whether the thread was cancelled meanwhile, in glibc from
                // 2.34 to 2.40.
                pthread_setcanceltype(self.kind, ptr::null_mut());
            }
        }
    }
}

/// Waits until `word` is woken, differs from `expected`, or `timeout_ns` have passed.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    let t = timespec(timeout_ns);
    // SAFETY: the word and the timeout are valid for the whole call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            &raw const t,
        )
    };
}

/// Wakes `count` waiters of `word`.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    // SAFETY: waking touches no memory of ours.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            count,
        )
    };
}

/// A number for the calling thread, not 0, below 2^31 - 1: from where its thread block is, without a call.
/// That two threads that live have the same takes blocks that are a multiple of 128 GiB apart.
#[inline]
pub fn thread_mark() -> u32 {
    ((thread_block() >> 6) as u32 | 1) & 0x7FFF_FFFD
}

/// Where the calling thread's block is.
#[inline]
fn thread_block() -> usize {
    let block: usize;
    // SAFETY: on x86-64 the thread pointer points at itself.
    unsafe {
        core::arch::asm!("mov {}, fs:0", out(reg) block, options(nostack, pure, readonly));
    }
    block
}

/// How many threads have seen that libc keeps a thread's id where it has in all its releases of x86-64.
static TIDS_SEEN: AtomicU32 = AtomicU32::new(0);

/// Looks where libc keeps the calling thread's id. When two threads have, [`gettid`] makes no system call any more, for
/// which a seccomp filter may kill.
pub fn look_for_tid() {
    if kept_tid() == asked_tid() {
        TIDS_SEEN.fetch_add(1, Ordering::Relaxed);
    }
}

/// Thread id of the caller.
pub fn gettid() -> u32 {
    if TIDS_SEEN.load(Ordering::Relaxed) >= 2 { kept_tid() } else { asked_tid() }
}

/// By libc, in the calling thread's block.
fn kept_tid() -> u32 {
    /// In glibc's `struct pthread`.
    const AT: usize = 0x2d0;
    // SAFETY: the thread's own block, which is longer; only the thread itself changes it, in a child after a fork.
    unsafe { ((thread_block() + AT) as *const u32).read() }
}

fn asked_tid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Process id of the caller, as it sees it.
pub fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::getpid() as u32 }
}

/// Process id of the caller, as the `/proc` that it has mounted shows it: in a PID namespace of its own another
/// one, where that is the host's. `None` without a `/proc`.
pub fn pid_in_proc() -> Option<u32> {
    line(STATUS, b"Tgid:", |value| value.parse().ok())
}

/// Whether a seccomp filter is in force for the calling thread, or may be. It can kill for any call that the
/// program itself does not make, so those are left out then: what is read here every program reads.
pub fn is_confined() -> bool {
    line(STATUS, b"Seccomp:", |value| Some(value != "0")).unwrap_or(true)
}

/// What the kernel tells of the calling thread.
const STATUS: &CStr = c"/proc/thread-self/status";

/// What the line of a file of the kernel's says that begins with `name`.
fn line<T>(path: &CStr, name: &[u8], understand: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut text = [0u8; 4096];
    // SAFETY: the path is NUL-terminated, `text` is valid for writes, and the descriptor is ours.
    let length = unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        length
    };
    let text = text.get(..usize::try_from(length).ok()?)?;
    let value = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    understand(core::str::from_utf8(value.trim_ascii()).ok()?)
}

/// The words at `address` of this process, or `None` if there is no memory: it cannot fault. Not where the
/// thread [is confined](is_confined).
pub fn read_words<const N: usize>(address: usize) -> Option<[u32; N]> {
    let mut words = [0u32; N];
    let bytes = size_of_val(&words);
    let to = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: bytes };
    let from = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes };
    // By the thread: the process's first one, which its number stands for, may have ended.
    let own = gettid().cast_signed();
    // SAFETY: `words` is valid for writes; whatever is at `address` is checked by the kernel.
    let read = unsafe { libc::process_vm_readv(own, &raw const to, 1, &raw const from, 1, 0) };
    (usize::try_from(read) == Ok(bytes)).then_some(words)
}

/// Whether the words from `address` to `bytes` further, at most a page, can be read.
///
/// The kernel is asked: it reads a signal mask before it finds that there is nothing to do with it. No
/// privilege and no descriptor is needed, and no sandbox forbids the call.
pub fn is_readable(address: usize, bytes: usize) -> bool {
    const NOTHING: i32 = -1;
    let readable = |address: usize| {
        // SAFETY: whatever is at `address` is checked by the kernel; no mask is changed.
        let refused = unsafe {
            libc::syscall(libc::SYS_rt_sigprocmask, NOTHING, address, 0usize, 8usize);
            *libc::__errno_location()
        };
        refused == libc::EINVAL
    };
    let last = address.checked_add(bytes.saturating_sub(8));
    bytes <= 4096
        && address != 0
        && address.is_multiple_of(align_of::<usize>())
        && last.is_some_and(|last| readable(address) && readable(last))
}

/// The code at `address`, if as much of it, at most a page less a word, can be read.
pub fn read_code<const N: usize>(address: usize) -> Option<[u8; N]> {
    let begin = address & !(align_of::<usize>() - 1);
    is_readable(begin, N + align_of::<usize>()).then(|| {
        // SAFETY: it can be read. Somebody may put a breakpoint there meanwhile: bytes of code are atomic.
        unsafe { ptr::read_volatile(address as *const [u8; N]) }
    })
}

/// Where the library that holds `address` begins; `None` if no library does.
pub fn library_of(address: usize) -> Option<usize> {
    // SAFETY: `info` is valid for writes; the address is compared, not read.
    let info = unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        (libc::dladdr(address as *const c_void, &raw mut info) != 0).then_some(info)?
    };
    Some(info.dli_fbase as usize)
}

/// Has the library that holds `address` stay for as long as the process; false if no library does.
///
/// None of its functions is called, and the order in which its and others' destructors run at the
/// end of the process stays as it is. One that would have run when the library was unloaded runs then.
pub fn pin(address: usize) -> bool {
    open(address, libc::RTLD_NODELETE).is_some()
}

/// Opens the library that holds `address`, which is in use, once more: its handle and where it begins.
fn open(address: usize, flags: c_int) -> Option<(*mut c_void, usize)> {
    // SAFETY: `info` and `map` are valid for writes. What is found is a link map, whose name lives as
    // long as it, which is until `dlclose`: whoever calls us makes sure that the library is in use.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let mut map = ptr::null_mut();
        let found =
            libc::dladdr1(address as *const c_void, &raw mut info, &raw mut map, RTLD_DL_LINKMAP);
        if found == 0 || map.is_null() {
            return None;
        }
        // Of another namespace, if the library was loaded by `dlmopen`.
        let mut namespace: libc::Lmid_t = 0;
        if libc::dlinfo(map, libc::RTLD_DI_LMID, (&raw mut namespace).cast()) != 0 {
            return None;
        }
        let name = (*map.cast::<LinkMap>()).name;
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | flags;
        let handle = libc::dlmopen(namespace, name, flags);
        if handle.is_null() {
            // What it has left for `dlerror` is not the program's.
            libc::dlerror();
        }
        (handle == map).then_some((handle, info.dli_fbase as usize))
    }
}

/// Where a library is.
#[derive(Clone, Copy)]
pub struct Extent {
    /// Its first address.
    pub begin: usize,
    /// The one behind its last.
    pub end: usize,
    /// An address among its data.
    pub data: usize,
}

impl Extent {
    /// Of a library at `address` with these program headers; none of one without data.
    fn of(address: usize, headers: &[libc::Elf64_Phdr]) -> Option<Self> {
        let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let from = |header: &libc::Elf64_Phdr| address.wrapping_add(header.p_vaddr as usize);
        Some(Self {
            begin: loaded().map(from).min()?,
            end: loaded().map(|header| from(header).wrapping_add(header.p_memsz as usize)).max()?,
            data: loaded().filter(|header| header.p_flags & libc::PF_W != 0).map(from).max()?,
        })
    }
}

/// Where the one library is whose file's name begins like this, and goes on with a version (`.so.6`) or with what
/// makes it unique (`-0a1b2c3d.so.6`); none if none is loaded, or several are.
pub fn the_only_library(beginning: &[u8]) -> Option<Extent> {
    struct Found<'a> {
        beginning: &'a [u8],
        extent: Option<Extent>,
        count: usize,
    }
    /// # Safety
    ///
    /// `found` is the value of below.
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: what the C library gives, and the value of below.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Found<'_>>()) };
        if info.dlpi_name.is_null() || info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: a path, and as many program headers as there are, which stay while the library does.
        let (path, headers) = unsafe {
            let headers = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            (CStr::from_ptr(info.dlpi_name).to_bytes(), headers)
        };
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let rest = name.strip_prefix(found.beginning).unwrap_or_default();
        if matches!(rest.first(), Some(b'.' | b'-')) {
            found.extent = Extent::of(info.dlpi_addr as usize, headers);
            found.count += 1;
        }
        0
    }
    let mut found = Found { beginning, extent: None, count: 0 };
    // SAFETY: a function that takes what it is given here.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found.extent.filter(|_| found.count == 1)
}

/// Longest name of a function that is looked up, with its NUL.
const MAX_NAME: usize = 80;

/// A library whose functions are looked up. It must be in use as long as this exists.
pub struct Library {
    handle: *mut c_void,
    begin: usize,
    /// An address in its data, which follow its code.
    data: usize,
}

impl Library {
    /// The library that has `data` among its data; none if no library does.
    pub fn of(data: usize) -> Option<Self> {
        let (handle, begin) = open(data, 0)?;
        Some(Self { handle, begin, data })
    }

    /// The address of an exported function of its own.
    pub fn function(&self, name: &str) -> Option<usize> {
        // Nothing is allocated here.
        let mut with_nul = [0u8; MAX_NAME];
        with_nul.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        let name = CStr::from_bytes_until_nul(&with_nul).ok()?;
        // SAFETY: the handle is open, the name ends in NUL.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) } as usize;
        if found == 0 {
            // As in `open`.
            // SAFETY: takes nothing.
            unsafe { libc::dlerror() };
        }
        // Else it is of a library that this one depends on.
        (self.begin..self.data).contains(&found).then_some(found)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: opened in `of`. The library is in use, so this only counts.
        unsafe { libc::dlclose(self.handle) };
    }
}

/// Of `dlfcn.h`.
const RTLD_DL_LINKMAP: core::ffi::c_int = 2;

/// The beginning of `struct link_map`.
#[repr(C)]
struct LinkMap {
    _address: usize,
    name: *const core::ffi::c_char,
}

/// Blocks every signal in the calling thread.
pub fn block_signals() {
    // SAFETY: the set is filled before it is used; the old mask is not asked for.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

/// A box; none without memory for it, where `Box::new` would end the process.
pub fn boxed<T>(value: T) -> Option<Box<T>> {
    const { assert!(size_of::<T>() != 0) };
    // SAFETY: the layout has a size, the place is valid for a `T`, and is allocated as boxes are.
    unsafe {
        let place = std::alloc::alloc(core::alloc::Layout::new::<T>()).cast::<T>();
        if place.is_null() {
            return None;
        }
        place.write(value);
        Some(Box::from_raw(place))
    }
}

/// Adds to a list; false, and nothing, without memory for it, where `Vec::push` would end the process.
pub fn push<T>(list: &mut Vec<T>, value: T) -> bool {
    let room = list.try_reserve(1).is_ok();
    if room {
        list.push(value);
    }
    room
}

/// Runs `call`, a function of the runtime that takes locks of its own, while signals wait: a handler that
/// left by `siglongjmp` would leave them taken, in a call that the program knows nothing of.
pub fn uninterrupted<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: both sets are valid, and the second is the thread's mask of before.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut old: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        let result = call();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, ptr::null_mut());
        result
    }
}

/// A type for which memory full of zeros is a valid value and that has no destructor.
///
/// # Safety
///
/// Only for such types.
pub unsafe trait Zeroed {}

/// `count` zeroed values that live for ever; see [`map_pages`].
pub fn zeroed_slice<T: Zeroed>(count: usize) -> Option<&'static [T]> {
    let bytes = count.checked_mul(size_of::<T>())?;
    let at = map_pages(bytes, None, bytes)?;
    // SAFETY: the pages hold `count` zeroed `T`, valid by `Zeroed`, and are never unmapped.
    Some(unsafe { core::slice::from_raw_parts(at.cast::<T>(), count) })
}

/// Maps `bytes`, of the beginning of a file, shared with others, or zeros of our own, of which the first so many may be
/// used; [`open_pages`] has others used. None where the kernel refuses.
///
/// A page of a file costs nothing until it is touched, also where the process has all that is mapped locked into
/// memory (`mlockall(MCL_FUTURE)`): that would bring in every page at once, and charge the process for them. Pages of
/// our own, of which there are few, are mapped by threads of the program, and are not unlocked: a seccomp filter may kill
/// for that. And none is in a core dump, which is the process's. They stay in forked children: one that was made without
/// libc's `fork` does not know that it is one, and would crash in a hook.
pub fn map_pages(bytes: usize, file: Option<c_int>, usable: usize) -> Option<*mut c_void> {
    let (flags, file) = match file {
        Some(file) => (libc::MAP_SHARED, file),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
    };
    // SAFETY: a fresh mapping of pages that nobody may touch yet, so that none is brought in. What
    // fails after that changes what it costs, or that it can be used, which is asked for.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, file, 0);
        if at == libc::MAP_FAILED {
            return None;
        }
        if flags == libc::MAP_SHARED && !is_confined() {
            libc::munlock(at, bytes);
        }
        libc::madvise(at, bytes, libc::MADV_DONTDUMP);
        if !open_pages(at, usable) {
            libc::munmap(at, bytes);
            return None;
        }
        Some(at)
    }
}

/// Has `bytes` from `at` on be read and written, of what [`map_pages`] has mapped; false where the kernel refuses.
///
/// # Safety
///
/// They are of one mapping, which is there.
pub unsafe fn open_pages(at: *mut c_void, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { libc::mprotect(at, bytes, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}

/// Bytes of a file that cannot become shorter: mapped, one that can would kill whoever has it so (SIGBUS). None of
/// every other one.
pub fn sealed_bytes(file: c_int) -> Option<usize> {
    // SAFETY: `stat` is valid for writes.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        let seals = libc::fcntl(file, libc::F_GET_SEALS);
        let is_sealed = seals > 0 && seals & libc::F_SEAL_SHRINK != 0;
        let is_known = is_sealed && libc::fstat(file, &raw mut stat) == 0;
        is_known.then(|| usize::try_from(stat.st_size).ok()).flatten()
    }
}

/// Whether so many bytes more are an eighth of what the process may map at most (`RLIMIT_AS`), and leave as much as they
/// take.
pub fn leaves_room(bytes: usize) -> bool {
    const PAGE: u64 = 4096;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    let is_limited = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } == 0
        && limit.rlim_cur != libc::RLIM_INFINITY;
    let mapped =
        || line(c"/proc/self/statm", b"", |sizes| sizes.split(' ').next()?.parse::<u64>().ok());
    let left = |pages: u64| limit.rlim_cur.saturating_sub(pages.saturating_mul(PAGE));
    let bytes = bytes as u64;
    !is_limited
        || bytes <= limit.rlim_cur / 8 && mapped().is_some_and(|pages| bytes <= left(pages) / 2)
}

/// What a thread of ours has of its stack.
const OWN_STACK_BYTES: usize = 512 << 10;

/// Starts a thread named `name` with every signal blocked; false when that failed.
///
/// It is detached; what it runs must live as long as the process. It is scheduled by itself: it may run
/// on every CPU that the kernel lets the process have, and neither waits for the thread that starts it
/// nor goes before others as that may (`SCHED_FIFO`, one CPU, a nice value).
pub fn spawn(
    name: &'static core::ffi::CStr,
    run: extern "C" fn(*mut c_void) -> *mut c_void,
) -> bool {
    // SAFETY: every pointer is valid for its call; the attributes are destroyed after use; the
    // signal mask of the calling thread is restored.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        if libc::pthread_attr_init(&raw mut attributes) != 0 {
            return false;
        }
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let bytes = OWN_STACK_BYTES + others_stack_bytes(&raw const attributes);
        libc::pthread_attr_setstacksize(&raw mut attributes, bytes);
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut old: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        let mut thread: libc::pthread_t = 0;
        let mut create = |attributes: *const libc::pthread_attr_t| {
            libc::pthread_create(&raw mut thread, attributes, run, ptr::null_mut())
        };
        // By the one who starts it, before it runs: on the one CPU of a thread that is real time and does
        // not sleep it never would.
        let mut failed = match !is_confined() && own_schedule(&raw mut attributes) {
            true => create(&raw const attributes),
            false => libc::EPERM,
        };
        if failed != 0 {
            // The kernel does not allow that, or a filter may not.
            libc::pthread_attr_setinheritsched(&raw mut attributes, libc::PTHREAD_INHERIT_SCHED);
            libc::pthread_attr_setaffinity_np(&raw mut attributes, 0, ptr::null());
            failed = create(&raw const attributes);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
        if failed == 0 {
            libc::pthread_setname_np(thread, name.as_ptr());
        }
        failed == 0
    }
}

/// How much of a thread's stack glibc takes for itself: the static thread-local variables of all libraries among them,
/// which can be larger than any stack.
///
/// # Safety
///
/// The attributes are initialized.
unsafe fn others_stack_bytes(attributes: *const libc::pthread_attr_t) -> usize {
    type MinStack = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    // SAFETY: the name ends in NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr()) };
    if found.is_null() {
        // SAFETY: takes nothing. What dlsym has noted is not the program's to see.
        unsafe { libc::dlerror() };
        return 0;
    }
    // SAFETY: glibc's function of that name, as it has been since 2.15.
    let min_stack = unsafe { core::mem::transmute::<*mut c_void, MinStack>(found) };
    // SAFETY: the caller's promise.
    unsafe { min_stack(attributes) }
}

/// All CPUs, of which the kernel leaves those of the process's cpuset; `SCHED_OTHER`.
///
/// # Safety
///
/// The attributes are initialized.
unsafe fn own_schedule(attributes: *mut libc::pthread_attr_t) -> bool {
    // SAFETY: what is pointed at is valid; the caller's promise.
    unsafe {
        let parameters: libc::sched_param = core::mem::zeroed();
        let cpus: libc::cpu_set_t = core::mem::transmute([!0u8; size_of::<libc::cpu_set_t>()]);
        libc::pthread_attr_setinheritsched(attributes, libc::PTHREAD_EXPLICIT_SCHED) == 0
            && libc::pthread_attr_setschedpolicy(attributes, libc::SCHED_OTHER) == 0
            && libc::pthread_attr_setschedparam(attributes, &raw const parameters) == 0
            && libc::pthread_attr_setaffinity_np(attributes, size_of_val(&cpus), &raw const cpus)
                == 0
    }
}

/// Makes the calling thread one of its own, where that is allowed: with the nice value 0, where it would have
/// that of the one that started it, and timed sleeps that end when they should, to which the default slack
/// of 50 µs would be added. Not where it [is confined](is_confined).
pub fn own_thread() {
    if is_confined() {
        return;
    }
    // SAFETY: these take numbers only; 0 is the calling thread.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1u64, 0u64, 0u64, 0u64);
        libc::setpriority(libc::PRIO_PROCESS, 0, 0);
    }
}

/// Calls `child` in every child that is made by `fork`.
pub fn at_fork(child: unsafe extern "C" fn()) {
    // SAFETY: the handler is a function of a library that is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// Calls `exit` when the process exits, before everything that was registered earlier.
pub fn at_exit(exit: extern "C" fn()) {
    // SAFETY: as in `at_fork`.
    unsafe { libc::atexit(exit) };
}

/// Spins for a moment.
#[inline]
pub fn relax(times: u32) {
    for _ in 0..times {
        core::hint::spin_loop();
    }
}

/// A one-way switch.
#[derive(Default)]
pub struct Once(AtomicU32);

impl Once {
    /// A switch that is off.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Switches on; true for the one caller that did.
    pub fn set(&self) -> bool {
        self.0.swap(1, Ordering::AcqRel) == 0
    }
}

/// How many CPUs the process may run on; 1 when unknown.
#[cfg(test)]
fn cpus() -> usize {
    // SAFETY: all zeros is a valid cpu_set_t, which the call fills.
    let count = unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        match libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) {
            0 => libc::CPU_COUNT(&set),
            _ => 1,
        }
    };
    usize::try_from(count).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_library_whose_name_goes_on_otherwise_is_another() {
        assert!(the_only_library(b"libgcc_s").is_some());
        assert!(the_only_library(b"libgcc").is_none());
    }

    /// Policy, CPUs and nice value of the calling thread.
    fn schedule() -> (c_int, usize, c_int) {
        // SAFETY: takes numbers only.
        unsafe {
            let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
            (libc::sched_getscheduler(0), cpus(), nice)
        }
    }

    #[test]
    fn our_threads_are_scheduled_by_themselves() {
        static SEEN: Mutex<Option<(c_int, usize, c_int)>> = Mutex::new(None);
        extern "C" fn look(_: *mut c_void) -> *mut c_void {
            own_thread();
            *SEEN.lock().expect("whole") = Some(schedule());
            ptr::null_mut()
        }
        let all = std::thread::spawn(|| {
            // SAFETY: all ones: as many as the kernel allows.
            unsafe {
                let cpus: libc::cpu_set_t =
                    core::mem::transmute([!0u8; size_of::<libc::cpu_set_t>()]);
                assert_eq!(libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus), 0);
            }
            cpus()
        });
        let all = all.join().expect("no panic");
        let starts = || {
            // SAFETY: of this thread alone, which is a test's.
            unsafe {
                let parameters: libc::sched_param = core::mem::zeroed();
                // What needs no privilege.
                assert_eq!(
                    libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters),
                    0
                );
                let mut one: libc::cpu_set_t = core::mem::zeroed();
                libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
                assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &raw const one), 0);
            }
            assert_eq!((schedule().0, schedule().1), (libc::SCHED_BATCH, 1));
            assert!(spawn(c"look", look));
            while SEEN.lock().expect("whole").is_none() {
                std::thread::yield_now();
            }
        };
        std::thread::spawn(starts).join().expect("no panic");
        let (policy, cpus, _) = SEEN.lock().expect("whole").expect("it looked");
        assert_eq!((policy, cpus), (libc::SCHED_OTHER, all));
    }

    #[test]
    fn reading_what_is_not_there_is_no_crash() {
        let words = [1u32, 2, 3, 4];
        assert_eq!(read_words(words.as_ptr() as usize), Some(words));
        assert_eq!(read_words::<4>(0), None);
        assert_eq!(read_words::<4>(usize::MAX - 64), None);
    }

    #[test]
    fn libraries_are_known_by_what_is_in_them() {
        static OURS: u8 = 0;
        let ours = &raw const OURS as usize;
        let of_libc = libc::getpid as *const () as usize;
        let heap = Box::new(0u8);
        assert_eq!(library_of(ours), library_of(pin as *const () as usize));
        assert_ne!(library_of(ours), library_of(of_libc));
        assert_eq!(library_of(&raw const *heap as usize), None);
        assert!(pin(of_libc) && !pin(&raw const *heap as usize));
    }

    #[test]
    fn memory_is_known_from_none() {
        let here = vec![0usize; 1000];
        let address = here.as_ptr() as usize;
        assert!(is_readable(address, 4096));
        // SAFETY: a fresh mapping that nobody may read.
        let closed = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0) as usize
        };
        for (address, bytes) in [
            (0, 8),
            (address + 1, 8),
            (4096, 8),
            (usize::MAX - 7, 16),
            (closed, 8),
            (address, 8192),
        ] {
            assert!(!is_readable(address, bytes), "{address:#x}");
        }
    }
}
