//! Entries that another tool has redirected: its wrapper or the implementation.

use std::path::Path;

use super::{
    super::{
        Binary, Class, Followed, FunctionPlan, KernelVersion, NoWrapper, Note, Planner, Probed,
        Reached, Redirected, Slot, Tables,
    },
    image::{
        BIAS, CODE, DATA, Fake, OTHER, OTHER_OFFSET, OTHER_PATH, PATH, Part, binary_with, library,
    },
};
use crate::discover::Function;

/// Variable that holds the table's address, and where the table is in the process.
const POINTER: u64 = DATA + 0x40;
const TABLE: u64 = 0x5555_0000_0000;
/// Where the table is that the file has.
const INITIAL: u64 = DATA + 0x100;
/// `push %rbx; pop %rbx; ret`, with what the unwind tables say of it.
const BODY: &[u8] = &[0x53, 0x5b, 0xc3];
const FRAME: &[u8] = &[0x41, 0x0e, 16, 0x41, 0x0e, 8];
/// The implementations of the two functions.
const FIRST: u64 = CODE + 0x20;
const SECOND: u64 = CODE + 0x30;

/// A stub that jumps through entry `entry` of the table: `mov POINTER(%rip),%rax; jmp *(%rax)`.
fn stub(at: u64, entry: u8) -> Vec<u8> {
    let distance = (POINTER - at - 7) as u32;
    let mut code = vec![0x48, 0x8b, 0x05];
    code.extend(distance.to_le_bytes());
    code.extend([0xff, 0x60, entry * 8]);
    code
}

fn slot(entry: u64) -> Slot {
    Slot::Table { pointer: POINTER, offset: entry * 8 }
}

/// The process whose table has these entries, and whose other library has `wrapper` at [`OTHER`].
fn process(first: u64, second: u64, wrapper: Part) -> Fake {
    let entries = [(BIAS + POINTER, TABLE), (TABLE, first), (TABLE + 8, second)];
    let before = Part::new(&[0xcc; (OTHER_OFFSET - CODE) as usize]);
    Fake { other: library(&[before, wrapper], &[]).0, ..Fake::new(&entries) }
}

fn wrapper() -> Part {
    Part::framed(BODY, FRAME)
}

/// The library with `hsa_first` and `hsa_second`; its file tells where its table leads, or not.
fn file(told: bool) -> (Binary, Vec<Function>) {
    let parts = [
        Part::new(&stub(CODE, 0)),
        Part::new(&stub(CODE + 0x10, 1)),
        Part::framed(BODY, FRAME),
        Part::framed(BODY, FRAME),
    ];
    let table = [(POINTER, INITIAL), (INITIAL, FIRST), (INITIAL + 8, SECOND)];
    let (binary, mut functions) = binary_with(&parts, if told { &table } else { &[] });
    functions.truncate(2);
    functions[0].name = "hsa_first".to_owned();
    functions[1].name = "hsa_second".to_owned();
    (binary, functions)
}

/// Plans them in `process`.
fn plan(process: &Fake, told: bool, redirected: Redirected) -> Vec<FunctionPlan> {
    let (binary, functions) = file(told);
    let tables = Tables { process: Some(process), redirected };
    let mut plans = Planner::new(KernelVersion::new(6, 18)).plan_live(&binary, &functions, tables);
    plans.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    assert_eq!(plans.len(), 2, "{plans:?}");
    plans
}

/// What is probed of `hsa_first`, which leads to [`OTHER`], and where; `hsa_second` is as ever.
fn probed(plans: &[FunctionPlan]) -> (Probed, u64, &[Note]) {
    let second = &plans[1];
    let behind = Reached::Implementation { file_offset: SECOND, slot: slot(1) };
    assert_eq!((&second.reached, second.other_file()), (&behind, None));
    let first = &plans[0];
    let Reached::Redirected { target, slot: from, probed } = &first.reached else {
        panic!("{first:?}");
    };
    assert_eq!((*from, target.address), (slot(0), OTHER));
    let site = first.site.as_ref().unwrap();
    (probed.clone(), site.file_offset, &first.notes)
}

const IMPLEMENTATION: Probed = Probed::Implementation { file_offset: FIRST };

#[test]
fn the_implementation_is_known_from_the_file() {
    let process = process(OTHER, BIAS + SECOND, wrapper());
    let plans = plan(&process, true, Redirected::Implementation);
    assert_eq!(probed(&plans), (IMPLEMENTATION, FIRST, &[][..]));
    assert_eq!(plans[0].other_file(), None);
    // Where that does not tell, there is the stub, which is dear.
    let plans = plan(&process, false, Redirected::Implementation);
    let (probed, at, notes) = probed(&plans);
    assert_eq!((probed, at), (Probed::Stub, CODE));
    assert!(notes.iter().any(|note| matches!(note, Note::NotFollowed(_))), "{notes:?}");
}

#[test]
fn the_wrapper_is_planned_in_its_own_file() {
    let process = process(OTHER, BIAS + SECOND, wrapper());
    for told in [false, true] {
        let plans = plan(&process, told, Redirected::Wrapper);
        let there = Probed::Wrapper { file: OTHER_PATH.into(), held: None };
        assert_eq!(probed(&plans), (there, OTHER_OFFSET, &[][..]));
        assert_eq!(plans[0].other_file(), Some(Path::new(OTHER_PATH)));
        assert_eq!(plans[0].site.as_ref().unwrap().class, Class::Emulated);
    }
}

#[test]
fn a_wrapper_that_cannot_be_probed_is_told_and_the_implementation_taken() {
    let expect = |process: &Fake, reason: fn(&NoWrapper) -> bool| {
        let plans = plan(process, true, Redirected::Wrapper);
        let (probed, at, notes) = probed(&plans);
        assert_eq!((probed, at), (IMPLEMENTATION, FIRST));
        assert!(matches!(notes, [Note::NoWrapper(why)] if reason(why)), "{notes:?}");
    };
    let mut anonymous = process(OTHER, BIAS + SECOND, wrapper());
    for mapping in anonymous.mappings.iter_mut().filter(|m| m.start == OTHER) {
        mapping.file = None;
    }
    expect(&anonymous, |why| *why == NoWrapper::Anonymous);
    let mut no_library = process(OTHER, BIAS + SECOND, wrapper());
    no_library.other = b"#!/bin/sh".to_vec();
    expect(&no_library, |why| matches!(why, NoWrapper::Unreadable(_)));
    // `xor %eax,%eax; ret`.
    let dear = process(OTHER, BIAS + SECOND, Part::new(&[0x31, 0xc0, 0xc3]));
    expect(&dear, |why| *why == NoWrapper::NotCheap);
    // Past the end of its code.
    let mut short = process(OTHER, BIAS + SECOND, wrapper());
    for mapping in short.mappings.iter_mut().filter(|m| m.start == OTHER) {
        mapping.file_offset = 0x10_0000;
    }
    expect(&short, |why| *why == NoWrapper::NotCode);
}

#[test]
fn a_wrapper_of_several_functions_is_none() {
    let process = process(OTHER, OTHER, wrapper());
    for (plan, at) in plan(&process, true, Redirected::Wrapper).iter().zip([FIRST, SECOND]) {
        assert_eq!(plan.site.as_ref().unwrap().file_offset, at);
        assert_eq!(plan.notes, [Note::NoWrapper(NoWrapper::Shared)]);
    }
}

#[test]
fn our_own_shim_has_redirected_nothing() {
    let mut process = process(OTHER, BIAS + SECOND, wrapper());
    for mapping in process.mappings.iter_mut().filter(|m| m.start == OTHER) {
        let file = mapping.file.as_mut().unwrap();
        file.path = "/memfd:libroctap_shim.so (deleted)".into();
    }
    for redirected in [Redirected::Implementation, Redirected::Wrapper] {
        let plans = plan(&process, true, redirected);
        let behind = Reached::Implementation { file_offset: FIRST, slot: slot(0) };
        assert_eq!((&plans[0].reached, &plans[0].notes), (&behind, &vec![]));
    }
}

#[test]
fn a_process_without_the_library_has_no_say() {
    let mut process = process(OTHER, OTHER, wrapper());
    process.mappings.retain(|m| m.file.as_ref().is_none_or(|f| f.path != Path::new(PATH)));
    let plans = plan(&process, true, Redirected::Wrapper);
    let behind = Reached::Implementation { file_offset: FIRST, slot: slot(0) };
    assert_eq!(plans[0].reached, behind);
}

/// What is probed is the file's, and others have it mapped: a process does not choose the place.
#[test]
fn an_entry_that_leads_into_a_function_leads_nowhere() {
    let process = process(BIAS + FIRST + 1, BIAS + SECOND, wrapper());
    let plans = plan(&process, true, Redirected::Implementation);
    let behind = Reached::Implementation { file_offset: FIRST, slot: slot(0) };
    assert_eq!(plans[0].reached, behind);
    let plans = plan(&process, false, Redirected::Implementation);
    assert_eq!(plans[0].reached, Reached::Stub { slot: slot(0) });
}

/// Whoever has the file mapped chooses where his own table leads, and for nobody else.
#[test]
fn a_plan_holds_where_the_tables_lead_to_the_same_places() {
    let usual = process(BIAS + FIRST, BIAS + SECOND, wrapper());
    let (binary, functions) = file(true);
    let followed = Followed::new(binary, &functions, Some(&usual));
    assert!(followed.holds_in(Some(&usual)) && followed.holds_in(None));
    for (first, second) in [(FIRST, FIRST), (SECOND, FIRST)] {
        let other = process(BIAS + first, BIAS + second, wrapper());
        assert!(!followed.holds_in(Some(&other)));
    }
    assert!(!followed.holds_in(Some(&process(OTHER, BIAS + SECOND, wrapper()))));
}
