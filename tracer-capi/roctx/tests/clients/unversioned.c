// What programs of releases before 5.3 were linked against: the same functions, without versions.
int roctxRangePushA(const char* message) { return message != 0 ? -100 : -101; }
int roctxRangePop(void) { return -102; }
