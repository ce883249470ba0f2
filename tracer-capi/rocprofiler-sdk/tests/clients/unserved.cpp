// The same as C++.
#include "unserved.c"
