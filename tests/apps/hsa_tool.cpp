// A tool as HSA_TOOLS_LIB names it, which puts functions of its own into the runtime's table:
//   wrapped_signal_create, wrapped_signal_destroy   count what they pass on
//   hsa_signal_wait_scacquire                       a jump, where no cheap probe can be
//   hsa_system_get_info                             code in anonymous memory
// With HSA_TOOL_UNKNOWN set it leaves them alone and makes the extension table one of an unknown release,
// which is shorter than any that is known. (A longer one is accepted where the runtime's code bears it out.)
#define AMD_INTERNAL_BUILD
#include <hsa/hsa_api_trace.h>
#include <stdlib.h>
#include <sys/mman.h>

static decltype(hsa_signal_create)* create;
static decltype(hsa_signal_destroy)* destroy;
extern "C" {
decltype(hsa_signal_wait_scacquire)* wait_behind;
unsigned long passed_on;

hsa_status_t wrapped_signal_create(hsa_signal_value_t initial, uint32_t count, const hsa_agent_t* agents,
                                   hsa_signal_t* signal) {
  hsa_status_t status = create(initial, count, agents, signal);
  // The argument is needed behind the call: the function begins with a push.
  if (status == HSA_STATUS_SUCCESS && signal->handle) __atomic_fetch_add(&passed_on, 1, __ATOMIC_RELAXED);
  return status;
}

hsa_status_t wrapped_signal_destroy(hsa_signal_t signal) {
  hsa_status_t status = destroy(signal);
  if (signal.handle) __atomic_fetch_add(&passed_on, 1, __ATOMIC_RELAXED);
  return status;
}

__attribute__((naked)) void wrapped_signal_wait() {
  asm("mov wait_behind@GOTPCREL(%rip), %rax; jmp *(%rax)");
}

// Code that jumps to `behind`: movabs behind, %rax; jmp *%rax.
static void* anonymous(void* behind) {
  unsigned char code[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
  memcpy(code + 2, &behind, sizeof behind);
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  memcpy(page, code, sizeof code);
  return mprotect(page, 4096, PROT_READ | PROT_EXEC) ? nullptr : page;
}

bool OnLoad(HsaApiTable* table, uint64_t, uint64_t, const char* const*) {
  if (getenv("HSA_TOOL_UNKNOWN")) {
    table->amd_ext_->version.minor_id = 64;
    return true;
  }
  CoreApiTable* core = table->core_;
  void* page = anonymous((void*)core->hsa_system_get_info_fn);
  if (!page) return false;
  create = core->hsa_signal_create_fn;
  destroy = core->hsa_signal_destroy_fn;
  wait_behind = core->hsa_signal_wait_scacquire_fn;
  core->hsa_signal_create_fn = wrapped_signal_create;
  core->hsa_signal_destroy_fn = wrapped_signal_destroy;
  core->hsa_signal_wait_scacquire_fn = (decltype(wait_behind))wrapped_signal_wait;
  core->hsa_system_get_info_fn = (decltype(hsa_system_get_info)*)page;
  return true;
}

void OnUnload() {}
}
