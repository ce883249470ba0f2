//! Following stubs, on assembled copies of the known shapes.

use iced_x86::{
    Code, Instruction, MemoryOperand, Register,
    code_asm::{
        CodeAssembler, al, byte_ptr, di, dword_ptr, eax, ecx, edi, qword_ptr, r9, rax, rbx, rcx,
        rdi, rdx, rsi, rsp,
    },
};

use super::{
    super::{Class, FunctionPlan, KernelVersion, Note, Planner, ReachedBy, Slot},
    image::{BIAS, CODE, DATA, Fake, Part, binary},
};

/// Variable that holds the table's address, and where the table is in the process.
const POINTER: u64 = DATA + 0x40;
const TABLE: u64 = 0x5555_0000_0000;
const OFFSET: u64 = 0x138;
const SLOT: Slot = Slot::Table { pointer: POINTER, offset: OFFSET };
/// Second function of every library here, `push %rbx; pop %rbx; ret`: the implementation.
const BODY: &[u8] = &[0x53, 0x5b, 0xc3];

/// `address(%rip)`.
fn relative(address: u64) -> MemoryOperand {
    MemoryOperand::with_base_displ(Register::RIP, address as i64)
}

/// `mov address(%rip),%rax`.
fn load(a: &mut CodeAssembler, address: u64) {
    let load = Instruction::with2(Code::Mov_r64_rm64, Register::RAX, relative(address));
    a.add_instruction(load.unwrap()).unwrap();
}

fn assemble(at: u64, write: impl Fn(&mut CodeAssembler)) -> Vec<u8> {
    let mut a = CodeAssembler::new(64).unwrap();
    write(&mut a);
    a.assemble(at).unwrap()
}

/// Plans a library of `stub`, the implementation at 0x1100, and `more` at 0x1200.
fn plan(stub: &[u8], more: &[u8], words: &[(u64, u64)]) -> FunctionPlan {
    let pad = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.resize(0x100, 0xcc);
        bytes
    };
    let parts = [
        Part { stated: Some(stub.len() as u32), ..Part::new(&pad(stub)) },
        Part::framed(&pad(BODY), &[0x41, 0x0e, 16, 0x41, 0x0e, 8]),
        Part::new(&pad(more)),
    ];
    let (binary, mut functions) = binary(&parts, &[]);
    functions.truncate(1);
    functions[0].size = stub.len() as u64;
    let process = Fake::new(words);
    let planner = Planner::new(KernelVersion::new(6, 18));
    let mut plans = planner.plan_library(&binary, &functions, Some(&process));
    assert_eq!(plans.len(), 1);
    plans.remove(0)
}

const LIVE: [(u64, u64); 2] = [(BIAS + POINTER, TABLE), (TABLE + OFFSET, BIAS + 0x1100)];

fn assert_followed(stub: &[u8], more: &[u8]) {
    let plan = plan(stub, more, &LIVE);
    assert_eq!(
        plan.reached,
        ReachedBy::Implementation { file_offset: 0x1100, slot: SLOT },
        "{plan:?}"
    );
    let site = plan.site.unwrap();
    assert_eq!((site.file_offset, site.class), (0x1100, Class::Emulated));
    assert_eq!(site.instruction, "push %rbx");
    assert!(plan.notes.is_empty());
}

fn assert_not_a_stub(stub: &[u8], more: &[u8]) {
    let plan = plan(stub, more, &LIVE);
    assert_eq!(plan.reached, ReachedBy::Exported, "{plan:?}");
}

fn hsa(at: u64) -> Vec<u8> {
    assemble(at, |a| {
        load(a, POINTER);
        a.jmp(qword_ptr(rax + OFFSET as i32)).unwrap();
    })
}

#[test]
fn hsa_shapes() {
    assert_followed(&hsa(CODE), &[]);
    assert_followed(
        &assemble(CODE, |a| {
            a.endbr64().unwrap();
            load(a, POINTER);
            a.movzx(edi, di).unwrap();
            a.jmp(qword_ptr(rax + OFFSET as i32)).unwrap();
        }),
        &[],
    );
    assert_followed(
        &assemble(CODE, |a| {
            let lea = Instruction::with2(Code::Lea_r64_m, Register::RAX, relative(POINTER));
            a.add_instruction(lea.unwrap()).unwrap();
            a.mov(rax, qword_ptr(rax)).unwrap();
            a.jmp(qword_ptr(rax + OFFSET as i32)).unwrap();
        }),
        &[],
    );
}

#[test]
fn linkage_stub() {
    let code = assemble(CODE, |a| {
        let jump = Instruction::with1(Code::Jmp_rm64, relative(POINTER)).unwrap();
        a.add_instruction(jump).unwrap();
    });
    let plan = plan(&code, &[], &[(BIAS + POINTER, BIAS + 0x1100)]);
    let slot = Slot::Variable { address: POINTER };
    assert_eq!(plan.reached, ReachedBy::Implementation { file_offset: 0x1100, slot });
}

/// The wrapper of HIP 6 and 7; `restored` is the offset of the argument that is restored into `rsi`.
fn wrapper(saved: i32, restored: i32, add: i32) -> Vec<u8> {
    assemble(CODE, |a| {
        a.endbr64().unwrap();
        a.sub(rsp, 0x28).unwrap();
        a.mov(qword_ptr(rsp + 8), rdi).unwrap();
        a.mov(qword_ptr(rsp + saved), rsi).unwrap();
        a.mov(dword_ptr(rsp + 0x1c), ecx).unwrap();
        a.call(0x1200).unwrap();
        a.mov(rdi, qword_ptr(rsp + 8)).unwrap();
        a.mov(rsi, qword_ptr(rsp + restored)).unwrap();
        a.mov(ecx, dword_ptr(rsp + 0x1c)).unwrap();
        a.mov(rax, qword_ptr(rax + OFFSET as i32)).unwrap();
        a.add(rsp, add).unwrap();
        a.jmp(rax).unwrap();
    })
}

fn getter() -> Vec<u8> {
    assemble(0x1200, |a| {
        a.endbr64().unwrap();
        load(a, POINTER);
        a.ret().unwrap();
    })
}

#[test]
fn hip_wrapper() {
    assert_followed(&wrapper(0x10, 0x10, 0x28), &getter());
    // With pushes instead of a frame.
    let pushes = assemble(CODE, |a| {
        a.push(rdi).unwrap();
        a.push(rsi).unwrap();
        a.sub(rsp, 8).unwrap();
        a.call(0x1200).unwrap();
        a.add(rsp, 8).unwrap();
        a.pop(rsi).unwrap();
        a.pop(rdi).unwrap();
        a.jmp(qword_ptr(rax + OFFSET as i32)).unwrap();
    });
    assert_followed(&pushes, &getter());
    // A table that is made at the first call.
    let guarded = assemble(0x1200, |a| {
        let mut slow = a.create_label();
        let mut done = a.create_label();
        let flag = Instruction::with2(Code::Movzx_r32_rm8, Register::EAX, relative(DATA)).unwrap();
        a.add_instruction(flag).unwrap();
        a.test(al, al).unwrap();
        a.je(slow).unwrap();
        a.set_label(&mut done).unwrap();
        load(a, POINTER);
        a.ret().unwrap();
        a.set_label(&mut slow).unwrap();
        a.push(rbx).unwrap();
        a.call(0x1100).unwrap();
        a.pop(rbx).unwrap();
        a.jmp(done).unwrap();
    });
    assert_followed(&wrapper(0x10, 0x10, 0x28), &guarded);
}

#[test]
fn hsa_init_that_calls_a_function_first() {
    let init = assemble(CODE, |a| {
        a.endbr64().unwrap();
        a.sub(rsp, 8).unwrap();
        a.call(0x1200).unwrap();
        load(a, POINTER);
        a.mov(rax, qword_ptr(rax + OFFSET as i32)).unwrap();
        a.add(rsp, 8).unwrap();
        a.jmp(rax).unwrap();
    });
    // The function that is called may do anything.
    let once = assemble(0x1200, |a| {
        a.lock().inc(dword_ptr(rdi)).unwrap();
        a.ret().unwrap();
    });
    assert_followed(&init, &once);
}

/// `hsa_amd_memory_async_copy_on_engine`, whose last argument is a `bool` on the stack.
fn widens(from: i32, to: i32) -> Vec<u8> {
    assemble(CODE, |a| {
        a.endbr64().unwrap();
        a.movzx(eax, byte_ptr(rsp + from)).unwrap();
        a.mov(dword_ptr(rsp + to), eax).unwrap();
        load(a, POINTER);
        a.jmp(qword_ptr(rax + OFFSET as i32)).unwrap();
    })
}

#[test]
fn an_argument_on_the_stack_may_be_widened_where_it_is() {
    assert_followed(&widens(0x20, 0x20), &[]);
    assert_not_a_stub(&widens(0x20, 0x18), &[]);
    assert_not_a_stub(&widens(0, 0), &[]);
}

#[test]
fn what_is_not_a_stub() {
    // The wrong stack, the wrong argument, a lost argument.
    assert_not_a_stub(&wrapper(0x10, 0x10, 0x20), &getter());
    assert_not_a_stub(&wrapper(0x10, 8, 0x28), &getter());
    assert_not_a_stub(&wrapper(0x10, 0x18, 0x28), &getter());
    // A getter that does more, or returns one of two things.
    let two = assemble(0x1200, |a| {
        let mut other = a.create_label();
        load(a, POINTER);
        a.test(al, al).unwrap();
        a.je(other).unwrap();
        a.ret().unwrap();
        a.set_label(&mut other).unwrap();
        load(a, POINTER + 8);
        a.ret().unwrap();
    });
    assert_not_a_stub(&wrapper(0x10, 0x10, 0x28), &two);
    assert_not_a_stub(&wrapper(0x10, 0x10, 0x28), &[0x0f, 0x0b]);
    assert_not_a_stub(&wrapper(0x10, 0x10, 0x28), &[0xeb, 0xfe]);
    // An argument is changed on the way.
    assert_not_a_stub(
        &assemble(CODE, |a| {
            load(a, POINTER);
            a.mov(rdi, rsi).unwrap();
            a.jmp(qword_ptr(rax + OFFSET as i32)).unwrap();
        }),
        &[],
    );
    assert_not_a_stub(
        &assemble(CODE, |a| {
            load(a, POINTER);
            a.xor(r9, r9).unwrap();
            a.jmp(qword_ptr(rax + OFFSET as i32)).unwrap();
        }),
        &[],
    );
    // Memory is written, a virtual call, a conditional one.
    assert_not_a_stub(
        &assemble(CODE, |a| {
            load(a, POINTER);
            a.mov(qword_ptr(rdi), rdx).unwrap();
            a.jmp(qword_ptr(rax + OFFSET as i32)).unwrap();
        }),
        &[],
    );
    assert_not_a_stub(
        &assemble(CODE, |a| {
            a.mov(rax, qword_ptr(rdi)).unwrap();
            a.jmp(qword_ptr(rax + OFFSET as i32)).unwrap();
        }),
        &[],
    );
    assert_not_a_stub(
        &assemble(CODE, |a| {
            load(a, POINTER);
            a.jmp(qword_ptr(rax + rcx * 8 + OFFSET as i32)).unwrap();
        }),
        &[],
    );
}

#[test]
fn tables_that_lead_nowhere() {
    for words in [
        vec![],
        vec![(BIAS + POINTER, 0)],
        vec![(BIAS + POINTER, TABLE)],
        vec![(BIAS + POINTER, TABLE), (TABLE + OFFSET, 0)],
        vec![(BIAS + POINTER, TABLE), (TABLE + OFFSET, 0xdead_0000)],
        vec![(BIAS + POINTER, TABLE), (TABLE + OFFSET, u64::MAX)],
        vec![(BIAS + POINTER, u64::MAX)],
        // Into the library, but not into code.
        vec![(BIAS + POINTER, TABLE), (TABLE + OFFSET, BIAS + DATA)],
        // Into the middle of a function.
        vec![(BIAS + POINTER, TABLE), (TABLE + OFFSET, BIAS + 0x1101)],
    ] {
        let plan = plan(&hsa(CODE), &[], &words);
        assert_eq!(plan.reached, ReachedBy::Stub { slot: SLOT }, "{words:x?}");
        assert!(plan.notes.iter().any(|note| matches!(note, Note::NotFollowed(_))));
        assert_eq!(plan.site.unwrap().file_offset, CODE);
    }
}

#[test]
fn functions_that_share_an_implementation_share_a_plan() {
    let stub = hsa(CODE);
    let second = hsa(CODE + 16);
    assert!(stub.len() <= 16);
    let parts = [Part::new(&stub), Part::new(&second), Part::new(BODY)];
    let (binary, mut functions) = binary(&parts, &[]);
    functions.truncate(2);
    functions[0].name = "hsa_signal_store_release".into();
    functions[1].name = "hsa_signal_store_screlease".into();
    let body = CODE + 32;
    let process = Fake::new(&[(BIAS + POINTER, TABLE), (TABLE + OFFSET, BIAS + body)]);
    let planner = Planner::new(KernelVersion::new(6, 18));
    let plans = planner.plan_library(&binary, &functions, Some(&process));
    assert_eq!(plans.len(), 1);
    assert_eq!(plans[0].symbol, "hsa_signal_store_screlease");
    assert_eq!(plans[0].aliases, ["hsa_signal_store_release"]);
    assert_eq!(planner.plan_library(&binary, &functions, None).len(), 2);
}
