//! How probes are placed, from the library's side. Small: `cargo xtask test --kernels` runs these as well.

use std::{arch::naked_asm, path::Path};

use e2e::{Running, Scene};
use roctap::{
    calibrate::file_offset,
    probe::{Attachment, Follow, Placing, Programs, Reader, Settings, Site},
    trial,
};
use tracer_common::{
    bpf::{Capture, flag, phase},
    loss::BpfLoss,
};

/// Whether a way works, a call being recorded through it; else why not.
fn tried(placing: Placing, preallocate: Option<bool>) -> Result<(), String> {
    match trial::run(Some(placing), preallocate) {
        Ok(works) => {
            assert_eq!(works.placing, placing);
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn root_kernel_events_work_on_every_kernel() {
    assert_eq!(tried(Placing::Event, None), Ok(()));
}

/// Maps as kernels before 6.1 have them, which no machine here runs.
#[test]
fn root_kernel_maps_that_have_all_their_memory_work() {
    assert_eq!(tried(Placing::Event, Some(true)), Ok(()));
}

/// What is taken where nothing is said is the best that works: `uprobe_multi`, or events where it is
/// refused, with the reason.
#[test]
fn root_kernel_the_best_method_is_taken() {
    let settings = Settings::new(4096, Follow::Nobody);
    let taken = Programs::load(settings).expect("it loads").placing();
    match tried(Placing::Multi, None) {
        Ok(()) => assert_eq!(taken, Placing::Multi),
        Err(why) => {
            assert!(why.contains("no uprobe_multi"), "{why}");
            assert_eq!(taken, Placing::Event);
        }
    }
}

/// Two programs at one place: a store into a signal is a call, and perhaps a doorbell. In a running process
/// the second comes when the first is there.
#[test]
fn root_kernel_a_function_that_is_probed_twice() {
    let scene = Scene::default();
    let target = Running::ringing(&scene);
    let pid = target.pid().to_string();
    let mut record = scene.record(&["--probes", "event", "--gpu", "uprobes", "--api", "hsa"]);
    record.args(["--include", "hsa_signal_store_*", "--include", "hsa_signal_destroy"]);
    scene.record_kernels(record.args(["-p", &pid]), &[target.pid()], 6).expect(0);
    let trace = scene.trace();
    trace.expect_complete();
    let counts = trace.call_counts();
    let dispatched = trace.dispatches.len() as u64;
    for function in ["hsa_signal_store_screlease", "hsa_signal_destroy"] {
        // When the recording ended, one may have been rung and not destroyed.
        assert!(counts[function] + 1 >= dispatched, "{dispatched}, {counts:?}");
    }
    assert_eq!(counts.len(), 2, "{counts:?}");
    target.end().expect(0);
}

/// Calls [`inner`] with its own argument.
#[unsafe(naked)]
extern "C" fn outer(argument: u64) -> u64 {
    naked_asm!("push rbp", "pop rbp", "sub rsp, 8", "call {}", "add rsp, 8", "ret", sym inner)
}

/// Returns its argument plus 1.
#[unsafe(naked)]
extern "C" fn inner(argument: u64) -> u64 {
    naked_asm!("push rbp", "pop rbp", "lea rax, [rdi + 1]", "ret")
}

/// Return probes are placed before entry probes: a thread may call through one function and into the next
/// between the two.
#[test]
fn root_kernel_a_call_that_was_entered_before_its_probe_inside_of_another() {
    let settings = Settings {
        ring_bytes: 4096,
        follow: Follow::Nobody,
        placing: Some(Placing::Event),
        preallocate: None,
    };
    let mut programs = Programs::load(settings).expect("it loads");
    let _life = programs.attach_life().expect("it is there");
    let mut reader = Reader::new(&programs).expect("rings");
    let probe = |function: extern "C" fn(u64) -> u64, operation| -> Attachment {
        let site = Site {
            symbol: format!("function {operation}"),
            file_offset: file_offset(function as *const () as u64).expect("mapped"),
            capture: Capture { operation, ..Capture::default() },
        };
        let exe = Path::new("/proc/self/exe");
        programs.attach(std::process::id(), exe, &[site]).expect("probes")
    };
    let mut of_inner = probe(inner, 2);
    drop(of_inner.take_entries());
    let of_outer = probe(outer, 1);
    programs.set_phase(phase::ATTACHED).expect("it is set");
    assert_eq!(std::hint::black_box(outer)(41), 42);
    let records = reader.take_all();
    let calls = trial::calls(&records);
    let [of_inner_call, of_outer_call] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((of_outer_call.header.operation, of_outer_call.args[0]), (1, 41));
    assert_eq!(of_outer_call.header.flags, 0);
    let seen = (of_inner_call.header.operation, of_inner_call.ret, of_inner_call.begin_ns);
    assert_eq!(seen, (2, 42, 0));
    assert_eq!(of_inner_call.header.flags, flag::OPEN_AT_START);
    assert_eq!(of_inner_call.parent_id, of_outer_call.correlation_id);
    assert_eq!(programs.losses().expect("read"), [0; BpfLoss::COUNT]);
    drop((of_inner, of_outer));
}
