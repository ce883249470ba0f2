//! Recognises exported functions that only pass the call on through a table.
//!
//! Three shapes are known, and all are read by one small symbolic execution:
//!
//! - the HSA runtime's: `mov TABLE(%rip),%rax; jmp *OFF(%rax)`, also as
//!   `lea TABLE(%rip),%rax; mov (%rax),%rax; jmp *OFF(%rax)`, some with a widening of a narrow
//!   argument (`movzwl %di,%edi`) in between; `hsa_init` of 5.7 and later calls a function before it loads
//!   the table;
//! - HIP 6 and 7's: `endbr64; sub; save arguments; call getter; mov OFF(%rax),%rax; restore; add;
//!   jmp *%rax`, where the getter returns the table that a global points at;
//! - a linkage stub: `jmp *SLOT(%rip)`.
//!
//! What counts as a stub has no other effect: at the jump `rsp` is what it was at the entry, and each
//! argument register holds its argument (or what a call left in a register that the function
//! has no argument in: no stub would lose an argument of its own). So whoever probes the target sees
//! each call once, with the arguments of the exported function.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpKind, Register,
};

use super::{binary::Binary, branches::decoder, model::Slot, prologue::writes};

/// Longest stub, instructions.
const MAX_STEPS: usize = 64;
/// Longest stub, bytes.
const MAX_BYTES: u64 = 512;
/// Ways through a getter: one branch for a table that is made at the first call.
const MAX_PATHS: usize = 8;

/// The argument registers in order, then `rax` and the other registers that calls destroy.
const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];
const SCRATCH: [Register; 3] = [Register::RAX, Register::R10, Register::R11];

/// What is known of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    Unknown,
    /// Left over by a call.
    Clobbered,
    /// Argument register so-and-so, perhaps widened.
    Argument(usize),
    /// The argument on the stack at this offset from `rsp` at the entry, perhaps widened.
    Passed(i64),
    /// An address in the image.
    Address(u64),
    /// Read from where the slot says.
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
    /// `rsp` minus what it was at the entry.
    stack: i64,
    saved: Vec<Saved>,
}

/// Where one instruction led.
enum Step {
    Next,
    /// A jump through this slot ends the stub.
    Jump(Slot),
    Call(u64),
    Branch(u64),
    Goto(u64),
    Return,
    /// It does what no stub does.
    Other,
}

/// Where the exported function at `address` finds its implementation, if it is a stub.
pub(super) fn recognise(binary: &Binary, address: u64) -> Option<Slot> {
    let code = binary.code(address, MAX_BYTES)?;
    let mut state = State::new();
    let mut factory = InstructionInfoFactory::new();
    for instruction in decoder(&code, address).into_iter().take(MAX_STEPS) {
        match state.step(&instruction, &mut factory) {
            Step::Next => {}
            Step::Call(target) => {
                // What is no getter returns nothing that the jump goes by.
                let table = getter(binary, target, &mut factory);
                state.after_call(table.unwrap_or(Value::Unknown));
            }
            Step::Jump(slot) => return state.is_untouched().then_some(slot),
            Step::Branch(_) | Step::Goto(_) | Step::Return | Step::Other => return None,
        }
    }
    None
}

/// What the function at `address` returns, if it does nothing but fetch it.
///
/// Where it branches both ways are followed, and must agree: a table that is made at the first call
/// is fetched on both.
fn getter(binary: &Binary, address: u64, factory: &mut InstructionInfoFactory) -> Option<Value> {
    let mut waiting = vec![(address, State::new())];
    let mut found = None;
    for _ in 0..MAX_PATHS {
        let Some((mut at, mut state)) = waiting.pop() else { break };
        let mut steps = 0;
        'path: loop {
            let code = binary.code(at, MAX_BYTES)?;
            for instruction in &mut decoder(&code, at) {
                steps += 1;
                if steps > MAX_STEPS {
                    return None;
                }
                match state.step(&instruction, factory) {
                    Step::Next => {}
                    // The table's making: what it returns is not looked at, so it counts for nothing.
                    Step::Call(_) => state.after_call(Value::Unknown),
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
            return None;
        }
    }
    found.filter(|value| waiting.is_empty() && matches!(value, Value::From(_) | Value::Address(_)))
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
                // A part of an argument is still that argument; a part of an address is nothing.
                let kept = whole || matches!(value, Value::Argument(_) | Value::Passed(_));
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
                match (self.frame_offset(i), self.passed_offset(i)) {
                    (Some(offset), _) => self.save(offset, i.memory_size().size() as i64, value),
                    // An argument is widened where it is.
                    (None, Some(offset)) if value == Value::Passed(offset) => {}
                    _ => return Step::Other,
                }
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

    /// An instruction that is of no interest: what it writes is unknown from then on.
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
            let Some(offset) = self.frame_offset(i) else { return Step::Other };
            let size = match i.memory_size() {
                MemorySize::Unknown => 64,
                size => size.size() as i64,
            };
            self.save(offset, size, Value::Unknown);
        }
        Step::Next
    }

    /// Writing below the entry's `rsp` only: above are the return address and the caller's.
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

    /// Where in the stub's own frame a memory operand is.
    fn frame_offset(&self, i: &Instruction) -> Option<i64> {
        self.stack_offset(i).filter(|&offset| offset < 0)
    }

    /// Where a memory operand is on the stack, bytes from `rsp` at the entry.
    fn stack_offset(&self, i: &Instruction) -> Option<i64> {
        let plain = i.memory_base() == Register::RSP
            && i.memory_index() == Register::None
            && i.segment_prefix() == Register::None;
        let offset = self.stack.checked_add(i.memory_displacement64() as i64)?;
        plain.then_some(offset)
    }

    /// Where a memory operand is among the arguments, above the return address.
    fn passed_offset(&self, i: &Instruction) -> Option<i64> {
        self.stack_offset(i).filter(|&offset| offset >= 8)
    }

    /// A memory operand's address in the image, where it is known.
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

    /// What a memory operand holds.
    fn load(&self, i: &Instruction) -> Value {
        let size = i.memory_size().size() as i64;
        if i.memory_base() == Register::RSP {
            let saved = self.frame_offset(i).map(|at| self.saved_at(at, size));
            let passed = self.passed_offset(i).map(Value::Passed);
            return saved.or(passed).unwrap_or(Value::Unknown);
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
