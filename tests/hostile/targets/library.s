# Two releases of a library. Where the function of the first begins, the second has a constant: who probes
# the second there, as if it were the first, changes what it returns.
        .text
        .globl  hsa_init
        .type   hsa_init, @function
        .balign 64
.ifdef FIRST
        nop
        nop
hsa_init:
        push    %rbx
        mov     $0x11111111, %eax
        pop     %rbx
        ret
        nop
        nop
.else
hsa_init:
        push    %rbx
        mov     $0x22222222, %eax
        pop     %rbx
        ret
.endif
        .size   hsa_init, . - hsa_init
        .section .note.GNU-stack, "", @progbits
