/* Calls itself the HSA runtime. Its functions pass their calls on through a table whose entries lead
   outside, as if a tool had redirected them. Its constructor notes as whom it runs. With KNOWN_TABLES its
   tables are those of a release that roctap's shim knows. With SILENT its table is in that file, and with
   UNSERVED in memory whose page faults are sent to a descriptor that nobody reads. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *entries[128];
__attribute__((visibility("hidden"))) void **table;

__asm__(".globl hsa_init\n"
        ".type hsa_init, @function\n"
        "hsa_init:\n"
        "  mov table(%rip), %rax\n"
        "  jmp *0x10(%rax)\n"
        ".size hsa_init, . - hsa_init\n"
        ".globl hsa_amd_profiling_set_profiler_enabled\n"
        ".type hsa_amd_profiling_set_profiler_enabled, @function\n"
        "hsa_amd_profiling_set_profiler_enabled:\n"
        "  mov table(%rip), %rax\n"
        "  jmp *0x18(%rax)\n"
        ".size hsa_amd_profiling_set_profiler_enabled, . - hsa_amd_profiling_set_profiler_enabled\n");

#define TABLE_BYTES (1 << 20)

static void **silent(const char *path) {
    void *table = mmap(NULL, TABLE_BYTES, PROT_READ, MAP_PRIVATE, open(path, O_RDONLY), 0);
    if (table == MAP_FAILED) {
        perror(path);
        abort();
    }
    return table;
}

static void **unserved(void) {
    void *table = mmap(NULL, TABLE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register all = {.range = {(unsigned long)table, TABLE_BYTES},
                                  .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &all)) {
        perror("userfaultfd");
        abort();
    }
    return table;
}

__attribute__((constructor)) static void loaded(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/loaded-by-%d", DIRECTORY, (int)geteuid());
    close(open(path, O_WRONLY | O_CREAT, 0600));
    for (int i = 0; i < 128; i++) {
        entries[i] = (void *)getppid;
    }
#ifdef KNOWN_TABLES
    /* Its version: major 1, and its size. */
    entries[0] = (void *)(1 | (unsigned long)KNOWN_TABLES << 32);
#endif
    table = entries;
#ifdef SILENT
    table = silent(SILENT);
#endif
#ifdef UNSERVED
    table = unserved();
#endif
    (void)silent, (void)unserved;
}
