//! The numbers of kernel launches and of streams in calls.

use super::format::{Captured, dim3};
use super::table::{Kind, Operation};

/// A kernel launch as the application asked for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Launch {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// The `hipStream_t`; 0 is the default stream.
    pub stream: u64,
    /// The host address of the kernel's stub (`hipLaunchKernel` and its like), or its
    /// `hipFunction_t` (`hipModuleLaunchKernel` and its like).
    pub function: u64,
}

/// The form in which a launch function takes its dimensions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dimensions {
    /// Function, grid and block as `dim3`, kernel arguments, shared memory, stream.
    Dim3,
    /// Function, three numbers for blocks, three for threads, shared memory, stream.
    Blocks,
    /// The same, with threads of the whole grid in place of blocks. They need not be multiples of
    /// the block; [`Launch::grid`] counts a partial block as one.
    WorkItems,
}

/// Functions that launch one kernel, with all of its dimensions. Not `hipLaunchByPtr`, whose
/// dimensions went to `hipConfigureCall` or `__hipPushCallConfiguration` before, nor the
/// multi-device launches and those of a configuration (`hipLaunchKernelExC`), whose dimensions are in
/// memory.
const LAUNCHES: &[(&str, Dimensions)] = &[
    ("hipExtLaunchKernel", Dimensions::Dim3),
    ("hipExtModuleLaunchKernel", Dimensions::WorkItems),
    ("hipHccModuleLaunchKernel", Dimensions::WorkItems),
    ("hipLaunchCooperativeKernel", Dimensions::Dim3),
    ("hipLaunchCooperativeKernel_spt", Dimensions::Dim3),
    ("hipLaunchKernel", Dimensions::Dim3),
    ("hipLaunchKernel_spt", Dimensions::Dim3),
    ("hipModuleLaunchCooperativeKernel", Dimensions::Blocks),
    ("hipModuleLaunchKernel", Dimensions::Blocks),
];

/// The launch that a call makes; `None` for other functions, and when a part was not captured.
pub fn launch(op: &Operation, args: &[u64; 6], extra: &[u64; 3], flags: u16) -> Option<Launch> {
    let (_, dimensions) = LAUNCHES.iter().find(|(name, _)| *name == op.name)?;
    let captured = Captured { args, extra, flags };
    let words = |index: usize| captured.words(op, op.args.get(index)?);
    let word = |index: usize| words(index).map(|[word, _]| word);
    let three = |first: usize| {
        Some([word(first)? as u32, word(first + 1)? as u32, word(first + 2)? as u32])
    };
    let function = word(0)?;
    let (grid, block, shared) = match dimensions {
        Dimensions::Dim3 => (dim3(words(1)?), dim3(words(2)?), 4),
        Dimensions::Blocks => (three(1)?, three(4)?, 7),
        Dimensions::WorkItems => {
            let block = three(4)?;
            let [x, y, z] = three(1)?;
            let [block_x, block_y, block_z] = block.map(|threads| threads.max(1));
            ([x.div_ceil(block_x), y.div_ceil(block_y), z.div_ceil(block_z)], block, 7)
        }
    };
    Some(Launch {
        grid,
        block,
        // HIP takes a size_t in places, but no GPU has 4 GiB of it.
        shared_bytes: u32::try_from(word(shared)?).unwrap_or(u32::MAX),
        stream: word(shared + 1)?,
        function,
    })
}

/// The `hipStream_t` of a call that takes one, if it was captured.
pub fn stream(op: &Operation, args: &[u64; 6], extra: &[u64; 3], flags: u16) -> Option<u64> {
    let arg = op.args.iter().find(|arg| matches!(arg.ty.kind, Kind::Stream))?;
    Captured { args, extra, flags }.words(op, arg).map(|[word, _]| word)
}
