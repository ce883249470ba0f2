// In the place of roctx's library: tells who is registered.
#include <stddef.h>

typedef int (*tracer_t)(int, unsigned, void*);

static tracer_t registered;
static int times;

void roctxRegisterTracerCallback(tracer_t tracer) {
  registered = tracer;
  times++;
}
tracer_t registered_tracer(void) { return registered; }
int registrations(void) { return times; }
