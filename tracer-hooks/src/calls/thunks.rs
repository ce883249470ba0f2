//! The functions that stand in the tables, one for each slot.
//!
//! They are made of one generic function for each number of stack words, so that registers and stack
//! hold at the original's entry what they held at theirs. Nothing of these APIs takes or returns floating point in
//! registers, but what `hip_functions::LEFT_OUT` names; structures are words in registers or on the stack. So
//! six integers and the stack words are all there is.

use core::sync::atomic::Ordering;

use tracer_common::slots::{SLOT_COUNT, function};

use super::open::{Open, SLOT_STATES};
use crate::state::STATE;

macro_rules! original {
    ($slot:ident, $($stack:ident)*) => {
        core::mem::transmute::<
            usize,
            unsafe extern "C-unwind" fn(u64, u64, u64, u64, u64, u64, $(word!($stack)),*) -> u64,
        >(SLOT_STATES[$slot].original.load(Ordering::Relaxed))
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
            if SLOT_STATES[SLOT].wanted.load(Ordering::Relaxed) != 0 && STATE.active() {
                // SAFETY: the application's own call.
                return unsafe { $recorded::<SLOT>(a, b, c, d, e, f, $($stack),*) };
            }
            // SAFETY: as in `recorded`.
            unsafe { original!(SLOT, $($stack)*)(a, b, c, d, e, f, $($stack),*) }
        }

        /// Apart, so that the thunk itself has no stack frame and ends in a jump either way: what is jumped to returns
        /// to the application, by which probes know that nobody here records the call.
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
thunk!(thunk_3, recorded_3, g h i);
thunk!(thunk_4, recorded_4, g h i j);
thunk!(thunk_5, recorded_5, g h i j k);
thunk!(thunk_7, recorded_7, g h i j k l m);
thunk!(thunk_8, recorded_8, g h i j k l m n);

/// Address of a slot's thunk, by its number of stack words.
fn of_slot<const SLOT: usize>() -> usize {
    match const { function(SLOT).stack_words } {
        0 => thunk_0::<SLOT> as *const () as usize,
        1 => thunk_1::<SLOT> as *const () as usize,
        2 => thunk_2::<SLOT> as *const () as usize,
        3 => thunk_3::<SLOT> as *const () as usize,
        4 => thunk_4::<SLOT> as *const () as usize,
        5 => thunk_5::<SLOT> as *const () as usize,
        7 => thunk_7::<SLOT> as *const () as usize,
        _ => thunk_8::<SLOT> as *const () as usize,
    }
}

const _: () = {
    let mut slot = 0;
    while slot < SLOT_COUNT {
        assert!(matches!(function(slot).stack_words, 0..=5 | 7 | 8));
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
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19
    20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
    40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59
    60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79
    80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99
    100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119
    120 121 122 123 124 125 126 127 128 129 130 131 132 133 134 135 136 137 138 139
    140 141 142 143 144 145 146 147 148 149 150 151 152 153 154 155 156 157 158 159
    160 161 162 163 164 165 166 167 168 169 170 171 172 173 174 175 176 177 178 179
    180 181 182 183 184 185 186 187 188 189 190 191 192 193 194 195 196 197 198 199
    200 201 202 203 204 205 206 207 208 209 210 211 212 213 214 215 216 217 218 219
    220 221 222 223 224 225 226 227 228 229 230 231 232 233 234 235 236 237 238 239
    240 241 242 243 244 245 246 247 248 249 250 251 252 253 254 255 256 257 258 259
    260 261 262 263 264 265 266 267 268 269 270 271 272 273 274 275 276 277 278 279
    280 281 282 283 284 285 286 287 288 289 290 291 292 293 294 295 296 297 298 299
    300 301 302 303 304 305 306 307 308 309 310 311 312 313 314 315 316 317 318 319
    320 321 322 323 324 325 326 327 328 329 330 331 332 333 334 335 336 337 338 339
    340 341 342 343 344 345 346 347 348 349 350 351 352 353 354 355 356 357 358 359
    360 361 362 363 364 365 366 367 368 369 370 371 372 373 374 375 376 377 378 379
    380 381 382 383 384 385 386 387 388 389 390 391 392 393 394 395 396 397 398 399
    400 401 402 403 404 405 406 407 408 409 410 411 412 413 414 415 416 417 418 419
    420 421 422 423 424 425 426 427 428 429 430 431 432 433 434 435 436 437 438 439
    440 441 442 443 444 445 446 447 448 449 450 451 452 453 454 455 456 457 458 459
    460 461 462 463 464 465 466 467 468 469 470 471 472 473 474 475 476 477 478 479
    480 481 482 483 484 485 486 487 488 489 490 491 492 493 494 495 496 497 498 499
    500 501 502 503 504 505 506 507 508 509 510 511 512 513 514 515 516 517 518 519
    520 521 522 523 524 525 526 527 528 529 530 531 532 533 534 535 536 537 538 539
    540 541 542 543 544 545 546 547 548 549 550 551 552 553 554 555 556 557 558 559
    560 561 562 563 564 565 566 567 568 569 570 571 572 573 574 575 576 577 578 579
    580 581 582 583 584 585 586 587 588 589 590 591 592 593 594 595 596 597 598 599
    600 601 602 603 604 605 606 607 608 609 610 611 612 613 614 615 616 617 618 619
    620 621 622 623 624 625 626 627 628 629 630 631 632 633 634 635 636 637 638 639
    640 641 642 643 644 645 646 647 648 649 650 651 652 653 654 655 656 657 658 659
    660 661 662 663 664 665 666 667 668 669 670 671 672 673 674 675 676 677 678 679
    680 681 682 683 684 685 686 687 688 689 690 691 692 693 694 695 696 697 698 699
    700 701 702 703 704 705 706 707 708 709 710 711 712 713 714 715 716 717 718 719
    720 721 722 723 724 725 726 727 728 729
}

/// Address of the thunk of `slot`; 0 if there is no such slot.
pub fn address(slot: usize) -> usize {
    ADDRESSES.get(slot).map_or(0, |of| of())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracer_common::calls::{Call, Wanted};
    use tracer_common::slots::HIP;

    use super::*;
    use crate::calls::open::SINK;
    use crate::calls::{self, CallSink};
    use crate::phase::Event;
    use crate::testing::alone;

    /// Six registers and eight words on the stack.
    type Function = unsafe extern "C-unwind" fn(
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
        u64,
    ) -> u64;

    static CALLED: Mutex<[u64; 14]> = Mutex::new([0; 14]);

    extern "C-unwind" fn original(
        a: u64,
        b: u64,
        c: u64,
        d: u64,
        e: u64,
        f: u64,
        g: u64,
        h: u64,
        i: u64,
        j: u64,
        k: u64,
        l: u64,
        m: u64,
        n: u64,
    ) -> u64 {
        *CALLED.lock().expect("not poisoned") = [a, b, c, d, e, f, g, h, i, j, k, l, m, n];
        a + 1
    }

    /// Calls, each with all of its words on the stack.
    struct CollectedCalls(Mutex<Vec<(Call, Vec<u64>)>>);

    static COLLECTED: CollectedCalls = CollectedCalls(Mutex::new(Vec::new()));

    impl CallSink for CollectedCalls {
        fn begins(&self, _: &mut Call, _: usize) -> calls::Detail {
            calls::Detail::All
        }

        fn entered(&self, call: &Call, stack: &[u64], _: usize) {
            self.0.lock().expect("not poisoned").push((*call, stack.to_vec()));
        }

        fn ends(&self, call: &Call, _: usize) {
            self.0.lock().expect("not poisoned").last_mut().expect("entered").0 = *call;
        }
    }

    /// Those of HSA are called in tests of their own, through tables.
    #[test]
    fn every_function_of_hip_gets_all_words_that_it_has() {
        let all_words = || {
            SINK.get_or_init(|| &COLLECTED);
            for event in [Event::Install, Event::Begin] {
                assert!(STATE.phase.apply(event).is_ok());
            }
            HIP.for_each(|slot| {
                SLOT_STATES[slot].original.store(original as *const () as usize, Ordering::Relaxed);
                jumps(slot);
                records(slot);
            });
        };
        alone("calls::thunks::tests::every_function_of_hip_gets_all_words_that_it_has", all_words);
    }

    /// A call that nobody wants.
    fn jumps(slot: usize) {
        call(slot);
        assert!(COLLECTED.0.lock().expect("not poisoned").is_empty(), "slot {slot}");
    }

    fn records(slot: usize) {
        let wanted = Wanted { operation: slot as u16, args: 6, stack_args: 3, ..Wanted::default() };
        SLOT_STATES[slot].wanted.store(wanted.to_word(), Ordering::Relaxed);
        let first = call(slot);
        let collected = core::mem::take(&mut *COLLECTED.0.lock().expect("not poisoned"));
        let [(call, stack)] = &collected[..] else { panic!("slot {slot}: {collected:?}") };
        assert_eq!((call.operation, call.ret), (slot as u16, first + 1));
        assert_eq!(call.args, [first, 2, 3, 4, 5, 6], "slot {slot}");
        let words = function(slot).stack_words;
        assert_eq!(stack[..], [7, 8, 9, 10, 11, 12, 13, 14][..words], "slot {slot}");
        assert!(call.begin_ns > 0 && call.end_ns >= call.begin_ns, "{call:?}");
    }

    /// Calls a thunk, whose original gets all of the function's words. Returns the first.
    fn call(slot: usize) -> u64 {
        *CALLED.lock().expect("not poisoned") = [0; 14];
        // SAFETY: a thunk, of which each passes on at least its own words; the caller has all of them.
        let thunk = unsafe { core::mem::transmute::<usize, Function>(address(slot)) };
        let first = slot as u64 + 100;
        // SAFETY: as above.
        let ret = unsafe { thunk(first, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14) };
        assert_eq!(ret, first + 1);
        let words = 6 + function(slot).stack_words;
        let expected = [first, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
        let called = *CALLED.lock().expect("not poisoned");
        assert_eq!(called[..words], expected[..words], "slot {slot}");
        first
    }
}

/// Threads that are cancelled.
#[cfg(test)]
mod cancelled {
    use core::ffi::{c_int, c_void};
    use core::mem::transmute;
    use core::ptr;
    use core::sync::atomic::AtomicBool;
    use std::sync::Mutex;

    use tracer_common::bpf::flag;
    use tracer_common::calls::{Call, Wanted};

    use super::*;
    use crate::calls::open::SINK;
    use crate::calls::{CallSink, Detail};
    use crate::phase::Event;
    use crate::sys;
    use crate::testing::alone;
    use crate::testing::cancelled::{
        ASYNCHRONOUS, CANCELED, DEFERRED, cancel, join, pthread_setcanceltype, pthread_testcancel,
        start,
    };

    const SLOT: usize = 0;

    /// Waits at the begin of a call until the thread has been cancelled, and keeps the ends.
    struct Waits {
        begins: AtomicBool,
        is_cancelled: AtomicBool,
        ends: Mutex<Vec<Call>>,
    }

    static WAITS: Waits = Waits {
        begins: AtomicBool::new(false),
        is_cancelled: AtomicBool::new(false),
        ends: Mutex::new(Vec::new()),
    };

    fn wait(flag: &AtomicBool) {
        while !flag.swap(false, Ordering::AcqRel) {
            core::hint::spin_loop();
        }
    }

    impl CallSink for Waits {
        fn begins(&self, _: &mut Call, _: usize) -> Detail {
            self.begins.store(true, Ordering::Release);
            wait(&self.is_cancelled);
            Detail::End
        }

        fn ends(&self, call: &Call, _: usize) {
            self.ends.lock().expect("not poisoned").push(*call);
        }
    }

    extern "C" fn original() -> u64 {
        7
    }

    /// Makes a call, and may be cancelled as its argument says.
    unsafe extern "C-unwind" fn run(kind: *mut c_void) -> *mut c_void {
        // SAFETY: nothing of this thread needs an end; the thunk takes any words.
        unsafe {
            pthread_setcanceltype(kind.addr() as c_int, ptr::null_mut());
            let thunk = transmute::<usize, unsafe extern "C-unwind" fn() -> u64>(address(SLOT));
            assert_eq!(thunk(), 7);
            pthread_testcancel();
        }
        ptr::null_mut()
    }

    /// It ends when it is out of our code: at once, if it may be cancelled at any instruction, or else at its next
    /// cancellation point.
    #[test]
    fn a_thread_that_is_cancelled_at_the_begin_of_a_call() {
        let test = || {
            SINK.get_or_init(|| &WAITS);
            for event in [Event::Install, Event::Begin] {
                assert!(STATE.phase.apply(event).is_ok());
            }
            SLOT_STATES[SLOT].original.store(original as *const () as usize, Ordering::Relaxed);
            let wanted = Wanted { args: 1, ..Wanted::default() };
            SLOT_STATES[SLOT].wanted.store(wanted.to_word(), Ordering::Relaxed);
            for is_known in [false, true] {
                if is_known {
                    sys::look_for_cancellation();
                }
                assert_eq!(sys::may_be_cancelled_anywhere(), !is_known);
                for kind in [DEFERRED, ASYNCHRONOUS] {
                    let thread = start(run, ptr::without_provenance_mut(kind as usize));
                    wait(&WAITS.begins);
                    cancel(thread);
                    WAITS.is_cancelled.store(true, Ordering::Release);
                    assert_eq!(join(thread), CANCELED);
                    let ends = core::mem::take(&mut *WAITS.ends.lock().expect("not poisoned"));
                    let [end] = ends[..] else { panic!("{ends:?}") };
                    let flags = if kind == ASYNCHRONOUS { flag::ENTRY_ONLY } else { 0 };
                    assert_eq!((end.flags, end.ret), (flags, if kind == DEFERRED { 7 } else { 0 }));
                }
            }
        };
        alone("calls::thunks::cancelled::a_thread_that_is_cancelled_at_the_begin_of_a_call", test);
    }
}
