//! The functions that stand in the tables, one for each slot.
//!
//! They are made of one generic function for each number of stack words, so that registers and stack
//! hold at the original's entry what they held at theirs. Nothing of the HSA API takes or returns
//! floating point or structures beyond one register's size, so six integers
//! and the stack words are all there is.

use core::sync::atomic::Ordering;

use tracer_common::hsa_functions::{SLOT_COUNT, SLOTS};

use super::open::{Open, PLACES};

macro_rules! original {
    ($slot:ident, $($stack:ident)*) => {
        core::mem::transmute::<
            usize,
            unsafe extern "C-unwind" fn(u64, u64, u64, u64, u64, u64, $(word!($stack)),*) -> u64,
        >(PLACES[$slot].original.load(Ordering::Relaxed))
    };
}

macro_rules! word {
    ($stack:ident) => {
        u64
    };
}

macro_rules! thunk {
    ($thunk:ident, $recorded:ident, $($stack:ident)*) => {
        unsafe extern "C-unwind" fn $thunk<const SLOT: usize>(
            a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, $($stack: u64),*
        ) -> u64 {
            if PLACES[SLOT].wanted.load(Ordering::Relaxed) != 0 {
                // SAFETY: the application's own call.
                return unsafe { $recorded::<SLOT>(a, b, c, d, e, f, $($stack),*) };
            }
            // SAFETY: as in `recorded`.
            unsafe { original!(SLOT, $($stack)*)(a, b, c, d, e, f, $($stack),*) }
        }

        /// Apart, so that the thunk itself has no stack frame and ends in a jump either way.
        #[inline(never)]
        unsafe extern "C-unwind" fn $recorded<const SLOT: usize>(
            a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, $($stack: u64),*
        ) -> u64 {
            let mut open = Open::new();
            open.begin(SLOT, &[a, b, c, d, e, f], &[$($stack),*]);
            // SAFETY: the application's own call. The original is set before the thunk is in its
            // place, is not null, and takes the arguments as they came.
            let ret = unsafe { original!(SLOT, $($stack)*)(a, b, c, d, e, f, $($stack),*) };
            open.returned(ret);
            ret
        }
    };
}

thunk!(thunk_0, recorded_0,);
thunk!(thunk_1, recorded_1, g);
thunk!(thunk_2, recorded_2, g h);
thunk!(thunk_4, recorded_4, g h i j);

/// Address of a slot's thunk, by its number of stack words.
fn of_slot<const SLOT: usize>() -> usize {
    match const { SLOTS[SLOT].stack_words } {
        0 => thunk_0::<SLOT> as *const () as usize,
        1 => thunk_1::<SLOT> as *const () as usize,
        2 => thunk_2::<SLOT> as *const () as usize,
        _ => thunk_4::<SLOT> as *const () as usize,
    }
}

const _: () = {
    let mut slot = 0;
    while slot < SLOT_COUNT {
        assert!(matches!(SLOTS[slot].stack_words, 0 | 1 | 2 | 4));
        slot += 1;
    }
};

macro_rules! all {
    ($($slot:literal)*) => {
        static ADDRESSES: [fn() -> usize; SLOT_COUNT] = [$(of_slot::<$slot>),*];
    };
}

#[rustfmt::skip]
all! {
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
    16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47
    48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
    64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79
    80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
    96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111
    112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127
    128 129 130 131 132 133 134 135 136 137 138 139 140 141 142 143
    144 145 146 147 148 149 150 151 152 153 154 155 156 157 158 159
    160 161 162 163 164 165 166 167 168 169 170 171 172 173 174 175
    176 177 178 179 180 181 182 183 184 185 186 187 188 189 190 191
    192 193 194 195 196 197 198 199 200 201 202 203 204 205 206 207
    208 209 210 211 212 213 214
}

/// Address of the thunk of `slot`; 0 if there is no such slot.
pub fn address(slot: usize) -> usize {
    ADDRESSES.get(slot).map_or(0, |of| of())
}
