// Kernels of `hsa_direct`: a plain code object, without HIP's bundle around it and without libraries.
static int is_first() {
  return __builtin_amdgcn_workgroup_id_x() == 0 && __builtin_amdgcn_workitem_id_x() == 0;
}

kernel void direct_one(global uint* x) {
  if (is_first()) __atomic_fetch_add(x, 1u, __ATOMIC_RELAXED);
}

kernel void direct_two(global uint* x) {
  if (is_first()) __atomic_fetch_add(x, 1000u, __ATOMIC_RELAXED);
}
