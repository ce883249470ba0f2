//! Tables that initialisers fill, read from the file alone.

use iced_x86::{
    Code, Instruction, MemoryOperand, Register,
    code_asm::{CodeAssembler, qword_ptr, rax, rbx, rdi, rsp, xmm0, xmm1, xmmword_ptr},
};

use super::{
    super::{KernelVersion, Planner, ReachedBy, Slot},
    image::{CODE, DATA, DYNAMIC, Part, binary_with},
};

/// Variable that holds the table's address; the table; the words that are relocated.
const POINTER: u64 = DATA + 0x40;
const TABLE: u64 = DATA + 0x100;
const RELOCATED: u64 = DATA + 0x200;
/// Where the tables of the dynamic section are.
const RELOCATIONS: u64 = DATA + 0x900;
const SYMBOLS: u64 = DATA + 0xa00;
const INITIALISERS: u64 = DATA + 0xb00;
/// Every function here begins at a multiple of this.
const ROOM: u64 = 0x80;

fn at(function: u64) -> u64 {
    CODE + function * ROOM
}

/// The function `number`, in its room.
fn function(number: u64, write: impl Fn(&mut CodeAssembler)) -> Part {
    let mut a = CodeAssembler::new(64).unwrap();
    write(&mut a);
    let mut code = a.assemble(at(number)).unwrap();
    code.resize(ROOM as usize, 0xcc);
    Part::new(&code)
}

/// An instruction with `address(%rip)` as its second operand.
fn load(a: &mut CodeAssembler, code: Code, register: Register, address: u64) {
    let memory = MemoryOperand::with_base_displ(Register::RIP, address as i64);
    a.add_instruction(Instruction::with2(code, register, memory).unwrap()).unwrap();
}

/// `call *address(%rip)`.
fn call_outside(a: &mut CodeAssembler, address: u64) {
    let memory = MemoryOperand::with_base_displ(Register::RIP, address as i64);
    a.add_instruction(Instruction::with1(Code::Call_rm64, memory).unwrap()).unwrap();
}

/// Plans stubs of three entries; `branches`: the initialiser branches before it has filled the last.
fn reached(branches: bool) -> Vec<ReachedBy> {
    let stub = |number: u64| {
        function(number, |a| {
            load(a, Code::Mov_r64_rm64, Register::RAX, POINTER);
            a.jmp(qword_ptr(rax + 8 * number as i32)).unwrap();
        })
    };
    let body = |number| {
        function(number, |a| {
            a.push(rbx).unwrap();
            a.pop(rbx).unwrap();
            a.ret().unwrap();
        })
    };
    let initialiser = function(6, |a| {
        load(a, Code::Lea_r64_m, Register::RDI, TABLE);
        a.call(at(7)).unwrap();
        // As compilers do if they have seen that the function leaves the register alone.
        let memory = MemoryOperand::with_base_displ(Register::RIP, POINTER as i64);
        let store = Instruction::with2(Code::Mov_rm64_r64, memory, Register::RDI);
        a.add_instruction(store.unwrap()).unwrap();
        a.ret().unwrap();
    });
    let filling = function(7, |a| {
        a.push(rbx).unwrap();
        a.sub(rsp, 0x10).unwrap();
        a.mov(rbx, rdi).unwrap();
        load(a, Code::Movq_xmm_xmmm64, Register::XMM0, RELOCATED);
        load(a, Code::Movhps_xmm_m64, Register::XMM0, RELOCATED + 8);
        a.movaps(xmmword_ptr(rsp), xmm0).unwrap();
        call_outside(a, RELOCATED + 16);
        a.movdqa(xmm1, xmmword_ptr(rsp)).unwrap();
        a.movups(xmmword_ptr(rbx), xmm1).unwrap();
        if branches {
            let mut label = a.create_label();
            a.jne(label).unwrap();
            a.set_label(&mut label).unwrap();
        }
        load(a, Code::Lea_r64_m, Register::RAX, at(5));
        a.mov(qword_ptr(rbx + 16), rax).unwrap();
        a.mov(rdi, rbx).unwrap();
        a.add(rsp, 0x10).unwrap();
        a.pop(rbx).unwrap();
        a.ret().unwrap();
    });
    let mut parts: Vec<Part> = (0..3).map(stub).chain((3..6).map(body)).collect();
    parts.extend([initialiser, filling]);
    let relocations = [
        // A relative word; the address of symbol 1; that of symbol 2, which another library defines.
        [RELOCATED, 8, at(3)],
        [RELOCATED + 8, 1 << 32 | 6, 0],
        [RELOCATED + 16, 2 << 32 | 7, 0],
        [INITIALISERS, 8, at(6)],
    ];
    let dynamic = [
        (7, RELOCATIONS),
        (8, 24 * relocations.len() as u64),
        (6, SYMBOLS),
        (25, INITIALISERS),
        (27, 8),
    ];
    let mut words = vec![
        // A function (its type, and the section that it is in), at this address.
        (SYMBOLS + 24, 0x12 << 32 | 1 << 48),
        (SYMBOLS + 32, at(4)),
    ];
    for (address, (tag, value)) in (DYNAMIC..).step_by(16).zip(dynamic) {
        words.extend([(address, tag), (address + 8, value)]);
    }
    for (address, word) in (RELOCATIONS..).step_by(8).zip(relocations.as_flattened()) {
        words.push((address, *word));
    }
    let (binary, mut functions) = binary_with(&parts, &words);
    functions.truncate(3);
    let plans = Planner::new(KernelVersion::new(6, 18)).plan_library(&binary, &functions, None);
    functions
        .iter()
        .map(|f| plans.iter().find(|plan| plan.names().any(|name| name == f.name)).unwrap())
        .map(|plan| plan.reached.clone())
        .collect()
}

fn slot(entry: u64) -> Slot {
    Slot::Table { pointer: POINTER, offset: entry * 8 }
}

fn behind(entry: u64) -> ReachedBy {
    ReachedBy::Implementation { file_offset: at(3 + entry), slot: slot(entry) }
}

#[test]
fn what_an_initialiser_writes_is_known() {
    assert_eq!(reached(false), [0, 1, 2].map(behind));
}

/// A value that is written behind a branch is not guessed: here the table's address.
#[test]
fn what_an_initialiser_writes_behind_a_branch_is_not_known() {
    assert_eq!(reached(true), [0, 1, 2].map(|entry| ReachedBy::Stub { slot: slot(entry) }));
}
