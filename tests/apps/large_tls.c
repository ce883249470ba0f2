// A library whose thread-local variables are larger than the stacks that threads are given as a rule; to be preloaded.
__thread long first = 1;
__thread char room[3 << 20];
