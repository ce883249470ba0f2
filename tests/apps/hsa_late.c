// A library that runs a function of the program when it is unloaded at the very end.
void (*hsa_late)(void);

__attribute__((destructor)) static void run(void) {
  if (hsa_late) hsa_late();
}
