// What few programs do with the HSA runtime, by hand, each with n barrier packets of one signal:
//   hsa_schedules jump [n]      leaves doorbells by siglongjmp, from the handler of a timer's signal
//   hsa_schedules early [n]     advances the write index after the doorbell
#define _GNU_SOURCE
#include <hsa/hsa.h>

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static hsa_agent_t gpu;
static hsa_queue_t* queue;
static hsa_signal_t done;
static sigjmp_buf out;
static volatile sig_atomic_t ringing, jumps;

#define OK(call)                                                          \
  do {                                                                    \
    const hsa_status_t status_ = (call);                                  \
    if (status_ != HSA_STATUS_SUCCESS) {                                  \
      printf("result failed: " #call " at line %d: %#x\n", __LINE__, status_); \
      exit(1);                                                            \
    }                                                                     \
  } while (0)

static hsa_status_t on_agent(hsa_agent_t agent, void* unused) {
  hsa_device_type_t type;
  OK(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
  if (type == HSA_DEVICE_TYPE_GPU) gpu = agent;
  return HSA_STATUS_SUCCESS;
}

static void publish(uint64_t index) {
  hsa_barrier_and_packet_t* packet =
      (hsa_barrier_and_packet_t*)queue->base_address + index % queue->size;
  memset((char*)packet + 4, 0, sizeof *packet - 4);
  packet->completion_signal = done;
  const uint16_t header = HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE |
                          1 << HSA_PACKET_HEADER_BARRIER;
  __atomic_store_n((uint32_t*)packet, header, __ATOMIC_RELEASE);
}

static void on_timer(int unused) {
  if (!ringing) return;
  ringing = 0;
  jumps++;
  siglongjmp(out, 1);
}

// Rings until the doorbell was not left.
static void ring(uint64_t index) {
  sigsetjmp(out, 1);
  ringing = 1;
  hsa_signal_store_screlease(queue->doorbell_signal, (hsa_signal_value_t)index);
  ringing = 0;
}

static void wait_sleeping(void) {
  while (hsa_signal_wait_scacquire(done, HSA_SIGNAL_CONDITION_LT, 1, 1000000000,
                                   HSA_WAIT_STATE_BLOCKED) > 0) {
  }
}

static void start_timer(void) {
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
  event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
  timer_t timer;
  const struct itimerspec often = {{0, 97000}, {0, 97000}};
  signal(SIGALRM, on_timer);
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &often, NULL)) {
    printf("result failed: no timer\n");
    exit(1);
  }
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "";
  const unsigned long n = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
  const int jump = !strcmp(mode, "jump"), early = !strcmp(mode, "early");
  if (!jump && !early) {
    fprintf(stderr, "usage: hsa_schedules jump|early [n]\n");
    return 2;
  }
  unsigned long ran = 0;
  OK(hsa_init());
  OK(hsa_iterate_agents(on_agent, NULL));
  OK(hsa_queue_create(gpu, 256, HSA_QUEUE_TYPE_MULTI, NULL, NULL, UINT32_MAX, UINT32_MAX, &queue));
  OK(hsa_signal_create(1, 0, NULL, &done));
  if (jump) start_timer();
  while (ran < n) {
    hsa_signal_store_relaxed(done, 1);
    uint64_t index;
    if (early) {
      index = hsa_queue_load_write_index_relaxed(queue);
      publish(index);
      ring(index);
      hsa_queue_store_write_index_screlease(queue, index + 1);
    } else {
      index = hsa_queue_add_write_index_relaxed(queue, 1);
      publish(index);
      // Ringing again changes nothing: the more there is to leave.
      for (int again = 0; again < (jump ? 50 : 1); again++) ring(index);
    }
    wait_sleeping();
    ran++;
  }
  printf("jumps %d\ncount packets %lu\nresult ok\n", (int)jumps, ran);
  fflush(stdout);
  OK(hsa_queue_destroy(queue));
  OK(hsa_signal_destroy(done));
  OK(hsa_shut_down());
  return 0;
}
