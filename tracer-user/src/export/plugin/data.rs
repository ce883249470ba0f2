//! The data of a call that has returned: `hip_api_data_t`, `hsa_api_data_t` and `roctx_api_data_t`.
//!
//! Fields that were not recorded are 0. An address in the traced process is only a number here. A plugin would follow
//! an address if it points at a string, or if the data has a copy of its target: such an address is null, or leads to
//! that copy if the trace has it.

use capi_common::hip::{self, Copy, Kind as Hip, Release};
use capi_common::hsa;
use tracer_records::api::{self, Argument, Kind, Operation};
use tracer_records::model::ApiCall;
use zerocopy::IntoBytes as _;

/// Larger than the data of any domain in any release. The words behind the arguments, `phase_data` among them, are 0.
const WORDS: usize = 512;
const PHASE: usize = 8;
/// `ACTIVITY_API_PHASE_EXIT`.
const EXIT: u32 = 1;

/// A place for the data of a call.
pub struct Data(Box<[u64; WORDS]>);

impl Data {
    /// An empty place.
    pub fn new() -> Self {
        Self(Box::new([0; WORDS]))
    }

    /// The address that a plugin gets.
    pub fn address(&self) -> *const core::ffi::c_void {
        self.0.as_ptr().cast()
    }

    /// `hip_api_data_t` of a release.
    pub fn fill_hip(&mut self, call: &ApiCall, op: &Operation, name: &str, release: Release) {
        self.begin(call);
        let fields = hip::fields(name, release);
        for (nth, field) in fields.iter().enumerate() {
            let Some(argument) = argument_of(op, fields.len(), nth, field.name) else { continue };
            let at = usize::from(field.at);
            match (field.kind, field.copy) {
                (Hip::Text | Hip::Float(_) | Hip::Struct, _) => {}
                (_, Some(Copy { at: copy, bytes, .. })) => {
                    let value = api::output(op, argument, &call.extra, call.flags);
                    if let Some(value) = value {
                        let copy = usize::from(copy);
                        self.put(copy, &[value, 0], bytes.min(8).into());
                        let address = self.0.as_ptr().expose_provenance() + copy;
                        self.put(at, &[address as u64, 0], 8);
                    }
                }
                (Hip::Signed(bytes) | Hip::Unsigned(bytes), None) => {
                    self.put(at, &words(call, op, argument), bytes.into());
                }
                (Hip::Pointer, None) => self.put(at, &words(call, op, argument), 8),
                (Hip::Dim3, None) => self.put(at, &words(call, op, argument), 12),
            }
        }
    }

    /// `hsa_api_data_t`.
    pub fn fill_hsa(&mut self, call: &ApiCall, function: &hsa::Function) {
        let hsa::Function { operation: op, fields, .. } = function;
        self.begin(call);
        if !matches!(op.ret.kind, Kind::Void) {
            self.put(hsa::RESULT, &[call.ret, 0], 8);
        }
        for (argument, field) in op.args.iter().zip(fields) {
            let is_followed = field.pointed_at.is_some() || argument.ty.name.contains("char");
            if !is_followed {
                self.put(field.bytes.start, &words(call, op, argument), field.bytes.len());
            }
        }
    }

    /// `roctx_api_data_t`. `message` is the address of a string, or null.
    pub fn fill_mark(&mut self, message: u64, id: u64) {
        self.0.fill(0);
        self.put(0, &[message, id], 16);
    }

    fn begin(&mut self, call: &ApiCall) {
        self.0.fill(0);
        self.put(0, &[call.record.correlation_id, 0], 8);
        self.put(PHASE, &[EXIT.into(), 0], 4);
    }

    fn put(&mut self, at: usize, words: &[u64; 2], bytes: usize) {
        let field = self.0.as_mut_bytes().get_mut(at..).unwrap_or_default();
        field.iter_mut().zip(words.as_bytes()).take(bytes).for_each(|(to, from)| *to = *from);
    }
}

/// The words of an argument; 0 where they were not recorded.
fn words(call: &ApiCall, op: &Operation, argument: &Argument) -> [u64; 2] {
    api::argument(op, argument, &call.args, &call.extra, call.flags).unwrap_or_default()
}

/// The argument that is the nth of `count` fields. Fields and arguments are in the same order, under names that are not
/// always the same; if one of both has more, the names decide.
fn argument_of<'a>(
    op: &'a Operation,
    count: usize,
    nth: usize,
    name: &str,
) -> Option<&'a Argument> {
    if count == op.args.len() { op.args.get(nth) } else { op.arg(name) }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "data that is made here")]
mod tests {
    use tracer_common::bpf::flag;

    use super::*;

    fn call(args: &[u64], extra: [u64; 3], flags: u16) -> ApiCall {
        let mut call = ApiCall { extra, flags, ..ApiCall::default() };
        call.args[..args.len()].copy_from_slice(args);
        call.record.correlation_id = 77;
        call
    }

    fn hip(name: &str, call: &ApiCall) -> Data {
        let mut data = Data::new();
        let op = api::by_name(name).expect(name);
        data.fill_hip(call, op, name, Release::First);
        data
    }

    fn text(name: &str, call: &ApiCall) -> String {
        let data = hip(name, call);
        // SAFETY: as large as a `hip_api_data_t`, and nobody else uses it.
        let read = unsafe { hip::Data::at(data.address()) }.expect("not null");
        assert_eq!((read.correlation_id(), read.has_returned()), (77, true));
        hip::arguments(read, hip::fields(name, Release::First))
    }

    #[test]
    fn arguments_of_hip_are_where_its_header_has_them() {
        assert_eq!(
            text("hipMemcpy", &call(&[0x10, 0x20, 64, 1], [0; 3], 0)),
            "dst=0x10, src=0x20, sizeBytes=64, kind=1"
        );
        let launch = [0x10, 2 << 32 | 1, 3, 5 << 32 | 4, 6, 0x30];
        assert_eq!(
            text("hipLaunchKernel", &call(&launch, [64, 0x40, 0], flag::STACK_ARGS)),
            "function_address=0x10, numBlocks={1,2,3}, dimBlocks={4,5,6}, args=NULL, sharedMemBytes=64, \
             stream=0x40"
        );
        assert_eq!(text("hipSetDevice", &call(&[u64::from(u32::MAX)], [0; 3], 0)), "deviceId=-1");
    }

    #[test]
    fn what_a_plugin_would_follow_is_null_or_leads_to_a_copy() {
        let called = call(&[0x7fff_1000, 4096], [0x7f00, 0, 0], flag::OUT_VALUE);
        assert_eq!(text("hipMalloc", &called), "ptr=0x7f00, size=4096");
        let data = hip("hipMalloc", &called);
        let address = data.0[2] as usize;
        assert_eq!(address, data.0.as_ptr().addr() + 24, "the copy, which follows the pointer");
        let called = call(&[0x7fff_1000, 4096], [0; 3], 0);
        assert_eq!(text("hipMalloc", &called), "ptr=NULL, size=4096");
        let called = call(&[0x7fff_1000, 0x7fff_2000], [0x9, 0, 0], flag::OUT_VALUE);
        assert_eq!(text("hipModuleLoad", &called), "module=0x9, fname=NULL");
    }

    #[test]
    fn arguments_of_hsa_are_where_roctracers_header_has_them() {
        let function = hsa::function("hsa_signal_create").expect("known");
        let mut called = call(&[1, 2, 0x10, 0x20], [0x30, 0, 0], flag::OUT_VALUE);
        called.ret = 4097;
        let mut data = Data::new();
        data.fill_hsa(&called, function);
        // SAFETY: as large as a `hsa_api_data_t`.
        let read = unsafe { hsa::Data::at(data.address()) }.expect("not null");
        assert_eq!((read.correlation_id(), read.has_returned()), (77, true));
        let hsa::Text { name, args, result } = read.text(function);
        assert_eq!(
            format!("{name}({args}) = {result}"),
            "hsa_signal_create(1, 2, 0x10, 0x20) = 4097"
        );
        // A string of the traced process.
        let function = hsa::function("hsa_executable_get_symbol_by_name").expect("known");
        data.fill_hsa(&call(&[1, 0x7fff_1000, 0x10, 0x20], [0; 3], 0), function);
        // SAFETY: as large as a `hsa_api_data_t`.
        let read = unsafe { hsa::Data::at(data.address()) }.expect("not null");
        let args = read.text(function).args;
        assert_eq!(args, "{handle=1}, 0, 0x10, 0x20");
    }

    /// Whether values of a prototype's kind are put into a field of the header.
    fn fits(field: Hip, kind: Kind) -> bool {
        match field {
            Hip::Signed(_) | Hip::Unsigned(_) => matches!(
                kind,
                Kind::Signed(_) | Kind::Unsigned(_) | Kind::Bool | Kind::Enumeration(_)
            ),
            Hip::Pointer => {
                matches!(kind, Kind::Pointer | Kind::Function | Kind::Stream | Kind::Handle)
            }
            Hip::Text => matches!(kind, Kind::Pointer),
            Hip::Float(_) => matches!(kind, Kind::Float),
            Hip::Dim3 => matches!(kind, Kind::Dim3),
            // Structures are not recorded; a structure of 8 bytes is a handle in roctap's tables.
            Hip::Struct => matches!(kind, Kind::Struct(_) | Kind::Handle),
        }
    }

    #[test]
    fn every_field_of_hip_has_an_argument_of_its_kind() {
        for release in [Release::First, Release::Five, Release::Later] {
            for op in api::operations() {
                let fields = hip::fields(op.name, release);
                for (nth, field) in fields.iter().enumerate() {
                    let argument = argument_of(op, fields.len(), nth, field.name);
                    let kind = argument.map(|argument| argument.ty.kind);
                    assert!(kind.is_some_and(|kind| fits(field.kind, kind)), "{op:?} {field:?}");
                    let end = field.copy.map_or(field.at + 12, |copy| copy.at + copy.bytes);
                    assert!(usize::from(end) + 8 <= size_of::<[u64; WORDS]>(), "{op:?}");
                }
            }
        }
        assert!(*hsa::PHASE_DATA + 8 <= size_of::<[u64; WORDS]>());
    }
}
