//! The proof obligation, on random functions: a call that enters at the entry passes the site exactly once, with the
//! argument registers, `rsp` and memory as they were.

use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, MemoryOperand, Register,
    code_asm::{CodeAssembler, CodeLabel},
};
use proptest::prelude::*;

use super::{
    super::{Class, KernelVersion, Planner},
    image::{ADVANCE, CFA_OFFSET, CODE, Part, binary},
};

const REGISTERS: [Register; 16] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RSP,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];
const RSP: usize = 4;
const STACK: u64 = 0x7ffe_0000_0000;

/// One instruction of a random function. Targets are numbers of instructions.
#[derive(Clone, Copy, Debug)]
enum Op {
    Endbr,
    Nop(usize),
    Move(usize, usize),
    Constant(usize),
    /// Not `rsp`: a stack of random height is not what functions have.
    Xor(usize, usize),
    Compare(usize, usize),
    Load(usize),
    /// To `rsp` plus so many words.
    Store(usize, i64),
    Push(usize),
    Pop(usize),
    Frame(i8),
    Jump(usize),
    Branch(usize),
    /// `call` of another function, or of an instruction of this one.
    Call(Option<usize>),
    Return,
}

fn op() -> impl Strategy<Value = Op> {
    let register = || 0..16usize;
    let other = || (0..16usize).prop_map(|r| if r == RSP { 3 } else { r });
    let target = || 0..14usize;
    prop_oneof![
        4 => Just(Op::Endbr),
        4 => (1..=9usize).prop_map(Op::Nop),
        3 => (other(), register()).prop_map(|(a, b)| Op::Move(a, b)),
        3 => other().prop_map(Op::Constant),
        3 => (other(), other()).prop_map(|(a, b)| Op::Xor(a, b)),
        3 => (register(), register()).prop_map(|(a, b)| Op::Compare(a, b)),
        2 => other().prop_map(Op::Load),
        2 => (register(), -3..3i64).prop_map(|(r, at)| Op::Store(r, at)),
        4 => register().prop_map(Op::Push),
        1 => other().prop_map(Op::Pop),
        1 => (-4..4i8).prop_map(Op::Frame),
        1 => target().prop_map(Op::Jump),
        2 => target().prop_map(Op::Branch),
        1 => prop::option::of(target()).prop_map(Op::Call),
        1 => Just(Op::Return),
    ]
}

/// The function's code, and where its instructions are.
fn assemble(ops: &[Op]) -> Vec<u8> {
    let mut a = CodeAssembler::new(64).unwrap();
    let mut labels: Vec<CodeLabel> = ops.iter().map(|_| a.create_label()).collect();
    for (index, op) in ops.iter().enumerate() {
        a.set_label(&mut labels[index]).unwrap();
        let label = |to: usize| labels[to % labels.len()];
        let two = |code, x: usize, y: usize| Instruction::with2(code, REGISTERS[x], REGISTERS[y]);
        let one = |code, x: usize| Instruction::with1(code, REGISTERS[x]);
        let memory = |at: i64| MemoryOperand::with_base_displ(Register::RSP, at);
        let plain = match *op {
            Op::Endbr => Instruction::with(Code::Endbr64),
            Op::Nop(size) => {
                a.nops_with_size(size).unwrap();
                continue;
            }
            Op::Move(x, y) => two(Code::Mov_rm64_r64, x, y).unwrap(),
            Op::Constant(x) => {
                Instruction::with2(Code::Mov_rm64_imm32, REGISTERS[x], 7i32).unwrap()
            }
            Op::Xor(x, y) => two(Code::Xor_rm64_r64, x, y).unwrap(),
            Op::Compare(x, y) => two(Code::Cmp_rm64_r64, x, y).unwrap(),
            Op::Load(x) => Instruction::with2(Code::Mov_r64_rm64, REGISTERS[x], memory(8)).unwrap(),
            Op::Store(x, at) => {
                Instruction::with2(Code::Mov_rm64_r64, memory(8 * at), REGISTERS[x]).unwrap()
            }
            Op::Push(x) => one(Code::Push_r64, x).unwrap(),
            Op::Pop(x) => one(Code::Pop_r64, x).unwrap(),
            Op::Frame(words) => {
                let bytes = i32::from(words) * 8;
                Instruction::with2(Code::Add_rm64_imm8, Register::RSP, bytes).unwrap()
            }
            Op::Return => Instruction::with(Code::Retnq),
            Op::Jump(to) => {
                a.jmp(label(to)).unwrap();
                continue;
            }
            Op::Branch(to) => {
                a.je(label(to)).unwrap();
                continue;
            }
            Op::Call(Some(to)) => {
                a.call(label(to)).unwrap();
                continue;
            }
            Op::Call(None) => {
                a.call(0x7000).unwrap();
                continue;
            }
        };
        a.add_instruction(plain).unwrap();
    }
    a.assemble(CODE).unwrap()
}

/// The state when the site is passed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    arguments: [u64; 6],
    stack: u64,
    writes: usize,
}

/// A machine that knows the instructions above; `choices` decide the conditional branches.
struct Machine<'a> {
    code: &'a [u8],
    registers: [u64; 16],
    writes: usize,
    choices: u64,
    seen: Vec<Seen>,
}

impl Machine<'_> {
    fn snapshot(&self) -> Seen {
        Seen {
            arguments: ARGUMENTS.map(|r| self.registers[r]),
            stack: self.registers[RSP],
            writes: self.writes,
        }
    }

    /// Executes from `CODE` until the function returns, leaves or has had its time; notes the state whenever this call
    /// executes `site` (not a call that the function makes of itself).
    fn run(&mut self, site: u64) {
        let mut at = CODE;
        let mut depth = 0;
        let mut returns = Vec::new();
        for _ in 0..400 {
            let Some(code) = self.code.get((at.wrapping_sub(CODE)) as usize..) else { return };
            if code.is_empty() {
                return;
            }
            let i = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
            if at == site && depth == 0 {
                self.seen.push(self.snapshot());
            }
            at = i.next_ip();
            let number = |register: Register| register.full_register().number();
            let (x, y) = (number(i.op0_register()), number(i.op1_register()));
            match i.code() {
                Code::Endbr64 | Code::Nopd | Code::Nopw | Code::Nop_rm32 | Code::Nop_rm16 => {}
                Code::Cmp_rm64_r64 => {}
                Code::Mov_rm64_r64 if i.op0_register() == Register::None => self.writes += 1,
                Code::Mov_rm64_r64 => self.registers[x] = self.registers[y],
                Code::Mov_rm64_imm32 => self.registers[x] = 7,
                Code::Xor_rm64_r64 => self.registers[x] ^= self.registers[y],
                Code::Mov_r64_rm64 | Code::Pop_r64 => {
                    self.registers[x] = 0xfeed;
                    if i.code() == Code::Pop_r64 {
                        self.registers[RSP] += 8;
                    }
                }
                Code::Push_r64 => {
                    self.registers[RSP] -= 8;
                    self.writes += 1;
                }
                Code::Add_rm64_imm8 => {
                    let bytes = i.immediate(1);
                    self.registers[RSP] = self.registers[RSP].wrapping_add(bytes);
                }
                Code::Jmp_rel8_64 | Code::Jmp_rel32_64 => at = i.near_branch_target(),
                Code::Je_rel8_64 | Code::Je_rel32_64 => {
                    if self.choices & 1 != 0 {
                        at = i.near_branch_target();
                    }
                    self.choices = self.choices.rotate_right(1);
                }
                Code::Call_rel32_64 if i.near_branch_target() == 0x7000 => {
                    for register in ARGUMENTS {
                        self.registers[register] = 0xdead;
                    }
                }
                Code::Call_rel32_64 => {
                    // A call of the function's own entry is another call; a call into its middle belongs to this one.
                    let own = i.near_branch_target() != CODE && depth == 0;
                    returns.push((at, own));
                    depth += usize::from(!own);
                    at = i.near_branch_target();
                }
                Code::Retnq => match returns.pop() {
                    Some((to, own)) => {
                        depth -= usize::from(!own);
                        at = to;
                    }
                    None => return,
                },
                other => panic!("{other:?}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// With tables that vouch for everything, so that only the decoder protects.
    #[test]
    fn a_site_is_passed_once_and_untouched(
        ops in prop::collection::vec(op(), 1..14),
        choices: [u64; 4],
        kernel in prop::sample::select(vec![
            KernelVersion::new(6, 6), KernelVersion::new(6, 18), KernelVersion::new(7, 3),
        ]),
    ) {
        let code = assemble(&ops);
        let (binary, functions) = binary(&[Part::new(&code)], &[]);
        let plan = Planner::new(kernel).plan_function(&binary, &functions[0]);
        let site = plan.site.unwrap();
        let at = CODE + site.function_offset;
        prop_assert_eq!(at, site.file_offset);
        // What precedes is the entry, and a move pays.
        if site.function_offset > 0 {
            prop_assert!(site.class < Class::SingleStep);
            for choices in choices {
                let mut registers = std::array::from_fn(|n| 0x1111 * n as u64);
                registers[RSP] = STACK;
                let mut machine =
                    Machine { code: &code, registers, writes: 0, choices, seen: Vec::new() };
                let entry = machine.snapshot();
                machine.run(at);
                prop_assert_eq!(&machine.seen, &[entry], "{:?}", ops);
            }
        }
    }

    /// With tables that say where the stack pointer really moves: they never forbid what the decoder
    /// allows, and the site is the same.
    #[test]
    fn true_tables_and_decoder_agree(ops in prop::collection::vec(op(), 1..14)) {
        let straight = |op: &Op| !matches!(op, Op::Jump(_) | Op::Branch(_) | Op::Return);
        let ops: Vec<Op> = ops.into_iter().filter(straight).collect();
        prop_assume!(!ops.is_empty());
        let code = assemble(&ops);
        let mut frame = Vec::new();
        let mut cfa = 8i64;
        for i in &mut Decoder::with_ip(64, &code, CODE, DecoderOptions::NONE) {
            cfa -= i64::from(i.stack_pointer_increment());
            if i.code() == Code::Add_rm64_imm8 {
                cfa -= i.immediate(1) as i64;
            }
            frame.push(ADVANCE | i.len() as u8);
            // Only positive ones can be written in one byte; what is below is no function anyway.
            frame.extend([CFA_OFFSET, cfa.clamp(0, 127) as u8]);
        }
        let planner = Planner::new(KernelVersion::new(6, 18));
        let (lax, functions) = binary(&[Part::new(&code)], &[]);
        let (strict, _) = binary(&[Part::framed(&code, &frame)], &[]);
        let lax = planner.plan_function(&lax, &functions[0]);
        let strict = planner.plan_function(&strict, &functions[0]);
        prop_assert_eq!(lax.site, strict.site);
    }
}
