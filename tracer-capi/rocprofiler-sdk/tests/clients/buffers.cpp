// A program that is its own tool, and whose callbacks of buffers do as they like. What is recorded are marks.
#include <rocprofiler-sdk-roctx/roctx.h>
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "check.h"

#define DONE(call) CHECK((call) == ROCPROFILER_STATUS_SUCCESS)

// Marks go into the buffer of each context that is active.
struct Marks {
  rocprofiler_context_id_t context;
  rocprofiler_buffer_id_t buffer;
  // How many it has been given.
  std::atomic<int> count;
  // What is done in its callback.
  std::function<void()> act;
};

static Marks first, second;

static void take(rocprofiler_context_id_t context, rocprofiler_buffer_id_t buffer, rocprofiler_record_header_t**,
                 size_t count, void* data, uint64_t dropped) {
  auto* marks = static_cast<Marks*>(data);
  CHECK(context.handle == marks->context.handle && buffer.handle == marks->buffer.handle && dropped == 0);
  marks->count += static_cast<int>(count);
  if (marks->act) marks->act();
}

// Each has a thread of its own.
static void make(Marks& marks) {
  const auto kind = ROCPROFILER_BUFFER_TRACING_MARKER_CORE_API;
  rocprofiler_callback_thread_t thread = {0};
  DONE(rocprofiler_create_context(&marks.context));
  const auto policy = ROCPROFILER_BUFFER_POLICY_LOSSLESS;
  DONE(rocprofiler_create_buffer(marks.context, 4096, 4096, policy, take, &marks, &marks.buffer));
  DONE(rocprofiler_create_callback_thread(&thread));
  DONE(rocprofiler_assign_callback_thread(marks.buffer, thread));
  DONE(rocprofiler_configure_buffer_tracing_service(marks.context, kind, nullptr, 0, marks.buffer));
}

static rocprofiler_client_id_t* own;
static rocprofiler_client_finalize_t finalize_client;
static std::atomic<bool> is_finalized{false};

static int initialize(rocprofiler_client_finalize_t finalize, void*) {
  finalize_client = finalize;
  make(first);
  make(second);
  return 0;
}

// What is active when the tool is finalized may be stopped then.
static void finalize(void*) {
  for (auto* marks : {&first, &second}) {
    DONE(rocprofiler_stop_context(marks->context));
    CHECK(rocprofiler_stop_context(marks->context) == ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_FOUND);
  }
  is_finalized = true;
}

static rocprofiler_tool_configure_result_t* configure(uint32_t, const char*, uint32_t, rocprofiler_client_id_t* id) {
  id->name = "buffers";
  own = id;
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, nullptr};
  return &result;
}

// What is said on standard error meanwhile.
static std::string said(const std::function<void()>& act) {
  FILE* file = tmpfile();
  const int own = dup(STDERR_FILENO);
  CHECK(file != nullptr && own != -1 && dup2(fileno(file), STDERR_FILENO) == STDERR_FILENO);
  act();
  CHECK(dup2(own, STDERR_FILENO) == STDERR_FILENO && close(own) == 0);
  rewind(file);
  std::string text;
  for (int next; (next = fgetc(file)) != EOF;) text += static_cast<char>(next);
  fclose(file);
  return text;
}

static bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// The program goes on, and so does the buffer.
static void callbacks_may_throw() {
  DONE(rocprofiler_start_context(first.context));
  first.act = [] { throw std::runtime_error("taken"); };
  for (int times = 1; times <= 3; times++) {
    const std::string text = said([] {
      roctxMarkA("thrown away");
      DONE(rocprofiler_flush_buffer(first.buffer));
    });
    CHECK(first.count == times && has(text, "has thrown an exception: its 1 records count as delivered"));
  }
  static bool is_thrown = true;
  first.act = [] { is_thrown = std::uncaught_exception(); };
  roctxMarkA("taken");
  DONE(rocprofiler_flush_buffer(first.buffer));
  CHECK(first.count.exchange(0) == 4 && !is_thrown);
  first.act = nullptr;
  DONE(rocprofiler_stop_context(first.context));
}

// It is delivered then by its own thread.
static void callbacks_may_flush_other_buffers() {
  for (auto* marks : {&first, &second}) DONE(rocprofiler_start_context(marks->context));
  static std::atomic<int> there{-1};
  first.act = [] {
    DONE(rocprofiler_flush_buffer(second.buffer));
    there = second.count.load();
  };
  roctxMarkA("of both");
  DONE(rocprofiler_flush_buffer(first.buffer));
  CHECK(first.count.exchange(0) == 1 && there == 1 && second.count.exchange(0) == 1);
  first.act = nullptr;
  for (auto* marks : {&first, &second}) DONE(rocprofiler_stop_context(marks->context));
}

// What other threads deliver is delivered before; how much else there was is told.
static void callbacks_may_finalize() {
  for (auto* marks : {&first, &second}) DONE(rocprofiler_start_context(marks->context));
  static std::atomic<bool> is_called{false}, has_written{false};
  first.act = [] {
    is_called = true;
    while (!has_written) std::this_thread::yield();
    finalize_client(*own);
    CHECK(is_finalized);
  };
  const std::string text = said([] {
    roctxMarkA("of both");
    std::thread flushes([] { DONE(rocprofiler_flush_buffer(first.buffer)); });
    while (!is_called) std::this_thread::yield();
    for (int times = 0; times < 3; times++) roctxMarkA("of both");
    has_written = true;
    flushes.join();
    while (!is_finalized) std::this_thread::yield();
  });
  CHECK(first.count == 1 && second.count == 4);
  CHECK(has(text, "lost 3 records: their tool is finalized in a callback, which does not wait for the thread that was to deliver them"));
}

int main() {
  DONE(rocprofiler_force_configure(configure));
  callbacks_may_throw();
  callbacks_may_flush_other_buffers();
  callbacks_may_finalize();
  return 0;
}
