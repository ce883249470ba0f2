/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What belongs to ACTIVITY_DOMAIN_HSA_API, ACTIVITY_DOMAIN_HSA_OPS and ACTIVITY_DOMAIN_HSA_EVT. Source and binary
 * compatible with the header of the same name of roctracer 4.1. */

#ifndef ROCTRACER_HSA_H_
#define ROCTRACER_HSA_H_

#include "roctracer.h"

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include "hsa_prof_str.h"

/* Operations of ACTIVITY_DOMAIN_HSA_OPS. */
typedef enum hsa_op_id_t {
  HSA_OP_ID_DISPATCH = 0,
  HSA_OP_ID_COPY = 1,
  HSA_OP_ID_BARRIER = 2,
  HSA_OP_ID_RESERVED1 = 3,
  HSA_OP_ID_NUMBER = 4
} hsa_op_id_t;

/* Operations of ACTIVITY_DOMAIN_HSA_EVT, each told once, to callbacks alone. AMD's library tells none of SUBMIT and
 * KSYMBOL, and neither does this one. */
typedef enum hsa_evt_id_t {
  HSA_EVT_ID_ALLOCATE = 0, /* memory is allocated, or given back */
  HSA_EVT_ID_DEVICE = 1,   /* a device may use memory */
  HSA_EVT_ID_MEMCOPY = 2,  /* memory is copied */
  HSA_EVT_ID_SUBMIT = 3,   /* a packet is submitted */
  HSA_EVT_ID_KSYMBOL = 4,  /* a kernel is loaded, or unloaded */
  HSA_EVT_ID_CODEOBJ = 5,  /* a code object is loaded, or unloaded */
  HSA_EVT_ID_NUMBER = 6
} hsa_evt_id_t;

/* Properties of ACTIVITY_DOMAIN_HSA_OPS; nothing takes them. */
struct hsa_ops_properties_t {
  void* reserved1[4];
};

/* What callbacks of ACTIVITY_DOMAIN_HSA_EVT get. */
__extension__ typedef struct {
  __extension__ union {
    struct {
      const void* ptr;
      size_t size; /* 0: it is given back */
      hsa_amd_segment_t segment;
      hsa_amd_memory_pool_global_flag_t global_flag;
      int is_code;
    } allocate;
    struct {
      hsa_device_type_t type;
      uint32_t id;
      hsa_agent_t agent;
      const void* ptr;
    } device;
    struct {
      const void* dst;
      const void* src;
      size_t size;
    } memcopy;
    struct {
      const void* packet;
      const char* kernel_name; /* NULL: it is no kernel */
      hsa_queue_t* queue;
      uint32_t device_type;
      uint32_t device_id;
    } submit;
    struct {
      uint64_t object;
      const char* name;
      uint32_t name_length;
      int unload;
    } ksymbol;
    struct {
      uint32_t storage_type;
      int storage_file;
      uint64_t memory_base;
      uint64_t memory_size;
      uint64_t load_base;
      uint64_t load_size;
      uint64_t load_delta;
      uint32_t uri_length; /* without the NUL */
      const char* uri;
      int unload;
    } codeobj;
  };
} hsa_evt_data_t;

#endif /* ROCTRACER_HSA_H_ */
