// Functions of services that are not served, called as a tool calls them: also as C++.
#include <rocprofiler-sdk/counters.h>
#include <rocprofiler-sdk/pc_sampling.h>
#include <rocprofiler-sdk/rccl.h>
#include <rocprofiler-sdk/rocprofiler.h>
#include <rocprofiler-sdk/spm.h>
#if ROCPROFILER_SDK_INTERFACE >= 1
#include <rocprofiler-sdk/counter_config.h>
#include <rocprofiler-sdk/deprecated/counters.h>
#include <rocprofiler-sdk/deprecated/profile_config.h>
#include <rocprofiler-sdk/device_counting_service.h>
#include <rocprofiler-sdk/dispatch_counting_service.h>
#include <rocprofiler-sdk/experimental/counters.h>
#else
#include <rocprofiler-sdk/agent_profile.h>
#include <rocprofiler-sdk/dispatch_profile.h>
#include <rocprofiler-sdk/profile_config.h>
#endif
#include <string.h>

#include "check.h"

#define IS_UNSERVED(call) CHECK((call) == ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED)

static rocprofiler_context_id_t context = {1};
static rocprofiler_buffer_id_t buffer = {1};
static rocprofiler_agent_id_t agent = {1};
static rocprofiler_counter_id_t counter = {1};

static rocprofiler_status_t take_dimensions(rocprofiler_counter_id_t id,
                                            const rocprofiler_record_dimension_info_t* dimensions, size_t count,
                                            void* data) {
  (void)id, (void)dimensions, (void)count, (void)data;
  CHECK(0 && "called");
  return ROCPROFILER_STATUS_SUCCESS;
}

static rocprofiler_status_t take_counters(rocprofiler_agent_id_t id, rocprofiler_counter_id_t* counters, size_t count,
                                          void* data) {
  (void)id, (void)counters, (void)count, (void)data;
  CHECK(0 && "called");
  return ROCPROFILER_STATUS_SUCCESS;
}

static rocprofiler_status_t take_configurations(const rocprofiler_pc_sampling_configuration_t* configurations, size_t count,
                                                void* data) {
  (void)configurations, (void)count, (void)data;
  CHECK(0 && "called");
  return ROCPROFILER_STATUS_SUCCESS;
}

static void ask_about_counters(void) {
  size_t number = 0;
  rocprofiler_counter_info_v0_t info;
  IS_UNSERVED(rocprofiler_iterate_agent_supported_counters(agent, take_counters, NULL));
  IS_UNSERVED(rocprofiler_iterate_counter_dimensions(counter, take_dimensions, NULL));
  IS_UNSERVED(rocprofiler_query_counter_info(counter, ROCPROFILER_COUNTER_INFO_VERSION_0, &info));
  IS_UNSERVED(rocprofiler_query_counter_instance_count(agent, counter, &number));
  IS_UNSERVED(rocprofiler_query_record_counter_id(1, &counter));
  IS_UNSERVED(rocprofiler_query_record_dimension_position(1, 0, &number));
}

#if ROCPROFILER_SDK_INTERFACE >= 1

static void choose_of_kernel(rocprofiler_dispatch_counting_service_data_t dispatch, rocprofiler_counter_config_id_t* chosen,
                             rocprofiler_user_data_t* kept, void* data) {
  (void)dispatch, (void)chosen, (void)kept, (void)data;
  CHECK(0 && "called");
}

static void take_values(rocprofiler_dispatch_counting_service_data_t dispatch, rocprofiler_counter_record_t* values,
                        size_t count, rocprofiler_user_data_t kept, void* data) {
  (void)dispatch, (void)values, (void)count, (void)kept, (void)data;
  CHECK(0 && "called");
}

static void choose_of_agent(rocprofiler_context_id_t of, rocprofiler_agent_id_t id,
                            rocprofiler_device_counting_agent_cb_t choose, void* data) {
  (void)of, (void)id, (void)choose, (void)data;
  CHECK(0 && "called");
}

static void count(void) {
  static const char definition[] = "schema-version: 1";
  const rocprofiler_user_data_t kept = {0};
  rocprofiler_counter_config_id_t config = {0};
  rocprofiler_counter_record_t values[4];
  rocprofiler_counter_info_v1_t info;
  size_t number = sizeof values / sizeof *values;
  IS_UNSERVED(rocprofiler_query_counter_info(counter, ROCPROFILER_COUNTER_INFO_VERSION_1, &info));
  IS_UNSERVED(rocprofiler_create_counter("two", 3, "1+1", 3, "Two", 3, agent, &counter));
  IS_UNSERVED(rocprofiler_load_counter_definition(definition, strlen(definition),
                                                  ROCPROFILER_COUNTER_FLAG_APPEND_DEFINITION));
  IS_UNSERVED(rocprofiler_create_counter_config(agent, &counter, 1, &config));
  IS_UNSERVED(rocprofiler_destroy_counter_config(config));
  // What 0.5 calls them.
  IS_UNSERVED(rocprofiler_create_profile_config(agent, &counter, 1, &config));
  IS_UNSERVED(rocprofiler_destroy_profile_config(config));
  IS_UNSERVED(rocprofiler_configure_buffer_dispatch_counting_service(context, buffer, choose_of_kernel, NULL));
  IS_UNSERVED(
      rocprofiler_configure_callback_dispatch_counting_service(context, choose_of_kernel, NULL, take_values, NULL));
  IS_UNSERVED(rocprofiler_configure_device_counting_service(context, buffer, agent, choose_of_agent, NULL));
  IS_UNSERVED(rocprofiler_sample_device_counting_service(context, kept, ROCPROFILER_COUNTER_FLAG_NONE, values, &number));
}

#else

static void choose_of_kernel(rocprofiler_profile_counting_dispatch_data_t dispatch, rocprofiler_profile_config_id_t* chosen,
                             rocprofiler_user_data_t* kept, void* data) {
  (void)dispatch, (void)chosen, (void)kept, (void)data;
  CHECK(0 && "called");
}

static void take_values(rocprofiler_profile_counting_dispatch_data_t dispatch, rocprofiler_record_counter_t* values,
                        size_t count, rocprofiler_user_data_t kept, void* data) {
  (void)dispatch, (void)values, (void)count, (void)kept, (void)data;
  CHECK(0 && "called");
}

static void choose_of_agent(rocprofiler_context_id_t of, rocprofiler_agent_id_t id,
                            rocprofiler_agent_set_profile_callback_t choose, void* data) {
  (void)of, (void)id, (void)choose, (void)data;
  CHECK(0 && "called");
}

static void count(void) {
  const rocprofiler_user_data_t kept = {0};
  rocprofiler_profile_config_id_t config = {0};
  IS_UNSERVED(rocprofiler_create_profile_config(agent, &counter, 1, &config));
  IS_UNSERVED(rocprofiler_destroy_profile_config(config));
  IS_UNSERVED(
      rocprofiler_configure_buffered_dispatch_profile_counting_service(context, buffer, choose_of_kernel, NULL));
  IS_UNSERVED(rocprofiler_configure_callback_dispatch_profile_counting_service(context, choose_of_kernel, NULL,
                                                                               take_values, NULL));
  IS_UNSERVED(rocprofiler_configure_agent_profile_counting_service(context, buffer, agent, choose_of_agent, NULL));
  IS_UNSERVED(rocprofiler_sample_agent_profile_counting_service(context, kept, ROCPROFILER_COUNTER_FLAG_ASYNC));
  IS_UNSERVED(rocprofiler_configure_spm_service(context, buffer, config, 1000));
}

#endif

static void sample(void) {
  const rocprofiler_pc_sampling_method_t method = ROCPROFILER_PC_SAMPLING_METHOD_HOST_TRAP;
  const rocprofiler_pc_sampling_unit_t unit = ROCPROFILER_PC_SAMPLING_UNIT_TIME;
  IS_UNSERVED(rocprofiler_query_pc_sampling_agent_configurations(agent, take_configurations, &agent));
#if ROCPROFILER_SDK_INTERFACE >= 1
  IS_UNSERVED(rocprofiler_configure_pc_sampling_service(context, agent, method, unit, 1000, buffer, 0));
#else
  IS_UNSERVED(rocprofiler_configure_pc_sampling_service(context, agent, method, unit, 1000, buffer));
#endif
}

int main(void) {
  ask_about_counters();
  count();
  sample();
  return 0;
}
