//! Tables that the getter of HIP 6 and 7 makes at the first call, read from the file alone.

use std::collections::BTreeMap;

use iced_x86::{
    Code, Instruction, MemoryOperand, Register,
    code_asm::{
        CodeAssembler, CodeLabel, al, dword_ptr, eax, ebx, ecx, qword_ptr, rax, rbp, rbx, rcx, rdi,
        rdx, rsi, rsp,
    },
};

use proptest::prelude::*;

use super::{
    super::{
        Class, FunctionPlan, KernelVersion, Planner, ProcessMemory, ReachedBy, ReturnProbe, Slot,
        fuzz_plan, getter::LazyTable, stub::Stubs, symbolic::LoadedMemory,
    },
    image::{BIAS, CODE, DATA, DYNAMIC, Fake, Part, binary_with, library},
};
use crate::discover::Function;

/// The guard, the variable that holds the table's address, and the table.
const GUARD: u64 = DATA + 0x38;
const POINTER: u64 = DATA + 0x40;
const TABLE: u64 = DATA + 0x100;
/// Entries of the table.
const ENTRIES: u64 = 160;
/// Words that are relocated: the implementation's address, and two functions of another library.
const RELOCATED: u64 = DATA + 0x700;
const ACQUIRE: u64 = RELOCATED + 8;
const RELEASE: u64 = RELOCATED + 16;
const RELOCATIONS: u64 = DATA + 0xa00;
const SYMBOLS: u64 = DATA + 0xb00;
/// The functions of each library here: a stub, its getter, two implementations, of which the second has no cheap site,
/// and a helper that the getter calls.
const STUB: u64 = CODE;
const GETTER: u64 = CODE + 0x1000;
const CHEAP: u64 = CODE + 0x3000;
const DEAR: u64 = CODE + 0x3100;
const HELPER: u64 = CODE + 0x3200;
/// Linkage stubs for the functions of another library, 16 bytes each.
const LINKAGE: u64 = CODE + 0x3300;
/// The entries that lead to the cheap implementation and to the dear one.
const CHEAP_ENTRY: u64 = 3;
const DEAR_ENTRY: u64 = 4;

fn relative(address: u64) -> MemoryOperand {
    MemoryOperand::with_base_displ(Register::RIP, address as i64)
}

/// An instruction with `address(%rip)` as its second operand.
fn load(a: &mut CodeAssembler, code: Code, register: Register, address: u64) {
    a.add_instruction(Instruction::with2(code, register, relative(address)).unwrap()).unwrap();
}

/// An instruction with `address(%rip)` as its first operand.
fn store(a: &mut CodeAssembler, code: Code, address: u64, register: Register) {
    a.add_instruction(Instruction::with2(code, relative(address), register).unwrap()).unwrap();
}

fn lea(a: &mut CodeAssembler, register: Register, address: u64) {
    load(a, Code::Lea_r64_m, register, address);
}

/// `lea value(%rip),%rax; mov %rax,at(%rip)`.
fn put(a: &mut CodeAssembler, at: u64, value: u64) {
    lea(a, Register::RAX, value);
    store(a, Code::Mov_rm64_r64, at, Register::RAX);
}

fn assemble(at: u64, write: impl Fn(&mut CodeAssembler)) -> Vec<u8> {
    let mut a = CodeAssembler::new(64).unwrap();
    write(&mut a);
    a.assemble(at).unwrap()
}

/// The getter as GCC makes it; `make` fills the table.
fn getter(make: impl Fn(&mut CodeAssembler, &mut CodeLabel)) -> Vec<u8> {
    assemble(GETTER, |a| {
        let (mut first, mut make_it, mut made) =
            (a.create_label(), a.create_label(), a.create_label());
        a.endbr64().unwrap();
        load(a, Code::Movzx_r32_rm8, Register::EAX, GUARD);
        a.test(al, al).unwrap();
        a.je(first).unwrap();
        load(a, Code::Mov_r64_rm64, Register::RAX, POINTER);
        a.ret().unwrap();
        a.set_label(&mut first).unwrap();
        a.sub(rsp, 8).unwrap();
        lea(a, Register::RDI, GUARD);
        a.call(LINKAGE).unwrap();
        a.test(eax, eax).unwrap();
        a.jne(make_it).unwrap();
        load(a, Code::Mov_r64_rm64, Register::RAX, POINTER);
        a.add(rsp, 8).unwrap();
        a.ret().unwrap();
        a.set_label(&mut make_it).unwrap();
        make(a, &mut made);
        a.set_label(&mut made).unwrap();
        put(a, POINTER, TABLE);
        lea(a, Register::RDI, GUARD);
        a.call(LINKAGE + 16).unwrap();
        load(a, Code::Mov_r64_rm64, Register::RAX, POINTER);
        a.add(rsp, 8).unwrap();
        a.ret().unwrap();
    })
}

/// All entries, two at a time through a vector register as GCC does, and one by one.
fn fill(a: &mut CodeAssembler) {
    for entry in (0..ENTRIES).step_by(2) {
        let at = TABLE + 8 * entry;
        if entry < ENTRIES / 2 {
            load(a, Code::Movq_xmm_xmmm64, Register::XMM0, RELOCATED);
            load(a, Code::Movhps_xmm_m64, Register::XMM0, RELOCATED);
            store(a, Code::Movups_xmmm128_xmm, at, Register::XMM0);
        } else {
            put(a, at, CHEAP);
            put(a, at + 8, CHEAP);
        }
    }
    put(a, TABLE + 8 * DEAR_ENTRY, DEAR);
}

/// The wrapper of entry `entry`.
fn wrapper(entry: u64) -> Vec<u8> {
    assemble(STUB, |a| {
        a.endbr64().unwrap();
        a.sub(rsp, 0x18).unwrap();
        a.mov(qword_ptr(rsp + 8), rdi).unwrap();
        a.mov(qword_ptr(rsp), rsi).unwrap();
        a.call(GETTER).unwrap();
        a.mov(rsi, qword_ptr(rsp)).unwrap();
        a.mov(rdi, qword_ptr(rsp + 8)).unwrap();
        a.mov(rax, qword_ptr(rax + 8 * entry as i32)).unwrap();
        a.add(rsp, 0x18).unwrap();
        a.jmp(rax).unwrap();
    })
}

/// The wrapper of entry `entry` whose function has arguments on the stack. Between them and `rsp` are
/// 0x40 bytes at the getter's call; the first is put back with `size` bytes to `at`.
fn stacked(entry: u64, at: i32, size: usize) -> Vec<u8> {
    assemble(STUB, |a| {
        a.endbr64().unwrap();
        a.push(rbp).unwrap();
        a.push(rbx).unwrap();
        a.sub(rsp, 0x28).unwrap();
        a.mov(ebx, dword_ptr(rsp + 0x40)).unwrap();
        a.mov(rbp, qword_ptr(rsp + 0x48)).unwrap();
        a.mov(qword_ptr(rsp + 8), rdi).unwrap();
        a.mov(dword_ptr(rsp), ecx).unwrap();
        a.call(GETTER).unwrap();
        a.mov(rdi, qword_ptr(rsp + 8)).unwrap();
        a.mov(qword_ptr(rsp + 0x48), rbp).unwrap();
        a.mov(ecx, dword_ptr(rsp)).unwrap();
        match size {
            4 => a.mov(dword_ptr(rsp + at), ebx).unwrap(),
            _ => a.mov(qword_ptr(rsp + at), rbx).unwrap(),
        }
        a.mov(rax, qword_ptr(rax + 8 * entry as i32)).unwrap();
        a.add(rsp, 0x28).unwrap();
        a.pop(rbx).unwrap();
        a.pop(rbp).unwrap();
        a.jmp(rax).unwrap();
    })
}

fn parts(stub: &[u8], getter: &[u8]) -> Vec<Part> {
    let cheap = assemble(CHEAP, |a| {
        a.endbr64().unwrap();
        a.push(rbx).unwrap();
        a.pop(rbx).unwrap();
        a.ret().unwrap();
    });
    let dear = assemble(DEAR, |a| {
        a.endbr64().unwrap();
        a.sub(rsp, 8).unwrap();
        a.add(rsp, 8).unwrap();
        a.ret().unwrap();
    });
    // Changes entry 6 of the table that it gets.
    let helper = assemble(HELPER, |a| {
        a.mov(qword_ptr(rdi + 8 * 6), rsi).unwrap();
        a.ret().unwrap();
    });
    let linkage = [(LINKAGE, ACQUIRE), (LINKAGE + 16, RELEASE)].map(|(at, function)| {
        let mut code = assemble(at, |a| {
            a.endbr64().unwrap();
            let jump = Instruction::with1(Code::Jmp_rm64, relative(function)).unwrap();
            a.add_instruction(jump).unwrap();
        });
        code.resize(16, 0xcc);
        code
    });
    let part = |code: &[u8], room: u64| {
        let mut padded = code.to_vec();
        assert!(padded.len() as u64 <= room);
        padded.resize(room as usize, 0xcc);
        Part { stated: Some(code.len() as u32), ..Part::new(&padded) }
    };
    vec![
        part(stub, GETTER - STUB),
        part(getter, CHEAP - GETTER),
        part(&cheap, DEAR - CHEAP),
        part(&dear, HELPER - DEAR),
        part(&helper, LINKAGE - HELPER),
        part(&linkage.concat(), 0x20),
    ]
}

fn words() -> Vec<(u64, u64)> {
    let relocations = [[RELOCATED, 8, CHEAP], [ACQUIRE, 1 << 32 | 7, 0], [RELEASE, 1 << 32 | 7, 0]];
    let dynamic = [(7, RELOCATIONS), (8, 24 * relocations.len() as u64), (6, SYMBOLS)];
    let mut words = Vec::new();
    for (address, (tag, value)) in (DYNAMIC..).step_by(16).zip(dynamic) {
        words.extend([(address, tag), (address + 8, value)]);
    }
    for (address, word) in (RELOCATIONS..).step_by(8).zip(relocations.as_flattened()) {
        words.push((address, *word));
    }
    words
}

fn plan(stub: &[u8], getter: &[u8], process: Option<&dyn ProcessMemory>) -> FunctionPlan {
    let (binary, mut functions) = binary_with(&parts(stub, getter), &words());
    functions.truncate(1);
    functions[0].size = stub.len() as u64;
    let planner = Planner::new(KernelVersion::new(6, 18));
    let mut plans = planner.plan_library(&binary, &functions, process);
    assert_eq!(plans.len(), 1);
    plans.remove(0)
}

fn slot(entry: u64) -> Slot {
    Slot::Table { pointer: POINTER, offset: 8 * entry }
}

fn behind(address: u64, entry: u64) -> ReachedBy {
    ReachedBy::Implementation { file_offset: address, slot: slot(entry) }
}

fn good() -> Vec<u8> {
    getter(|a, _| fill(a))
}

#[test]
fn the_table_is_known_before_the_first_call() {
    let untouched = Fake::new(&[(BIAS + POINTER, 0)]);
    for process in [None, Some(&untouched as &dyn ProcessMemory)] {
        for entry in [CHEAP_ENTRY, 0, ENTRIES - 1] {
            let plan = plan(&wrapper(entry), &good(), process);
            assert_eq!(plan.reached, behind(CHEAP, entry), "{plan:?}");
            let site = plan.site.unwrap();
            assert_eq!((site.file_offset, site.class), (CHEAP + 4, Class::Emulated));
            assert!(plan.notes.is_empty());
        }
        let plan = plan(&wrapper(DEAR_ENTRY), &good(), process);
        assert_eq!(plan.reached, behind(DEAR, DEAR_ENTRY));
    }
}

/// The table in the process takes precedence: another tool may have changed it.
#[test]
fn a_table_that_is_there_is_read() {
    let table = 0x5555_0000_0000;
    let words = [(BIAS + POINTER, table), (table + 8 * CHEAP_ENTRY, BIAS + DEAR)];
    let plan = plan(&wrapper(CHEAP_ENTRY), &good(), Some(&Fake::new(&words)));
    assert_eq!(plan.reached, behind(DEAR, CHEAP_ENTRY));
}

#[test]
fn what_is_made_one_way_or_another_is_not_known() {
    // An entry that depends on a condition, and one that a function sets: the others are known.
    let some = getter(|a, made| {
        fill(a);
        lea(a, Register::RDI, TABLE);
        lea(a, Register::RSI, DEAR);
        a.call(HELPER).unwrap();
        a.test(rdx, rdx).unwrap();
        a.je(*made).unwrap();
        put(a, TABLE + 8 * 5, DEAR);
    });
    let reached = |entry: u64, getter: &[u8]| plan(&wrapper(entry), getter, None).reached;
    assert_eq!(reached(4, &some), behind(DEAR, 4));
    assert_eq!(reached(5, &some), ReachedBy::Stub { slot: slot(5) });
    assert_eq!(reached(6, &some), behind(DEAR, 6));
    assert_eq!(reached(7, &some), behind(CHEAP, 7));
    // A way with an instruction that is not understood.
    let lost: [&dyn Fn(&mut CodeAssembler); 4] = [
        &|a| a.syscall().unwrap(),
        &|a| a.jmp(rcx).unwrap(),
        &|a| a.rep().stosq().unwrap(),
        &|a| {
            let mut again = a.create_label();
            a.set_label(&mut again).unwrap();
            a.dec(rcx).unwrap();
            a.jne(again).unwrap();
        },
    ];
    for lost in lost {
        let getter = getter(|a, _| {
            fill(a);
            lost(a);
        });
        let reached = reached(CHEAP_ENTRY, &getter);
        assert!(!matches!(reached, ReachedBy::Implementation { .. }), "{reached:?}");
    }
}

/// The table that is returned is not the one that is left in the variable.
#[test]
fn getters_that_return_something_else() {
    let is_stub = |getter: &[u8]| {
        let (binary, _) = binary_with(&parts(&wrapper(CHEAP_ENTRY), getter), &words());
        Stubs::new(&binary).recognise(STUB).is_some()
    };
    assert!(is_stub(&good()));
    let stale = assemble(GETTER, |a| {
        load(a, Code::Mov_r64_rm64, Register::RBX, POINTER);
        put(a, POINTER, TABLE);
        a.mov(rax, rbx).unwrap();
        a.ret().unwrap();
    });
    assert!(!is_stub(&stale));
    let elsewhere = assemble(GETTER, |a| {
        a.mov(qword_ptr(rdi), rsi).unwrap();
        load(a, Code::Mov_r64_rm64, Register::RAX, POINTER);
        a.ret().unwrap();
    });
    assert!(!is_stub(&elsewhere));
    // A getter without an end.
    assert!(!is_stub(&assemble(GETTER, |a| (0..2000).for_each(|_| a.nop().unwrap()))));
}

#[test]
fn arguments_on_the_stack_may_be_put_back_where_they_were() {
    let right = plan(&stacked(CHEAP_ENTRY, 0x40, 4), &good(), None);
    assert_eq!(right.reached, behind(CHEAP, CHEAP_ENTRY));
    // To another place, or more bytes than were read.
    for (at, size) in [(0x44, 4), (0x50, 4), (0x38, 4), (0x40, 8)] {
        let wrong = plan(&stacked(CHEAP_ENTRY, at, size), &good(), None);
        assert_eq!(wrong.reached, ReachedBy::Exported, "{at:#x}");
    }
}

/// The `push` of a stub is a site for entries and returns if that of its implementation is dear or not known: the
/// stub's last jump is a call of another function.
#[test]
fn a_stub_has_a_site_of_its_own() {
    let stub = |entry| stacked(entry, 0x40, 4);
    // The entry behind the last one is never filled.
    for entry in [DEAR_ENTRY, ENTRIES] {
        let plan = plan(&stub(entry), &good(), None);
        assert_eq!(plan.reached, ReachedBy::Stub { slot: slot(entry) }, "{plan:?}");
        let site = plan.site.unwrap();
        assert_eq!((site.file_offset, site.class), (STUB + 4, Class::Emulated));
        assert_eq!(site.return_probe, ReturnProbe::Allowed);
    }
}

/// A random getter: its operations, which write to the table and choose a way.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// A register gets an address.
    Address(usize, u64),
    /// Registers and words of the table.
    Load(usize, u64),
    Store(u64, usize),
    /// A constant, for a whole word or for its lower half.
    Constant(u64, i32),
    Half(u64, i32),
    /// The halves of a vector register, and both.
    Lower(u64),
    Upper(u64),
    Both(u64),
    /// From one register through the stack to another.
    Push(usize, usize),
    /// A word that a function writes.
    Call(u64),
    /// If the condition holds, goes on some operations further.
    Branch(usize),
    /// The pointer is set.
    Made,
}

const WORDS: u64 = 12;
const NUMBERS: [Register; 3] = [Register::RBX, Register::RDX, Register::RSI];

fn op() -> impl Strategy<Value = Op> {
    let register = || 0..NUMBERS.len();
    let word = || 0..WORDS;
    prop_oneof![
        4 => (register(), 0..0x1000u64).prop_map(|(r, at)| Op::Address(r, CODE + at)),
        2 => (register(), word()).prop_map(|(r, at)| Op::Load(r, at)),
        4 => (word(), register()).prop_map(|(at, r)| Op::Store(at, r)),
        2 => (word(), any::<i32>()).prop_map(|(at, value)| Op::Constant(at, value)),
        1 => (word(), any::<i32>()).prop_map(|(at, value)| Op::Half(at, value)),
        2 => word().prop_map(Op::Lower),
        2 => word().prop_map(Op::Upper),
        2 => (0..WORDS - 1).prop_map(Op::Both),
        1 => (register(), register()).prop_map(|(from, to)| Op::Push(from, to)),
        1 => word().prop_map(Op::Call),
        1 => (1..6usize).prop_map(Op::Branch),
        2 => Just(Op::Made),
    ]
}

fn word_at(word: u64) -> u64 {
    TABLE + 8 * word
}

fn random_getter(ops: &[Op]) -> Vec<u8> {
    assemble(GETTER, |a| {
        let mut labels: Vec<CodeLabel> = (0..=ops.len()).map(|_| a.create_label()).collect();
        for (index, op) in ops.iter().enumerate() {
            a.set_label(&mut labels[index]).unwrap();
            let constant = |code, at, value: i32| {
                Instruction::with2(code, relative(word_at(at)), value).unwrap()
            };
            match *op {
                Op::Address(r, address) => lea(a, NUMBERS[r], address),
                Op::Load(r, at) => load(a, Code::Mov_r64_rm64, NUMBERS[r], word_at(at)),
                Op::Store(at, r) => store(a, Code::Mov_rm64_r64, word_at(at), NUMBERS[r]),
                Op::Constant(at, value) => {
                    a.add_instruction(constant(Code::Mov_rm64_imm32, at, value)).unwrap();
                }
                Op::Half(at, value) => {
                    a.add_instruction(constant(Code::Mov_rm32_imm32, at, value)).unwrap();
                }
                Op::Lower(at) => load(a, Code::Movq_xmm_xmmm64, Register::XMM0, word_at(at)),
                Op::Upper(at) => load(a, Code::Movhps_xmm_m64, Register::XMM0, word_at(at)),
                Op::Both(at) => store(a, Code::Movups_xmmm128_xmm, word_at(at), Register::XMM0),
                Op::Push(from, to) => {
                    let push = Instruction::with1(Code::Push_r64, NUMBERS[from]).unwrap();
                    a.add_instruction(push).unwrap();
                    let pop = Instruction::with1(Code::Pop_r64, NUMBERS[to]).unwrap();
                    a.add_instruction(pop).unwrap();
                }
                // `helper` writes `rsi` six words further.
                Op::Call(at) => {
                    lea(a, Register::RDI, word_at(at).wrapping_sub(8 * 6));
                    a.call(HELPER).unwrap();
                }
                Op::Branch(further) => a.je(labels[(index + further).min(ops.len())]).unwrap(),
                Op::Made => put(a, POINTER, TABLE),
            }
        }
        a.set_label(&mut labels[ops.len()]).unwrap();
        load(a, Code::Mov_r64_rm64, Register::RAX, POINTER);
        a.ret().unwrap();
    })
}

/// Executes the getter: whether the table was made, and its words. None for a word from a register that the getter has
/// not written.
fn happens(ops: &[Op], mut choices: u64) -> (bool, Vec<Option<u64>>) {
    let (mut made, mut at) = (false, 0);
    let mut table = vec![Some(0u64); WORDS as usize];
    let (mut registers, mut vector) = ([None; NUMBERS.len()], [None; 2]);
    while let Some(op) = ops.get(at) {
        at += 1;
        match *op {
            Op::Address(r, address) => registers[r] = Some(address),
            Op::Load(r, word) => registers[r] = table[word as usize],
            Op::Store(word, r) => table[word as usize] = registers[r],
            Op::Constant(word, value) => table[word as usize] = Some(value as i64 as u64),
            Op::Half(word, value) => {
                let word = &mut table[word as usize];
                *word = word.map(|word| word >> 32 << 32 | u64::from(value as u32));
            }
            Op::Lower(word) => vector = [table[word as usize], Some(0)],
            Op::Upper(word) => vector[1] = table[word as usize],
            Op::Both(word) => table[word as usize..][..2].copy_from_slice(&vector),
            Op::Push(from, to) => registers[to] = registers[from],
            Op::Call(word) => table[word as usize] = registers[2],
            Op::Branch(further) => {
                if choices & 1 != 0 {
                    at = (at - 1 + further).min(ops.len());
                }
                choices = choices.rotate_right(1);
            }
            Op::Made => made = true,
        }
    }
    (made, table)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Whatever way a getter goes: what is said of the table that it makes is so.
    #[test]
    fn what_is_said_of_a_table_is_so(
        ops in prop::collection::vec(op(), 1..40),
        choices: [u64; 8],
    ) {
        let (binary, _) = binary_with(&parts(&wrapper(0), &random_getter(&ops)), &words());
        let loaded = LoadedMemory::new(&binary, BTreeMap::new());
        let said = LazyTable::at_first_call(&loaded, GETTER, POINTER);
        let branches = ops.iter().filter(|op| matches!(op, Op::Branch(_))).count();
        let is_exact = |op: &Op| !matches!(op, Op::Branch(_) | Op::Half(..));
        let exact = ops.iter().all(is_exact);
        for choices in choices {
            let (made, table) = happens(&ops, choices);
            if !made {
                prop_assert!(said.is_none() || !exact);
                continue;
            }
            prop_assert!(said.is_some() || branches > 8, "{:?}", ops);
            let Some(said) = &said else { continue };
            for (word, happened) in (0..).step_by(8).zip(table) {
                match said.entry(&loaded, word) {
                    Some(entry) => prop_assert_eq!(Some(entry), happened, "{} of {:?}", word, ops),
                    None => prop_assert!(!exact || happened.is_none(), "{} of {:?}", word, ops),
                }
            }
        }
    }

    /// Getters of any bytes.
    #[test]
    fn any_getter(code in prop::collection::vec(any::<u8>(), 1..200)) {
        let (bytes, _) = library(&parts(&wrapper(CHEAP_ENTRY), &code), &[]);
        fuzz_plan(&bytes);
    }
}

/// A program may be called back inside of these functions, also if it calls them by the names that a default stream for
/// each thread gives them.
#[test]
fn functions_that_call_back_have_no_return_probe() {
    let (binary, functions) = binary_with(&parts(&wrapper(CHEAP_ENTRY), &good()), &words());
    let planner = Planner::new(KernelVersion::new(6, 18));
    for (name, expected) in [
        ("hipLaunchHostFunc", ReturnProbe::CallsBack),
        ("hipLaunchHostFunc_spt", ReturnProbe::CallsBack),
        ("hipMemcpy_spt", ReturnProbe::Allowed),
    ] {
        let function = Function { name: name.into(), ..functions[0].clone() };
        let plan = planner.plan_library(&binary, &[function], None).remove(0);
        assert_eq!(plan.reached, behind(CHEAP, CHEAP_ENTRY));
        assert_eq!(plan.site.unwrap().return_probe, expected, "{name}");
    }
}
