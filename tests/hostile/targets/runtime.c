/* Calls itself the HSA runtime. Its functions pass their calls on through a table whose entries lead
   outside, as if a tool had redirected them. Its constructor notes as whom it runs. With KNOWN_TABLES its
   tables are those of a release that roctap's shim knows. With SILENT its table is in that file, and with
   UNSERVED in memory whose page faults are sent to a descriptor that nobody reads. With SLOW a thread of
   its own answers them, each after a while: the table is spread over as many pages as it has functions. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *entries[128], *amd_entries[53];
__attribute__((visibility("hidden"))) void **table, **amd_table = amd_entries;

__asm__(".globl hsa_init\n"
        ".type hsa_init, @function\n"
        "hsa_init:\n"
        "  mov table(%rip), %rax\n"
        "  jmp *0x10(%rax)\n"
        ".size hsa_init, . - hsa_init\n"
        ".globl hsa_shut_down\n"
        ".type hsa_shut_down, @function\n"
        "hsa_shut_down:\n"
        "  mov table(%rip), %rax\n"
        "  jmp *0x18(%rax)\n"
        ".size hsa_shut_down, . - hsa_shut_down\n"
        ".globl hsa_amd_profiling_set_profiler_enabled\n"
        ".type hsa_amd_profiling_set_profiler_enabled, @function\n"
        "hsa_amd_profiling_set_profiler_enabled:\n"
        "  mov amd_table(%rip), %rax\n"
        "  jmp *0x20(%rax)\n"
        ".size hsa_amd_profiling_set_profiler_enabled, . - hsa_amd_profiling_set_profiler_enabled\n");

#ifdef SLOW
#define STUB(name, page)                                                                           \
    __asm__(".globl " name "\n"                                                                   \
            ".type " name ", @function\n" name ":\n"                                             \
            "  mov table(%rip), %rax\n"                                                           \
            "  jmp *0x10+" page "*0x1000(%rax)\n"                                                 \
            ".size " name ", . - " name "\n")
STUB("hsa_iterate_agents", "1");
STUB("hsa_agent_get_info", "2");
STUB("hsa_queue_create", "3");
STUB("hsa_soft_queue_create", "4");
STUB("hsa_queue_destroy", "5");
STUB("hsa_queue_inactivate", "6");
STUB("hsa_signal_create", "7");
STUB("hsa_signal_destroy", "8");
STUB("hsa_memory_register", "9");
STUB("hsa_memory_deregister", "10");
STUB("hsa_memory_allocate", "11");
STUB("hsa_memory_free", "12");
STUB("hsa_memory_copy", "13");
STUB("hsa_system_get_info", "14");
STUB("hsa_agent_iterate_regions", "15");
STUB("hsa_region_get_info", "16");
#endif

#define PAGE_BYTES 4096
#define TABLE_BYTES (1 << 20)
/* Less than roctap waits for one answer. */
#define ANSWER_AFTER_US 400000

static void **silent(const char *path) {
    void *table = mmap(NULL, TABLE_BYTES, PROT_READ, MAP_PRIVATE, open(path, O_RDONLY), 0);
    if (table == MAP_FAILED) {
        perror(path);
        abort();
    }
    return table;
}

static void *answer(void *descriptor) {
    int faults = (long)descriptor;
    struct uffd_msg fault;
    while (read(faults, &fault, sizeof fault) == sizeof fault) {
        struct uffdio_zeropage page = {
            .range = {fault.arg.pagefault.address & -PAGE_BYTES, PAGE_BYTES}};
        usleep(ANSWER_AFTER_US);
        ioctl(faults, UFFDIO_ZEROPAGE, &page);
    }
    return NULL;
}

static void **without_pages(int is_slow) {
    /* With room before it: who reads the end of a stack is not to read what stands behind. */
    void *room = mmap(NULL, 2 * TABLE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *table = (char *)room + TABLE_BYTES;
    if (room == MAP_FAILED || mprotect(table, TABLE_BYTES, PROT_READ)) {
        perror("mmap");
        abort();
    }
    int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register all = {.range = {(unsigned long)table, TABLE_BYTES},
                                  .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &all)) {
        perror("userfaultfd");
        abort();
    }
    pthread_t thread;
    if (is_slow && pthread_create(&thread, NULL, answer, (void *)(long)faults)) {
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
    for (int i = 0; i < 53; i++) {
        amd_entries[i] = (void *)getppid;
    }
#ifdef KNOWN_TABLES
    /* Their versions: major 1, and the size. */
    entries[0] = (void *)(1 | 1016ul << 32);
    amd_entries[0] = (void *)(1 | 424ul << 32);
#endif
    table = entries;
#ifdef SILENT
    table = silent(SILENT);
#endif
#ifdef UNSERVED
    table = without_pages(0);
#endif
#ifdef SLOW
    table = without_pages(1);
#endif
    (void)silent, (void)without_pages;
}
