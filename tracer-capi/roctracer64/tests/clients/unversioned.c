// What programs of releases before 5.3 were linked against: the same functions, without versions.
int roctracer_version_major(void) { return -100; }
int roctracer_disable_domain_callback(int domain) { return -100 - domain; }
int roctracer_close_pool(void) { return -100; }
