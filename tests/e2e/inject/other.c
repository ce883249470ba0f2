// A process that waits, on another C library or on none.
#ifdef BARE
void _start(void) {
  for (;;) __asm__ volatile("int $0x80" : : "a"(29));  // pause
}
#else
#include <unistd.h>
int main(void) {
  for (;;) pause();
}
#endif
