//! The code that the new thread runs, and the page that it shares with roctap.
//!
//! The code is copied into the block, so it is position independent and finds everything relative to the block's
//! beginning, which the thread begins with in `rbx`. Until the thread has a mapping that it may write to, it uses no
//! memory. It never calls libc before `go`, and then `pthread_create` alone: the rest (`dlopen`, `dlsym`, the shim)
//! runs on an ordinary thread of the process. If the shim is loaded already, the new thread does not even call
//! `pthread_create`: the shim hands the work to a thread of its own.
#![expect(unsafe_code, reason = "the addresses of the assembled code")]

use core::arch::global_asm;

use tracer_common::shim::Attach;

/// Offset in the block of the page that is shared with roctap; the code is before it.
pub const PAGE: u64 = 0x1000;

/// Offsets in the shared page. An [`Attach`] is at its beginning.
pub mod at {
    /// Address of the function that attaches again, or 0: the shim is to be loaded.
    pub const ENTRY: usize = 0x80;
    /// Addresses of functions of the process's libc.
    pub const DLOPEN: usize = 0x88;
    pub const DLSYM: usize = 0x90;
    pub const DLERROR: usize = 0x98;
    pub const PTHREAD_CREATE: usize = 0xa0;
    pub const PTHREAD_DETACH: usize = 0xa8;
    /// The address where libc expects the thread's id.
    pub const TID_SLOT: usize = 0xb0;
    /// The descriptors of the memory and of the library; -1 before, or an error.
    pub const MEMORY_FD: usize = 0xb8;
    pub const LIBRARY_FD: usize = 0xc0;
    /// One of [`super::go`], 32 bits.
    pub const GO: usize = 0xc8;
    /// One of [`super::state`], 32 bits.
    pub const STATE: usize = 0xcc;
    /// 0 once the thread is gone, 32 bits: written by the kernel.
    pub const ALIVE: usize = 0xd0;
    /// The id of the thread that is at work, as the process sees it: of the new one, then of the ordinary
    /// one that it starts.
    pub const TID: usize = 0xd8;
    /// An error number of a system call or of `pthread_create`.
    pub const ERROR: usize = 0xe0;
    /// A `pthread_t`.
    pub const THREAD: usize = 0xe8;
    /// A `timespec`: how long the thread sleeps between looks.
    pub const NAP: usize = 0xf0;
    /// Strings.
    pub const MEMORY_NAME: usize = 0x100;
    pub const LIBRARY_NAME: usize = 0x140;
    pub const SYMBOL: usize = 0x180;
    pub const PATH: usize = 0x200;
    /// The message of `dlerror`.
    pub const MESSAGE: usize = 0x300;
    /// The most bytes of the message.
    pub const MESSAGE_BYTES: usize = 0x400;
}

/// Orders to the thread: values at [`at::GO`], where 0 means no order yet.
pub mod go {
    /// The descriptors are filled.
    pub const GO: u32 = 1;
    /// Roctap has read everything: end.
    pub const END: u32 = 2;
}

/// The thread's progress: values at [`at::STATE`].
pub mod state {
    pub const STARTED: u32 = 0;
    /// The descriptors are there.
    pub const READY: u32 = 1;
    /// The shim is being loaded.
    pub const LOADING: u32 = 2;
    /// The shim has been called.
    pub const CALLED: u32 = 3;
    /// `dlopen` or `dlsym` failed; there is a message.
    pub const NOT_LOADED: u32 = 4;
    /// A system call or `pthread_create` failed; there is an error number.
    pub const FAILED: u32 = 5;
    /// Roctap never gave the order to go.
    pub const GAVE_UP: u32 = 6;
}

/// Nanoseconds of the first nap, and by how much each nap is longer than the one before: an order that roctap does not
/// give at once is mostly never given.
pub const NAP_NS: u64 = 100_000;
const LONGER_NS: u32 = 2_000;
/// The signals that the thread blocks, by which others know it: all but 33, for which the process's `setuid` would
/// wait. The stopped thread, which makes it, blocks all of them.
pub const SIGNALS: u64 = !(1 << 32);
/// The signals that the ordinary thread blocks: all but 32 and 33, which glibc uses itself.
const ORDINARY_SIGNALS: u64 = !(0b11 << 31);
/// The number of naps until the thread gives up, after 60 s at least: it waits for `go`, which a roctap without a CPU
/// gives late, and again for the end.
const NAPS: u32 = 7_700;

const _: () = assert!(size_of::<Attach>() <= at::ENTRY);

global_asm!(
    ".pushsection .rodata.roctap_bootstrap, \"a\"",
    ".globl roctap_bootstrap, roctap_bootstrap_end",
    ".hidden roctap_bootstrap, roctap_bootstrap_end",
    "roctap_bootstrap:",
    // The existing thread executes this, and the kernel makes the new one, which goes on behind it.
    // The existing one is stopped there and put back.
    "syscall",
    // mprotect(page, r12, READ | WRITE): what is written to is not executable.
    "lea rdi, [rbx + {PAGE}]",
    "mov rsi, r12",
    "mov edx, 3",
    "mov eax, 10",
    "syscall",
    "test rax, rax",
    "jnz 90f",
    "movabs rax, {SIGNALS}",
    "call 94f",
    "lea rbx, [rbx + {PAGE}]",
    // gettid, for libc's locks.
    "mov eax, 186",
    "syscall",
    "mov [rbx + {TID}], rax",
    "mov rcx, [rbx + {TID_SLOT}]",
    "mov [rcx], eax",
    "lea rdi, [rbx + {MEMORY_NAME}]",
    "call 96f",
    "mov [rbx + {MEMORY_FD}], rax",
    "test rax, rax",
    "js 80f",
    "cmp qword ptr [rbx + {ENTRY}], 0",
    "jne 20f",
    "lea rdi, [rbx + {LIBRARY_NAME}]",
    "call 96f",
    "mov [rbx + {LIBRARY_FD}], rax",
    "test rax, rax",
    "js 80f",
    "20:",
    "mov dword ptr [rbx + {STATE}], {READY}",
    "mov r12d, {NAPS}",
    "21:",
    "mov ecx, [rbx + {GO}]",
    "cmp ecx, {GO_GO}",
    "je 30f",
    "cmp ecx, {GO_END}",
    "je 70f",
    "dec r12d",
    "jz 70f",
    "call 95f",
    "jmp 21b",
    "30:",
    "mov rax, [rbx + {ENTRY}]",
    "test rax, rax",
    "jz 33f",
    // What is there already hands the work to a thread of its own.
    "mov dword ptr [rbx + {STATE}], {CALLED}",
    "mov rdi, rbx",
    "call rax",
    "jmp 34f",
    // pthread_create(&thread, NULL, payload, page)
    "33:",
    "mov dword ptr [rbx + {STATE}], {LOADING}",
    "lea rdi, [rbx + {THREAD}]",
    "xor esi, esi",
    "lea rdx, [rip + 50f]",
    "mov rcx, rbx",
    "call [rbx + {PTHREAD_CREATE}]",
    "test eax, eax",
    "jz 31f",
    "neg rax",
    "jmp 80f",
    "31:",
    "mov rdi, [rbx + {THREAD}]",
    "call [rbx + {PTHREAD_DETACH}]",
    // The path of the library names this thread: stay until it has been loaded and all is seen.
    "34:",
    "mov r12d, {NAPS}",
    "32:",
    "cmp dword ptr [rbx + {GO}], {GO_END}",
    "je 40f",
    "dec r12d",
    "jz 40f",
    "call 95f",
    "jmp 32b",
    // The memory's descriptor is the shim's to close, if it was reached.
    "40:",
    "cmp dword ptr [rbx + {STATE}], {NOT_LOADED}",
    "je 81f",
    "cmp qword ptr [rbx + {ENTRY}], 0",
    "jne 90f",
    "mov rdi, [rbx + {LIBRARY_FD}]",
    "mov eax, 3",
    "syscall",
    "jmp 90f",
    // Nobody said go, or something failed: leave no descriptor behind.
    "70:",
    "mov dword ptr [rbx + {STATE}], {GAVE_UP}",
    "jmp 81f",
    "80:",
    "mov [rbx + {ERROR}], rax",
    "mov dword ptr [rbx + {STATE}], {FAILED}",
    "81:",
    "mov rdi, [rbx + {MEMORY_FD}]",
    "mov eax, 3",
    "syscall",
    "mov rdi, [rbx + {LIBRARY_FD}]",
    "mov eax, 3",
    "syscall",
    // exit, of this thread alone.
    "90:",
    "xor edi, edi",
    "mov eax, 60",
    "syscall",
    "ud2",
    // nanosleep
    "95:",
    "lea rdi, [rbx + {NAP}]",
    "xor esi, esi",
    "mov eax, 35",
    "syscall",
    "add qword ptr [rbx + {NAP} + 8], {LONGER_NS}",
    "ret",
    // rt_sigprocmask(SIG_SETMASK, &rax, NULL, 8)
    "94:",
    "push rax",
    "mov edi, 2",
    "mov rsi, rsp",
    "xor edx, edx",
    "mov r10d, 8",
    "mov eax, 14",
    "syscall",
    "pop rax",
    "ret",
    // memfd_create(rdi, MFD_CLOEXEC | MFD_ALLOW_SEALING), which is not to be 0 to 2: who has closed these may still write
    // to them. Those that it gets are closed when it has another one.
    "96:",
    "xor r13d, r13d",
    "97:",
    "mov esi, 3",
    "mov eax, 319",
    "syscall",
    "cmp rax, 2",
    "ja 98f",
    "bts r13d, eax",
    "jmp 97b",
    "98:",
    "mov r14, rax",
    "92:",
    "bsf edi, r13d",
    "jz 93f",
    "btr r13d, edi",
    "mov eax, 3",
    "syscall",
    "jmp 92b",
    "93:",
    "mov rax, r14",
    "ret",
    // The ordinary thread: void *payload(page).
    "50:",
    "push rbx",
    "mov rbx, rdi",
    // gettid
    "mov eax, 186",
    "syscall",
    "mov [rbx + {TID}], rax",
    "movabs rax, {ORDINARY_SIGNALS}",
    "call 94b",
    "lea rdi, [rbx + {PATH}]",
    // RTLD_NOW
    "mov esi, 2",
    "call [rbx + {DLOPEN}]",
    "test rax, rax",
    "jz 65f",
    "mov rdi, rax",
    "lea rsi, [rbx + {SYMBOL}]",
    "call [rbx + {DLSYM}]",
    "test rax, rax",
    "jz 65f",
    "mov dword ptr [rbx + {STATE}], {CALLED}",
    "mov rdi, rbx",
    "pop rbx",
    // The shim removes this block at its end, so nothing may return here.
    "jmp rax",
    "65:",
    "call [rbx + {DLERROR}]",
    "test rax, rax",
    "jz 67f",
    "lea rdi, [rbx + {MESSAGE}]",
    "mov rsi, rax",
    "mov ecx, {MESSAGE_BYTES} - 1",
    "66:",
    "mov al, [rsi]",
    "test al, al",
    "jz 67f",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec ecx",
    "jnz 66b",
    "67:",
    "mov dword ptr [rbx + {STATE}], {NOT_LOADED}",
    "xor eax, eax",
    "pop rbx",
    "ret",
    "roctap_bootstrap_end:",
    ".popsection",
    PAGE = const PAGE,
    ENTRY = const at::ENTRY,
    DLOPEN = const at::DLOPEN,
    DLSYM = const at::DLSYM,
    DLERROR = const at::DLERROR,
    PTHREAD_CREATE = const at::PTHREAD_CREATE,
    PTHREAD_DETACH = const at::PTHREAD_DETACH,
    TID_SLOT = const at::TID_SLOT,
    MEMORY_FD = const at::MEMORY_FD,
    LIBRARY_FD = const at::LIBRARY_FD,
    GO = const at::GO,
    STATE = const at::STATE,
    TID = const at::TID,
    ERROR = const at::ERROR,
    THREAD = const at::THREAD,
    NAP = const at::NAP,
    MEMORY_NAME = const at::MEMORY_NAME,
    LIBRARY_NAME = const at::LIBRARY_NAME,
    SYMBOL = const at::SYMBOL,
    PATH = const at::PATH,
    MESSAGE = const at::MESSAGE,
    MESSAGE_BYTES = const at::MESSAGE_BYTES,
    GO_GO = const go::GO,
    GO_END = const go::END,
    READY = const state::READY,
    LOADING = const state::LOADING,
    CALLED = const state::CALLED,
    NOT_LOADED = const state::NOT_LOADED,
    FAILED = const state::FAILED,
    GAVE_UP = const state::GAVE_UP,
    LONGER_NS = const LONGER_NS,
    SIGNALS = const SIGNALS,
    ORDINARY_SIGNALS = const ORDINARY_SIGNALS,
    NAPS = const NAPS,
);

unsafe extern "C" {
    static roctap_bootstrap: u8;
    static roctap_bootstrap_end: u8;
}

/// The code.
pub fn code() -> &'static [u8] {
    // SAFETY: both symbols are of the section above, in this order; it is never written to.
    unsafe {
        let start = &raw const roctap_bootstrap;
        let bytes = (&raw const roctap_bootstrap_end).offset_from_unsigned(start);
        core::slice::from_raw_parts(start, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_fits_and_begins_with_the_system_call() {
        assert!(code().len() < PAGE as usize / 2);
        assert_eq!(code()[..2], [0x0f, 0x05]);
    }

    #[test]
    fn the_code_is_position_independent() {
        // Relative jumps and one RIP-relative address: no instruction may name an address outside.
        let base = 0x1000;
        let mut decoder =
            iced_x86::Decoder::with_ip(64, code(), base, iced_x86::DecoderOptions::NONE);
        let inside = base..base + code().len() as u64;
        for instruction in &mut decoder {
            assert!(!instruction.is_invalid(), "{instruction}");
            if instruction.is_ip_rel_memory_operand() {
                assert!(inside.contains(&instruction.ip_rel_memory_address()), "{instruction}");
            }
            if matches!(instruction.op0_kind(), iced_x86::OpKind::NearBranch64) {
                assert!(inside.contains(&instruction.near_branch_target()), "{instruction}");
            }
        }
    }
}
