// A tool that writes down each record that it gets, to the file WATCH_OUT and the process's number behind it. The
// environment says what it asks for:
//   WATCH_KINDS      numbers of kinds, with commas between them
//   WATCH_CALLBACKS  the same of kinds that it is to be told of where they happen
//   WATCH_OPERATION  this one alone of each
//   WATCH_CALLS      its callbacks call HIP
//   WATCH_STOPS      the context is stopped in the callback of this number, and is not active from then on
//   WATCH_BYTES      of the buffer (64 KiB); WATCH_DISCARD: of which policy it is
//   WATCH_SLOW_US    how long its callback takes
//   WATCH_THREAD     the callback is called on a thread of its own
//   WATCH_ASKED      it is asked for external ids, and answers 1000 times the kind; with "no", that it has none;
//                    with "calls" it calls HSA before
//   WATCH_INTERNAL   it is told of threads that the library creates, and counts those that there are
//   WATCH_TABLES     it gets the tables of the runtimes, and puts functions of its own into those of HSA and of roctx
//   WATCH_ITSELF     it has itself configured while it is loaded
//   WATCH_END_US     how long it takes to be finalized, behind the line "finalizes"
//   WATCH_GO         the context is active while there is this file
// Arguments of calls are written down as the library has them as text. Work that a callback is told of is written down as a
// record of it would be, once it is done. What threads do belongs to the external id 77. STUCK makes of it a tool whose callback never returns, and which writes
// nothing down. BESIDE makes of it another tool, whose file has this in its name.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

#ifndef BESIDE
#define BESIDE ""
#endif

#define DONE(call) CHECK((call) == ROCPROFILER_STATUS_SUCCESS)

static FILE* out;
static useconds_t slow_us;
static rocprofiler_context_id_t context = {0};
static rocprofiler_buffer_id_t buffer = {0};

// The id of the call around one.
static uint64_t ancestor(const rocprofiler_correlation_id_t* id) {
#if ROCPROFILER_SDK_INTERFACE >= 1
  return id->ancestor;
#else
  (void)id;
  return 0;
#endif
}

static void call(const rocprofiler_buffer_tracing_hip_api_record_t* record) {
  CHECK(record->size == sizeof *record);
  fprintf(out, "call %u %d %lu %lu %lu %lu %lu %lu\n", record->kind, (int)record->operation,
          record->correlation_id.internal, ancestor(&record->correlation_id), record->correlation_id.external.value,
          record->thread_id, record->start_timestamp, record->end_timestamp);
}

#if ROCPROFILER_SDK_INTERFACE >= 1
static int recorded(rocprofiler_buffer_tracing_kind_t kind, rocprofiler_tracing_operation_t operation, uint32_t number,
                    const void* const place, int32_t indirections, const char* type, const char* name, const char* value,
                    void* data) {
  const rocprofiler_buffer_tracing_hip_api_ext_record_t* record = data;
  CHECK(kind == record->kind && operation == record->operation && indirections >= 0 && *type != 0);
  CHECK((const char*)place >= (const char*)&record->args && (const char*)place < (const char*)&record->retval);
  fprintf(out, "recorded %lu %u %s %s\n", record->correlation_id.internal, number, name, value);
  return 0;
}

// Written down as the same record without arguments would be.
static void call_with_arguments(rocprofiler_record_header_t header) {
  const rocprofiler_buffer_tracing_hip_api_ext_record_t* record = header.payload;
  CHECK(record->size == sizeof *record);
  rocprofiler_buffer_tracing_hip_api_record_t same;
  memcpy(&same, record, sizeof same);
  same.size = sizeof same;
  same.kind = record->kind == ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT ? ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API
                                                                             : ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API;
  call(&same);
  DONE(rocprofiler_iterate_buffer_tracing_record_args(header, recorded, header.payload));
  header.kind = same.kind;
  CHECK(rocprofiler_iterate_buffer_tracing_record_args(header, recorded, NULL) == ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED);
}
#endif

static void ran(uint64_t id, rocprofiler_user_data_t external, rocprofiler_thread_id_t thread, rocprofiler_timestamp_t begin,
                rocprofiler_timestamp_t end, const rocprofiler_kernel_dispatch_info_t* info) {
  CHECK(info->size == offsetof(rocprofiler_kernel_dispatch_info_t, reserved_padding));
  fprintf(out, "kernel %lu %lu %lu %lu %lu %lu %lu %lu %lu %u %u %u %u %u %u %u %u\n", id, external.value, thread,
          begin, end, info->agent_id.handle, info->queue_id.handle, info->kernel_id, info->dispatch_id, info->private_segment_size,
          info->group_segment_size, info->workgroup_size.x, info->workgroup_size.y, info->workgroup_size.z,
          info->grid_size.x, info->grid_size.y, info->grid_size.z);
}

static void kernel(const rocprofiler_buffer_tracing_kernel_dispatch_record_t* record) {
  CHECK(record->size == sizeof *record && record->operation == ROCPROFILER_KERNEL_DISPATCH_COMPLETE);
  ran(record->correlation_id.internal, record->correlation_id.external, record->thread_id, record->start_timestamp,
      record->end_timestamp, &record->dispatch_info);
}

static void copied(uint64_t id, rocprofiler_user_data_t external, rocprofiler_thread_id_t thread, int operation,
                   const rocprofiler_callback_tracing_memory_copy_data_t* copy) {
  uint64_t to = 0, from = 0;
#if ROCPROFILER_SDK_INTERFACE >= 1
  to = copy->dst_address.value;
  from = copy->src_address.value;
#endif
  fprintf(out, "copy %lu %lu %lu %lu %lu %d %lu %lu %lu %lu %lu\n", id, external.value, thread, copy->start_timestamp,
          copy->end_timestamp, operation, copy->dst_agent_id.handle, copy->src_agent_id.handle, copy->bytes, to, from);
}

static void copy(const rocprofiler_buffer_tracing_memory_copy_record_t* record) {
  CHECK(record->size == sizeof *record);
  rocprofiler_callback_tracing_memory_copy_data_t copy;
  copy.start_timestamp = record->start_timestamp;
  copy.end_timestamp = record->end_timestamp;
  copy.dst_agent_id = record->dst_agent_id;
  copy.src_agent_id = record->src_agent_id;
  copy.bytes = record->bytes;
#if ROCPROFILER_SDK_INTERFACE >= 1
  copy.dst_address = record->dst_address;
  copy.src_address = record->src_address;
#endif
  copied(record->correlation_id.internal, record->correlation_id.external, record->thread_id, (int)record->operation, &copy);
}

static void retirement(const rocprofiler_buffer_tracing_correlation_id_retirement_record_t* record) {
  CHECK(record->size == sizeof *record && record->kind == ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT);
  fprintf(out, "retired %lu %lu\n", record->internal_correlation_id, record->timestamp);
}

static unsigned long told;

static int argument(rocprofiler_callback_tracing_kind_t kind, rocprofiler_tracing_operation_t operation, uint32_t number,
                    const void* const place, int32_t indirections, const char* type, const char* name, const char* value,
                    int32_t followed, void* data) {
  const rocprofiler_callback_tracing_record_t* record = ((void**)data)[0];
  const uint64_t kept = ((rocprofiler_user_data_t*)((void**)data)[1])->value;
  CHECK(kind == record->kind && operation == record->operation && followed == 0 && indirections >= 0 && *type != 0);
  CHECK((const char*)place >= (const char*)record->payload + 8);
  fprintf(out, "argument %lu %u %s %s\n", kept, number, name, value);
  return 0;
}

// A code object, or a kernel of it.
static void loads(const rocprofiler_callback_tracing_record_t* record, rocprofiler_user_data_t* kept) {
  const int enters = record->phase == ROCPROFILER_CALLBACK_PHASE_LOAD;
  CHECK(enters || record->phase == ROCPROFILER_CALLBACK_PHASE_UNLOAD);
  CHECK(record->correlation_id.internal == 0 && enters == (kept->value == 0));
  const char* word = enters ? "load" : "unload";
  if (record->operation == ROCPROFILER_CODE_OBJECT_LOAD) {
    const rocprofiler_callback_tracing_code_object_load_data_t* object = record->payload;
    CHECK(object->size == sizeof *object && object->hsa_agent.handle != 0 && object->load_base != 0);
    CHECK(object->storage_type == ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_MEMORY
              ? object->memory_base != 0 && object->memory_size != 0
              : object->storage_type == ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_FILE);
    if (enters) kept->value = object->code_object_id;
    CHECK(kept->value == object->code_object_id);
    fprintf(out, "%s %lu %lu %lu %s\n", word, object->code_object_id, object->rocp_agent.handle, object->load_size,
            object->uri);
  } else {
    const rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t* kernel = record->payload;
    CHECK(record->operation == ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER);
    CHECK(kernel->size == sizeof *kernel && kernel->kernel_object != 0 && kernel->kernel_id != 0);
    if (enters) kept->value = kernel->kernel_id;
    CHECK(kept->value == kernel->kernel_id);
#if ROCPROFILER_SDK_INTERFACE >= 1
    // The memory of the emulated GPU is the host's.
    int64_t entry = 0;
    if (enters) memcpy(&entry, (const char*)kernel->kernel_object + 16, sizeof entry);
    const int is_known = kernel->kernel_code_entry_byte_offset != 0;
    CHECK(!enters || kernel->kernel_code_entry_byte_offset == entry || (!is_known && kernel->arch_vgpr_count == 0));
    CHECK(kernel->kernel_address.value ==
          (is_known ? kernel->kernel_object + (uint64_t)kernel->kernel_code_entry_byte_offset : 0));
#endif
    fprintf(out, "%s-kernel %lu %lu %u %u %s\n", word, kernel->kernel_id, kernel->code_object_id,
            kernel->arch_vgpr_count, kernel->kernarg_segment_alignment, kernel->kernel_name);
  }
}

// Work of a GPU, from when it is enqueued until it is done.
struct work {
  rocprofiler_callback_tracing_record_t record;
  int exits;
  union {
    rocprofiler_callback_tracing_kernel_dispatch_data_t kernel;
    rocprofiler_callback_tracing_memory_copy_data_t copy;
  } data;
};

static unsigned long enqueued, late, under_way;

// The same work, but for its times, of which one of both is told.
static void same(const struct work* before, const rocprofiler_callback_tracing_record_t* now, rocprofiler_timestamp_t* begin) {
  const int is_kernel = now->kind == ROCPROFILER_CALLBACK_TRACING_KERNEL_DISPATCH;
  const size_t bytes = is_kernel ? sizeof before->data.kernel : sizeof before->data.copy;
  CHECK(before->record.kind == now->kind && before->record.context_id.handle == now->context_id.handle);
  CHECK(before->record.thread_id == now->thread_id && before->record.correlation_id.internal == now->correlation_id.internal);
  // Size, begin and end.
  const size_t times = 3 * sizeof(uint64_t);
  CHECK(memcmp((const char*)&before->data + times, (const char*)now->payload + times, bytes - times) == 0);
  *begin = ((const uint64_t*)now->payload)[1];
}

static void works(const rocprofiler_callback_tracing_record_t* record, rocprofiler_user_data_t* kept) {
  const int is_kernel = record->kind == ROCPROFILER_CALLBACK_TRACING_KERNEL_DISPATCH;
  const uint64_t* data = record->payload;
  const size_t bytes = is_kernel ? sizeof(rocprofiler_callback_tracing_kernel_dispatch_data_t)
                                 : sizeof(rocprofiler_callback_tracing_memory_copy_data_t);
  CHECK(data[0] == bytes && record->correlation_id.internal != 0);
  const pid_t thread = (pid_t)syscall(SYS_gettid);
  struct work* before = kept->ptr;
  rocprofiler_timestamp_t begin = 0;
  if (record->phase == ROCPROFILER_CALLBACK_PHASE_ENTER) {
    CHECK(before == NULL && data[1] == 0 && data[2] == 0);
    // Found by a thread of the library: it is told when it is done.
    if (record->thread_id != (rocprofiler_thread_id_t)thread) __atomic_add_fetch(&late, 1, __ATOMIC_RELAXED);
    CHECK(!is_kernel || record->operation == ROCPROFILER_KERNEL_DISPATCH_ENQUEUE);
    struct work* now = calloc(1, sizeof *now);
    now->record = *record;
    memcpy(&now->data, data, bytes);
    kept->ptr = now;
    __atomic_add_fetch(&enqueued, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&under_way, 1, __ATOMIC_RELAXED);
    return;
  }
  if (before) same(before, record, &begin);
  if (is_kernel && record->phase == ROCPROFILER_CALLBACK_PHASE_EXIT) {
    CHECK(record->operation == ROCPROFILER_KERNEL_DISPATCH_ENQUEUE && begin == 0 && !before->exits);
    before->exits = 1;
    return;
  }
  CHECK(data[1] != 0 && data[1] <= data[2] && record->thread_id != (rocprofiler_thread_id_t)thread);
  if (before) {
    CHECK(before->exits == is_kernel);
    free(before);
    kept->ptr = NULL;
    __atomic_sub_fetch(&under_way, 1, __ATOMIC_RELAXED);
  }
  if (is_kernel) {
    CHECK(record->operation == ROCPROFILER_KERNEL_DISPATCH_COMPLETE && record->phase == ROCPROFILER_CALLBACK_PHASE_NONE);
    const rocprofiler_callback_tracing_kernel_dispatch_data_t* kernel = record->payload;
    ran(record->correlation_id.internal, record->correlation_id.external, record->thread_id, kernel->start_timestamp,
        kernel->end_timestamp, &kernel->dispatch_info);
  } else {
    CHECK(record->phase == ROCPROFILER_CALLBACK_PHASE_EXIT);
    copied(record->correlation_id.internal, record->correlation_id.external, record->thread_id, (int)record->operation,
           record->payload);
  }
}

// Scratch memory of a queue, as a record tells it, or callbacks.
static void scratch(const rocprofiler_buffer_tracing_scratch_memory_record_t* record) {
  uint64_t bytes = 0;
#if ROCPROFILER_SDK_INTERFACE >= 1
  bytes = record->allocation_size;
#endif
  CHECK(record->size == sizeof *record && record->start_timestamp != 0);
  CHECK(record->start_timestamp <= record->end_timestamp);
  fprintf(out, "scratch-record %d %lu %lu %lu %lu %lu %u %lu 0\n", (int)record->operation, record->correlation_id.internal,
          record->correlation_id.external.value, record->thread_id, record->agent_id.handle, record->queue_id.handle,
          record->flags, bytes);
}

static void scratch_told(const rocprofiler_callback_tracing_record_t* record, rocprofiler_user_data_t* kept) {
  const rocprofiler_callback_tracing_scratch_memory_data_t* data = record->payload;
  const int allocates = record->operation == ROCPROFILER_SCRATCH_MEMORY_ALLOC;
  const int exits = record->phase == ROCPROFILER_CALLBACK_PHASE_EXIT;
  CHECK(data->size == sizeof *data && sizeof *data == 56 && (exits || record->phase == ROCPROFILER_CALLBACK_PHASE_ENTER));
  CHECK((int)data->args_kind == 2 * (int)record->operation - 1 + exits);
  CHECK(record->thread_id == (rocprofiler_thread_id_t)syscall(SYS_gettid));
  const uint64_t told = 1 + record->operation + 10 * (allocates ? data->args.alloc_start.dispatch_id : 0);
  if (!exits) {
    CHECK(kept->value == 0);
    kept->value = told;
    return;
  }
  CHECK(kept->value == told);
  fprintf(out, "scratch-told %d %lu %lu %lu %lu %lu %u %lu %lu\n", (int)record->operation, record->correlation_id.internal,
          record->correlation_id.external.value, record->thread_id, data->agent_id.handle, data->queue_id.handle, data->flags,
          allocates ? data->args.alloc_end.size : 0, allocates ? data->args.alloc_end.dispatch_id : 0);
  CHECK(!allocates || data->args.alloc_end.num_slots != 0);
}

#if ROCPROFILER_SDK_INTERFACE >= 1
// A runtime has begun, on this thread, as a record tells it, or a callback.
static void runtime(const rocprofiler_buffer_tracing_runtime_initialization_record_t* record) {
  CHECK(record->size == sizeof *record && sizeof *record == 72 && record->timestamp != 0);
  CHECK(record->correlation_id.internal == 0 && record->correlation_id.external.value == 0);
  fprintf(out, "runtime-record %d %lu %lu\n", (int)record->operation, record->version, record->instance);
}

static void runtime_told(const rocprofiler_callback_tracing_record_t* record) {
  const rocprofiler_callback_tracing_runtime_initialization_data_t* data = record->payload;
  CHECK(data->size == sizeof *data && sizeof *data == 24 && record->phase == ROCPROFILER_CALLBACK_PHASE_NONE);
  CHECK(record->correlation_id.internal == 0 && record->thread_id == (rocprofiler_thread_id_t)syscall(SYS_gettid));
  fprintf(out, "runtime-told %d %lu %lu\n", (int)record->operation, data->version, data->instance);
}

// Memory that a call allocates, or gives back.
static void allocation(const rocprofiler_buffer_tracing_memory_allocation_record_t* record) {
  CHECK(record->size == sizeof *record && sizeof *record == 88 && record->correlation_id.internal != 0);
  fprintf(out, "allocation-record %d %lu %lu %lu %lu %lu %lu %lu %lu\n", (int)record->operation,
          record->correlation_id.internal, record->correlation_id.external.value, record->thread_id, record->start_timestamp,
          record->end_timestamp, record->agent_id.handle, record->address.value, record->allocation_size);
}

static void allocation_told(const rocprofiler_callback_tracing_record_t* record, rocprofiler_user_data_t* kept) {
  const rocprofiler_callback_tracing_memory_allocation_data_t* data = record->payload;
  const int allocates = record->operation <= ROCPROFILER_MEMORY_ALLOCATION_VMEM_ALLOCATE;
  CHECK(data->size == sizeof *data && sizeof *data == 48);
  CHECK(record->thread_id == (rocprofiler_thread_id_t)syscall(SYS_gettid));
  if (record->phase == ROCPROFILER_CALLBACK_PHASE_ENTER) {
    CHECK(kept->value == 0 && data->start_timestamp == 0 && data->end_timestamp == 0);
    CHECK(!allocates || data->address.value == 0);
    kept->value = record->correlation_id.internal;
    return;
  }
  CHECK(record->phase == ROCPROFILER_CALLBACK_PHASE_EXIT && kept->value == record->correlation_id.internal);
  fprintf(out, "allocation-told %d %lu %lu %lu %lu %lu %lu %lu %lu\n", (int)record->operation,
          record->correlation_id.internal, record->correlation_id.external.value, record->thread_id, data->start_timestamp,
          data->end_timestamp, data->agent_id.handle, data->address.value, data->allocation_size);
}

// The stream of a call: one that it uses is told before and behind it, one that it makes or destroys behind it.
static void stream(const rocprofiler_callback_tracing_record_t* record, rocprofiler_user_data_t* kept) {
  const rocprofiler_callback_tracing_hip_stream_data_t* data = record->payload;
  const uint64_t id = data->stream_id.handle;
  CHECK(data->size == sizeof *data && sizeof *data == 24 && record->correlation_id.internal == 0);
  CHECK(record->thread_id == (rocprofiler_thread_id_t)syscall(SYS_gettid));
  CHECK((id == 0) == (data->stream_value.value == 0));
  CHECK((record->operation == ROCPROFILER_HIP_STREAM_SET) == (record->phase != ROCPROFILER_CALLBACK_PHASE_NONE));
  if (record->phase == ROCPROFILER_CALLBACK_PHASE_EXIT) {
    CHECK(kept->value == 1 + id);
  } else {
    CHECK(kept->value == 0);
    kept->value = 1 + id;
  }
  fprintf(out, "stream %d %d %lu %lu %lu\n", (int)record->operation, (int)record->phase, record->thread_id, id,
          data->stream_value.value);
}
#endif

static void calls_hip(void) {
  int (*get)(int*), device = -1;
  *(void**)&get = dlsym(RTLD_DEFAULT, "hipGetDevice");
  CHECK(get != NULL && get(&device) == 0 && device == 0);
}

static void calls_hsa(void) {
  int (*get)(int, void*);
  uint16_t major = 0;
  *(void**)&get = dlsym(RTLD_DEFAULT, "hsa_system_get_info");
  CHECK(get != NULL && get(0, &major) == 0 && major == 1);
}

// It is finalized: nothing of it is called any more.
static int finalized;
// Callbacks that have not returned.
static int inside;
// The thread is asked for an external id.
static __thread int is_asked;

static void tell_one(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t* kept, void* data) {
#ifdef STUCK
  for (;;) pause();
#endif
  CHECK(record.context_id.handle == context.handle && data == &context);
  if (record.kind == ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT) {
    loads(&record, kept);
    return;
  }
  if (record.kind == ROCPROFILER_CALLBACK_TRACING_KERNEL_DISPATCH || record.kind == ROCPROFILER_CALLBACK_TRACING_MEMORY_COPY) {
    works(&record, kept);
    if (getenv("WATCH_CALLS")) calls_hip();
    return;
  }
  if (record.kind == ROCPROFILER_CALLBACK_TRACING_SCRATCH_MEMORY) {
    scratch_told(&record, kept);
    return;
  }
#if ROCPROFILER_SDK_INTERFACE >= 1
  if (record.kind == ROCPROFILER_CALLBACK_TRACING_HIP_STREAM) {
    stream(&record, kept);
    return;
  }
  if (record.kind == ROCPROFILER_CALLBACK_TRACING_MEMORY_ALLOCATION) {
    allocation_told(&record, kept);
    return;
  }
  if (record.kind == ROCPROFILER_CALLBACK_TRACING_RUNTIME_INITIALIZATION) {
    runtime_told(&record);
    return;
  }
#endif
  const int enters = record.phase == ROCPROFILER_CALLBACK_PHASE_ENTER;
  CHECK(enters || record.phase == ROCPROFILER_CALLBACK_PHASE_EXIT);
  CHECK(enters == (kept->value == 0));
  if (enters) kept->value = __atomic_add_fetch(&told, 1, __ATOMIC_RELAXED);
  uint64_t result = 0;
  if (record.kind <= ROCPROFILER_CALLBACK_TRACING_HSA_FINALIZE_EXT_API) {
    const rocprofiler_callback_tracing_hsa_api_data_t* call = record.payload;
    CHECK(call->size == sizeof *call);
    memcpy(&result, &call->retval, sizeof result);
  } else if (record.kind >= ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_API) {
    const rocprofiler_callback_tracing_marker_api_data_t* call = record.payload;
    CHECK(call->size == sizeof *call);
    memcpy(&result, &call->retval, sizeof result);
  } else {
    const rocprofiler_callback_tracing_hip_api_data_t* call = record.payload;
    CHECK(call->size == sizeof *call);
  }
  fprintf(out, "%s %u %d %lu %lu %lu %lu %lu %lu\n", enters ? "enter" : "exit", record.kind, (int)record.operation,
          record.correlation_id.internal, ancestor(&record.correlation_id), record.correlation_id.external.value,
          record.thread_id, kept->value, result);
  void* both[2] = {&record, kept};
  if (!enters) DONE(rocprofiler_iterate_callback_tracing_kind_operation_args(record, argument, 0, both));
  if (getenv("WATCH_CALLS")) calls_hip();
  const char* stops = getenv("WATCH_STOPS");
  if (stops && kept->value == strtoul(stops, NULL, 10) && enters) {
    DONE(rocprofiler_stop_context(context));
    fprintf(out, "stopped\n");
  }
}

static void tell(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t* kept, void* data) {
  __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
  CHECK(!__atomic_load_n(&finalized, __ATOMIC_SEQ_CST) && !is_asked);
  tell_one(record, kept, data);
  if (slow_us && getenv("WATCH_CALLBACKS")) usleep(slow_us);
  __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
}

static void take(rocprofiler_context_id_t of, rocprofiler_buffer_id_t id, rocprofiler_record_header_t** headers, size_t count,
                 void* data, uint64_t dropped) {
#ifdef STUCK
  for (;;) pause();
#endif
  CHECK(of.handle == context.handle && id.handle == buffer.handle && data == &buffer && !finalized);
  for (size_t at = 0; at < count; at++) {
    const rocprofiler_record_header_t* header = headers[at];
    CHECK(header->category == ROCPROFILER_BUFFER_CATEGORY_TRACING);
    switch (header->kind) {
      // They are alike.
      case ROCPROFILER_BUFFER_TRACING_HSA_CORE_API:
      case ROCPROFILER_BUFFER_TRACING_HSA_AMD_EXT_API:
      case ROCPROFILER_BUFFER_TRACING_HSA_IMAGE_EXT_API:
      case ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API:
      case ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API:
      case ROCPROFILER_BUFFER_TRACING_MARKER_CORE_API:
      case ROCPROFILER_BUFFER_TRACING_MARKER_CONTROL_API:
      case ROCPROFILER_BUFFER_TRACING_MARKER_NAME_API: call(header->payload); break;
      case ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH: kernel(header->payload); break;
      case ROCPROFILER_BUFFER_TRACING_MEMORY_COPY: copy(header->payload); break;
      case ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT: retirement(header->payload); break;
      case ROCPROFILER_BUFFER_TRACING_SCRATCH_MEMORY: scratch(header->payload); break;
#if ROCPROFILER_SDK_INTERFACE >= 1
      case ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT:
      case ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API_EXT: call_with_arguments(*header); break;
      case ROCPROFILER_BUFFER_TRACING_MARKER_CORE_RANGE_API: call(header->payload); break;
      case ROCPROFILER_BUFFER_TRACING_MEMORY_ALLOCATION: allocation(header->payload); break;
      case ROCPROFILER_BUFFER_TRACING_RUNTIME_INITIALIZATION: runtime(header->payload); break;
#endif
      default: fprintf(out, "wrong: kind %u\n", header->kind);
    }
  }
  fprintf(out, "dropped %lu\n", dropped);
  fflush(out);
  if (slow_us) usleep(slow_us);
}

static int ask(rocprofiler_thread_id_t thread, rocprofiler_context_id_t of, rocprofiler_external_correlation_id_request_kind_t kind,
               rocprofiler_tracing_operation_t operation, uint64_t id, rocprofiler_user_data_t* external, void* data) {
  CHECK(thread == (rocprofiler_thread_id_t)syscall(SYS_gettid) && of.handle == context.handle && data == &told);
  CHECK(id != 0 && operation >= 0 && !is_asked);
  if (strcmp(getenv("WATCH_ASKED"), "calls") == 0) {
    is_asked = 1;
    calls_hsa();
    is_asked = 0;
  }
  if (strcmp(getenv("WATCH_ASKED"), "no") == 0) return 1;
  external->value = 1000 * kind;
  return 0;
}

// Threads that the library was about to create, and has created.
static unsigned long creating, created;

static void creates(rocprofiler_runtime_library_t library, void* count) {
  CHECK(library == ROCPROFILER_LIBRARY && count == &creating);
  __atomic_add_fetch(&creating, 1, __ATOMIC_RELAXED);
}

static void has_created(rocprofiler_runtime_library_t library, void* count) {
  CHECK(library == ROCPROFILER_LIBRARY && count == &creating);
  __atomic_add_fetch(&created, 1, __ATOMIC_RELAXED);
}

// Threads of the process that have the library's name.
static unsigned long own_threads(void) {
  unsigned long count = 0;
  DIR* threads = opendir("/proc/self/task");
  CHECK(threads != NULL);
  for (struct dirent* thread; (thread = readdir(threads));) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", thread->d_name);
    FILE* file = fopen(path, "r");
    if (!file) continue;
    count += fgets(name, sizeof name, file) != NULL && strncmp(name, "rocprofiler", 11) == 0;
    fclose(file);
  }
  closedir(threads);
  return count;
}

// Calls of functions of its own in tables, and what they call.
static unsigned long of_agents, of_marks;
static uint32_t (*agent_get_info)(uint64_t, uint32_t, void*);
static void (*mark)(const char*);

static uint32_t counted_agent_get_info(uint64_t agent, uint32_t attribute, void* value) {
  __atomic_add_fetch(&of_agents, 1, __ATOMIC_RELAXED);
  return agent_get_info(agent, attribute, value);
}

static void counted_mark(const char* message) {
  __atomic_add_fetch(&of_marks, 1, __ATOMIC_RELAXED);
  mark(message);
}

static void table(rocprofiler_intercept_table_t type, uint64_t version, uint64_t instance, void** tables, uint64_t count,
                  void* data) {
  CHECK(count == 1 && tables[0] != NULL && data == &agent_get_info && instance == 0);
  fprintf(out, "table %d %lu\n", (int)type, version);
  if (type == ROCPROFILER_HSA_TABLE) {
    // Behind its version is the table of the core. There it is the seventh function behind another version.
    struct core {
      uint64_t version[2];
      void* functions[6];
      uint32_t (*agent_get_info)(uint64_t, uint32_t, void*);
    }* core = ((struct core**)tables[0])[2];
    agent_get_info = core->agent_get_info;
    core->agent_get_info = counted_agent_get_info;
  } else if (type == ROCPROFILER_MARKER_CORE_TABLE) {
    roctxCoreApiTable_t* core = tables[0];
    mark = core->roctxMarkA_fn;
    core->roctxMarkA_fn = counted_mark;
  }
}

// Starts and stops the context.
static void* turn(void* go) {
  for (int is_active = 0;; usleep(1000)) {
    if ((access((const char*)go, F_OK) == 0) == is_active) continue;
    is_active = !is_active;
    DONE(is_active ? rocprofiler_start_context(context) : rocprofiler_stop_context(context));
    if (is_active) {
      rocprofiler_timestamp_t now = 0;
      DONE(rocprofiler_get_timestamp(&now));
      fprintf(out, "started %lu\n", now);
      continue;
    }
    DONE(rocprofiler_flush_buffer(buffer));
    fprintf(out, "stopped\n");
    fflush(out);
  }
  return NULL;
}

static const char* word(const char* name, const char* otherwise) {
  const char* said = getenv(name);
  return said ? said : otherwise;
}

static int initialize(rocprofiler_client_finalize_t finalize, void* data) {
  (void)finalize, (void)data;
  const size_t bytes = strtoul(word("WATCH_BYTES", "65536"), NULL, 10);
  const rocprofiler_buffer_policy_t policy =
      getenv("WATCH_DISCARD") ? ROCPROFILER_BUFFER_POLICY_DISCARD : ROCPROFILER_BUFFER_POLICY_LOSSLESS;
  slow_us = (useconds_t)strtoul(word("WATCH_SLOW_US", "0"), NULL, 10);
  DONE(rocprofiler_create_context(&context));
  DONE(rocprofiler_create_buffer(context, bytes, bytes / 2, policy, take, &buffer, &buffer));
  if (getenv("WATCH_THREAD")) {
    rocprofiler_callback_thread_t thread;
    DONE(rocprofiler_create_callback_thread(&thread));
    DONE(rocprofiler_assign_callback_thread(buffer, thread));
  }
  const char* operation = getenv("WATCH_OPERATION");
  const rocprofiler_tracing_operation_t one = operation ? atoi(operation) : 0;
  char kinds[256];
  snprintf(kinds, sizeof kinds, "%s", word("WATCH_KINDS", "11,10"));
  for (char* kind = strtok(kinds, ","); kind; kind = strtok(NULL, ",")) {
    DONE(rocprofiler_configure_buffer_tracing_service(context, (rocprofiler_buffer_tracing_kind_t)atoi(kind), &one,
                                                      operation ? 1 : 0, buffer));
  }
  snprintf(kinds, sizeof kinds, "%s", word("WATCH_CALLBACKS", ""));
  for (char* kind = strtok(kinds, ","); kind; kind = strtok(NULL, ",")) {
    DONE(rocprofiler_configure_callback_tracing_service(context, (rocprofiler_callback_tracing_kind_t)atoi(kind), &one,
                                                        operation ? 1 : 0, tell, &context));
  }
  if (getenv("WATCH_ASKED")) {
    DONE(rocprofiler_configure_external_correlation_id_request_service(context, NULL, 0, ask, &told));
  }
  rocprofiler_user_data_t external;
  external.value = 77;
  DONE(rocprofiler_push_external_correlation_id(context, (rocprofiler_thread_id_t)getpid(), external));
  if (getenv("WATCH_GO")) {
    pthread_t turns;
    CHECK(pthread_create(&turns, NULL, turn, getenv("WATCH_GO")) == 0);
  } else {
    DONE(rocprofiler_start_context(context));
  }
  return 0;
}

static void finalize(void* data) {
  (void)data;
#ifndef STUCK
  CHECK(__atomic_load_n(&inside, __ATOMIC_SEQ_CST) == 0);
#endif
  __atomic_store_n(&finalized, 1, __ATOMIC_SEQ_CST);
  const char* us = getenv("WATCH_END_US");
  if (us) {
    fprintf(out, "finalizes\n");
    fflush(out);
    usleep((useconds_t)strtoul(us, NULL, 10));
  }
  // All of it has been delivered.
  CHECK(under_way == 0 || getenv("WATCH_OPERATION"));
  if (getenv("WATCH_INTERNAL")) fprintf(out, "threads %lu %lu %lu\n", creating, created, own_threads());
  if (getenv("WATCH_TABLES")) fprintf(out, "passed %lu %lu\n", of_agents, of_marks);
  if (enqueued) fprintf(out, "enqueued %lu %lu\n", enqueued, late);
  fprintf(out, "end\n");
  fflush(out);
}

rocprofiler_tool_configure_result_t* rocprofiler_configure(uint32_t version, const char* text, uint32_t priority,
                                                           rocprofiler_client_id_t* id) {
  (void)version, (void)text, (void)priority;
  id->name = "watches";
  finalized = 0;
  if (getenv("WATCH_INTERNAL")) {
    DONE(rocprofiler_at_internal_thread_create(creates, has_created, ROCPROFILER_LIBRARY, &creating));
  }
  if (getenv("WATCH_TABLES")) DONE(rocprofiler_at_intercept_table_registration(table, 0, &agent_get_info));
  char path[4096] = "/dev/null";
#ifndef STUCK
  snprintf(path, sizeof path, "%s" BESIDE ".%d", word("WATCH_OUT", path), getpid());
#endif
  out = fopen(path, "w");
  CHECK(out != NULL);
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, NULL};
  return &result;
}

__attribute__((constructor)) static void itself(void) {
  if (getenv("WATCH_ITSELF")) DONE(rocprofiler_force_configure(rocprofiler_configure));
}
