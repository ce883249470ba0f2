//! API calls: entry, return, and the shim's dispatch site.

use aya_ebpf::{
    bindings::pt_regs,
    helpers::{
        bpf_get_current_pid_tgid, bpf_probe_read_user,
        generated::{bpf_get_attach_cookie, bpf_get_func_ip},
    },
};
use core::{arch::asm, ffi::c_void};
use tracer_common::{
    activity::Domain,
    bpf::{
        ApiRecord, Capture, Cookie, Elsewhere, Header, LinkRecord, MAX_DEPTH, OpenCall,
        ThreadState, flag, kind, phase,
    },
    calls::FIRST_ID,
    loss::BpfLoss,
    shim::{SITE_CALLS, SITE_OWN_CODE},
};

use crate::{
    maps::{self, ShimInfo, Wake},
    records::{emit_mark, has_message, header, now, submit, wake},
    stacks, threads,
};

/// Entry and return of an API function, where the kernel asks at the entry whether there is to be a return probe:
/// 0 is yes.
#[unsafe(link_section = "uprobe.session")]
#[unsafe(no_mangle)]
extern "C" fn api_call(ctx: *mut c_void) -> u32 {
    let end_ns = now();
    // SAFETY: the kernel hands a uprobe program a pointer to the registers.
    let regs = unsafe { &*ctx.cast::<pt_regs>() };
    // SAFETY: `ctx` is the program's context. Where the probe is.
    let entry = unsafe { bpf_get_func_ip(ctx) };
    if regs.rip != entry {
        // It has returned to its caller.
        returned(ctx, regs, end_ns);
        return 0;
    }
    u32::from(!entered(ctx, regs, stacks::is_own))
}

/// Entry of an API function.
#[unsafe(link_section = "uprobe.multi")]
#[unsafe(no_mangle)]
extern "C" fn api_enter(ctx: *mut c_void) -> u32 {
    // SAFETY: the kernel hands a uprobe program a pointer to the registers.
    let regs = unsafe { &*ctx.cast::<pt_regs>() };
    entered(ctx, regs, |_, _, _| true);
    0
}

/// A function is entered, by a thread on its own stack if `is_own` says so. Returns whether its return is awaited.
#[inline(always)]
fn entered(
    ctx: *mut c_void,
    regs: &pt_regs,
    is_own: impl Fn(&mut ThreadState, u64, u64) -> bool,
) -> bool {
    if phase() == phase::DETACHING {
        return false;
    }
    let pid_tgid = bpf_get_current_pid_tgid();
    let cookie = own_cookie(ctx, pid_tgid);
    let Some(capture) = cookie.and_then(|cookie| maps::capture(cookie.index)) else { return false };
    let info = shim_info_for(capture, pid_tgid);
    if by_shim(capture, info) {
        return false;
    }
    let shim = from_shim(regs, capture, info);
    if shim && records_what_it_calls(capture) {
        return false;
    }
    let Some(thread) = threads::thread(pid_tgid) else { return false };
    if capture.entry_only == 0 && is_own(thread, pid_tgid, regs.rsp) {
        return enter(regs, pid_tgid, capture, shim, thread);
    }
    if !shim {
        enter_only(regs, pid_tgid, capture, thread);
    }
    false
}

/// The cookie of the link that runs the program; none where nothing is recorded, because the link is not for this
/// process or the recording has ended.
#[inline(always)]
pub fn own_cookie(ctx: *mut c_void, pid_tgid: u64) -> Option<Cookie> {
    // SAFETY: `ctx` is the program's context.
    let cookie = Cookie::from_u64(unsafe { bpf_get_attach_cookie(ctx) });
    let pid = (pid_tgid >> 32) as u32;
    let is_own = match cookie.pid {
        Cookie::ANY => true,
        Cookie::TRACED => maps::PROCESSES.get_ptr(pid).is_some(),
        own => own == pid,
    };
    (is_own && phase() != phase::ENDED).then_some(cookie)
}

#[inline(always)]
fn arguments(regs: &pt_regs) -> [u64; 6] {
    [regs.rdi, regs.rsi, regs.rdx, regs.rcx, regs.r8, regs.r9]
}

/// The stack arguments of a call whose `rsp` points at the return address, with the flags that say what they are.
#[inline(always)]
fn stack_arguments(regs: &pt_regs) -> ([u64; 3], u16) {
    // SAFETY: the helper checks the address. Reading three words even where one is asked for is
    // safe: the caller's frame lies above.
    match unsafe { bpf_probe_read_user((regs.rsp as *const u64).wrapping_add(1).cast()) } {
        Ok(words) => (words, flag::STACK_ARGS),
        Err(_) => {
            maps::lost(BpfLoss::UNREADABLE);
            ([0; 3], flag::UNREADABLE)
        }
    }
}

/// The words that the shim of the process told; none where there is no shim.
#[inline(always)]
fn shim_info(pid_tgid: u64) -> Option<&'static ShimInfo> {
    // SAFETY: map values are live; each word is written once, before the calls that it is for.
    unsafe { maps::SHIMS.get((pid_tgid >> 32) as u32) }
}

/// Whether the shim makes the call: the function is one that it calls for itself, and the return
/// address is in its code.
#[inline(always)]
fn from_shim(regs: &pt_regs, capture: Capture, info: Option<&ShimInfo>) -> bool {
    let (1.., Some(info)) = (capture.shim_calls, info) else { return false };
    // SAFETY: the helper checks the address.
    let back = unsafe { bpf_probe_read_user(regs.rsp as *const u64) }.unwrap_or(0);
    is_in_shim(info, back)
}

#[inline(always)]
fn is_in_shim(info: &ShimInfo, address: u64) -> bool {
    info.code[0] <= address && address < info.code[1]
}

/// Whether the shim records the calls that it makes of a function: those of the program, which it passes on.
#[inline(always)]
fn records_what_it_calls(capture: Capture) -> bool {
    u32::from(capture.domain) == Domain::HIP_API.0
}

/// Whether the shim records the call itself.
#[inline(always)]
fn by_shim(capture: Capture, info: Option<&ShimInfo>) -> bool {
    info.is_some_and(|info| u64::from(capture.by_shim) & info.tables != 0)
}

/// The words that the shim told, if they matter for calls of a function.
#[inline(always)]
fn shim_info_for(capture: Capture, pid_tgid: u64) -> Option<&'static ShimInfo> {
    if capture.shim_calls | capture.by_shim != 0 { shim_info(pid_tgid) } else { None }
}

/// The number of a call of roctx among those of its thread; 0 of other calls. By this number the code that puts ranges
/// together learns their order, and finds where one is missing.
#[inline(always)]
fn mark_number(thread: &mut ThreadState, capture: Capture) -> u64 {
    // Without a branch, behind which verifiers would look at everything once more.
    let is_mark = u64::from(capture.numbered);
    thread.marks += is_mark;
    thread.marks * is_mark
}

/// A function whose return is awaited. Returns whether the call is kept until then.
#[inline(always)]
fn enter(
    regs: &pt_regs,
    pid_tgid: u64,
    capture: Capture,
    mut shim: bool,
    thread: &mut ThreadState,
) -> bool {
    // An open call below the stack pointer was left by longjmp: the kernel drops its return probe by
    // the same rule. Equal is alive: a tail call enters with its caller's stack pointer.
    let mut depth = thread.depth as usize;
    let mut parent_id = 0;
    let mut steps = threads::Steps::new();
    while steps.next()
        && let Some(outer) = threads::open_call(thread, depth.wrapping_sub(1))
    {
        if outer.sp >= regs.rsp {
            parent_id = outer.record.correlation_id;
            shim |= outer.record.header.flags & flag::SHIM != 0;
            break;
        }
        depth -= 1;
        maps::lost(BpfLoss::ABANDONED);
    }
    let mark = mark_number(thread, capture);
    if depth >= MAX_DEPTH {
        thread.skipped += 1;
        maps::lost(BpfLoss::NESTING);
        return true;
    }
    thread.skipped = 0;
    let Some(open) = threads::open_call(thread, depth) else { return false };
    // Field by field: as a whole it would be built on the stack and copied.
    open.sp = regs.rsp;
    open.out_arg = u64::from(capture.out_arg);
    let record = &mut open.record;
    record.header.kind = kind::API;
    record.header.flags = if shim { flag::SHIM } else { 0 };
    record.header.operation = capture.to_u64() as u32;
    record.header.pid = (pid_tgid >> 32) as u32;
    record.header.tid = pid_tgid as u32;
    record.correlation_id = maps::next_correlation_id();
    record.parent_id = parent_id;
    // Word by word: an array as a whole is copied by a function, byte by byte.
    record.args[0] = regs.rdi;
    record.args[1] = regs.rsi;
    record.args[2] = regs.rdx;
    record.args[3] = regs.rcx;
    record.args[4] = regs.r8;
    record.args[5] = regs.r9;
    record.extra[0] = mark;
    record.extra[1] = 0;
    record.extra[2] = 0;
    if capture.stack_args != 0 {
        let (words, flags) = stack_arguments(regs);
        record.header.flags |= flags;
        record.extra[0] = words[0];
        record.extra[1] = words[1];
        record.extra[2] = words[2];
    }
    record.begin_ns = now();
    // Last: user space takes calls below the depth for whole.
    // SAFETY: it does nothing; stores are not moved over it.
    unsafe { asm!("", options(nostack, preserves_flags)) };
    thread.depth = depth as u32 + 1;
    true
}

/// A call that has no return probe is recorded at its entry.
#[inline(always)]
fn enter_only(regs: &pt_regs, pid_tgid: u64, capture: Capture, thread: &mut ThreadState) {
    let (parent_id, flags) = match stacks::around(thread, regs.rsp, |_| true) {
        Some(call) => (call.correlation_id, 0),
        None => innermost(thread),
    };
    if flags & flag::SHIM != 0 {
        return;
    }
    let mark = mark_number(thread, capture);
    let (extra, flags) =
        if capture.stack_args != 0 { stack_arguments(regs) } else { ([mark, 0, 0], 0) };
    let elsewhere = capture.entry_only == 0;
    let flags = if elsewhere { flags | flag::OTHER_STACK } else { flags };
    let record = ApiRecord {
        header: header(kind::API, flags | flag::ENTRY_ONLY, capture.to_u64() as u32, pid_tgid),
        correlation_id: maps::next_correlation_id(),
        parent_id,
        begin_ns: now(),
        end_ns: 0,
        ret: 0,
        args: arguments(regs),
        extra,
    };
    if has_message(record.header.operation) {
        emit_mark(&record);
    } else {
        maps::emit(&record, BpfLoss::API_RING_FULL, wake(record.correlation_id));
    }
    if elsewhere {
        // SAFETY: the helper checks the address.
        let back = unsafe { bpf_probe_read_user(regs.rsp as *const u64) }.unwrap_or(0);
        let Header { operation, .. } = record.header;
        let correlation_id = record.correlation_id;
        let call = Elsewhere { sp: regs.rsp, back, correlation_id, operation, reserved: 0 };
        stacks::remember(thread, call);
    }
}

/// Correlation id and flags of the innermost open call.
#[inline(always)]
fn innermost(thread: &mut ThreadState) -> (u64, u16) {
    let depth = thread.depth as usize;
    match threads::open_call(thread, depth.wrapping_sub(1)) {
        Some(OpenCall { record, .. }) => (record.correlation_id, record.header.flags),
        None => (0, 0),
    }
}

/// Return of an API function.
#[unsafe(link_section = "uretprobe.multi")]
#[unsafe(no_mangle)]
extern "C" fn api_exit(ctx: *mut c_void) -> u32 {
    let end_ns = now();
    // SAFETY: the kernel hands a uprobe program a pointer to the registers.
    let regs = unsafe { &*ctx.cast::<pt_regs>() };
    returned(ctx, regs, end_ns);
    0
}

/// A function has returned.
#[inline(always)]
fn returned(ctx: *mut c_void, regs: &pt_regs, end_ns: u64) {
    let pid_tgid = bpf_get_current_pid_tgid();
    let Some(cookie) = own_cookie(ctx, pid_tgid) else { return };
    match threads::known_thread(pid_tgid as u32) {
        Some(thread) => exit(cookie, regs, pid_tgid, end_ns, thread),
        None => without_entry(cookie, regs, pid_tgid, |capture| {
            open_at_start(capture, regs, pid_tgid, end_ns, 0);
        }),
    }
}

/// Calls `then` with a call that returns and whose entry was not seen, unless the shim records it.
#[inline(always)]
fn without_entry(cookie: Cookie, regs: &pt_regs, pid_tgid: u64, then: impl FnOnce(Capture)) {
    let Some(capture) = maps::capture(cookie.index) else { return };
    let info = shim_info_for(capture, pid_tgid);
    // It has returned to where the instruction pointer is.
    let to_shim = info.is_some_and(|info| is_in_shim(info, regs.rip));
    if !by_shim(capture, info) && !(to_shim && records_what_it_calls(capture)) {
        then(capture);
    }
}

#[inline(always)]
fn exit(cookie: Cookie, regs: &pt_regs, pid_tgid: u64, end_ns: u64, thread: &mut ThreadState) {
    // The return address has been popped.
    let sp = regs.rsp.wrapping_sub(8);
    let mut depth = (thread.depth as usize).wrapping_sub(1);
    // A call of roctx has none inside of it. Not in the loop, where verifiers would look at it for each depth.
    if let Some(open) = threads::open_call(thread, depth)
        && has_message(open.record.header.operation)
        && open.sp == sp
    {
        open.record.end_ns = end_ns;
        open.record.ret = regs.rax;
        emit_mark(&open.record);
        thread.depth = depth as u32;
        return;
    }
    let mut steps = threads::Steps::new();
    while steps.next()
        && let Some(open) = threads::open_call(thread, depth)
    {
        // Of calls that were entered with the same stack pointer, by tail calls, the innermost
        // returns first, and the kernel runs the return probes in that order.
        if open.sp == sp {
            if open.out_arg != 0 {
                out_value(open);
            }
            submit(&mut open.record, end_ns, regs.rax);
            thread.depth = depth as u32;
            return;
        }
        if open.sp > sp {
            // It is of a caller further out: this call's entry was not seen.
            break;
        }
        thread.depth = depth as u32;
        depth = depth.wrapping_sub(1);
        maps::lost(BpfLoss::ABANDONED);
    }
    without_entry(cookie, regs, pid_tgid, |capture| {
        if thread.skipped > 0 {
            // Nested too deep: counted at its entry.
            thread.skipped -= 1;
        } else {
            let (parent_id, flags) = innermost(thread);
            if flags & flag::SHIM == 0 {
                open_at_start(capture, regs, pid_tgid, end_ns, parent_id);
            }
        }
    });
}

/// Reads what the output argument points at, now that the function has written it.
#[inline(always)]
fn out_value(open: &mut OpenCall) {
    let record = &mut open.record;
    let Some(&address) = record.args.get((open.out_arg as usize).wrapping_sub(1)) else { return };
    // SAFETY: the helper checks the address.
    match unsafe { bpf_probe_read_user(address as *const u64) } {
        Ok(value) => {
            record.extra[0] = value;
            record.header.flags |= flag::OUT_VALUE;
        }
        Err(_) => {
            maps::lost(BpfLoss::UNREADABLE);
            record.header.flags |= flag::UNREADABLE;
        }
    }
}

/// One of [`phase`].
#[inline(always)]
pub fn phase() -> u32 {
    maps::config().map_or(phase::ATTACHING, |config| config.phase)
}

/// A call that was entered before its probe was there, and that may be inside of a call that was recorded whole: probes
/// are placed whenever a process or a library comes.
#[inline(always)]
fn open_at_start(capture: Capture, regs: &pt_regs, pid_tgid: u64, end_ns: u64, parent_id: u64) {
    if phase() == phase::DETACHING {
        return;
    }
    let operation = capture.to_u64() as u32;
    let record = ApiRecord {
        header: header(kind::API, flag::OPEN_AT_START, operation, pid_tgid),
        correlation_id: maps::next_correlation_id(),
        parent_id,
        begin_ns: 0,
        end_ns,
        ret: regs.rax,
        args: [0; 6],
        extra: [0; 3],
    };
    maps::emit(&record, BpfLoss::API_RING_FULL, wake(record.correlation_id));
}

/// The shim's dispatch site. Its first argument is the sequence number of the enqueued work; the low
/// half of the second, whether this thread surely enqueued it; the third, the id of the innermost
/// open HSA call that the shim records, and the high half of the second that call's operation.
#[unsafe(link_section = "uprobe.multi")]
#[unsafe(no_mangle)]
extern "C" fn dispatch_site(ctx: *mut c_void) -> u32 {
    // SAFETY: the kernel hands a uprobe program a pointer to the registers.
    let regs = unsafe { &*ctx.cast::<pt_regs>() };
    let pid_tgid = bpf_get_current_pid_tgid();
    if own_cookie(ctx, pid_tgid).is_none() {
        return 0;
    }
    if regs.rdi == SITE_OWN_CODE || regs.rdi == SITE_CALLS {
        tell(regs, pid_tgid);
        return 0;
    }
    // Independent of what the process says: ids below are of calls that probes saw, of any process.
    let has_id = regs.rdx >= FIRST_ID;
    let hsa = if has_id { (regs.rdx, (regs.rsi >> 32) as u32) } else { (0, 0) };
    let (correlation_id, operation) = match threads::known_thread(pid_tgid as u32) {
        Some(thread) => launching_call(thread, regs.rsp, hsa),
        None => hsa,
    };
    let own = if regs.rsi as u32 != 0 { flag::OWN } else { 0 };
    let record = LinkRecord {
        header: header(kind::LINK, own, operation, pid_tgid),
        sequence: regs.rdi,
        correlation_id,
        time_ns: now(),
    };
    maps::emit(&record, BpfLoss::LINK_RING_FULL, Wake::No);
    0
}

/// Remembers the words that the shim tells.
#[inline(always)]
fn tell(regs: &pt_regs, pid_tgid: u64) {
    let old = shim_info(pid_tgid);
    let info = if regs.rdi == SITE_OWN_CODE {
        ShimInfo { code: [regs.rsi, regs.rdx], tables: old.map_or(0, |old| old.tables) }
    } else {
        ShimInfo { code: old.map_or([0; 2], |old| old.code), tables: regs.rsi }
    };
    let _ = maps::SHIMS.insert((pid_tgid >> 32) as u32, info, 0);
}

/// The innermost open HIP call around the stack pointer `sp`, else the innermost HSA call, which is the one that the
/// shim told if it did, else 0: correlation id and operation.
#[inline(always)]
pub fn launching_call(thread: &mut ThreadState, sp: u64, hsa: (u64, u32)) -> (u64, u32) {
    let is_hip = |operation: u32| operation >> 16 == Domain::HIP_API.0;
    if let Some(call) = stacks::around(thread, sp, |call| is_hip(call.operation)) {
        return (call.correlation_id, call.operation);
    }
    let mut innermost = hsa;
    if hsa.0 == 0
        && let Some(call) = stacks::around(thread, sp, |_| true)
    {
        innermost = (call.correlation_id, call.operation);
    }
    let mut at = (thread.depth as usize).wrapping_sub(1);
    let mut steps = threads::Steps::new();
    while steps.next()
        && let Some(open) = threads::open_call(thread, at)
    {
        let call = (open.record.correlation_id, open.record.header.operation);
        if is_hip(call.1) {
            return call;
        }
        if innermost.0 == 0 {
            innermost = call;
        }
        at = at.wrapping_sub(1);
    }
    innermost
}

/// The least that a probe can do: what the kernel itself costs. Entry.
#[unsafe(link_section = "uprobe.multi")]
#[unsafe(no_mangle)]
extern "C" fn floor_enter(_ctx: *mut c_void) -> u32 {
    0
}

/// The least that a probe can do. Return.
#[unsafe(link_section = "uretprobe.multi")]
#[unsafe(no_mangle)]
extern "C" fn floor_exit(_ctx: *mut c_void) -> u32 {
    0
}
