//! The choice of a site, function by function.

use iced_x86::code_asm::{CodeAssembler, dword_ptr, edi, qword_ptr, rax, rbp, rdi, rdx, rsi};

use super::{
    super::{
        Binary, Class, FunctionPlan, KernelVersion, NotMoved, Note, PlanError, Planner, Refusal,
        ReturnProbe, Stop,
    },
    image::{ADVANCE, CFA_OFFSET, CODE, CONSTANTS, DATA, Part, binary, library},
};

const V6_6: KernelVersion = KernelVersion::new(6, 6);
const V6_18: KernelVersion = KernelVersion::new(6, 18);
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
/// Two functions: the planned one, and one that is jumped to.
const OTHER: u64 = 0x2000;

fn plan_parts(parts: &[Part], constants: &[u8], kernel: KernelVersion) -> FunctionPlan {
    let (binary, functions) = binary(parts, constants);
    Planner::new(kernel).plan_function(&binary, &functions[0])
}

fn plan(code: &[&[u8]]) -> FunctionPlan {
    plan_parts(&[Part::new(&code.concat())], &[], V6_18)
}

fn assemble(write: impl Fn(&mut CodeAssembler)) -> Vec<u8> {
    let mut a = CodeAssembler::new(64).unwrap();
    write(&mut a);
    a.assemble(CODE).unwrap()
}

#[track_caller]
fn assert_site(plan: &FunctionPlan, offset: u64, class: Class) {
    let site = plan.site.as_ref().unwrap();
    assert_eq!((site.function_offset, site.class), (offset, class), "{plan:?}");
    assert_eq!(site.file_offset, CODE + offset);
}

#[test]
fn push_at_the_entry() {
    let plan = plan(&[&[0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3]]);
    assert_site(&plan, 0, Class::Emulated);
    assert!(plan.notes.is_empty());
    let site = plan.site.unwrap();
    assert_eq!((site.instruction.as_str(), site.return_probe), ("push %rbp", ReturnProbe::Allowed));
}

#[test]
fn behind_endbr64() {
    let plan_1 = plan(&[&ENDBR64, &[0x41, 0x57, 0x41, 0x5f, 0xc3]]);
    assert_site(&plan_1, 4, Class::Emulated);
    assert!(plan_1.notes.is_empty());
    // sub: a move gains nothing.
    let plan_2 = plan(&[&ENDBR64, &[0x48, 0x83, 0xec, 0x18, 0x55]]);
    assert_site(&plan_2, 0, Class::SingleStep);
    assert_eq!(plan_2.notes, [Note::NoCheapSite(Stop::StackPointer)]);
}

#[test]
fn the_cheapest_by_kernel() {
    // xor %eax,%eax; nop5; push %rbp
    let code = [&[0x31, 0xc0], &NOP5[..], &[0x55, 0x5d, 0xc3]].concat();
    for (kernel, offset, class) in [
        (KernelVersion::new(4, 14), 0, Class::SingleStep),
        (V6_6, 7, Class::Emulated),
        (KernelVersion::new(6, 16), 2, Class::Emulated),
        (V6_18, 2, Class::Nop5),
        (KernelVersion::new(7, 3), 2, Class::Emulated),
    ] {
        assert_site(&plan_parts(&[Part::new(&code)], &[], kernel), offset, class);
    }
    // Behind a write below the stack pointer, the call that replaces a nop5 would overwrite what was written.
    let red_zone = [&[0x48, 0x89, 0x44, 0x24, 0xf8], &NOP5[..], &[0xc3]].concat();
    assert_site(&plan(&[&red_zone]), 0, Class::SingleStep);
}

#[test]
fn what_ends_the_search() {
    let push = [0x55, 0x5d, 0xc3];
    let cases: &[(&[u8], Stop)] = &[
        (&[0xc3], Stop::Branch),
        (&[0xff, 0xd0], Stop::Branch),
        (&[0x48, 0x83, 0xec, 8], Stop::StackPointer),
        (&[0x48, 0x89, 0x44, 0x24, 0xf8], Stop::MemoryWrite),
        (&[0x48, 0x89, 0x07], Stop::MemoryWrite),
        (&[0x31, 0xff], Stop::Argument { register: "rdi", cheap_behind: true }),
        (&[0x0f, 0xb7, 0xf6], Stop::Argument { register: "rsi", cheap_behind: true }),
        (&[0x40, 0xb7, 1], Stop::Argument { register: "rdi", cheap_behind: true }),
        (&[0x0f, 0x44, 0xd0], Stop::Argument { register: "rdx", cheap_behind: true }),
        (&[0x0f, 0xa2], Stop::Argument { register: "rcx", cheap_behind: true }),
        (&[0x8e, 0xe0], Stop::System),
        (&[0x06], Stop::End),
    ];
    // The code begins with xor %eax,%eax, which may be passed and is dear.
    for (bytes, stop) in cases {
        let plan = plan(&[&[0x31, 0xc0], bytes, &push]);
        assert_site(&plan, 0, Class::SingleStep);
        let Note::NoCheapSite(found) = plan.notes[0] else { panic!("{plan:?}") };
        let same = match (*stop, found) {
            // Some instructions write several registers.
            (Stop::Argument { .. }, Stop::Argument { cheap_behind, .. }) => cheap_behind,
            (a, b) => a == b,
        };
        assert!(same, "{bytes:x?}: {found:?}");
    }
    // mov %rax,%rax, eleven times.
    let far = plan(&[&[0x48, 0x89, 0xc0].repeat(11), &push]);
    assert_eq!(far.notes, [Note::NoCheapSite(Stop::Distance)]);
}

#[test]
fn what_the_kernel_refuses() {
    // A locked instruction at the entry writes memory: there is no way past it.
    let plan_1 = plan(&[&[0xf0, 0x48, 0xff, 0x07, 0xc3]]);
    assert_eq!(plan_1.site, None);
    assert_eq!(plan_1.notes, [Note::EntryRefused(Refusal::Prefix)]);
    // vxorps at the entry: the probe goes behind it, even to a dear place.
    let plan_2 = plan(&[&[0xc5, 0xf8, 0x57, 0xc0], &[0x31, 0xc0, 0xc3]]);
    assert_site(&plan_2, 4, Class::SingleStep);
    // Data.
    let plan_3 = plan(&[&[0x06; 32]]);
    assert_eq!(plan_3.site, None);
    assert_eq!(plan_3.notes, [Note::EntryRefused(Refusal::Invalid)]);
}

#[test]
fn branches_to_the_site_or_before_it() {
    // endbr64; L: push; pop; jmp L.
    let code = [&ENDBR64[..], &[0x55, 0x5d, 0xeb, 0xfc]].concat();
    let into_site = plan(&[&code]);
    assert_site(&into_site, 0, Class::SingleStep);
    let from = CODE + 6;
    let reason = NotMoved::JumpTarget { from };
    assert_eq!(into_site.notes, [Note::NotMoved { offset: 4, reason }]);
    // endbr64; push; pop; jmp entry: the entry cannot do better either, and a note says so.
    let to_entry = plan(&[&ENDBR64, &[0x55, 0x5d, 0xeb, 0xf8]]);
    assert_site(&to_entry, 0, Class::SingleStep);
    assert!(to_entry.notes.contains(&Note::EntryIsJumpTarget));
    // A recursive call is a new call.
    let recursive = plan(&[&ENDBR64, &[0x55, 0xe8, 0xf6, 0xff, 0xff, 0xff, 0x5d, 0xc3]]);
    assert_site(&recursive, 4, Class::Emulated);
    // Bytes that cannot be decoded may hide a branch.
    let hidden = plan(&[&ENDBR64, &[0x55, 0x06, 0x5d, 0xc3]]);
    assert_site(&hidden, 0, Class::SingleStep);
}

/// A function at `CODE` that jumps to another at [`OTHER`], which jumps to `back`.
fn with_cold_part(back: u64, cold_frame: u8) -> FunctionPlan {
    let mut hot = CodeAssembler::new(64).unwrap();
    hot.endbr64().unwrap();
    hot.push(rbp).unwrap();
    hot.jmp(OTHER).unwrap();
    let mut hot = hot.assemble(CODE).unwrap();
    let size = hot.len() as u32;
    hot.resize((OTHER - CODE) as usize, 0xcc);
    let mut cold = CodeAssembler::new(64).unwrap();
    cold.nop().unwrap();
    cold.jmp(back).unwrap();
    let parts = [
        Part { stated: Some(size), ..Part::framed(&hot, &[ADVANCE | 5, CFA_OFFSET, 16]) },
        Part::framed(&cold.assemble(OTHER).unwrap(), &[CFA_OFFSET, cold_frame]),
    ];
    let (binary, mut functions) = binary(&parts, &[]);
    functions[0].size = size.into();
    Planner::new(V6_18).plan_function(&binary, &functions[0])
}

#[test]
fn cold_parts_are_looked_at() {
    assert_site(&with_cold_part(OTHER, 16), 4, Class::Emulated);
    for frame in [16, 8] {
        let plan = with_cold_part(CODE + 4, frame);
        assert_site(&plan, 0, Class::SingleStep);
        let reason = NotMoved::JumpTarget { from: OTHER + 1 };
        assert_eq!(plan.notes, [Note::NotMoved { offset: 4, reason }]);
    }
}

#[test]
fn unwind_tables_must_agree() {
    let code = [&ENDBR64[..], &[0x55, 0x5d, 0xc3]].concat();
    let part = |part: Part| plan_parts(&[part], &[], V6_18);
    // The rows that a compiler writes.
    let frame = [ADVANCE | 5, CFA_OFFSET, 16, ADVANCE | 1, CFA_OFFSET, 8];
    assert_site(&part(Part::framed(&code, &frame)), 4, Class::Emulated);
    // No entry in the unwind tables.
    let none = part(Part { frame: None, ..Part::new(&code) });
    assert_site(&none, 0, Class::SingleStep);
    let not_moved = |reason| Note::NotMoved { offset: 4, reason };
    assert_eq!(none.notes, [Note::NoUnwindEntry, not_moved(NotMoved::NoUnwindRows)]);
    assert_eq!(none.site.unwrap().return_probe, ReturnProbe::Allowed);
    // A row with another frame at the site.
    let wrong = part(Part::framed(&code, &[ADVANCE | 4, CFA_OFFSET, 24]));
    assert_site(&wrong, 0, Class::SingleStep);
    assert_eq!(wrong.notes, [not_moved(NotMoved::WrongStack)]);
    // A row with another frame at the entry.
    let strange = part(Part::framed(&code, &[CFA_OFFSET, 24]));
    assert_site(&strange, 0, Class::SingleStep);
    assert!(matches!(strange.notes[0], Note::Disagreement(_)));
    assert_eq!(strange.site.unwrap().return_probe, ReturnProbe::WrongStack);
    // A function that ends before its symbol does.
    let short = part(Part { stated: Some(6), ..Part::new(&code) });
    assert_site(&short, 0, Class::SingleStep);
    assert!(matches!(short.notes[0], Note::Disagreement(_)));
    // A symbol in the middle of a function.
    let (binary, _) = binary(&[Part::new(&code)], &[]);
    let middle = Planner::new(V6_18).plan_at(&binary, "middle", CODE + 4, 0);
    assert!(matches!(middle.notes[0], Note::Disagreement(_)));
    assert_eq!(middle.site.unwrap().file_offset, CODE + 4);
}

/// `cmp $3,%edi; ja out; <table jump>; out: ret`.
fn switch(break_it: bool) -> Vec<u8> {
    assemble(|a| {
        let mut out = a.create_label();
        a.cmp(edi, if break_it { 300 } else { 3 }).unwrap();
        a.ja(out).unwrap();
        let table =
            iced_x86::MemoryOperand::with_base_displ(iced_x86::Register::RIP, CONSTANTS as i64);
        let lea =
            iced_x86::Instruction::with2(iced_x86::Code::Lea_r64_m, iced_x86::Register::RDX, table);
        a.add_instruction(lea.unwrap()).unwrap();
        a.mov(edi, edi).unwrap();
        a.movsxd(rax, dword_ptr(rdx + rdi * 4)).unwrap();
        a.add(rax, rdx).unwrap();
        a.jmp(rax).unwrap();
        a.set_label(&mut out).unwrap();
        a.ret().unwrap();
    })
}

#[test]
fn jump_tables_are_read() {
    let table = |targets: [u64; 4]| -> Vec<u8> {
        targets.iter().flat_map(|t| (*t as i32 - CONSTANTS as i32).to_le_bytes()).collect()
    };
    let end = CODE + switch(false).len() as u64 - 1;
    let good = plan_parts(&[Part::new(&switch(false))], &table([end; 4]), V6_18);
    assert_site(&good, 3, Class::Emulated);
    let looping = table([end, end, end, CODE + 3]);
    let bad = plan_parts(&[Part::new(&switch(false))], &looping, V6_18);
    assert_site(&bad, 0, Class::SingleStep);
    // A table that goes beyond the check's bound, entries of zero here, leads out of the function.
    let more = plan_parts(&[Part::new(&switch(true))], &table([end; 4]), V6_18);
    assert!(more.site.is_some());
    // A jump about which nothing is known: refused where the frame is the entry's, not where it is another.
    let jump = assemble(|a| {
        a.endbr64().unwrap();
        a.push(rsi).unwrap();
        a.jmp(qword_ptr(rax)).unwrap();
    });
    let unframed = plan_parts(&[Part::new(&jump)], &[], V6_18);
    assert_site(&unframed, 0, Class::SingleStep);
    let reason = NotMoved::IndirectJump { from: CODE + 5 };
    assert_eq!(unframed.notes, [Note::NotMoved { offset: 4, reason }]);
    let framed = Part::framed(&jump, &[ADVANCE | 5, CFA_OFFSET, 16]);
    assert_site(&plan_parts(&[framed], &[], V6_18), 4, Class::Emulated);
}

#[test]
fn symbols_that_are_no_code() {
    let (binary, _) = binary(&[Part::new(&[0xc3])], &[]);
    let planner = Planner::new(V6_18);
    for address in [0, CONSTANTS, DATA, 0xffff_0000, u64::MAX] {
        let plan = planner.plan_at(&binary, "data", address, 8);
        assert_eq!((plan.site, plan.notes), (None, vec![Note::NotCode]), "{address:x}");
    }
}

#[test]
fn files_that_are_no_libraries() {
    let open = |bytes: Vec<u8>| Binary::from_bytes(bytes, "x".as_ref(), None).err().unwrap();
    let (good, _) = library(&[Part::new(&[0xc3])], &[]);
    assert!(matches!(open(Vec::new()), PlanError::Format { .. }));
    assert!(matches!(open(b"#!/bin/sh\n".to_vec()), PlanError::Format { .. }));
    assert!(matches!(open(good[..40].to_vec()), PlanError::Format { .. }));
    let patched = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    // 32 bits, another machine, a code segment without the right to execute it.
    assert!(matches!(open(patched(4, 1)), PlanError::Format { .. }));
    assert!(matches!(open(patched(18, 183)), PlanError::Machine { machine: 183, .. }));
    assert!(matches!(open(patched(64 + 56 + 4, 4)), PlanError::NoCode { .. }));
    // Cut off behind the headers: no code is left.
    assert!(matches!(open(good[..0x800].to_vec()), PlanError::NoCode { .. }));
    // A writable code segment: the kernel places no probes there.
    let writable = patched(64 + 56 + 4, 7);
    let binary = Binary::from_bytes(writable, "x".as_ref(), None).unwrap();
    let plan = Planner::new(V6_18).plan_at(&binary, "f", CODE, 1);
    assert_eq!((plan.site, plan.notes), (None, vec![Note::WritableCode]));
    let missing = Binary::open("/nonexistent/lib.so".as_ref()).err().unwrap();
    assert!(missing.to_string().starts_with("/nonexistent/lib.so: cannot be opened"));
}
