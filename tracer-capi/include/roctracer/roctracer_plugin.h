/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What a plugin of roctracer's tool exports: a library that writes what was traced in a format of its own. Source
 * and binary compatible with the header of the same name of roctracer 4.1, by whose specification the sections
 * are numbered.
 *
 * The tool calls these functions one at a time, and tells things in no particular order. */

#ifndef ROCTRACER_PLUGIN_H_
#define ROCTRACER_PLUGIN_H_

#include "roctracer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Called first, with the version of roctracer that the tool uses (3.8). Returns 0, or -1 if the plugin does not
 * serve it: if the major version is not that which the plugin was built with. The specification says, or if the minor
 * version is higher; AMD's plugins, and ours, take that, and refuse one that is lower. */
ROCTRACER_EXPORT int roctracer_plugin_initialize(uint32_t roctracer_major_version,
                                                 uint32_t roctracer_minor_version);

/* Called last, when everything has been told. */
ROCTRACER_EXPORT void roctracer_plugin_finalize(void);

/* Takes a call, with the data of its domain (3.9). Returns 0, or -1 on an error. */
ROCTRACER_EXPORT int roctracer_plugin_write_callback_record(const roctracer_record_t* record,
                                                            const void* callback_data);

/* Takes the records from `begin` to before `end`. Returns 0, or -1 on an error. */
ROCTRACER_EXPORT int roctracer_plugin_write_activity_records(const roctracer_record_t* begin,
                                                             const roctracer_record_t* end);

#ifdef __cplusplus
}
#endif

#endif /* ROCTRACER_PLUGIN_H_ */
