// The HSA runtime alone, in C: queues, AQL packets, signals and copies by hand.
//   hsa_direct [parts] [n] [times]
// Parts, each run with n packets (200 when not given); all of them when none are given:
//   s  a signal of its own for each dispatch      n  no signals but on the last
//   r  one signal, used again and again           a  barrier-AND packets between dispatches
//   b  batches of packets with one doorbell       p  four producers on one queue
//   q  queues created and destroyed               c  asynchronous copies, there and back
// Only when given:
//   m  dispatches on a queue of their own that want ever more scratch memory, each 256 bytes for a work-item more, and
//      one that wants none: it runs when the memory of the last one was given back, if that was for it alone
//   w  prints "waiting", and waits for nothing, n ms long
//   z  prints "ready <pid>", and sleeps until SIGTERM comes
//   i  hsa_init and hsa_shut_down while a dispatch runs, as a library does that pairs them
//   o  shuts the runtime down for good, begins anew, and goes on with the parts that follow
//   e  exits without hsa_shut_down while dispatches run; a destructor waits for them
// With "times", each time that the runtime gives for a dispatch or a copy is printed as a line
// "time dispatch|copy <start ns> <end ns>".
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct counter {
  const char* label;
  long number;
  int listed;
  struct counter* next;
};
static struct counter* counters;
static pthread_mutex_t counters_lock = PTHREAD_MUTEX_INITIALIZER;

static void count(struct counter* c, long more) {
  if (!__atomic_load_n(&c->listed, __ATOMIC_ACQUIRE)) {
    pthread_mutex_lock(&counters_lock);
    if (!c->listed) {
      c->next = counters;
      counters = c;
      __atomic_store_n(&c->listed, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&counters_lock);
  }
  __atomic_fetch_add(&c->number, more, __ATOMIC_RELAXED);
}

#define COUNT(text, more)                      \
  do {                                         \
    static struct counter c_ = {text, 0, 0, 0}; \
    count(&c_, more);                          \
  } while (0)
// Calls a function of the runtime and counts it.
#define CALL(function, ...) ({ COUNT("count " #function, 1); function(__VA_ARGS__); })
#define OK(function, ...)                                                              \
  do {                                                                                 \
    hsa_status_t s_ = CALL(function, __VA_ARGS__);                                     \
    if (s_ != HSA_STATUS_SUCCESS) fail(#function " at line %d: %#x", __LINE__, s_);    \
  } while (0)

static char failure[256];
static void fail(const char* format, ...) {
  va_list args;
  va_start(args, format);
  if (!failure[0]) vsnprintf(failure, sizeof failure, format, args);
  va_end(args);
}
#define EXPECT(condition, ...) do { if (!(condition)) fail(__VA_ARGS__); } while (0)

static hsa_agent_t cpu, gpu;
static hsa_amd_memory_pool_t host_pool, kernarg_pool, device_pool;
static uint64_t kernel_one, kernel_two, frequency;
static uint32_t *value, **kernarg;

// What the emulated GPU runs in the kernels' place.
void emugpu_direct_one(void* const* args, const uint32_t* grid, const uint32_t* group) {
  __atomic_fetch_add((uint32_t*)args[0], 1, __ATOMIC_RELAXED);
}
void emugpu_direct_two(void* const* args, const uint32_t* grid, const uint32_t* group) {
  __atomic_fetch_add((uint32_t*)args[0], 1000, __ATOMIC_RELAXED);
}

static hsa_status_t on_agent(hsa_agent_t agent, void* unused) {
  hsa_device_type_t type;
  OK(hsa_agent_get_info, agent, HSA_AGENT_INFO_DEVICE, &type);
  if (type == HSA_DEVICE_TYPE_CPU && !cpu.handle) cpu = agent;
  if (type == HSA_DEVICE_TYPE_GPU && !gpu.handle) gpu = agent;
  return HSA_STATUS_SUCCESS;
}

static hsa_status_t on_pool(hsa_amd_memory_pool_t pool, void* of_gpu) {
  hsa_amd_segment_t segment;
  uint32_t flags = 0;
  OK(hsa_amd_memory_pool_get_info, pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment);
  if (segment != HSA_AMD_SEGMENT_GLOBAL) return HSA_STATUS_SUCCESS;
  OK(hsa_amd_memory_pool_get_info, pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags);
  if (of_gpu) device_pool = pool;
  else if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT) kernarg_pool = pool;
  else host_pool = pool;
  return HSA_STATUS_SUCCESS;
}

static void* allocate(hsa_amd_memory_pool_t pool, size_t bytes) {
  void* p = NULL;
  OK(hsa_amd_memory_pool_allocate, pool, bytes, 0, &p);
  hsa_agent_t both[] = {cpu, gpu};
  if (pool.handle != device_pool.handle) OK(hsa_amd_agents_allow_access, 2, both, NULL, p);
  return p;
}

static uint64_t kernel(hsa_executable_t executable, const char* name) {
  hsa_executable_symbol_t symbol;
  uint64_t object = 0;
  OK(hsa_executable_get_symbol_by_name, executable, name, &gpu, &symbol);
  OK(hsa_executable_symbol_get_info, symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &object);
  return object;
}

// Loads hsa_kernels.<target>.co from the program's directory.
static int load(const char* program) {
  char name[64] = "", path[4096];
  OK(hsa_agent_get_info, gpu, HSA_AGENT_INFO_NAME, name);
  const char* slash = strrchr(program, '/');
  snprintf(path, sizeof path, "%.*shsa_kernels.%s.co", slash ? (int)(slash + 1 - program) : 0, program, name);
  int file = open(path, O_RDONLY);
  if (file < 0) return fail("cannot open %s", path), 0;
  hsa_code_object_reader_t reader;
  hsa_executable_t executable;
  OK(hsa_code_object_reader_create_from_file, file, &reader);
  OK(hsa_executable_create_alt, HSA_PROFILE_BASE, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, NULL, &executable);
  OK(hsa_executable_load_agent_code_object, executable, gpu, reader, NULL, NULL);
  OK(hsa_executable_freeze, executable, NULL);
  if (failure[0]) return 0;
  kernel_one = kernel(executable, "direct_one.kd");
  kernel_two = kernel(executable, "direct_two.kd");
  return !failure[0];
}

static hsa_queue_t* make_queue(uint32_t packets) {
  hsa_queue_t* queue = NULL;
  OK(hsa_queue_create, gpu, packets, HSA_QUEUE_TYPE_MULTI, NULL, NULL, UINT32_MAX, UINT32_MAX, &queue);
  if (queue) OK(hsa_amd_profiling_set_profiler_enabled, queue, 1);
  return queue;
}

static hsa_signal_t make_signal(hsa_signal_value_t initial) {
  hsa_signal_t signal = {0};
  OK(hsa_signal_create, initial, 0, NULL, &signal);
  return signal;
}

static void wait_for(hsa_signal_t signal, hsa_signal_value_t below, const char* what) {
  hsa_signal_value_t v = CALL(hsa_signal_wait_scacquire, signal, HSA_SIGNAL_CONDITION_LT, below,
                              20 * frequency, HSA_WAIT_STATE_BLOCKED);
  EXPECT(v == below - 1, "%s: the signal is %ld", what, (long)v);
}

// Reserves a slot, waiting for room in the ring.
static uint64_t reserve(hsa_queue_t* q) {
  uint64_t index = CALL(hsa_queue_add_write_index_scacq_screl, q, 1);
  while (index - CALL(hsa_queue_load_read_index_scacquire, q) >= q->size) sched_yield();
  return index;
}

static void publish(hsa_queue_t* q, uint64_t index, const void* packet, uint16_t header) {
  char* slot = (char*)q->base_address + index % q->size * 64;
  memcpy(slot + 4, (const char*)packet + 4, 60);
  uint32_t first = header | (uint32_t)((const uint16_t*)packet)[1] << 16;
  __atomic_store_n((uint32_t*)slot, first, __ATOMIC_RELEASE);
}

static uint16_t header(int type, int barrier) {
  return type | barrier << HSA_PACKET_HEADER_BARRIER | HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
         HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
}

static uint64_t put_dispatch_with(uint32_t scratch, hsa_queue_t* q, int two, int barrier, hsa_signal_t signal) {
  hsa_kernel_dispatch_packet_t p = {0};
  p.private_segment_size = scratch;
  p.setup = 1;
  p.workgroup_size_x = 64;
  p.workgroup_size_y = p.workgroup_size_z = p.grid_size_y = p.grid_size_z = 1;
  p.grid_size_x = 64;
  p.kernel_object = two ? kernel_two : kernel_one;
  p.kernarg_address = kernarg;
  p.completion_signal = signal;
  if (two) COUNT("launches direct_two", 1); else COUNT("launches direct_one", 1);
  uint64_t index = reserve(q);
  publish(q, index, &p, header(HSA_PACKET_TYPE_KERNEL_DISPATCH, barrier));
  return index;
}

static uint64_t put_dispatch(hsa_queue_t* q, int two, int barrier, hsa_signal_t signal) {
  return put_dispatch_with(0, q, two, barrier, signal);
}

static uint64_t put_barrier(hsa_queue_t* q, const hsa_signal_t* deps, int n, hsa_signal_t signal) {
  hsa_barrier_and_packet_t p = {0};
  for (int i = 0; i < n; i++) p.dep_signal[i] = deps[i];
  p.completion_signal = signal;
  COUNT("barriers", 1);
  uint64_t index = reserve(q);
  publish(q, index, &p, header(HSA_PACKET_TYPE_BARRIER_AND, 0));
  return index;
}

static void ring(hsa_queue_t* q, uint64_t index) {
  CALL(hsa_signal_store_screlease, q->doorbell_signal, index);
}

static int print_times;

static void check_times(hsa_signal_t signal, uint64_t from) {
  hsa_amd_profiling_dispatch_time_t t = {0, 0};
  uint64_t to = 0;
  OK(hsa_amd_profiling_get_dispatch_time, gpu, signal, &t);
  OK(hsa_system_get_info, HSA_SYSTEM_INFO_TIMESTAMP, &to);
  // The two clocks are related to within a microsecond or so.
  EXPECT(t.start + 5000 >= from && t.start <= t.end && t.end <= to + 5000,
         "times %lu to %lu are not within %lu to %lu", t.start, t.end, from, to);
  if (print_times) printf("time dispatch %lu %lu\n", t.start, t.end);
}

static hsa_signal_t none;

static volatile sig_atomic_t stop;
static void on_term(int signal) { stop = 1; }

static void part_signals(hsa_queue_t* q, long n) {
  for (long i = 0; i < n && !stop; i++) {
    uint64_t from = 0;
    OK(hsa_system_get_info, HSA_SYSTEM_INFO_TIMESTAMP, &from);
    hsa_signal_t s = make_signal(1);
    ring(q, put_dispatch(q, 0, i & 1, s));
    wait_for(s, 1, "own signal");
    check_times(s, from);
    OK(hsa_signal_destroy, s);
  }
}

static void part_no_signals(hsa_queue_t* q, long n) {
  hsa_signal_t s = make_signal(1);
  for (long i = 0; i < n; i++) ring(q, put_dispatch(q, 1, 1, i == n - 1 ? s : none));
  wait_for(s, 1, "last signal");
  OK(hsa_signal_destroy, s);
}

static void part_reused(hsa_queue_t* q, long n) {
  hsa_signal_t s = make_signal(0);
  for (long i = 0; i < n; i++) {
    CALL(hsa_signal_store_relaxed, s, 3);
    for (int k = 0; k < 3; k++) ring(q, put_dispatch(q, 0, k == 2, s));
    wait_for(s, 1, "reused signal");
  }
  OK(hsa_signal_destroy, s);
}

static void part_barriers(hsa_queue_t* q, long n) {
  hsa_queue_t* other = make_queue(1024);
  hsa_signal_t by_host = make_signal(1), last = make_signal(n);
  for (long i = 0; i < n; i++) {
    // A barrier on this queue waits for a dispatch on the other one and for the host.
    hsa_signal_t deps[2] = {make_signal(1), by_host};
    put_barrier(q, deps, 2, last);
    ring(q, put_dispatch(q, 0, 0, none));
    ring(other, put_dispatch(other, 1, 1, deps[0]));
    if (i == 0) {
      usleep(1000);
      EXPECT(CALL(hsa_signal_load_scacquire, last) == n, "a barrier did not wait");
      CALL(hsa_signal_store_screlease, by_host, 0);
    }
    wait_for(last, n - i, "barrier");
    OK(hsa_signal_destroy, deps[0]);
  }
  OK(hsa_signal_destroy, by_host);
  OK(hsa_signal_destroy, last);
  OK(hsa_queue_destroy, other);
}

static void part_batches(hsa_queue_t* q, long n) {
  const long batch = 32;
  hsa_signal_t s = make_signal(0);
  for (long i = 0; i < n; i += batch) {
    CALL(hsa_signal_store_relaxed, s, batch);
    uint64_t index = 0;
    for (long k = 0; k < batch; k++) index = put_dispatch(q, k & 1, 0, s);
    ring(q, index);
    wait_for(s, 1, "batch");
  }
  OK(hsa_signal_destroy, s);
}

static void part_scratch(long n) {
  hsa_queue_t* q = make_queue(64);
  if (!q) return;
  for (long i = 0; i <= n; i++) {
    hsa_signal_t s = make_signal(1);
    ring(q, put_dispatch_with(i < n ? 256 * i : 0, q, i & 1, 1, s));
    wait_for(s, 1, "scratch memory");
    OK(hsa_signal_destroy, s);
  }
  OK(hsa_queue_destroy, q);
}

struct producer {
  hsa_queue_t* q;
  long n;
};

static void* produce(void* arg) {
  struct producer* p = arg;
  hsa_signal_t s = make_signal(p->n);
  long i = 0;
  for (; i < p->n && !stop; i++) ring(p->q, put_dispatch(p->q, 0, i & 1, s));
  wait_for(s, p->n - i + 1, "producer");
  OK(hsa_signal_destroy, s);
  return NULL;
}

static void part_producers(hsa_queue_t* q, long n) {
  struct producer p = {q, n};
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, produce, &p);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

static void part_queues(long n) {
  for (long i = 0; i < n / 10 + 1; i++) {
    hsa_queue_t* q = make_queue(i % 2 ? 64 : 4096);
    if (!q) return;
    hsa_signal_t s = make_signal(1);
    ring(q, put_dispatch(q, i & 1, 1, s));
    wait_for(s, 1, "new queue");
    OK(hsa_signal_destroy, s);
    OK(hsa_queue_destroy, q);
  }
}

static void part_copies(long n) {
  const size_t bytes = 300007;
  OK(hsa_amd_profiling_async_copy_enable, true);
  unsigned char *in = allocate(host_pool, bytes), *out = allocate(host_pool, bytes);
  void* device = allocate(device_pool, bytes);
  for (long i = 0; i < n / 10 + 1 && !failure[0]; i++) {
    for (size_t k = 0; k < bytes; k++) in[k] = k * 7 + i;
    uint64_t from = 0;
    OK(hsa_system_get_info, HSA_SYSTEM_INFO_TIMESTAMP, &from);
    hsa_signal_t there = make_signal(1), back = make_signal(1);
    OK(hsa_amd_memory_async_copy, device, gpu, in, cpu, bytes, 0, NULL, there);
    OK(hsa_amd_memory_async_copy, out, cpu, device, gpu, bytes, 1, &there, back);
    COUNT("copies H2D", 1);
    COUNT("copies D2H", 1);
    wait_for(back, 1, "copy");
    EXPECT(memcmp(in, out, bytes) == 0, "a copy changed the bytes");
    hsa_amd_profiling_async_copy_time_t t = {0, 0};
    uint64_t to = 0;
    OK(hsa_amd_profiling_get_async_copy_time, back, &t);
    OK(hsa_system_get_info, HSA_SYSTEM_INFO_TIMESTAMP, &to);
    EXPECT(t.start + 5000 >= from && t.start <= t.end && t.end <= to + 5000,
           "copy times %lu to %lu are not within %lu to %lu", t.start, t.end, from, to);
    if (print_times) printf("time copy %lu %lu\n", t.start, t.end);
    OK(hsa_signal_destroy, there);
    OK(hsa_signal_destroy, back);
  }
  OK(hsa_amd_memory_pool_free, in);
  OK(hsa_amd_memory_pool_free, out);
  OK(hsa_amd_memory_pool_free, device);
}

static void part_wait(long ms) {
  hsa_signal_t s = make_signal(1);
  puts("waiting");
  fflush(stdout);
  CALL(hsa_signal_wait_scacquire, s, HSA_SIGNAL_CONDITION_LT, 1, ms * (frequency / 1000), HSA_WAIT_STATE_BLOCKED);
  OK(hsa_signal_destroy, s);
}

static void part_sleep(void) {
  printf("ready %d\n", getpid());
  fflush(stdout);
  while (!stop) usleep(1000);
}

static void part_pairs(hsa_queue_t* q, long n) {
  hsa_signal_t s = make_signal(0);
  for (long i = 0; i < n && !stop; i++) {
    CALL(hsa_signal_store_relaxed, s, 1);
    ring(q, put_dispatch(q, 0, 1, none));
    ring(q, put_dispatch(q, 0, 1, s));
    OK(hsa_init);
    OK(hsa_shut_down);
    wait_for(s, 1, "after hsa_shut_down");
  }
  OK(hsa_signal_destroy, s);
}

static int report(void);
static hsa_signal_t at_exit;

// By looking, so that nobody but the GPU can have a part in it.
static void wait_at_exit(void) {
  for (int i = 0; i < 20000 && CALL(hsa_signal_load_scacquire, at_exit) > 0; i++) usleep(1000);
  long v = CALL(hsa_signal_load_scacquire, at_exit);
  EXPECT(v == 0, "the signal is %ld at the end", v);
  report();
}

static void part_exit(const char* program, hsa_queue_t* q, long n) {
  // Loaded last, so that its destructor runs after others'.
  char path[4096];
  const char* slash = strrchr(program, '/');
  snprintf(path, sizeof path, "%.*slibhsa_late.so", slash ? (int)(slash + 1 - program) : 0, program);
  void* library = dlopen(path, RTLD_NOW);
  void (**late)(void) = library ? dlsym(library, "hsa_late") : NULL;
  if (!late) return fail("cannot open %s", path);
  at_exit = make_signal(n);
  for (long i = 0; i < n; i++) ring(q, put_dispatch(q, 0, 1, at_exit));
  *late = wait_at_exit;
}

static int report(void) {
  for (struct counter* c = counters; c; c = c->next) {
    if (c->number == 0) continue;
    // Labels come from several places: print each once.
    long sum = 0;
    for (struct counter* d = c; d; d = d->next)
      if (strcmp(c->label, d->label) == 0) sum += d->number, d->number = d == c ? c->number : 0;
    if (strncmp(c->label, "copies ", 7) == 0) printf("%s %ld %ld\n", c->label, sum, sum * 300007);
    else printf("%s %ld\n", c->label, sum);
  }
  if (failure[0]) printf("result FAILED: %s\n", failure);
  else puts("result ok");
  return failure[0] != 0;
}

static uint32_t launched(void) {
  uint32_t sum = 0;
  for (struct counter* c = counters; c; c = c->next) {
    if (strcmp(c->label, "launches direct_one") == 0) sum += c->number;
    if (strcmp(c->label, "launches direct_two") == 0) sum += 1000 * c->number;
  }
  return sum;
}

// Up to the end or a part o.
static int run(const char* program, const char* parts, long n) {
  uint32_t before = launched();
  cpu.handle = gpu.handle = host_pool.handle = kernarg_pool.handle = device_pool.handle = 0;
  OK(hsa_iterate_agents, on_agent, NULL);
  if (!gpu.handle) return fail("no GPU"), report();
  OK(hsa_amd_agent_iterate_memory_pools, cpu, on_pool, NULL);
  OK(hsa_amd_agent_iterate_memory_pools, gpu, on_pool, &gpu);
  OK(hsa_system_get_info, HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY, &frequency);
  if (!load(program)) return report();
  value = allocate(host_pool, 4096);
  kernarg = allocate(kernarg_pool, 4096);
  *value = 0;
  *kernarg = value;
  hsa_queue_t* q = make_queue(256);
  for (; q && *parts && *parts != 'o'; parts++) {
    switch (*parts) {
      case 's': part_signals(q, n); break;
      case 'n': part_no_signals(q, n); break;
      case 'r': part_reused(q, n); break;
      case 'a': part_barriers(q, n); break;
      case 'b': part_batches(q, n); break;
      case 'p': part_producers(q, n); break;
      case 'q': part_queues(n); break;
      case 'c': part_copies(n); break;
      case 'm': part_scratch(n); break;
      case 'w': part_wait(n); break;
      case 'z': part_sleep(); break;
      case 'i': part_pairs(q, n); break;
      case 'e': return part_exit(program, q, n), 0;
      default: fail("unknown part %c", *parts);
    }
  }
  if (q) OK(hsa_queue_destroy, q);
  uint32_t expected = launched() - before;
  EXPECT(*value == expected, "the kernels made %u of %u", *value, expected);
  return report();
}

int main(int argc, char** argv) {
  signal(SIGTERM, on_term);
  print_times = argc > 3 && strcmp(argv[3], "times") == 0;
  const char* parts = argc > 1 ? argv[1] : "snrabpqc";
  int status = 0;
  while (parts && status == 0) {
    if (CALL(hsa_init) != HSA_STATUS_SUCCESS) return fail("hsa_init"), report();
    status = run(argv[0], parts, argc > 2 ? atol(argv[2]) : 200);
    if (at_exit.handle) return status;
    hsa_shut_down();
    parts = strchr(parts, 'o');
    if (parts) parts++;
  }
  return status;
}
