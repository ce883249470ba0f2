//! Classes by instruction and kernel version.

use proptest::prelude::*;

use super::super::{Class, KernelVersion, Refusal, classify, dispatch_site};

const OLD: KernelVersion = KernelVersion::new(4, 14);
const V6_6: KernelVersion = KernelVersion::new(6, 6);
const V6_16: KernelVersion = KernelVersion::new(6, 16);
const V6_18: KernelVersion = KernelVersion::new(6, 18);
const V6_19: KernelVersion = KernelVersion::new(6, 19);
const V7_3: KernelVersion = KernelVersion::new(7, 3);

#[test]
fn versions() {
    for (text, version) in [
        ("6.18.44-1-amd64", Some(V6_18)),
        ("6.6", Some(V6_6)),
        ("4.14.336+", Some(OLD)),
        ("7", None),
        ("", None),
        ("x.y", None),
        ("99999999.1", None),
    ] {
        assert_eq!(KernelVersion::parse(text), version, "{text}");
    }
    assert!(KernelVersion::running().is_some());
    assert!(V6_18 > V6_6 && V7_3 > V6_19);
}

#[test]
fn classes() {
    use Class::{Emulated, Nop5, SingleStep};
    let emulated: &[&[u8]] = &[
        &[0x55],                   // push %rbp
        &[0x41, 0x57],             // push %r15
        &[0x54],                   // push %rsp
        &[0x90],                   // nop
        &[0xeb, 2],                // jmp
        &[0xe9, 0, 1, 0, 0],       // jmp
        &[0xf2, 0xe9, 0, 1, 0, 0], // bnd jmp
        &[0xe8, 0, 1, 0, 0],       // call
        &[0x74, 2],                // je
        &[0x0f, 0x84, 0, 1, 0, 0], // je
    ];
    let stepped: &[&[u8]] = &[
        &[0xf3, 0x0f, 0x1e, 0xfa], // endbr64
        &[0x48, 0x89, 0xe5],       // mov %rsp,%rbp
        &[0x48, 0x83, 0xec, 8],    // sub $8,%rsp
        &[0x6a, 1],                // push $1
        &[0xff, 0x30],             // push (%rax)
        &[0x5d],                   // pop %rbp: only push is emulated
        &[0x48, 0x55],             // push %rbp with a needless prefix
        &[0x66, 0x55],             // push %bp
        &[0xc3],                   // ret
        &[0xe3, 2],                // jrcxz
        &[0xff, 0xe0],             // jmp *%rax
        &[0x31, 0xc0],             // xor %eax,%eax
    ];
    for kernel in [V6_6, V6_16, V6_18, V6_19, V7_3] {
        for bytes in emulated {
            assert_eq!(classify(bytes, 0, kernel), Ok(Emulated), "{bytes:x?} {kernel}");
        }
        for bytes in stepped {
            assert_eq!(classify(bytes, 0, kernel), Ok(SingleStep), "{bytes:x?} {kernel}");
        }
    }
    assert_eq!(classify(&[0x55], 0, OLD), Ok(SingleStep));
    let nops: &[(&[u8], [Class; 5])] = &[
        // 6.6, 6.16, 6.18, 6.19, 7.3
        (&[0x66, 0x90], [Emulated; 5]),
        (&[0xf3, 0x90], [Emulated, Emulated, Emulated, SingleStep, SingleStep]),
        (&[0x0f, 0x1f, 0], [SingleStep, Emulated, Emulated, Emulated, Emulated]),
        (&[0x0f, 0x1f, 0x44, 0, 0], [SingleStep, Emulated, Nop5, Nop5, Emulated]),
        (&[0x66, 0x0f, 0x1f, 0x40, 0], [SingleStep, SingleStep, Nop5, Nop5, Emulated]),
        (&[0x66, 0x66, 0x66, 0x66, 0x90], [Emulated, Emulated, Nop5, Nop5, Emulated]),
        (
            &[0x66, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
            [SingleStep, Emulated, Emulated, Emulated, Emulated],
        ),
        (&[0x48, 0x89, 0xff], [SingleStep, SingleStep, SingleStep, Emulated, Emulated]),
        (&[0x48, 0x89, 0xf7], [SingleStep; 5]),
        (&[0x4c, 0x89, 0xff], [SingleStep; 5]),
    ];
    for (bytes, classes) in nops {
        for (kernel, class) in [V6_6, V6_16, V6_18, V6_19, V7_3].into_iter().zip(classes) {
            assert_eq!(classify(bytes, 0, kernel), Ok(*class), "{bytes:x?} {kernel}");
        }
    }
    // The kernel rewrites no nop that crosses a page.
    let nop5 = [0x0f, 0x1f, 0x44, 0, 0];
    assert_eq!(classify(&nop5, 0x1ffb, V6_18), Ok(Nop5));
    assert_eq!(classify(&nop5, 0x1ffc, V6_18), Ok(Emulated));
    assert!(Nop5 < Emulated && Emulated < SingleStep);
    assert!(Nop5.entry_ns() < Emulated.entry_ns() && SingleStep.entry_and_return_ns() > 16_000);
}

#[test]
fn refusals() {
    let cases: &[(&[u8], Refusal)] = &[
        (&[], Refusal::Invalid),
        (&[0x66], Refusal::Invalid),
        (&[0xf0, 0x48, 0xff, 0x00], Refusal::Prefix), // lock incq (%rax)
        (&[0x3e, 0xff, 0xe0], Refusal::Prefix),       // notrack jmp *%rax
        (&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], Refusal::Prefix), // long nop, cs
        (&[0xcc], Refusal::Opcode),
        (&[0xcd, 0x80], Refusal::Opcode),
        (&[0xf4], Refusal::Opcode),
        (&[0x0f, 0x05], Refusal::Opcode),              // syscall
        (&[0x0f, 0x0b], Refusal::Opcode),              // ud2
        (&[0x66, 0xe9, 0, 0], Refusal::Opcode),        // jmpw
        (&[0x8e, 0xd0], Refusal::Opcode),              // mov %eax,%ss
        (&[0xc5, 0xf8, 0x77], Refusal::Misread),       // vzeroupper: ja
        (&[0xc5, 0xfd, 0x7f, 0x07], Refusal::Misread), // vmovdqa %ymm0,(%rdi): jg
        (&[0x62, 0xf1, 0x7c, 0x48, 0x28, 0xc0], Refusal::Misread),
        (&[0x49, 0x90], Refusal::Misread), // xchg %r8,%rax
    ];
    for (bytes, refusal) in cases {
        assert_eq!(classify(bytes, 0, V6_18), Err(*refusal), "{bytes:x?}");
    }
    assert_eq!(classify(&[0x49, 0x90], 0, V6_19), Ok(Class::SingleStep));
}

proptest! {
    #[test]
    fn classify_takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..16), page: u64) {
        for kernel in [OLD, V6_6, V6_18, V6_19] {
            let _ = classify(&bytes, page, kernel);
        }
    }
}

#[test]
fn the_dispatch_site_is_cheap_on_every_kernel() {
    for (minor, offset, class) in [
        (1, 0, Class::Emulated),
        (12, 0, Class::Emulated),
        (16, 0, Class::Emulated),
        (18, 1, Class::Nop5),
        (19, 1, Class::Nop5),
    ] {
        assert_eq!(dispatch_site(0, KernelVersion::new(6, minor)), (offset, class), "6.{minor}");
    }
    assert_eq!(dispatch_site(0, KernelVersion::new(5, 15)), (0, Class::Emulated));
    assert_eq!(dispatch_site(0, KernelVersion::new(7, 3)), (0, Class::Emulated));
    // No call is written across pages.
    assert_eq!(dispatch_site(4092, KernelVersion::new(6, 18)), (0, Class::Emulated));
}
