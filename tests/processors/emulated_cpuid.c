/* Preloaded into a program (LD_PRELOAD): the processor seems to have AVX2, but neither AVX-512 nor VNNI, BF16 or AMX.

Linux lets the instruction CPUID fault, where the processor can, and the handler answers without these features. All
libraries of the program then choose the kernels that they have for such processors, which run at full speed. */

#define _GNU_SOURCE
#include <asm/prctl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define FLAG(bit) (1u << (bit))

static long let_fault(int fault) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, !fault); }

static void answer(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)registers[REG_RIP];
    unsigned leaf = registers[REG_RAX], part = registers[REG_RCX], a = leaf, b, c = part, d;
    (void)info;
    if (code[0] != 0x0f || code[1] != 0xa2) { /* another fault: it ends the program when it is repeated */
        signal(number, SIG_DFL);
        return;
    }
    let_fault(0);
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    let_fault(1);
    if (leaf == 7 && part == 0) {
        /* AVX-512: F, DQ, IFMA, PF, ER, CD, BW, VL; VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ; 4VNNIW, 4FMAPS, VP2INTERSECT */
        b &= ~(FLAG(16) | FLAG(17) | FLAG(21) | FLAG(26) | FLAG(27) | FLAG(28) | FLAG(30) | FLAG(31));
        c &= ~(FLAG(1) | FLAG(6) | FLAG(11) | FLAG(12) | FLAG(14));
        d &= ~(FLAG(2) | FLAG(3) | FLAG(8) | FLAG(22) | FLAG(23) | FLAG(24) | FLAG(25)); /* FP16; AMX: BF16, TILE, INT8 */
    }
    if (leaf == 7 && part == 1) {
        a &= ~(FLAG(4) | FLAG(5) | FLAG(21) | FLAG(23)); /* AVX-VNNI, AVX-512 BF16, AMX-FP16, AVX-IFMA */
        d = 0;                                           /* AVX-VNNI-INT8 and later ones */
    }
    registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void start(void) {
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, 0);
    if (let_fault(1))
        _exit(3); /* the processor, or the virtual machine, cannot */
}
