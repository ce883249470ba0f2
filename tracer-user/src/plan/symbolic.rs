//! A symbolic processor: reads a library's functions, and works out which words they write to its variables.
//!
//! The real processor executes none of them: the file may be anybody's, and roctap may be root. If this processor does
//! not understand an instruction, the words that the instruction writes are unknown from then on. Its steps are
//! limited, and with them the words that it keeps.

use std::collections::BTreeMap;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use super::{binary::Binary, branches::decoder, prologue::writes};

/// Bytes that are decoded at a time.
const WINDOW: u64 = 1 << 10;
/// Most calls that are open at once; it does not enter a function that is called beyond that.
const MAX_CALLS: usize = 16;
/// Address of the stack: in no image.
const STACK: u64 = 0x7fff_f000_0000_0000;

/// Registers that a function preserves.
const KEPT: [usize; 7] = [
    3,  // rbx
    4,  // rsp
    5,  // rbp
    12, // r12 and so on
    13, 14, 15,
];

/// A number, or an address in the image; `None` if it is not known.
pub(super) type Value = Option<u64>;

/// A library's variables at some time.
pub(super) struct LoadedMemory<'a> {
    pub binary: &'a Binary,
    /// An earlier state, which has the words that have not been written since. Without one, the file has them.
    earlier: Option<&'a LoadedMemory<'a>>,
    words: BTreeMap<u64, Value>,
}

impl<'a> LoadedMemory<'a> {
    /// The memory as the file has it, except for `words`.
    pub fn new(binary: &'a Binary, words: BTreeMap<u64, Value>) -> Self {
        Self { binary, earlier: None, words }
    }

    /// A memory that begins as this one is now. To write to it does not change this one.
    pub fn later(&'a self) -> Self {
        Self { binary: self.binary, earlier: Some(self), words: BTreeMap::new() }
    }

    pub fn word(&self, address: u64) -> Value {
        if let Some(word) = self.words.get(&address) {
            return *word;
        }
        match self.earlier {
            Some(earlier) => earlier.word(address),
            None => self.binary.word(address).filter(|_| address.is_multiple_of(8)),
        }
    }

    /// The addresses of the words that have been written since [`LoadedMemory::later`] made it.
    pub fn written(&self) -> impl Iterator<Item = u64> {
        self.words.keys().copied()
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

    /// Unknown values were written to this many bytes at `address`, 64 at most.
    fn forget(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes.min(64));
        (address & !7..end).step_by(8).for_each(|word| {
            self.words.insert(word, None);
        });
    }
}

/// A call that is open: its return address, and the registers before it.
struct Call {
    next: u64,
    registers: [Value; 16],
}

/// The step from an instruction to the next one.
enum Step {
    Next,
    Goto(Value),
    Branch(u64),
    Call(Value),
    Return,
    /// The next instruction is not known.
    Lost,
}

/// The end of a run of instructions.
enum RunEnd {
    To(u64),
    /// To the return of the function that is run.
    Back,
    /// The next instruction is not known, or no steps are left.
    Astray,
}

/// A way through a function: the side that it takes at each of its branches, in order.
///
/// The processor does not compute conditions, since it mostly does not know the values that decide them. The caller
/// tries one way after the other, each in a run of its own.
#[derive(Default)]
pub(super) struct BranchChoices {
    /// Whether each branch is taken.
    taken: Vec<bool>,
    /// How many branches this run has met.
    met: usize,
}

impl BranchChoices {
    /// Most branches on one way.
    const MAX_BRANCHES: usize = 8;

    /// Whether the next branch is taken; `None` if there are too many.
    fn decide(&mut self) -> Option<bool> {
        if self.met == self.taken.len() {
            if self.met == Self::MAX_BRANCHES {
                return None;
            }
            self.taken.push(false);
        }
        self.met += 1;
        Some(self.taken[self.met - 1])
    }

    /// The next way that has not been tried; `None` after the last.
    pub fn next(mut self) -> Option<Self> {
        while let Some(taken) = self.taken.pop() {
            if !taken {
                self.taken.push(true);
                return Some(Self { met: 0, ..self });
            }
        }
        None
    }
}

/// The symbolic processor.
pub(super) struct Machine<'a, 'b> {
    memory: &'a mut LoadedMemory<'b>,
    registers: [Value; 16],
    /// The lower and the upper half of each vector register.
    vectors: [[Value; 2]; 16],
    calls: Vec<Call>,
    /// Steps that are left.
    steps: usize,
    /// The sides to take at the branches of the function that is run. Without a way, the processor leaves the function
    /// at its first branch.
    choices: Option<BranchChoices>,
    factory: InstructionInfoFactory,
}

impl<'a, 'b> Machine<'a, 'b> {
    /// A processor that takes at most this many steps.
    pub fn new(memory: &'a mut LoadedMemory<'b>, steps: usize) -> Self {
        Self {
            memory,
            registers: [None; 16],
            vectors: [[None; 2]; 16],
            calls: Vec::new(),
            steps,
            choices: None,
            factory: InstructionInfoFactory::new(),
        }
    }

    /// Runs a function to its return, or to its first conditional branch. A function that it calls is left at its own
    /// first branch, on the assumption that its rest writes nothing that anybody asks for.
    pub fn run(&mut self, function: u64) {
        self.run_to_end(function);
    }

    /// Runs a function, which takes at each branch the side that `choices` say, and runs the functions that it calls as
    /// [`Machine::run`] does. Returns the function's result, or none if it did not reach its return; the branches that
    /// it took; and how many steps are left.
    pub fn call(
        mut self,
        function: u64,
        choices: BranchChoices,
    ) -> (Option<Value>, BranchChoices, usize) {
        self.choices = Some(choices);
        let returned = self.run_to_end(function);
        let result = returned.then(|| self.register(Register::RAX));
        (result, self.choices.unwrap_or_default(), self.steps)
    }

    /// Runs the function to its return, or until the next instruction is not known. Returns whether it returned.
    fn run_to_end(&mut self, function: u64) -> bool {
        (self.registers, self.vectors) = ([None; 16], [[None; 2]; 16]);
        self.registers[Register::RSP.number()] = Some(STACK);
        self.calls.clear();
        let mut at = function;
        loop {
            at = match self.run_from(at) {
                RunEnd::To(next) => next,
                RunEnd::Back => return true,
                RunEnd::Astray => return false,
            }
        }
    }

    /// Runs from `address` to the next jump.
    fn run_from(&mut self, address: u64) -> RunEnd {
        let Some(code) = self.memory.binary.code(address, WINDOW) else { return self.leave() };
        let mut after = address;
        for instruction in decoder(&code, address).into_iter() {
            let Some(left) = self.steps.checked_sub(1) else {
                self.calls.clear();
                return RunEnd::Astray;
            };
            self.steps = left;
            // The window may cut off its last instruction.
            if instruction.is_invalid() {
                return if after == address { self.leave() } else { RunEnd::To(after) };
            }
            after = instruction.next_ip();
            match self.step(&instruction) {
                Step::Next => {}
                Step::Goto(Some(target)) => return RunEnd::To(target),
                Step::Branch(target) => match self.decide() {
                    Some(true) => return RunEnd::To(target),
                    Some(false) => {}
                    None => return self.leave(),
                },
                Step::Call(Some(target)) if self.is_code(target) => {
                    if self.calls.len() == MAX_CALLS {
                        self.forget_scratch();
                        continue;
                    }
                    self.calls.push(Call { next: after, registers: self.registers });
                    self.move_stack(-8);
                    return RunEnd::To(target);
                }
                Step::Call(_) => self.forget_scratch(),
                Step::Return => {
                    let Some(call) = self.calls.pop() else { return RunEnd::Back };
                    self.registers[Register::RSP.number()] = call.registers[Register::RSP.number()];
                    return RunEnd::To(call.next);
                }
                Step::Goto(None) | Step::Lost => return self.leave(),
            }
        }
        RunEnd::To(after)
    }

    /// Whether a branch is taken; `None` if there is no way, as in functions that are called.
    fn decide(&mut self) -> Option<bool> {
        self.choices.as_mut().filter(|_| self.calls.is_empty())?.decide()
    }

    fn is_code(&self, address: u64) -> bool {
        self.memory.binary.code_segment(address).is_some()
    }

    /// Leaves a function before its return: only the registers that functions preserve are known then.
    fn leave(&mut self) -> RunEnd {
        let Some(call) = self.calls.pop() else { return RunEnd::Astray };
        self.registers = call.registers;
        self.forget_scratch();
        RunEnd::To(call.next)
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
            // A system call counts as a call without a target.
            FlowControl::Call => Step::Call(Some(i.near_branch_target()).filter(|&to| to != 0)),
            FlowControl::IndirectCall => Step::Call(self.operand(i, 0)),
            FlowControl::Return => Step::Return,
            FlowControl::ConditionalBranch => Step::Branch(i.near_branch_target()),
            FlowControl::Interrupt | FlowControl::Exception | FlowControl::XbeginXabortXend => {
                Step::Lost
            }
        }
    }

    /// Executes an instruction that moves or adds words; `None` if it is another kind.
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
            // A move to a vector register writes the lower half, and clears the upper one.
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

    /// Any other instruction: the registers and the memory that it writes are unknown from then on.
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

    /// The value of an operand: an immediate, 64 bits of memory, or 32 or 64 bits of a register.
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

    /// Writes a word to the first operand; `None` if that is no whole word.
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
                // A write to an unknown address is taken to be to memory that is no variable of the file.
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
