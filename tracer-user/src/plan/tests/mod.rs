mod rocm;
