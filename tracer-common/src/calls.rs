//! Calls that the shim records by itself: the parts of a function's calls that it is to record ([`Wanted`]), and the
//! record of a call ([`Call`]). The functions are in [`crate::slots`].
//!
//! A call's record is a frame of kind [`crate::shim::kind::CALL`] in the ring of the calling thread,
//! written when the call is over. While it is open, it stands in the header of that ring, from
//! [`crate::shim::ring_word::OPEN_CALLS`] on, [`OPEN_WORDS`] a call; a call whose first word is 0 is
//! none.

use crate::activity::Domain;

/// Correlation ids of calls that the shim records begin here: those of the BPF programs stay below.
/// All are below 2^53, where numbers of JSON are exact.
pub const FIRST_ID: u64 = 1 << 52;
/// The number of ids of each process, as a power of two: its ids begin at the shared memory's index << this.
pub const ID_BITS: u32 = 36;

/// Most words of a call's frame: six before the arguments, six registers, three of `extra`.
pub const MAX_CALL_WORDS: usize = 15;
/// Open calls of a thread that are kept in its ring's header.
pub const OPEN_CALLS: usize = 16;
/// Words of an open call.
pub const OPEN_WORDS: usize = 16;

const _: () = assert!(MAX_CALL_WORDS <= OPEN_WORDS);

/// The parts of a slot's calls that are to be recorded; as a word, 0 is nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// The domain, one of [`crate::activity::Domain`].
    pub domain: u8,
    /// Operation id in the domain.
    pub operation: u16,
    /// The number of register arguments, 0 to 6.
    pub args: u8,
    /// The number of words from the stack, 0 to 3.
    pub stack_args: u8,
    /// Index of the register argument that points at an 8-byte output value, plus 1; 0 for none.
    pub out_arg: u8,
}

impl Wanted {
    const ON: u64 = 1 << 63;

    /// The word.
    pub const fn to_word(self) -> u64 {
        Self::ON
            | self.operation as u64
            | (self.args as u64) << 16
            | (self.stack_args as u64) << 24
            | (self.out_arg as u64) << 32
            | (self.domain as u64) << 40
    }

    /// The value of a word; none for 0, and for a word that no tracer of ours writes.
    pub const fn from_word(word: u64) -> Option<Self> {
        let wanted = Self {
            operation: word as u16,
            args: (word >> 16) as u8,
            stack_args: (word >> 24) as u8,
            out_arg: (word >> 32) as u8,
            domain: (word >> 40) as u8,
        };
        let sane = wanted.args <= 6 && wanted.stack_args <= 3 && wanted.out_arg <= wanted.args;
        if word & Self::ON != 0 && sane { Some(wanted) } else { None }
    }
}

/// One call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Call {
    /// Unique in the recording, never 0.
    pub correlation_id: u64,
    /// The call that the shim records and that this one was made in; 0 for none.
    pub parent_id: u64,
    /// The domain, one of [`crate::activity::Domain`].
    pub domain: u8,
    /// Operation id in the domain.
    pub operation: u16,
    /// Bits of [`crate::bpf::flag`].
    pub flags: u16,
    /// The time when it began, ns of CLOCK_BOOTTIME.
    pub begin_ns: u64,
    /// The time when it returned or an exception left it, ns of CLOCK_BOOTTIME; 0 when it is open.
    pub end_ns: u64,
    /// The value that it returned.
    pub ret: u64,
    /// The number of `args` that the function has.
    pub arg_count: u8,
    /// Register arguments.
    pub args: [u64; 6],
    /// The number of words in `extra`.
    pub extra_count: u8,
    /// Stack arguments or an output value, as the flags tell.
    pub extra: [u64; 3],
}

impl Call {
    /// Domain and operation, as in [`crate::bpf::Header::operation`].
    pub const fn header_operation(&self) -> u32 {
        (self.domain as u32) << 16 | self.operation as u32
    }

    /// Writes the call into `words`. Returns the number of words that it takes.
    #[inline]
    pub fn encode(&self, words: &mut [u64; MAX_CALL_WORDS]) -> usize {
        let (args, extra) =
            (usize::from(self.arg_count).min(6), usize::from(self.extra_count).min(3));
        words[0] = self.correlation_id;
        words[1] = u64::from(self.operation)
            | u64::from(self.flags) << 16
            | (args as u64) << 32
            | (extra as u64) << 40
            | u64::from(self.domain) << 48;
        words[2] = self.parent_id;
        words[3] = self.begin_ns;
        words[4] = self.end_ns;
        words[5] = self.ret;
        words[6..6 + args].copy_from_slice(&self.args[..args]);
        words[6 + args..6 + args + extra].copy_from_slice(&self.extra[..extra]);
        6 + args + extra
    }

    /// The call in `words`, of which there may be more than it takes; none if there is none.
    pub fn decode(words: &[u64]) -> Option<Self> {
        let &[correlation_id, what, parent_id, begin_ns, end_ns, ret, ref rest @ ..] = words else {
            return None;
        };
        let (arg_count, extra_count) = ((what >> 32) as u8, (what >> 40) as u8);
        let mut call = Self {
            correlation_id,
            parent_id,
            domain: (what >> 48) as u8,
            operation: what as u16,
            flags: (what >> 16) as u16,
            begin_ns,
            end_ns,
            ret,
            arg_count,
            extra_count,
            ..Self::default()
        };
        let (args, rest) = rest.split_at_checked(arg_count.into())?;
        call.args.get_mut(..args.len())?.copy_from_slice(args);
        let extra = rest.get(..extra_count.into())?;
        call.extra.get_mut(..extra.len())?.copy_from_slice(extra);
        let known = [Domain::HSA_API, Domain::HIP_API].contains(&Domain(call.domain.into()));
        (known && correlation_id >= FIRST_ID).then_some(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_comes_out_as_it_went_in() {
        for (arg_count, extra_count) in [(0, 0), (2, 1), (6, 3)] {
            let mut call = Call {
                correlation_id: FIRST_ID + 7,
                parent_id: FIRST_ID + 6,
                domain: 3,
                operation: 41,
                flags: 0x8001,
                begin_ns: 10,
                end_ns: 20,
                ret: u64::MAX,
                arg_count,
                extra_count,
                ..Call::default()
            };
            call.args[..usize::from(arg_count)].fill(5);
            call.extra[..usize::from(extra_count)].fill(9);
            let mut words = [0; MAX_CALL_WORDS];
            let count = call.encode(&mut words);
            assert_eq!(count, 6 + usize::from(arg_count + extra_count));
            assert_eq!(Call::decode(&words[..count]), Some(call));
            assert_eq!(Call::decode(&words[..count - 1]), None);
        }
    }

    #[test]
    fn nonsense_is_no_call() {
        let mut words = [0; OPEN_WORDS];
        assert_eq!(Call::decode(&words), None, "no id");
        words[0] = FIRST_ID;
        assert!(Call::decode(&words).is_some());
        words[1] = 7 << 32;
        assert_eq!(Call::decode(&words), None, "seven registers");
        words[1] = 4 << 40;
        assert_eq!(Call::decode(&words), None, "four further words");
        words[1] = 1 << 48;
        assert_eq!(Call::decode(&words), None, "no domain of calls that are recorded so");
    }

    #[test]
    fn words_say_what_is_wanted() {
        let wanted = Wanted { domain: 3, operation: 0x1234, args: 6, stack_args: 3, out_arg: 4 };
        assert_eq!(Wanted::from_word(wanted.to_word()), Some(wanted));
        assert_eq!(Wanted::from_word(0), None);
        assert_eq!(Wanted::from_word(Wanted { args: 7, ..wanted }.to_word()), None);
        assert_eq!(Wanted::from_word(Wanted { args: 1, out_arg: 2, ..wanted }.to_word()), None);
    }
}
