// Where a new context begins (runtime/green/context.h): the switch jumps here
// with the stack pointer at the top of the new stack, the argument in the frame
// pointer, and the entry function in the second base register. This frame is
// the outermost: unwinders and debuggers stop here, and so do chains of frame
// pointers.

#if defined(__x86_64__)

        .text
        .globl  stillpoint_context_start
        .hidden stillpoint_context_start
        .type   stillpoint_context_start, @function
        .p2align 4
stillpoint_context_start:
        .cfi_startproc
        .cfi_undefined rip
        endbr64
        movq    %rbp, %rdi
        xorl    %ebp, %ebp
        callq   *%rbx
        callq   stillpoint_context_returned
        ud2
        .cfi_endproc
        .size   stillpoint_context_start, . - stillpoint_context_start

// No .note.gnu.property on purpose: the linker then does not mark the program
// as fit for shadow stacks, which contexts do not switch.

#elif defined(__aarch64__)

        .text
        .globl  stillpoint_context_start
        .hidden stillpoint_context_start
        .type   stillpoint_context_start, %function
        .p2align 4
stillpoint_context_start:
        .cfi_startproc
        .cfi_undefined x30
        hint    #36             // bti j
        mov     x0, x29
        mov     x29, xzr
        mov     x30, xzr
        blr     x19
        bl      stillpoint_context_returned
        brk     #1
        .cfi_endproc
        .size   stillpoint_context_start, . - stillpoint_context_start

#if defined(__ARM_FEATURE_BTI_DEFAULT)
// Fit for branch targets (BTI), and not for shadow stacks (GCS).
        .pushsection .note.gnu.property, "a"
        .p2align 3
        .word   4, 16, 5
        .asciz  "GNU"
        .word   0xc0000000, 4, 1, 0
        .popsection
#endif

#endif

        .section .note.GNU-stack, "", %progbits
