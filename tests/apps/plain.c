// No ROCm at all.
#include <stdio.h>

int main(void) {
  puts("result ok");
  return 0;
}
