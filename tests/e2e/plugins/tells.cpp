// A plugin that tells on standard output what it is told and what it may do, for tests/plugins. Calls of HIP it
// writes as AMD's plugins do, by HIP's own header, which follows pointers.
//
// ROCP_TEST_WHERE names a function that does what ROCP_TEST_WHAT says: `error`, `crash` or `exit`.

#include <ostream>
#include <type_traits>

#include <hip/hip_runtime.h>

template <typename T, typename = std::enable_if_t<std::is_class<T>::value || std::is_union<T>::value>>
std::ostream& operator<<(std::ostream& out, const T&) {
  return out << "{}";
}
#define HIP_PROF_HIP_API_STRING 1
#include "roctracer_hip.h"
#include "roctracer_hsa.h"
#include "roctracer_plugin.h"
#include "roctracer_roctx.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

extern char** environ;

static int end_of(const char* function) {
  const char* where = getenv("ROCP_TEST_WHERE");
  const char* what = getenv("ROCP_TEST_WHAT");
  if (!where || !what || strcmp(where, function) != 0) return 0;
  if (strcmp(what, "crash") == 0) *(volatile int*)nullptr = 0;
  if (strcmp(what, "exit") == 0) exit(0);
  return -7;
}

// A line for each descriptor of a process, but for `own`.
static void tell_descriptors(const char* line, const char* process, int own) {
  char path[320], target[256];
  snprintf(path, sizeof path, "/proc/%s/fd", process);
  DIR* directory = opendir(path);
  if (own < 0 && directory) own = dirfd(directory);
  for (dirent* entry; directory && (entry = readdir(directory));) {
    if (entry->d_name[0] == '.' || atoi(entry->d_name) == own) continue;
    snprintf(path, sizeof path, "/proc/%s/fd/%s", process, entry->d_name);
    memset(target, 0, sizeof target);
    if (readlink(path, target, sizeof target - 1) > 0) printf("%s %s %s\n", line, entry->d_name, target);
  }
  if (directory) closedir(directory);
}

// What the process has that started this one, which the plugin can trace.
static void tell_parent() {
  char process[32], path[64], line[512] = {};
  snprintf(process, sizeof process, "%d", getppid());
  tell_descriptors("parents descriptor", process, 1 << 20);
  snprintf(path, sizeof path, "/proc/%s/stat", process);
  int terminal = -1;
  if (FILE* status = fopen(path, "r")) {
    if (fgets(line, sizeof line, status)) sscanf(strrchr(line, ')'), ") %*c %*d %*d %*d %d", &terminal);
    fclose(status);
  }
  printf("parents terminal %d\n", terminal);
}

static void tell_rights() {
  uid_t real, effective, saved;
  gid_t group, effective_group, saved_group;
  getresuid(&real, &effective, &saved);
  getresgid(&group, &effective_group, &saved_group);
  printf("users %u %u %u\n", real, effective, saved);
  printf("groups %u %u %u", group, effective_group, saved_group);
  gid_t groups[64];
  int count = getgroups(64, groups);
  for (int i = 0; i < count; i++) printf(" %u", groups[i]);
  printf("\nroot %d %d\n", setuid(0), setresuid(0, 0, 0));
  printf("no new rights %d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
  if (FILE* status = fopen("/proc/self/status", "r")) {
    char line[256];
    while (fgets(line, sizeof line, status))
      if (strncmp(line, "Cap", 3) == 0) printf("%s", line);
    fclose(status);
  }
  // Those of the trace and of the pipe to roctap are the only ones beside standard ones.
  tell_descriptors("descriptor", "self", -1);
  tell_parent();
  for (char** variable = environ; *variable; variable++) printf("variable %s\n", *variable);
  int terminal = open("/dev/tty", O_RDWR);
  printf("terminal %d\n", terminal >= 0);
}

__attribute__((constructor)) static void loaded() {
  if (const char* path = getenv("ROCP_TEST_LOADED")) fclose(fopen(path, "w"));
}

extern "C" int roctracer_plugin_initialize(uint32_t major, uint32_t minor) {
  const char* serves = getenv("ROCP_TEST_MAJOR");
  if (serves && (uint32_t)atoi(serves) != major) return -1;
  printf("begin %u.%u\n", major, minor);
  tell_rights();
  fflush(stdout);
  return end_of("initialize");
}

extern "C" void roctracer_plugin_finalize() {
  end_of("finalize");
  printf("end\n");
  fflush(stdout);
}

extern "C" int roctracer_plugin_write_callback_record(const roctracer_record_t* record, const void* data) {
  if (int status = end_of("write_callback_record")) return status;
  printf("call %u %u %" PRIu64 ":%" PRIu64 " %u:%u :%" PRIu64 " ", record->domain, record->op, record->begin_ns,
         record->end_ns, record->process_id, record->thread_id, record->correlation_id);
  if (record->domain == ACTIVITY_DOMAIN_HIP_API) {
    hip_api_data_t call = *static_cast<const hip_api_data_t*>(data);
    if (call.phase != ACTIVITY_API_PHASE_EXIT || call.correlation_id != record->correlation_id) abort();
    hipApiArgsInit((hip_api_id_t)record->op, &call);
    printf("%s kernel=%s\n", hipApiString((hip_api_id_t)record->op, &call),
           record->kernel_name ? record->kernel_name : "");
  } else if (record->domain == ACTIVITY_DOMAIN_HSA_API) {
    const hsa_api_data_t& call = *static_cast<const hsa_api_data_t*>(data);
    if (call.phase != ACTIVITY_API_PHASE_EXIT || call.correlation_id != record->correlation_id) abort();
    printf("\n");
  } else {
    const roctx_api_data_t& mark = *static_cast<const roctx_api_data_t*>(data);
    printf("%" PRIu64 ":%s\n", (uint64_t)mark.args.id, mark.args.message ? mark.args.message : "(null)");
  }
  return 0;
}

extern "C" int roctracer_plugin_write_activity_records(const roctracer_record_t* begin, const roctracer_record_t* end) {
  if (int status = end_of("write_activity_records")) return status;
  printf("batch %zu\n", (size_t)(end - begin));
  for (const roctracer_record_t* record = begin; record < end; record++) {
    printf("work %u %u %u %" PRIu64 ":%" PRIu64 " %d:%" PRIu64 " :%" PRIu64 " ", record->domain, record->op,
           record->kind, record->begin_ns, record->end_ns, record->device_id, record->queue_id,
           record->correlation_id);
    if (record->op == HIP_OP_ID_DISPATCH)
      printf("%s\n", record->kernel_name ? record->kernel_name : "(null)");
    else
      printf("%zu\n", record->bytes);
  }
  return 0;
}
