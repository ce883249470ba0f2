// The same as C++.
#include "configures.c"
