//! Helpers of the tests.

use std::process::Command;
use std::time::{Duration, Instant};

/// Longest that a test in a process of its own may take.
const DEADLINE: Duration = Duration::from_secs(300);

/// Runs the test `name` (its full path) in a process of its own: there is one state in a process, and
/// a thread that never comes back, or a crash, is to end with it.
pub fn alone(name: &str, test: impl FnOnce()) {
    const CHILD: &str = "ROCTAP_TEST_ALONE";
    if std::env::var_os(CHILD).is_some() {
        return test();
    }
    let own = std::env::current_exe().expect("own path");
    let mut child = Command::new(own)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .spawn()
        .expect("start");
    let deadline = Instant::now() + DEADLINE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().expect("kill");
            child.wait().expect("wait");
            panic!("{name} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{name}: {status}");
}

/// Threads that can be cancelled: not those of `std`, which end the process then.
#[expect(unsafe_code, reason = "functions of libc")]
pub mod cancelled {
    use core::ffi::{c_int, c_void};

    pub const DEFERRED: c_int = 0;
    pub const ASYNCHRONOUS: c_int = 1;
    /// The value that a cancelled thread returns.
    pub const CANCELED: usize = usize::MAX;

    pub type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

    unsafe extern "C-unwind" {
        fn pthread_create(to: *mut u64, with: usize, run: Start, argument: *mut c_void) -> c_int;
        fn pthread_cancel(thread: u64) -> c_int;
        fn pthread_join(thread: u64, result: *mut usize) -> c_int;
        pub fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
        pub fn pthread_testcancel();
    }

    /// Starts one, which takes the argument.
    pub fn start(run: Start, argument: *mut c_void) -> u64 {
        let mut thread = 0;
        // SAFETY: as the tests see to.
        assert_eq!(unsafe { pthread_create(&raw mut thread, 0, run, argument) }, 0);
        thread
    }

    /// Cancels one that was not joined.
    pub fn cancel(thread: u64) {
        // SAFETY: it was not joined.
        assert_eq!(unsafe { pthread_cancel(thread) }, 0);
    }

    /// Waits for its end, once; what it returned.
    pub fn join(thread: u64) -> usize {
        let mut result = 0;
        // SAFETY: it was not joined.
        assert_eq!(unsafe { pthread_join(thread, &raw mut result) }, 0);
        result
    }
}

/// A small deterministic generator (xorshift64*).
pub struct Random(u64);

impl Random {
    /// A generator whose numbers follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit.max(1)
    }
}
