//! Threads of our own: they are started, and scheduled by themselves.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::{CStr, c_void};
use core::ptr;

use super::process::is_confined;
use super::thread::all_signals;

/// The part of its stack that a thread of ours has for itself.
const OWN_STACK_BYTES: usize = 512 << 10;

/// Starts a thread with every signal blocked; false when that failed.
///
/// It is detached; everything that it uses must live as long as the process. It is given its name, by which it calls
/// itself ([`name_thread`]). It has a schedule of its own: it may run on every CPU that the kernel lets the process
/// have, and neither waits for the thread that starts it nor goes before others as that may (`SCHED_FIFO`, one CPU, a
/// nice value).
pub fn spawn(name: &'static CStr, run: extern "C" fn(*mut c_void) -> *mut c_void) -> bool {
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
        let all = all_signals();
        let mut old: libc::sigset_t = core::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        let mut thread: libc::pthread_t = 0;
        let mut create = |attributes: *const libc::pthread_attr_t| {
            let name = name.as_ptr().cast_mut().cast();
            libc::pthread_create(&raw mut thread, attributes, run, name)
        };
        // The thread that starts it sets this, before it runs: on the one CPU of a thread that is real time and does
        // not sleep it would never run.
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
        failed == 0
    }
}

/// The bytes of a thread's stack that glibc takes for itself: the static thread-local variables of all libraries among
/// them, which can be larger than any stack.
///
/// # Safety
///
/// The attributes are initialized.
unsafe fn others_stack_bytes(attributes: *const libc::pthread_attr_t) -> usize {
    type MinStack = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    // SAFETY: the name ends in NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr()) };
    if found.is_null() {
        // SAFETY: takes nothing. The error that dlsym has noted is not the program's to see.
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

/// Names the calling thread, which [`spawn`] has started and given this. Not where it [is confined](is_confined). The
/// starting thread could name it only through a file.
pub fn name_thread(name: *mut c_void) {
    if !is_confined() {
        // SAFETY: the kernel reads the string, and refuses an address where there is none.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.expose_provenance(), 0u64, 0u64, 0u64) };
    }
}

/// Gives the calling thread a schedule of its own, where that is allowed: the nice value 0 in place of its starter's,
/// and timed sleeps that end when they should, to which the default slack of 50 µs would be added. Not where it [is
/// confined](is_confined).
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

/// The number of CPUs that the process may run on; 1 when unknown.
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
    use core::ffi::c_int;
    use std::sync::Mutex;

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
                // A policy that needs no privilege.
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
}
