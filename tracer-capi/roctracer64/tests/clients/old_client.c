// Linked against a library without versions, run with the one that has them.
int roctracer_version_major(void);
int roctracer_disable_domain_callback(int domain);
int roctracer_close_pool(void);

int main(void) {
  return roctracer_version_major() == 4 && roctracer_disable_domain_callback(3) == 0 && roctracer_close_pool() == 0
             ? 0
             : 1;
}
