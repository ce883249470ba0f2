//! Entries that another tool has redirected.

use std::path::Path;

use super::{
    super::{
        Binary, Followed, FunctionPlan, KernelVersion, Note, Planner, Probed, ReachedBy, Slot,
    },
    image::{BIAS, CODE, DATA, Fake, OTHER, PATH, Part, binary_with},
};
use crate::discover::Function;

/// Variable that holds the table's address, and where the table is in the process.
const POINTER: u64 = DATA + 0x40;
const TABLE: u64 = 0x5555_0000_0000;
/// Where the table is that the file makes.
const INITIAL: u64 = DATA + 0x100;
/// `push %rbx; pop %rbx; ret`, with the rows of the unwind tables for it.
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

/// A process whose table has these entries.
fn process(first: u64, second: u64) -> Fake {
    Fake::new(&[(BIAS + POINTER, TABLE), (TABLE, first), (TABLE + 8, second)])
}

/// The library with `hsa_first` and `hsa_second`; `is_redirected` if its file says where its table leads.
fn file(is_redirected: bool) -> (Binary, Vec<Function>) {
    let parts = [
        Part::new(&stub(CODE, 0)),
        Part::new(&stub(CODE + 0x10, 1)),
        Part::framed(BODY, FRAME),
        Part::framed(BODY, FRAME),
    ];
    let table = [(POINTER, INITIAL), (INITIAL, FIRST), (INITIAL + 8, SECOND)];
    let (binary, mut functions) = binary_with(&parts, if is_redirected { &table } else { &[] });
    functions.truncate(2);
    functions[0].name = "hsa_first".to_owned();
    functions[1].name = "hsa_second".to_owned();
    (binary, functions)
}

/// Plans both functions in `process`.
fn plan(process: &Fake, is_redirected: bool) -> Vec<FunctionPlan> {
    let (binary, functions) = file(is_redirected);
    let planner = Planner::new(KernelVersion::new(6, 18));
    let mut plans = planner.plan_library(&binary, &functions, Some(process));
    plans.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    assert_eq!(plans.len(), 2, "{plans:?}");
    plans
}

/// The probed function for `hsa_first`, which leads to [`OTHER`], its site and its notes; `hsa_second` is as ever.
fn probed(plans: &[FunctionPlan]) -> (Probed, u64, &[Note]) {
    let second = &plans[1];
    let behind = ReachedBy::Implementation { file_offset: SECOND, slot: slot(1) };
    assert_eq!(second.reached, behind);
    let first = &plans[0];
    let ReachedBy::Redirected { target, slot: from, probed } = &first.reached else {
        panic!("{first:?}");
    };
    assert_eq!((*from, target.address), (slot(0), OTHER));
    let site = first.site.as_ref().unwrap();
    (probed.clone(), site.file_offset, &first.notes)
}

const IMPLEMENTATION: Probed = Probed::Implementation { file_offset: FIRST };

#[test]
fn the_implementation_is_known_from_the_file() {
    let process = process(OTHER, BIAS + SECOND);
    let plans = plan(&process, true);
    assert_eq!(probed(&plans), (IMPLEMENTATION, FIRST, &[][..]));
    // If the file does not tell, the stub is left, which is dear.
    let plans = plan(&process, false);
    let (probed, at, notes) = probed(&plans);
    assert_eq!((probed, at), (Probed::Stub, CODE));
    assert!(notes.iter().any(|note| matches!(note, Note::NotFollowed(_))), "{notes:?}");
}

#[test]
fn our_own_shim_has_redirected_nothing() {
    let mut process = process(OTHER, BIAS + SECOND);
    for mapping in process.mappings.iter_mut().filter(|m| m.start == OTHER) {
        let file = mapping.file.as_mut().unwrap();
        file.path = "/memfd:libroctap_shim.so (deleted)".into();
    }
    let plans = plan(&process, true);
    let behind = ReachedBy::Implementation { file_offset: FIRST, slot: slot(0) };
    assert_eq!((&plans[0].reached, &plans[0].notes), (&behind, &vec![]));
}

#[test]
fn a_process_without_the_library_has_no_say() {
    let mut process = process(OTHER, OTHER);
    process.mappings.retain(|m| m.file.as_ref().is_none_or(|f| f.path != Path::new(PATH)));
    let plans = plan(&process, true);
    let behind = ReachedBy::Implementation { file_offset: FIRST, slot: slot(0) };
    assert_eq!(plans[0].reached, behind);
}

/// The probe is in the file, and other processes have it mapped: a process does not choose the place.
#[test]
fn an_entry_that_leads_into_a_function_leads_nowhere() {
    let process = process(BIAS + FIRST + 1, BIAS + SECOND);
    let plans = plan(&process, true);
    let behind = ReachedBy::Implementation { file_offset: FIRST, slot: slot(0) };
    assert_eq!(plans[0].reached, behind);
    let plans = plan(&process, false);
    assert_eq!(plans[0].reached, ReachedBy::Stub { slot: slot(0) });
}

/// A process that has the file mapped chooses where its own table leads, and that of no other process.
#[test]
fn a_plan_holds_where_the_tables_lead_to_the_same_places() {
    let usual = process(BIAS + FIRST, BIAS + SECOND);
    let (binary, functions) = file(true);
    let followed = Followed::new(binary, &functions, Some(&usual));
    assert!(followed.holds_in(Some(&usual)) && followed.holds_in(None));
    for (first, second) in [(FIRST, FIRST), (SECOND, FIRST)] {
        let other = process(BIAS + first, BIAS + second);
        assert!(!followed.holds_in(Some(&other)));
    }
    assert!(!followed.holds_in(Some(&process(OTHER, BIAS + SECOND))));
}
