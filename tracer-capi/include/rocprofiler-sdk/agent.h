/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Agents: CPUs and GPUs, as the driver's topology tells of them. Source and binary compatible with the header of the
 * same name of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_AGENT_H_
#define ROCPROFILER_SDK_AGENT_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

/* Types of the driver's library. Where its headers are not installed they have numbers alone. */
#if defined(__has_include)
#if __has_include(<hsakmt/hsakmttypes.h>)
#include <hsakmt/hsakmttypes.h>
#define ROCPROFILER_SDK_HAS_HSAKMT_ 1
#elif __has_include(<hsakmttypes.h>)
#include <hsakmttypes.h>
#define ROCPROFILER_SDK_HAS_HSAKMT_ 1
#endif
#endif

ROCPROFILER_EXTERN_C_INIT

#ifndef ROCPROFILER_SDK_HAS_HSAKMT_
typedef union { uint32_t Value; } HsaCacheType;
typedef union { uint32_t Value; } HSA_ENGINE_ID;
typedef union { uint32_t Value; } HSA_ENGINE_VERSION;
typedef union { uint32_t Value; } HSA_CAPABILITY;
typedef union { uint32_t LinkProperty; } HSA_LINKPROPERTY;
typedef union { uint32_t MemoryProperty; } HSA_MEMORYPROPERTY;
typedef uint32_t HSA_HEAPTYPE;
typedef uint32_t HSA_IOLINKTYPE;
#endif

typedef enum rocprofiler_agent_version_t {
  ROCPROFILER_AGENT_INFO_VERSION_NONE = 0,
  ROCPROFILER_AGENT_INFO_VERSION_0 = 1,
  ROCPROFILER_AGENT_INFO_VERSION_LAST
} rocprofiler_agent_version_t;

/* A cache. */
typedef struct rocprofiler_agent_cache_t {
  uint64_t processor_id_low;
  /* Bytes, or KiB, as the driver has it. */
  uint64_t size;
  uint32_t level;
  /* Bytes. */
  uint32_t cache_line_size;
  uint32_t cache_lines_per_tag;
  uint32_t association;
  /* ns. */
  uint32_t latency;
  HsaCacheType type;
} rocprofiler_agent_cache_t;

/* A link to another node. */
typedef struct rocprofiler_agent_io_link_t {
  HSA_IOLINKTYPE type;
  uint32_t version_major;
  uint32_t version_minor;
  /* Numbers of nodes. */
  uint32_t node_from;
  uint32_t node_to;
  uint32_t weight;
  /* ns. */
  uint32_t min_latency;
  uint32_t max_latency;
  /* MB/s. */
  uint32_t min_bandwidth;
  uint32_t max_bandwidth;
  /* Bytes. */
  uint32_t recommended_transfer_size;
  HSA_LINKPROPERTY flags;
} rocprofiler_agent_io_link_t;

/* A bank of memory. */
typedef struct rocprofiler_agent_mem_bank_t {
  HSA_HEAPTYPE heap_type;
  HSA_MEMORYPROPERTY flags;
  /* Bits. */
  uint32_t width;
  /* MHz. */
  uint32_t mem_clk_max;
  uint64_t size_in_bytes;
} rocprofiler_agent_mem_bank_t;

/* An agent. What the driver does not tell is 0, or an empty text. Names as those of the driver's properties are what
 * these say. Agents, and what they point at, stay to the end of the process. */
#if ROCPROFILER_SDK_INTERFACE >= 1
typedef struct {
  uint32_t hsa : 1;
  uint32_t hip : 1;
  uint32_t rccl : 1;
  uint32_t rocdecode : 1;
  uint32_t reserved : 28;
} rocprofiler_agent_runtime_visiblity_t;
#endif

typedef struct rocprofiler_agent_v0_t {
  /* Bytes of this structure. */
  uint64_t size;
  rocprofiler_agent_id_t id;
  rocprofiler_agent_type_t type;
  uint32_t cpu_cores_count;
  uint32_t simd_count;
  uint32_t mem_banks_count;
  uint32_t caches_count;
  uint32_t io_links_count;
  uint32_t cpu_core_id_base;
  uint32_t simd_id_base;
  uint32_t max_waves_per_simd;
  uint32_t lds_size_in_kb;
  uint32_t gds_size_in_kb;
  uint32_t num_gws;
  uint32_t wave_front_size;
  /* 1 where the driver says nothing. */
  uint32_t num_xcc;
  /* SIMDs by those of a compute unit; of a CPU its cores. */
  uint32_t cu_count;
  uint32_t array_count;
  /* Arrays by those of an engine. */
  uint32_t num_shader_banks;
  uint32_t simd_arrays_per_engine;
  uint32_t cu_per_simd_array;
  uint32_t simd_per_cu;
  uint32_t max_slots_scratch_cu;
  /* 10000 times the major version, 100 times the minor one, and the stepping. */
  uint32_t gfx_target_version;
  uint16_t vendor_id;
  uint16_t device_id;
  uint32_t location_id;
  uint32_t domain;
  uint32_t drm_render_minor;
  uint32_t num_sdma_engines;
  uint32_t num_sdma_xgmi_engines;
  uint32_t num_sdma_queues_per_engine;
  uint32_t num_cp_queues;
  /* MHz. */
  uint32_t max_engine_clk_ccompute;
  uint32_t max_engine_clk_fcompute;
  HSA_ENGINE_VERSION sdma_fw_version;
  HSA_ENGINE_ID fw_version;
  HSA_CAPABILITY capability;
  /* Compute units by shader engines. */
  uint32_t cu_per_engine;
  uint32_t max_waves_per_cu;
  uint32_t family_id;
  /* Work-items, as the HSA runtime has them of every GPU. */
  uint32_t workgroup_max_size;
  uint32_t grid_max_size;
  uint64_t local_mem_size;
  uint64_t hive_id;
  uint64_t gpu_id;
  rocprofiler_dim3_t workgroup_max_dim;
  rocprofiler_dim3_t grid_max_dim;
  const rocprofiler_agent_mem_bank_t* mem_banks;
  const rocprofiler_agent_cache_t* caches;
  const rocprofiler_agent_io_link_t* io_links;
  /* Such as gfx90a; of a CPU its model. */
  const char* name;
  const char* vendor_name;
  /* As the GPU has it in its memory for that, else its name. */
  const char* product_name;
  /* The driver's name of a GPU. */
  const char* model_name;
  /* The driver's number of the node. */
  uint32_t node_id;
  /* Its number among those that can be read, from 0 on. */
  int32_t logical_node_id;
  /* The same among those of its type. */
  int32_t logical_node_type_id;
#if ROCPROFILER_SDK_INTERFACE >= 1
  /* Which runtimes have it: as if no variable hid GPUs from them. */
  rocprofiler_agent_runtime_visiblity_t runtime_visibility;
  /* Of a GPU: the number that the driver gives it for good, and zeros. */
  rocprofiler_uuid_t uuid;
#else
  int32_t reserved_padding0;
#endif
} rocprofiler_agent_v0_t;

typedef rocprofiler_agent_v0_t rocprofiler_agent_t;

/* Takes so many pointers to agents. */
typedef rocprofiler_status_t (*rocprofiler_query_available_agents_cb_t)(rocprofiler_agent_version_t version,
                                                                        const void** agents, size_t num_agents,
                                                                        void* user_data);

/* Calls a function with all agents, once, and returns what that returns. There are none where there is no driver.
 * INVALID_ARGUMENT for a version that is not known, INCOMPATIBLE_ABI if `agent_size` is larger than an agent. */
rocprofiler_status_t rocprofiler_query_available_agents(rocprofiler_agent_version_t version,
                                                        rocprofiler_query_available_agents_cb_t callback,
                                                        size_t agent_size, void* user_data) ROCPROFILER_API
    ROCPROFILER_NONNULL(2);

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_AGENT_H_ */
