//! The shared memory between `roctap tool` and the library of ROCprofiler-SDK that it has put into a running
//! process, and a tool with it.
//!
//! `roctap` fills it, takes a lock of the file (`flock`), and lets the library run. The library loads the tool, has it
//! configured, and waits for the lock in turn. The kernel gives the library the lock when `roctap` lets go of it, or
//! ends in any way: then the tool is finalized. The state of the tool stands in [`word::STATE`], and in words at
//! [`MESSAGE`].

/// "roctaptl", little endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"roctaptl");
/// Version of this memory. A library refuses another one, and `roctap` a library of another one.
pub const VERSION: u64 = 1;
/// The exported function that puts a tool in: `void *f(Attach *)`, called on a detached thread of its own that returns
/// to where threads begin. Of the fields of [`Attach`](crate::shim::Attach) it uses the version, the memory, the block,
/// and whether it may read.
pub const ATTACH_FUNCTION: &str = "roctap_attach_tool";
/// The exported 64-bit word that holds the [`VERSION`] of a library's file.
pub const PROTOCOL_WORD: &str = "ROCTAP_TOOL_PROTOCOL";
/// The name of the library's file: for tools that are built against ROCprofiler-SDK 0.5, and against 1.0.
pub const LIBRARIES: [&str; 2] = ["librocprofiler-sdk.so.0", "librocprofiler-sdk.so.1"];

/// Indices of 64-bit words at the beginning.
pub mod word {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// [`super::VERSION`].
    pub const VERSION: usize = 1;
    /// Written by the library: one of [`super::state`].
    pub const STATE: usize = 2;
    /// The number of words.
    pub const COUNT: usize = 8;
}

/// Values of [`word::STATE`].
pub mod state {
    /// The library has not begun.
    pub const NEW: u64 = 0;
    /// The tool is being loaded, configured and initialized: its own functions run.
    pub const BEGINS: u64 = 1;
    /// It is at work.
    pub const AT_WORK: u64 = 2;
    /// It takes no part; the message says why.
    pub const FAILED: u64 = 3;
    /// It is being finalized: its own functions run.
    pub const ENDS: u64 = 4;
    /// It has been finalized, and nothing of it is called any more.
    pub const ENDED: u64 = 5;
}

/// Offset of the tool's path, with NUL at its end.
pub const PATH: usize = 8 * word::COUNT;
/// Bytes of the path, as long as any path (PATH_MAX).
pub const PATH_BYTES: usize = 4096;
/// Offset of the library's message, with NUL at its end: written before the state that it is about.
pub const MESSAGE: usize = PATH + PATH_BYTES;
/// Bytes of the message.
pub const MESSAGE_BYTES: usize = 2048;
/// Bytes of the memory.
pub const BYTES: usize = 8192;

const _: () = assert!(MESSAGE + MESSAGE_BYTES <= BYTES);
