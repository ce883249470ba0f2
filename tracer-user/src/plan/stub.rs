//! Recognises exported functions that only pass the call on through a table.
//!
//! Three shapes are known, and all are read by one small symbolic execution:
//!
//! - the HSA runtime's: `mov TABLE(%rip),%rax; jmp *OFF(%rax)`, also as
//!   `lea TABLE(%rip),%rax; mov (%rax),%rax; jmp *OFF(%rax)`, some with a widening of a narrow
//!   argument (`movzwl %di,%edi`) in between; `hsa_init` of 5.7 and later calls a function before it loads
//!   the table;
//! - HIP 6 and 7's: `endbr64; sub; save arguments; call getter; mov OFF(%rax),%rax; restore; add;
//!   jmp *%rax`, where the getter returns the table that a global points at, and makes it at its first
//!   call;
//! - a linkage stub: `jmp *SLOT(%rip)`.
//!
//! A function that counts as a stub has no other effect: at the jump `rsp` is as it was at the entry, and each
//! argument register holds its argument (or a value that a call left in a register in which the function has no
//! argument: no stub would lose an argument of its own). So a probe at the target sees each call once, with the
//! arguments of the exported function.

use std::{cell::RefCell, collections::BTreeMap};

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpKind, Register,
};

use super::{binary::Binary, branches::decoder, model::Slot, prologue::writes};

/// Longest stub, instructions.
const MAX_STEPS: usize = 64;
/// Longest stub, bytes.
const MAX_BYTES: u64 = 512;
/// The most ways through a getter: it branches for a table that is made at the first call.
const MAX_PATHS: usize = 8;
/// Code of a getter that is decoded at a time, bytes.
const GETTER_BYTES: u64 = 1 << 13;
/// The most instructions that are read of one library's getters in all. HIP 7's getter, which makes its table on one of
/// its ways, has a thousand.
const MAX_GETTER_STEPS: usize = 1 << 18;

/// The argument registers in order, then `rax` and the other registers that calls destroy.
const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];
const SCRATCH: [Register; 3] = [Register::RAX, Register::R10, Register::R11];

/// A value, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    Unknown,
    /// A value that a call left behind.
    Clobbered,
    /// The argument register of this number, perhaps widened.
    Argument(usize),
    /// The argument on the caller's stack at this offset from `rsp` at the entry, widened to this many bytes if it is
    /// shorter.
    Stacked {
        offset: i64,
        size: i64,
    },
    /// An address in the image.
    Address(u64),
    /// A word read through the slot.
    From(Slot),
}

/// A value on the stack: offset from `rsp` at the entry, size in bytes.
#[derive(Clone, Copy)]
struct Saved {
    offset: i64,
    size: i64,
    value: Value,
}

#[derive(Clone)]
struct State {
    registers: [Value; 16],
    /// `rsp` minus its value at the entry.
    stack: i64,
    saved: Vec<Saved>,
}

/// The effect of one instruction.
enum Step {
    Next,
    /// A jump through this slot ends the stub.
    Jump(Slot),
    Call(u64),
    Branch(u64),
    Goto(u64),
    Return,
    /// A write to the image, at this address.
    Store(u64),
    /// An effect that no stub has.
    Other,
}

/// An exported function that only passes the call on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stub {
    /// Where the stub finds its implementation.
    pub slot: Slot,
    /// The address of the jump that ends the stub.
    pub jump: u64,
    /// The function that gave the stub the address of its table.
    pub getter: Option<u64>,
}

/// Tells which functions of a library are stubs.
pub(super) struct Stubs<'a> {
    binary: &'a Binary,
    getters: RefCell<Getters>,
}

impl<'a> Stubs<'a> {
    /// Recognises the stubs of `binary`.
    pub fn new(binary: &'a Binary) -> Self {
        let getters = Getters { known: BTreeMap::new(), steps: MAX_GETTER_STEPS };
        Self { binary, getters: RefCell::new(getters) }
    }

    /// The stub at `address`, if the exported function there is one.
    pub fn recognise(&self, address: u64) -> Option<Stub> {
        let code = self.binary.code(address, MAX_BYTES)?;
        let mut state = State::new();
        let mut getter = None;
        let mut factory = InstructionInfoFactory::new();
        for instruction in decoder(&code, address).into_iter().take(MAX_STEPS) {
            match state.step(&instruction, &mut factory) {
                Step::Next => {}
                Step::Call(target) => {
                    // A function that is no getter returns nothing by which the stub jumps.
                    let table = self.getters.borrow_mut().result(self.binary, target);
                    getter = table.map(|_| target).or(getter);
                    state.after_call(table.unwrap_or(Value::Unknown));
                }
                Step::Jump(slot) => {
                    let stub = Stub { slot, jump: instruction.ip(), getter };
                    return state.is_untouched().then_some(stub);
                }
                Step::Branch(_) | Step::Goto(_) | Step::Return | Step::Store(_) | Step::Other => {
                    return None;
                }
            }
        }
        None
    }
}

/// The values that functions called by stubs return. Hundreds of stubs share one getter.
struct Getters {
    known: BTreeMap<u64, Option<Value>>,
    /// The number of instructions that may still be read.
    steps: usize,
}

impl Getters {
    fn result(&mut self, binary: &Binary, address: u64) -> Option<Value> {
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        let result = self.read(binary, address);
        self.known.insert(address, result);
        result
    }

    /// The value that the function at `address` returns, if it does nothing but fetch the value, and perhaps make it.
    ///
    /// At a branch both ways are followed, and must agree: a table that is made at the first call is fetched on both.
    /// How the table is made is another question (`getter.rs`).
    fn read(&mut self, binary: &Binary, address: u64) -> Option<Value> {
        let mut factory = InstructionInfoFactory::new();
        let mut waiting = vec![(address, State::new())];
        let mut found = None;
        for _ in 0..MAX_PATHS {
            let Some((mut at, mut state)) = waiting.pop() else { break };
            'path: loop {
                let code = binary.code(at, GETTER_BYTES)?;
                for instruction in &mut decoder(&code, at) {
                    self.steps = self.steps.checked_sub(1)?;
                    // The last instruction of a piece may be cut off.
                    if instruction.is_invalid() && instruction.ip() != at {
                        at = instruction.ip();
                        continue 'path;
                    }
                    match state.step(&instruction, &mut factory) {
                        Step::Next => {}
                        // A call that makes the table: its result is not looked at, so it counts for nothing.
                        Step::Call(_) => state.after_call(Value::Unknown),
                        Step::Store(address) => state.forget_variable(address),
                        Step::Branch(target) => waiting.push((target, state.clone())),
                        Step::Goto(target) => {
                            at = target;
                            continue 'path;
                        }
                        Step::Return => {
                            let value = state.register(Register::RAX);
                            if found.is_some_and(|other| other != value) {
                                return None;
                            }
                            found = Some(value);
                            break 'path;
                        }
                        Step::Jump(_) | Step::Other => return None,
                    }
                }
                at = at.checked_add(code.len() as u64)?;
            }
        }
        found.filter(|value| {
            waiting.is_empty() && matches!(value, Value::From(_) | Value::Address(_))
        })
    }
}

impl State {
    fn new() -> Self {
        let mut state = Self { registers: [Value::Unknown; 16], stack: 0, saved: Vec::new() };
        for (number, register) in ARGUMENTS.into_iter().enumerate() {
            state.set(register, Value::Argument(number));
        }
        state
    }

    fn register(&self, register: Register) -> Value {
        let full = register.full_register();
        if full.is_gpr() { self.registers[full.number()] } else { Value::Unknown }
    }

    fn set(&mut self, register: Register, value: Value) {
        let full = register.full_register();
        if full.is_gpr() {
            self.registers[full.number()] = value;
        }
    }

    fn after_call(&mut self, result: Value) {
        for register in ARGUMENTS.into_iter().chain(SCRATCH) {
            self.set(register, Value::Clobbered);
        }
        self.set(Register::RAX, result);
    }

    /// Forgets a value that was read from a variable which has been written since.
    fn forget_variable(&mut self, written: u64) {
        let holds = |value: &Value| {
            let Value::From(Slot::Variable { address } | Slot::Table { pointer: address, .. }) =
                value
            else {
                return false;
            };
            // The longest store is of 64 bytes.
            address.wrapping_sub(written) < 64 || written.wrapping_sub(*address) < 8
        };
        let saved = self.saved.iter_mut().map(|saved| &mut saved.value);
        let stale = self.registers.iter_mut().chain(saved).filter(|value| holds(value));
        stale.for_each(|value| *value = Value::Unknown);
    }

    fn is_untouched(&self) -> bool {
        let kept = |(number, register): (usize, Register)| match self.register(register) {
            Value::Argument(held) => held == number,
            value => value == Value::Clobbered,
        };
        self.stack == 0 && ARGUMENTS.into_iter().enumerate().all(kept)
    }

    fn step(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Step {
        if instruction.is_invalid() {
            return Step::Other;
        }
        match instruction.flow_control() {
            FlowControl::Next => self.execute(instruction, factory),
            FlowControl::UnconditionalBranch => Step::Goto(instruction.near_branch_target()),
            FlowControl::ConditionalBranch => Step::Branch(instruction.near_branch_target()),
            FlowControl::Call => match instruction.near_branch_target() {
                // System calls are calls without a target.
                0 => Step::Other,
                target => Step::Call(target),
            },
            FlowControl::IndirectBranch => {
                let value = match instruction.op0_kind() {
                    OpKind::Register => self.register(instruction.op0_register()),
                    OpKind::Memory => self.load(instruction),
                    _ => Value::Unknown,
                };
                if let Value::From(slot) = value { Step::Jump(slot) } else { Step::Other }
            }
            FlowControl::Return => Step::Return,
            FlowControl::IndirectCall
            | FlowControl::Interrupt
            | FlowControl::Exception
            | FlowControl::XbeginXabortXend => Step::Other,
        }
    }

    fn execute(&mut self, i: &Instruction, factory: &mut InstructionInfoFactory) -> Step {
        let (to, from) = (i.op0_kind(), i.op1_kind());
        match (i.mnemonic(), to, from) {
            (Mnemonic::Endbr64 | Mnemonic::Nop, ..) => {}
            (
                Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd | Mnemonic::Movsx,
                OpKind::Register,
                _,
            ) if i.op0_register().is_gpr() && matches!(from, OpKind::Register | OpKind::Memory) => {
                let value = match from {
                    OpKind::Register => self.register(i.op1_register()),
                    _ => self.load(i),
                };
                let whole = i.mnemonic() == Mnemonic::Mov && i.op0_register().is_gpr64();
                // A part of an argument is still that argument; a part of an address is unknown.
                let kept = whole || matches!(value, Value::Argument(_) | Value::Stacked { .. });
                if i.op0_register().full_register() == Register::RSP {
                    return Step::Other;
                }
                self.set(i.op0_register(), if kept { value } else { Value::Unknown });
            }
            (Mnemonic::Lea, ..) if i.op0_register() != Register::RSP => {
                let value = self.address(i).map_or(Value::Unknown, Value::Address);
                self.set(i.op0_register(), value);
            }
            (Mnemonic::Lea, ..) if i.memory_base() == Register::RSP => match self.frame_offset(i) {
                Some(offset) => self.stack = offset,
                None => return Step::Other,
            },
            (Mnemonic::Sub | Mnemonic::Add, OpKind::Register, _)
                if i.op0_register() == Register::RSP =>
            {
                let Some(bytes) = immediate(i) else { return Step::Other };
                let bytes = if i.mnemonic() == Mnemonic::Sub { -bytes } else { bytes };
                self.stack += bytes;
            }
            (Mnemonic::Mov, OpKind::Memory, OpKind::Register) => {
                let value = self.register(i.op1_register());
                let size = i.memory_size().size() as i64;
                // Compilers write arguments that they have not changed, or have widened, back to their places.
                if let Value::Stacked { offset, size: known } = value
                    && self.stack_offset(i) == Some(offset)
                    && size <= known
                {
                    return Step::Next;
                }
                let Some(offset) = self.frame_offset(i) else { return self.outside_frame(i) };
                self.save(offset, size, value);
            }
            (Mnemonic::Push, OpKind::Register, _) => {
                self.stack -= 8;
                self.save(self.stack, 8, self.register(i.op0_register()));
            }
            (Mnemonic::Pop, OpKind::Register, _) => {
                let value = self.saved_at(self.stack, 8);
                self.stack += 8;
                self.set(i.op0_register(), value);
            }
            _ => return self.forget(i, factory),
        }
        if self.stack.unsigned_abs() > 1 << 16 { Step::Other } else { Step::Next }
    }

    /// An instruction that does not matter here: the registers that it writes are unknown from then on.
    fn forget(&mut self, i: &Instruction, factory: &mut InstructionInfoFactory) -> Step {
        if i.is_privileged() || i.is_stack_instruction() {
            return Step::Other;
        }
        let info = factory.info(i);
        for used in info.used_registers() {
            if !writes(used.access()) {
                continue;
            }
            let full = used.register().full_register();
            if full == Register::RSP || full.is_segment_register() {
                return Step::Other;
            }
            self.set(full, Value::Unknown);
        }
        if info.used_memory().iter().any(|used| writes(used.access())) {
            let Some(offset) = self.frame_offset(i) else { return self.outside_frame(i) };
            let size = match i.memory_size() {
                MemorySize::Unknown => 64,
                size => size.size() as i64,
            };
            self.save(offset, size, Value::Unknown);
        }
        Step::Next
    }

    /// A store that is not to the frame.
    fn outside_frame(&self, i: &Instruction) -> Step {
        self.address(i).map_or(Step::Other, Step::Store)
    }

    /// Writes below the entry's `rsp` only: above are the return address and the caller's frame.
    fn save(&mut self, offset: i64, size: i64, value: Value) {
        self.saved.retain(|s| s.offset + s.size <= offset || s.offset >= offset + size);
        self.saved.push(Saved { offset, size, value });
    }

    fn saved_at(&self, offset: i64, size: i64) -> Value {
        self.saved
            .iter()
            .find(|s| s.offset == offset && s.size >= size)
            .map_or(Value::Unknown, |s| s.value)
    }

    /// The offset of a memory operand in the stub's own frame.
    fn frame_offset(&self, i: &Instruction) -> Option<i64> {
        self.stack_offset(i).filter(|&offset| offset < 0)
    }

    /// The offset of a memory operand on the stack, from `rsp` at the entry.
    fn stack_offset(&self, i: &Instruction) -> Option<i64> {
        let plain = i.memory_base() == Register::RSP
            && i.memory_index() == Register::None
            && i.segment_prefix() == Register::None;
        let offset = self.stack.checked_add(i.memory_displacement64() as i64);
        offset.filter(|_| plain)
    }

    /// A memory operand's address in the image, if it is known.
    fn address(&self, i: &Instruction) -> Option<u64> {
        if i.is_ip_rel_memory_operand() {
            return Some(i.ip_rel_memory_address());
        }
        match self.operand_base(i)? {
            Value::Address(base) => Some(base.wrapping_add(i.memory_displacement64())),
            _ => None,
        }
    }

    /// The value of the only register in a memory operand.
    fn operand_base(&self, i: &Instruction) -> Option<Value> {
        let plain = i.memory_base().is_gpr64()
            && i.memory_index() == Register::None
            && i.segment_prefix() == Register::None;
        plain.then(|| self.register(i.memory_base()))
    }

    /// The value of a memory operand.
    fn load(&self, i: &Instruction) -> Value {
        let size = i.memory_size().size() as i64;
        if i.memory_base() == Register::RSP {
            return match self.stack_offset(i) {
                Some(at) if at < 0 => self.saved_at(at, size),
                // Above the return address.
                Some(offset) if offset >= 8 => {
                    Value::Stacked { offset, size: i.op0_register().size() as i64 }
                }
                _ => Value::Unknown,
            };
        }
        if i.segment_prefix() != Register::None || size != 8 {
            return Value::Unknown;
        }
        if let Some(address) = self.address(i) {
            return Value::From(Slot::Variable { address });
        }
        match self.operand_base(i) {
            Some(Value::From(Slot::Variable { address })) => {
                Value::From(Slot::Table { pointer: address, offset: i.memory_displacement64() })
            }
            _ => Value::Unknown,
        }
    }
}

fn immediate(i: &Instruction) -> Option<i64> {
    matches!(
        i.op1_kind(),
        OpKind::Immediate8 | OpKind::Immediate8to64 | OpKind::Immediate32 | OpKind::Immediate32to64
    )
    .then(|| i.immediate(1) as i64)
}
