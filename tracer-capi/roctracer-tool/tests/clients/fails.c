/* A plugin that fails at everything. */
#include <roctracer/roctracer_plugin.h>

ROCTRACER_EXPORT int roctracer_plugin_initialize(uint32_t major, uint32_t minor) {
  return major == minor;
}
ROCTRACER_EXPORT void roctracer_plugin_finalize(void) {}
ROCTRACER_EXPORT int roctracer_plugin_write_callback_record(const roctracer_record_t* record,
                                                            const void* data) {
  return (const void*)record == data ? 0 : -1;
}
ROCTRACER_EXPORT int roctracer_plugin_write_activity_records(const roctracer_record_t* begin,
                                                             const roctracer_record_t* end) {
  return begin == end ? 0 : -1;
}
