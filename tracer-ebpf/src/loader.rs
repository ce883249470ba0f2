//! The dynamic linker, where it tells debuggers that it has changed what is mapped.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use core::ffi::c_void;
use tracer_common::bpf::{LoadRecord, kind};
use tracer_common::loss::BpfLoss;

use crate::{
    api,
    maps::{self, Wake},
    records::{header, now},
};

/// A call of `_dl_debug_state`.
#[unsafe(link_section = "uprobe.multi")]
#[unsafe(no_mangle)]
extern "C" fn libraries_change(ctx: *mut c_void) -> u32 {
    let pid_tgid = bpf_get_current_pid_tgid();
    if api::own_cookie(ctx, pid_tgid).is_some() {
        let record = LoadRecord { header: header(kind::LOAD, 0, 0, pid_tgid), time_ns: now() };
        maps::emit(&record, BpfLoss::LIFE_RING_FULL, Wake::Now);
    }
    0
}
