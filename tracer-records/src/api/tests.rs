use std::collections::HashSet;

use tracer_common::activity::Domain;
use tracer_common::bpf::flag;

use super::capture::{CALLS_BACK, OUTPUTS, STORES_CALLBACK, calls_back, out_register, stack_args};
use super::*;

const NONE: [u64; 3] = [0; 3];

fn op(name: &str) -> &'static Operation {
    by_name(name).unwrap_or_else(|| panic!("no {name}"))
}

fn places(name: &str) -> Vec<(&'static str, ArgumentPlace)> {
    op(name).args.iter().map(|arg| (arg.name, arg.place)).collect()
}

#[test]
fn counts_match_the_release() {
    let is_later = |op: &&Operation| op.id >= 2048;
    let first = || operations().filter(|op| !is_later(op));
    let exported = |domain| first().filter(|op| op.domain == domain && op.symbol.is_some()).count();
    // nm -D: 399 names plus hipExtModuleLaunchKernel, hipHccModuleLaunchKernel and the two surface
    // functions with C++ linkage. `hip_impl::hipLaunchKernelGGLImpl` is left out: it only calls
    // hipModuleLaunchKernel.
    assert_eq!(exported(Domain::HIP_API), 403);
    assert_eq!(exported(Domain::HSA_API), 224);
    assert_eq!(first().count(), 651);
    // The functions that 5.7.1, 6.4.3 and 7.2.4 added.
    let later = |domain| operations().filter(is_later).filter(move |op| op.domain == domain);
    assert_eq!(later(Domain::HIP_API).count(), 134);
    assert_eq!(later(Domain::HSA_API).count(), 36);
    assert!(operations().filter(is_later).all(|op| op.symbol.is_some()));
    assert!(operations().all(|op| !matches!(op.ret.kind, Kind::Unknown)));
}

#[test]
fn ids_are_unique_and_ordered_and_found() {
    let keys: Vec<_> = operations().map(|op| (op.domain, op.id)).collect();
    assert!(keys.is_sorted_by(|a, b| a < b));
    let names: HashSet<_> = operations().map(|op| op.name).collect();
    assert_eq!(names.len(), keys.len());
    for op in operations() {
        assert!(std::ptr::eq(by_id(op.domain, op.id).unwrap(), op));
        assert!(std::ptr::eq(by_name(op.name).unwrap(), op));
        assert!(op.symbol.is_none_or(|symbol| std::ptr::eq(by_name(symbol).unwrap(), op)));
    }
    assert!(by_id(Domain::HIP_API, 0).is_none());
    assert!(by_id(Domain::EXT_API, 1).is_none());
    assert!(by_name("hipNoSuchThing").is_none());
}

#[test]
fn ids_are_those_of_hip_and_roctracer() {
    assert_eq!(op("__hipPopCallConfiguration").id, 1);
    assert_eq!(op("hipMalloc").id, 108);
    assert_eq!(op("hsa_init").id, 0);
    assert_eq!(op("hsa_queue_create").id, 7);
    // The first of the AMD table follows the 125 of the core table; after its 48 come the 13 for images.
    assert_eq!(op("hsa_executable_iterate_program_symbols").id, 124);
    assert_eq!(op("hsa_amd_coherency_get_type").id, 125);
    assert_eq!(op("hsa_ext_image_get_capability").id, 173);
    assert_eq!(op("hsa_ext_image_create_with_layout").id, 185);
    assert!(op("hsa_ext_program_create").id >= 1024, "roctracer leaves the finalizer out");
    // Traces have these: the first and the last of each later release.
    let later = [
        ("hipArray3DGetDescriptor", 2048),
        ("hiprtcLinkDestroy", 2100),
        ("hipChooseDeviceR0000", 2101),
        ("hipTexRefGetBorderColor", 2140),
        ("hipDeviceGetTexture1DLinearMaxWidth", 2141),
        ("hipStreamSetAttribute", 2181),
        ("hsa_amd_agent_set_async_scratch_limit", 2048),
        ("hsa_amd_vmem_unmap", 2067),
        ("hsa_amd_enable_logging", 2068),
        ("hsa_ven_amd_pcs_stop", 2079),
        ("hsa_amd_ais_file_read", 2080),
        ("hsa_amd_portable_export_dmabuf_v2", 2083),
    ];
    assert_eq!(later.map(|(name, _)| op(name).id), later.map(|(_, id)| id));
}

#[test]
fn arguments_are_where_the_abi_puts_them() {
    use ArgumentPlace::{Register, Stack, Vector};
    assert_eq!(places("hipMalloc"), [("ptr", Register(0)), ("size", Register(1))]);
    assert_eq!(
        places("hipLaunchKernel"),
        [
            ("function_address", Register(0)),
            ("numBlocks", Register(1)),
            ("dimBlocks", Register(3)),
            ("args", Register(5)),
            ("sharedMemBytes", Stack(0)),
            ("stream", Stack(1)),
        ]
    );
    let module_launch = places("hipModuleLaunchKernel");
    assert_eq!(
        module_launch[5..8],
        [("blockDimY", Register(5)), ("blockDimZ", Stack(0)), ("sharedMemBytes", Stack(1)),]
    );
    assert_eq!(
        places("hsa_queue_create")[6..],
        [("group_segment_size", Stack(0)), ("queue", Stack(1)),]
    );
    // A struct in memory leaves the registers to those after it; floats use none of them.
    assert_eq!(places("hipIpcOpenMemHandle")[1..], [("handle", Stack(0)), ("flags", Register(1))]);
    assert_eq!(places("hipTexRefSetMipmapLevelBias")[1].1, Vector(0));
    // The hidden result pointer comes first.
    assert_eq!(places("hipCreateChannelDesc")[0], ("x", Register(1)));
}

#[test]
fn capture_fits_the_record() {
    let stack_args_of = |name| stack_args(op(name));
    for name in ["hipLaunchKernel", "hipLaunchKernel_spt", "hipLaunchCooperativeKernel"] {
        assert_eq!(stack_args_of(name), 2, "{name}");
    }
    for name in ["hipModuleLaunchKernel", "hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel"] {
        assert_eq!(stack_args_of(name), 3, "{name}");
    }
    assert!(stack_args_of("hipExtLaunchKernel") >= 2);
    assert_eq!(stack_args_of("hsa_amd_memory_async_copy"), 2);
    assert_eq!(stack_args_of("hipMalloc3D"), 0, "a struct of three words is not printed");
    assert_eq!(out_register(op("hipMalloc")), Some(0));
    assert_eq!(out_register(op("hsa_signal_create")), Some(3));
    for op in operations() {
        let capture = captured(op);
        assert!(capture.stack_args <= 3 && capture.out_arg <= 6);
        assert!(capture.stack_args == 0 || capture.out_arg == 0, "{}: no room for both", op.name);
        assert_eq!((u32::from(capture.domain), capture.operation), (op.domain.0, op.id));
    }
}

#[test]
fn outputs_have_eight_bytes() {
    let handles = [
        "hipCtx_t *",
        "hipEvent_t *",
        "hipStream_t *",
        "hipGraph_t *",
        "hipGraphExec_t *",
        "hipMemPool_t *",
        "hipFunction_t *",
        "hipModule_t *",
        "hipDeviceptr_t *",
        "hsa_signal_t *",
        "hsa_executable_t *",
        "hsa_executable_symbol_t *",
        "hsa_code_object_reader_t *",
        "hipKernel_t *",
        "hipLibrary_t *",
        "hipUserObject_t *",
        "void **",
    ];
    for (name, arg) in OUTPUTS {
        let ty = op(name).arg(arg).unwrap_or_else(|| panic!("{name} has no {arg}")).ty.name;
        assert!(handles.contains(&ty), "{name}: {arg} is a {ty}");
        assert!(out_register(op(name)).is_some(), "{name}");
        assert!(calls_back(op(name)).is_none(), "{name}: there is no return to read it at");
    }
}

#[test]
fn every_callback_is_accounted_for() {
    for op in operations() {
        let takes_one = op.args.iter().any(|arg| matches!(arg.ty.kind, Kind::Function));
        let listed = CALLS_BACK.iter().filter(|(name, _)| *name == op.name).count()
            + STORES_CALLBACK.iter().filter(|name| **name == op.name).count();
        assert_eq!(usize::from(takes_one), listed, "{}", op.name);
    }
    assert!(CALLS_BACK.iter().all(|(name, _)| by_name(name).is_some()));
    assert_eq!(captured(op("hsa_iterate_agents")).entry_only, 1);
    assert_eq!(captured(op("hsa_queue_create")).entry_only, 0);
}

#[test]
fn a_call_reads_like_the_source() {
    let malloc = op("hipMalloc");
    let args = [0x7ffc_8e60, 4096, 0, 0, 0, 0];
    assert_eq!(format_args(malloc, &args, &NONE, 0), "ptr=0x7ffc8e60, size=4096");
    assert_eq!(
        format_args(malloc, &args, &[0x7f00_1234_0000, 0, 0], flag::OUT_VALUE),
        "ptr=0x7ffc8e60 -> 0x7f0012340000, size=4096"
    );
    assert_eq!(format_args(malloc, &args, &NONE, flag::OPEN_AT_START), "ptr=?, size=?");
    assert_eq!(format_return(malloc, 0), "hipSuccess");
    assert_eq!(format_return(malloc, 0xdead_beef_0000_0002), "hipErrorOutOfMemory");
    assert_eq!(format_return(malloc, 77777), "77777");

    let copy = [0x1000, 0x2000, 16, 0xffff_ffff_0000_0001, 0, 0];
    assert_eq!(
        format_args(op("hipMemcpy"), &copy, &NONE, 0),
        "dst=0x1000, src=0x2000, sizeBytes=16, kind=hipMemcpyHostToDevice"
    );
    assert_eq!(
        format_args(op("hsa_signal_store_screlease"), &[0x10, u64::MAX, 0, 0, 0, 0], &NONE, 0),
        "signal=0x10, value=-1"
    );
    assert_eq!(format_return(op("hsa_signal_store_screlease"), 1), "");
    assert_eq!(format_return(op("hsa_signal_load_relaxed"), u64::MAX), "-1");
    assert_eq!(format_return(op("hsa_init"), 0x1000), "HSA_STATUS_ERROR");
    assert_eq!(format_return(op("hsa_init"), 40), "HSA_STATUS_ERROR_INVALID_MEMORY_POOL");
    assert_eq!(format_return(op("hipApiName"), 0x1234), "0x1234");
    assert_eq!(format_return(op("hipCreateChannelDesc"), 0x1234), "?");
    assert_eq!(format_args(op("hipSetDevice"), &[0x1_ffff_ffff, 0, 0, 0, 0, 0], &NONE, 0), {
        "deviceId=-1"
    });
}

#[test]
fn stack_arguments_need_their_flag() {
    let copy = op("hsa_amd_memory_async_copy");
    let args = [0x1000, 1, 0x2000, 2, 64, 0];
    assert_eq!(
        format_args(copy, &args, &[0, 0x30, 0], flag::STACK_ARGS),
        "dst=0x1000, dst_agent=0x1, src=0x2000, src_agent=0x2, size=64, num_dep_signals=0, \
         dep_signals=0x0, completion_signal=0x30"
    );
    let text = format_args(copy, &args, &NONE, flag::UNREADABLE);
    assert!(text.ends_with("dep_signals=?, completion_signal=?"), "{text}");

    let queue = format_args(
        op("hsa_queue_create"),
        &[1, 0xffff_ffff_0000_0400, 0, 0, 0, u64::from(u32::MAX)],
        &[7, 0x7ffc, 0],
        flag::STACK_ARGS,
    );
    assert_eq!(
        queue,
        "agent=0x1, size=1024, type=HSA_QUEUE_TYPE_MULTI, callback=0x0, data=0x0, \
         private_segment_size=4294967295, group_segment_size=7, queue=0x7ffc"
    );
}

#[test]
fn launches_carry_their_dimensions() {
    let kernel = op("hipLaunchKernel");
    // The upper half of a dim3's second word is garbage.
    let args = [0x4000, 2 << 32 | 8, 0xbad << 32 | 1, 1 << 32 | 64, 0xbad << 32 | 1, 0x7ffc];
    let extra = [512, 0x5000, 0];
    assert_eq!(
        launch(kernel, &args, &extra, flag::STACK_ARGS),
        Some(Launch {
            grid: [8, 2, 1],
            block: [64, 1, 1],
            shared_bytes: 512,
            stream: 0x5000,
            function: 0x4000
        })
    );
    assert_eq!(
        format_args(kernel, &args, &extra, flag::STACK_ARGS),
        "function_address=0x4000, numBlocks={8,2,1}, dimBlocks={64,1,1}, args=0x7ffc, \
         sharedMemBytes=512, stream=0x5000"
    );
    assert_eq!(launch(kernel, &args, &extra, 0), None);
    assert_eq!(stream(kernel, &args, &extra, flag::STACK_ARGS), Some(0x5000));
    assert_eq!(stream(kernel, &args, &extra, 0), None);

    let args = [0x4000, 100, 1, 1, 64, 1];
    let extra = [1, 0, 0x5000];
    let module = launch(op("hipModuleLaunchKernel"), &args, &extra, flag::STACK_ARGS);
    assert_eq!(
        module.map(|l| (l.grid, l.block, l.stream)),
        Some(([100, 1, 1], [64, 1, 1], 0x5000))
    );
    let work_items = launch(op("hipExtModuleLaunchKernel"), &args, &extra, flag::STACK_ARGS);
    assert_eq!(work_items.map(|l| (l.grid, l.block)), Some(([2, 1, 1], [64, 1, 1])));
    assert_eq!(launch(op("hipMalloc"), &args, &extra, flag::STACK_ARGS), None);
}

#[test]
fn streams_are_found() {
    let args = [1, 2, 3, 4, 5, 6];
    assert_eq!(stream(op("hipStreamSynchronize"), &args, &NONE, 0), Some(1));
    assert_eq!(stream(op("hipMemcpyAsync"), &args, &NONE, 0), Some(5));
    assert_eq!(stream(op("hipMemcpy2DAsync"), &args, &[7, 8, 9], flag::STACK_ARGS), Some(8));
    assert_eq!(stream(op("hipMalloc"), &args, &NONE, 0), None);
    assert_eq!(stream(op("hipStreamCreate"), &args, &NONE, 0), None, "a pointer to one");
}

#[test]
fn any_words_and_flags_give_text() {
    // xorshift64: repeatable, and enough to reach every branch.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..200 {
        for op in operations() {
            let args: [u64; 6] = std::array::from_fn(|_| random());
            let extra: [u64; 3] = std::array::from_fn(|_| random());
            let flags = random() as u16;
            let text = format_args(op, &args, &extra, flags);
            assert!(op.args.iter().all(|arg| text.contains(&format!("{}=", arg.name))), "{text}");
            format_return(op, random());
            launch(op, &args, &extra, flags);
            stream(op, &args, &extra, flags);
        }
    }
}

#[test]
fn slots_of_hip_have_as_many_words_on_the_stack_as_their_functions() {
    use tracer_common::hip_functions::{LEFT_OUT, SLOTS};
    let mut known = 0;
    for slot in SLOTS {
        let Some(op) = by_name(slot.name) else { continue };
        known += 1;
        let is_float = |arg: &Argument| matches!(arg.place, ArgumentPlace::Vector(_));
        assert_eq!(op.args.iter().any(is_float), LEFT_OUT.contains(&slot.name), "{}", slot.name);
        let words = op.args.iter().filter_map(|arg| match arg.place {
            ArgumentPlace::Stack(first) => Some(usize::from(first) + arg.words()),
            ArgumentPlace::Register(_) | ArgumentPlace::Vector(_) => None,
        });
        assert_eq!(slot.stack_words, words.max().unwrap_or(0), "{}", slot.name);
        let wanted = shim_call(&slot).expect(slot.name);
        assert_eq!((wanted.operation, u32::from(wanted.domain)), (op.id, op.domain.0));
    }
    assert!(known > SLOTS.len() * 9 / 10, "{known} of {}", SLOTS.len());
}

#[test]
fn every_slot_of_the_runtimes_tables_is_known_with_its_arguments() {
    use tracer_common::calls::Wanted;
    use tracer_common::hsa_functions::{LEFT_OUT, SLOTS};
    for slot in SLOTS {
        let op = by_name(slot.name).expect(slot.name);
        let by_value = |arg: &Argument| matches!(arg.ty.kind, Kind::Struct(9..) | Kind::Float);
        if slot.name == LEFT_OUT {
            assert_eq!(shim_call(&slot), None);
            continue;
        }
        assert!(!op.args.iter().any(by_value), "{}: a thunk cannot pass it on", slot.name);
        let words = op.args.iter().filter_map(|arg| match arg.place {
            ArgumentPlace::Stack(first) => Some(usize::from(first) + arg.words()),
            ArgumentPlace::Register(_) | ArgumentPlace::Vector(_) => None,
        });
        assert_eq!(slot.stack_words, words.max().unwrap_or(0), "{}", slot.name);
        let wanted = shim_call(&slot).expect(slot.name);
        assert_eq!(wanted.operation, op.id);
        assert_eq!(Wanted::from_word(wanted.to_word()), Some(wanted), "{}", slot.name);
    }
}

#[test]
fn functions_of_roctx_are_found_by_their_ids_and_names() {
    for (id, operation) in (0..).zip(&roctx::OPERATIONS) {
        assert!(std::ptr::eq(by_id(Domain::ROCTX, id).unwrap(), operation));
        assert!(std::ptr::eq(by_name(operation.name).unwrap(), operation));
        // The one function whose result is needed has a return probe.
        let capture = captured(operation);
        assert_eq!(capture.entry_only == 0, operation.name == "roctxRangeStartA");
        assert_eq!(capture.numbered, 1);
        assert_eq!(capture.to_u64() as u32, Domain::ROCTX.0 << 16 | u32::from(id));
    }
    assert!(by_id(Domain::ROCTX, 5).is_none());
}
