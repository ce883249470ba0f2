/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The version of the interface. Source compatible with the header of the same name of rocprofiler-register 0.4. */

#ifndef ROCPROFILER_REGISTER_VERSION_H_
#define ROCPROFILER_REGISTER_VERSION_H_

#define ROCPROFILER_REGISTER_VERSION_MAJOR 0
#define ROCPROFILER_REGISTER_VERSION_MINOR 4
#define ROCPROFILER_REGISTER_VERSION_PATCH 0
#define ROCPROFILER_REGISTER_VERSION_STRING "0.4.0"

#endif /* ROCPROFILER_REGISTER_VERSION_H_ */
