/* A tool in small: hands one of each to the plugin, and says what that returned. */
#include <roctracer/roctracer_plugin.h>
#include <roctracer/roctracer_roctx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* hsa_api_data_t begins so: what hsa_system_get_info(attribute, value) has. */
struct hsa_call {
  uint64_t correlation_id;
  uint32_t phase;
  uint64_t result;
  uint32_t attribute;
  void* value;
  char more[256];
};

static roctracer_record_t call(uint32_t domain, uint32_t op) {
  roctracer_record_t record;
  memset(&record, 0, sizeof record);
  record.domain = domain;
  record.op = op;
  record.begin_ns = 10;
  record.end_ns = 20;
  record.process_id = 7;
  record.thread_id = 8;
  return record;
}

static roctracer_record_t work(uint32_t domain, uint32_t op, uint32_t kind, uint64_t id,
                               const char* kernel) {
  roctracer_record_t record;
  memset(&record, 0, sizeof record);
  record.domain = domain;
  record.op = op;
  record.kind = kind;
  record.correlation_id = id;
  record.begin_ns = 100 + id;
  record.end_ns = 200 + id;
  record.device_id = 1;
  record.queue_id = 2;
  record.kernel_name = kernel;
  return record;
}

static void hand_over(void) {
  roctx_api_data_t mark = {{{"a \"mark\"\nof mine", 3}}};
  roctx_api_data_t pop = {{{NULL, 0}}};
  struct hsa_call hsa;
  memset(&hsa, 0, sizeof hsa);
  hsa.correlation_id = 77;
  hsa.phase = 1;
  hsa.result = 4097;
  hsa.attribute = 5;
  hsa.value = &hsa;
  roctracer_record_t record = call(ACTIVITY_DOMAIN_ROCTX, ROCTX_API_ID_roctxRangeStartA);
  printf("start %d\n", roctracer_plugin_write_callback_record(&record, &mark));
  record.op = ROCTX_API_ID_roctxRangePop;
  printf("pop %d\n", roctracer_plugin_write_callback_record(&record, &pop));
  record = call(ACTIVITY_DOMAIN_HSA_API, 2);
  printf("hsa %d\n", roctracer_plugin_write_callback_record(&record, &hsa));
  record.op = 1;
  printf("shut_down %d\n", roctracer_plugin_write_callback_record(&record, &hsa));
  record = call(ACTIVITY_DOMAIN_HSA_API, 100000);
  printf("no such call %d\n", roctracer_plugin_write_callback_record(&record, &hsa));
  printf("nothing %d\n", roctracer_plugin_write_callback_record(NULL, NULL));
  record = call(ACTIVITY_DOMAIN_HSA_EVT, 0);
  printf("event %d\n", roctracer_plugin_write_callback_record(&record, &hsa));

  roctracer_record_t records[] = {
      work(ACTIVITY_DOMAIN_HIP_OPS, 0, 0x11F0, 1, "_Z5shiftIfEvPT_i"),
      work(ACTIVITY_DOMAIN_HIP_OPS, 0, 0x11F0, 0, "of no call"),
      work(ACTIVITY_DOMAIN_HIP_OPS, 0, 0x11F0, 2, NULL),
      work(ACTIVITY_DOMAIN_HIP_OPS, 1, 0x11F4, 3, (const char*)4096),
      work(ACTIVITY_DOMAIN_HSA_OPS, 0, 0, 4, "of HSA"),
      work(ACTIVITY_DOMAIN_HSA_OPS, 1, 0, 5, (const char*)4096),
      work(ACTIVITY_DOMAIN_HSA_OPS, 0, 0, 6, "of HSA"),
  };
  const size_t count = sizeof records / sizeof records[0];
  printf("work %d\n", roctracer_plugin_write_activity_records(records, records + count));
  printf("no work %d\n", roctracer_plugin_write_activity_records(records, records));
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "";
  if (strcmp(mode, "early") == 0) {
    hand_over();
    return 0;
  }
  printf("major %d\n", roctracer_plugin_initialize(5, 0));
  printf("minor %d\n", roctracer_plugin_initialize(4, 0));
  printf("begin %d\n", roctracer_plugin_initialize(4, 2));
  if (strcmp(mode, "again") == 0) printf("again %d\n", roctracer_plugin_initialize(4, 1));
  if (strcmp(mode, "fork") == 0) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      hand_over();
      roctracer_plugin_finalize();
      exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) return 1;
  }
  hand_over();
  roctracer_plugin_finalize();
  roctracer_plugin_finalize();
  return 0;
}
