// A tool that says what is done with it. NAME is what it calls itself.
#define _GNU_SOURCE
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void say(const char* text) {
  printf("%s\n", text);
  fflush(stdout);
}

#ifndef NO_TOOL
// As tools do, by the pointer that they were given.
static rocprofiler_client_id_t* own;

static void take(rocprofiler_context_id_t context, rocprofiler_buffer_id_t buffer, rocprofiler_record_header_t** headers,
                 size_t count, void* data, uint64_t dropped) {
  (void)context, (void)buffer, (void)headers, (void)count, (void)data, (void)dropped;
  CHECK(!"nothing is recorded");
}

static rocprofiler_context_id_t context = {0};

#ifdef FINALIZES_BESIDE
// What a thread of the tool's has begun takes time, and needs what is destroyed when the process exits.
static rocprofiler_client_finalize_t finalize_itself;
static volatile int is_finalized;

static void* beside(void* unused) {
  int stage = 0;
  while (stage != 1) CHECK(rocprofiler_is_initialized(&stage) == ROCPROFILER_STATUS_SUCCESS);
  finalize_itself(*own);
  return unused;
}

__attribute__((destructor)) static void destroyed(void) { CHECK(is_finalized); }
#endif

static int initialize(rocprofiler_client_finalize_t finalize, void* data) {
  CHECK(data == (void*)NAME);
  int stage = 7;
  CHECK(rocprofiler_is_initialized(&stage) == ROCPROFILER_STATUS_SUCCESS && stage == -1);
  say("initialize " NAME);
  CHECK(rocprofiler_create_context(&context) == ROCPROFILER_STATUS_SUCCESS);
  rocprofiler_buffer_id_t buffer = {0};
  CHECK(rocprofiler_create_buffer(context, 4096, 4096, ROCPROFILER_BUFFER_POLICY_LOSSLESS, take, NULL, &buffer) ==
        ROCPROFILER_STATUS_SUCCESS);
  CHECK(rocprofiler_start_context(context) == ROCPROFILER_STATUS_SUCCESS);
#if defined FINALIZES_ITSELF
  finalize(*own);
  finalize(*own);
#elif defined FINALIZES_BESIDE
  finalize_itself = finalize;
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, beside, NULL) && !pthread_detach(thread));
#else
  (void)finalize;
#endif
#ifdef FORKS
  pid_t child = fork();
  if (child == 0) exit(0);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
#endif
  return 0;
}

static void finalize(void* data) {
  CHECK(data == (void*)NAME);
  int active = 7;
  CHECK(rocprofiler_context_is_active(context, &active) == ROCPROFILER_STATUS_SUCCESS && active == 0);
#ifdef FINALIZES_BESIDE
  usleep(500000);
  is_finalized = 1;
#endif
  say("finalize " NAME);
}

rocprofiler_tool_configure_result_t* rocprofiler_configure(uint32_t version, const char* text, uint32_t priority,
                                                           rocprofiler_client_id_t* id) {
  printf("configure " NAME ", version %u (%s), %u before it\n", version, text, priority);
  fflush(stdout);
  CHECK(id != NULL && id->name == NULL);
  id->name = NAME;
  own = id;
#ifdef INACTIVE
  (void)initialize, (void)finalize;
  return NULL;
#else
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, (void*)NAME};
#ifdef OLD
  result.size = 8;
#endif
  return &result;
#endif
}
#else
void nothing(void) { say(NAME); }
#endif
