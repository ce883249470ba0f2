/* A plugin of another version. */
#include <roctracer/roctracer_plugin.h>

ROCTRACER_EXPORT int roctracer_plugin_initialize(uint32_t major, uint32_t minor) {
  return (int)(major + minor) > 0 ? -1 : 0;
}
ROCTRACER_EXPORT void roctracer_plugin_finalize(void) {}
ROCTRACER_EXPORT int roctracer_plugin_write_callback_record(const roctracer_record_t* record,
                                                            const void* data) {
  return record == data;
}
ROCTRACER_EXPORT int roctracer_plugin_write_activity_records(const roctracer_record_t* begin,
                                                             const roctracer_record_t* end) {
  return begin == end;
}
