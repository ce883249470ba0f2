//! What a library's variables hold when it has just been loaded, worked out from its file.
//!
//! Stubs are followed through tables. What a table holds at first is a property of the file: contents,
//! relocations, and what the functions of `.init_array` write. Those functions are read here, instruction
//! by instruction, and never executed: the file may be anybody's, and roctap may be root. What is not
//! understood is not known from then on; a function that branches is left where it does.

use std::collections::BTreeMap;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use super::{binary::Binary, branches::decoder, model::Slot, prologue::writes};

/// Relocations that are read; large libraries have some 100,000.
const MAX_RELOCATIONS: u64 = 1 << 20;
/// Relocations that are read at once.
const AT_ONCE: u64 = 1 << 15;
/// Bytes of a relocation, and of a symbol.
const ENTRY_BYTES: u64 = 24;
/// Functions of `.init_array` that are read.
const MAX_FUNCTIONS: u64 = 1 << 14;
/// Instructions that are read, all functions together.
const MAX_STEPS: usize = 1 << 18;
/// Bytes that are decoded at a time.
const WINDOW: u64 = 1 << 10;
/// Calls that may be open.
const MAX_CALLS: usize = 16;
/// Bytes of a dynamic section that are read.
const MAX_DYNAMIC: u64 = 1 << 14;
/// Where the stack is: in no image.
const STACK: u64 = 0x7fff_f000_0000_0000;

/// Registers that a function leaves as they were.
const KEPT: [usize; 7] = [
    3,  // rbx
    4,  // rsp
    5,  // rbp
    12, // r12 and so on
    13, 14, 15,
];

/// A number, or an address in the image; none where it is not known.
type Value = Option<u64>;

/// The variables of a library that has just been loaded.
pub(super) struct Initial<'a> {
    binary: &'a Binary,
    /// Words that were relocated or written to; others are as in the file.
    words: BTreeMap<u64, Value>,
}

impl<'a> Initial<'a> {
    /// Those of `binary`.
    pub fn of(binary: &'a Binary) -> Self {
        let dynamic = Dynamic::of(binary);
        let mut initial = Self { binary, words: dynamic.relocations(binary) };
        let functions = dynamic.get(dynamic::INIT_ARRAY).map_or(0..0, |start| {
            let bytes = dynamic.get(dynamic::INIT_ARRAY_BYTES).unwrap_or(0).min(MAX_FUNCTIONS * 8);
            start..start.saturating_add(bytes)
        });
        let functions: Vec<u64> = functions.step_by(8).filter_map(|at| initial.word(at)).collect();
        initial.run(functions);
        initial
    }

    /// As if `functions` had been called, one after the other.
    fn run(&mut self, functions: impl IntoIterator<Item = u64>) {
        let mut machine = Machine::new(self);
        functions.into_iter().for_each(|function| machine.run(function));
    }

    /// The address of the code that a stub's slot leads to.
    pub fn follow(&self, slot: Slot) -> Option<u64> {
        let target = match slot {
            Slot::Variable { address } => self.word(address)?,
            Slot::Table { pointer, offset } => {
                let table = self.word(pointer).filter(|&table| table != 0)?;
                self.word(table.wrapping_add(offset))?
            }
        };
        self.binary.begins_function(target).then_some(target)
    }

    fn word(&self, address: u64) -> Value {
        let aligned = address.is_multiple_of(8);
        let in_file = || self.binary.word(address).filter(|_| aligned);
        self.words.get(&address).copied().unwrap_or_else(in_file)
    }

    /// Writes `values` from `address` on.
    fn set(&mut self, address: u64, values: &[Value]) {
        if !address.is_multiple_of(8) {
            return self.forget(address, values.len() as u64 * 8);
        }
        for (index, value) in (0u64..).zip(values) {
            self.words.insert(address.wrapping_add(index * 8), *value);
        }
    }

    /// Something was written to so many bytes at `address`.
    fn forget(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes.min(64));
        (address & !7..end).step_by(8).for_each(|word| {
            self.words.insert(word, None);
        });
    }
}

/// Tags of the dynamic section.
mod dynamic {
    pub const JUMP_SLOTS_BYTES: u64 = 2;
    pub const SYMBOLS: u64 = 6;
    pub const RELOCATIONS: u64 = 7;
    pub const RELOCATIONS_BYTES: u64 = 8;
    pub const JUMP_SLOTS: u64 = 23;
    pub const INIT_ARRAY: u64 = 25;
    pub const INIT_ARRAY_BYTES: u64 = 27;
}

/// The dynamic section, by tag.
struct Dynamic(BTreeMap<u64, u64>);

impl Dynamic {
    fn of(binary: &Binary) -> Self {
        let section = binary
            .dynamic()
            .and_then(|(address, bytes)| binary.bytes(address, bytes.min(MAX_DYNAMIC) & !15));
        let section = section.unwrap_or_default();
        let (pairs, _) = section.as_chunks::<16>();
        let pair = |bytes: &[u8; 16]| {
            let value = u128::from_le_bytes(*bytes);
            (value as u64, (value >> 64) as u64)
        };
        Self(pairs.iter().map(pair).take_while(|(tag, _)| *tag != 0).collect())
    }

    fn get(&self, tag: u64) -> Option<u64> {
        self.0.get(&tag).copied()
    }

    /// What relocations write.
    fn relocations(&self, binary: &Binary) -> BTreeMap<u64, Value> {
        use dynamic::{JUMP_SLOTS, JUMP_SLOTS_BYTES, RELOCATIONS, RELOCATIONS_BYTES};
        let mut words = BTreeMap::new();
        for (table, bytes) in [(RELOCATIONS, RELOCATIONS_BYTES), (JUMP_SLOTS, JUMP_SLOTS_BYTES)] {
            let (Some(table), Some(bytes)) = (self.get(table), self.get(bytes)) else { continue };
            let count = (bytes / ENTRY_BYTES).min(MAX_RELOCATIONS);
            for first in (0..count).step_by(AT_ONCE as usize) {
                let at = table.wrapping_add(first * ENTRY_BYTES);
                let bytes = AT_ONCE.min(count - first) * ENTRY_BYTES;
                let entries = binary.bytes(at, bytes).unwrap_or_default();
                let (entries, _) = entries.as_chunks::<{ ENTRY_BYTES as usize }>();
                words.extend(entries.iter().map(|entry| self.relocation(binary, entry)));
            }
        }
        words
    }

    /// A word that is relocated, and its value.
    fn relocation(&self, binary: &Binary, entry: &[u8; ENTRY_BYTES as usize]) -> (u64, Value) {
        const ABSOLUTE: u32 = 1;
        const GLOBAL: u32 = 6;
        const JUMP_SLOT: u32 = 7;
        const RELATIVE: u32 = 8;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| entry[at + i]));
        let (address, info, addend) = (word(0), word(8), word(16));
        let symbol = || self.symbol(binary, info >> 32);
        let value = match info as u32 {
            RELATIVE => Some(addend),
            ABSOLUTE => symbol().map(|symbol| symbol.wrapping_add(addend)),
            GLOBAL | JUMP_SLOT => symbol(),
            _ => None,
        };
        (address, value)
    }

    /// The address of a symbol that the file defines.
    fn symbol(&self, binary: &Binary, index: u64) -> Option<u64> {
        const CHOSEN_BY_A_FUNCTION: u8 = 10;
        let at = self.get(dynamic::SYMBOLS)?.checked_add(index * ENTRY_BYTES)?;
        let entry = binary.bytes(at, ENTRY_BYTES)?;
        let defined = entry[6..8] != [0, 0] && entry[4] & 0xf != CHOSEN_BY_A_FUNCTION;
        defined.then(|| u64::from_le_bytes(std::array::from_fn(|i| entry[8 + i])))
    }
}

/// A call that is open: where it returns to, and the registers then.
struct Call {
    next: u64,
    registers: [Value; 16],
}

/// Where an instruction leads.
enum Step {
    Next,
    Goto(Value),
    Call(Value),
    Return,
    /// Somewhere.
    Lost,
}

/// A processor that knows little.
struct Machine<'a, 'b> {
    memory: &'a mut Initial<'b>,
    registers: [Value; 16],
    /// The lower and the upper half of each vector register.
    vectors: [[Value; 2]; 16],
    calls: Vec<Call>,
    steps: usize,
    factory: InstructionInfoFactory,
}

impl<'a, 'b> Machine<'a, 'b> {
    fn new(memory: &'a mut Initial<'b>) -> Self {
        Self {
            memory,
            registers: [None; 16],
            vectors: [[None; 2]; 16],
            calls: Vec::new(),
            steps: 0,
            factory: InstructionInfoFactory::new(),
        }
    }

    /// Runs a function, to its end or until nothing is known any more.
    fn run(&mut self, function: u64) {
        (self.registers, self.vectors) = ([None; 16], [[None; 2]; 16]);
        self.registers[Register::RSP.number()] = Some(STACK);
        self.calls.clear();
        let mut at = Some(function);
        while let Some(address) = at {
            at = self.run_from(address);
        }
    }

    /// Runs from `address` to the next jump; where to.
    fn run_from(&mut self, address: u64) -> Option<u64> {
        let Some(code) = self.memory.binary.code(address, WINDOW) else { return self.leave() };
        let mut after = address;
        for instruction in decoder(&code, address).into_iter() {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return None;
            }
            // The last one may be cut off.
            if instruction.is_invalid() {
                return if after == address { self.leave() } else { Some(after) };
            }
            after = instruction.next_ip();
            match self.step(&instruction) {
                Step::Next => {}
                Step::Goto(Some(target)) => return Some(target),
                Step::Call(Some(target)) if self.is_code(target) => {
                    if self.calls.len() == MAX_CALLS {
                        self.forget_scratch();
                        continue;
                    }
                    self.calls.push(Call { next: after, registers: self.registers });
                    self.move_stack(-8);
                    return Some(target);
                }
                Step::Call(_) => self.forget_scratch(),
                Step::Return => {
                    let call = self.calls.pop()?;
                    self.registers[Register::RSP.number()] = call.registers[Register::RSP.number()];
                    return Some(call.next);
                }
                Step::Goto(None) | Step::Lost => return self.leave(),
            }
        }
        Some(after)
    }

    fn is_code(&self, address: u64) -> bool {
        self.memory.binary.code_segment(address).is_some()
    }

    /// Leaves a function whose end was not seen, which keeps what functions keep; where to.
    fn leave(&mut self) -> Option<u64> {
        let call = self.calls.pop()?;
        self.registers = call.registers;
        self.forget_scratch();
        Some(call.next)
    }

    fn forget_scratch(&mut self) {
        for (number, register) in self.registers.iter_mut().enumerate() {
            register.take_if(|_| !KEPT.contains(&number));
        }
        self.vectors = [[None; 2]; 16];
    }

    fn step(&mut self, i: &Instruction) -> Step {
        match i.flow_control() {
            FlowControl::Next if i.has_rep_prefix() || i.has_repne_prefix() => Step::Lost,
            FlowControl::Next => {
                if self.execute(i).is_none() {
                    self.forget(i);
                }
                Step::Next
            }
            FlowControl::UnconditionalBranch => Step::Goto(Some(i.near_branch_target())),
            FlowControl::IndirectBranch => Step::Goto(self.operand(i, 0)),
            // System calls are calls without a target.
            FlowControl::Call => Step::Call(Some(i.near_branch_target()).filter(|&to| to != 0)),
            FlowControl::IndirectCall => Step::Call(self.operand(i, 0)),
            FlowControl::Return => Step::Return,
            FlowControl::ConditionalBranch
            | FlowControl::Interrupt
            | FlowControl::Exception
            | FlowControl::XbeginXabortXend => Step::Lost,
        }
    }

    /// Executes one of the instructions that move words about; none if it is another.
    fn execute(&mut self, i: &Instruction) -> Option<()> {
        let is_vector =
            |operand| i.op_kind(operand) == OpKind::Register && i.op_register(operand).is_xmm();
        match i.mnemonic() {
            Mnemonic::Mov => {
                let value = self.operand(i, 1);
                self.assign(i, value)
            }
            Mnemonic::Lea if i.op0_register().is_gpr64() => {
                let value = self.address(i, 1);
                self.assign(i, value)
            }
            Mnemonic::Xor
                if i.op0_kind() == OpKind::Register
                    && i.op1_kind() == OpKind::Register
                    && i.op0_register() == i.op1_register() =>
            {
                self.assign(i, Some(0))
            }
            Mnemonic::Add | Mnemonic::Sub if i.op0_kind() == OpKind::Register => {
                let (to, by) = (self.operand(i, 0), self.operand(i, 1));
                let sum = to.zip(by).map(|(to, by)| match i.mnemonic() {
                    Mnemonic::Add => to.wrapping_add(by),
                    _ => to.wrapping_sub(by),
                });
                self.assign(i, sum)
            }
            Mnemonic::Push if i.op0_register().is_gpr64() => {
                let value = self.operand(i, 0);
                self.move_stack(-8);
                let stack = self.register(Register::RSP)?;
                self.memory.set(stack, &[value]);
                Some(())
            }
            Mnemonic::Pop if i.op0_register().is_gpr64() => {
                let value = self.register(Register::RSP).and_then(|stack| self.memory.word(stack));
                self.move_stack(8);
                self.assign(i, value)
            }
            // To a vector register the lower half, and the upper one is cleared.
            Mnemonic::Movq if is_vector(0) => {
                let lower = if is_vector(1) { self.vector(i, 1)[0] } else { self.operand(i, 1) };
                self.assign_vector(i, [lower, Some(0)])
            }
            Mnemonic::Movq | Mnemonic::Movlps | Mnemonic::Movlpd if is_vector(1) => {
                let lower = self.vector(i, 1)[0];
                self.assign(i, lower)
            }
            Mnemonic::Movhps | Mnemonic::Movhpd if is_vector(0) => {
                let halves = [self.vector(i, 0)[0], self.operand(i, 1)];
                self.assign_vector(i, halves)
            }
            Mnemonic::Movhps | Mnemonic::Movhpd if is_vector(1) => {
                let upper = self.vector(i, 1)[1];
                self.assign(i, upper)
            }
            Mnemonic::Punpcklqdq | Mnemonic::Movlhps => {
                let halves = [self.vector(i, 0)[0], self.vector(i, 1)[0]];
                self.assign_vector(i, halves)
            }
            Mnemonic::Pxor | Mnemonic::Xorps
                if is_vector(1) && i.op0_register() == i.op1_register() =>
            {
                self.assign_vector(i, [Some(0); 2])
            }
            Mnemonic::Movaps
            | Mnemonic::Movups
            | Mnemonic::Movapd
            | Mnemonic::Movupd
            | Mnemonic::Movdqa
            | Mnemonic::Movdqu => {
                let halves = self.vector(i, 1);
                self.assign_vector(i, halves)
            }
            _ => None,
        }
    }

    /// What any other instruction writes is not known from then on.
    fn forget(&mut self, i: &Instruction) {
        let info = self.factory.info(i);
        for used in info.used_registers().iter().filter(|used| writes(used.access())) {
            let register = used.register();
            if register.is_gpr() {
                self.registers[register.full_register().number()] = None;
            } else if let Some(vector) =
                self.vectors.get_mut(register.number()).filter(|_| register.is_vector_register())
            {
                *vector = [None; 2];
            }
        }
        let writes_memory = info.used_memory().iter().any(|used| writes(used.access()));
        let bytes = i.memory_size().size() as u64;
        let operand = (0..i.op_count()).find(|&operand| i.op_kind(operand) == OpKind::Memory);
        if let Some(address) = operand.filter(|_| writes_memory).and_then(|o| self.address(i, o)) {
            self.memory.forget(address, bytes.max(1));
        }
    }

    fn register(&self, register: Register) -> Value {
        let full = register.full_register();
        full.is_gpr().then(|| self.registers[full.number()]).flatten()
    }

    fn move_stack(&mut self, bytes: i64) {
        let stack = &mut self.registers[Register::RSP.number()];
        *stack = stack.map(|stack| stack.wrapping_add_signed(bytes));
    }

    /// The address of a memory operand.
    fn address(&self, i: &Instruction, operand: u32) -> Value {
        i.virtual_address(operand, 0, |register, _, _| match register {
            Register::FS | Register::GS => None,
            register if register.is_segment_register() => Some(0),
            register => self.register(register),
        })
    }

    /// A whole word that an operand has.
    fn operand(&self, i: &Instruction, operand: u32) -> Value {
        match i.op_kind(operand) {
            OpKind::Register if i.op_register(operand).is_gpr64() => {
                self.register(i.op_register(operand))
            }
            OpKind::Register if i.op_register(operand).is_gpr32() => {
                self.register(i.op_register(operand)).map(|value| value & 0xffff_ffff)
            }
            OpKind::Memory if i.memory_size().size() == 8 => {
                self.memory.word(self.address(i, operand)?)
            }
            OpKind::Register | OpKind::Memory => None,
            _ => i.try_immediate(operand).ok(),
        }
    }

    /// Writes a word to the first operand; none if that is no whole word.
    fn assign(&mut self, i: &Instruction, value: Value) -> Option<()> {
        match i.op0_kind() {
            OpKind::Register if i.op0_register().is_gpr64() => {
                self.registers[i.op0_register().number()] = value;
            }
            OpKind::Register if i.op0_register().is_gpr32() => {
                let register = i.op0_register().full_register();
                self.registers[register.number()] = value.map(|value| value & 0xffff_ffff);
            }
            OpKind::Memory if i.memory_size().size() == 8 => {
                // Where it does not know where to, it is to memory that is no variable of the file.
                if let Some(address) = self.address(i, 0) {
                    self.memory.set(address, &[value]);
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// The halves of a vector operand.
    fn vector(&self, i: &Instruction, operand: u32) -> [Value; 2] {
        match i.op_kind(operand) {
            OpKind::Register if i.op_register(operand).is_xmm() => {
                let number = i.op_register(operand).number();
                self.vectors.get(number).copied().unwrap_or_default()
            }
            OpKind::Memory => match self.address(i, operand) {
                Some(at) => [self.memory.word(at), self.memory.word(at.wrapping_add(8))],
                None => [None; 2],
            },
            _ => [None; 2],
        }
    }

    fn assign_vector(&mut self, i: &Instruction, halves: [Value; 2]) -> Option<()> {
        match i.op0_kind() {
            OpKind::Register if i.op0_register().is_xmm() => {
                *self.vectors.get_mut(i.op0_register().number())? = halves;
            }
            OpKind::Memory => {
                if let Some(address) = self.address(i, 0) {
                    self.memory.set(address, &halves);
                }
            }
            _ => return None,
        }
        Some(())
    }
}
