// Linked against a library without versions, run with the one that has them.
int roctxRangePushA(const char* message);
int roctxRangePop(void);

int main(void) { return roctxRangePushA("range") == 0 && roctxRangePop() == 0 ? 0 : 1; }
