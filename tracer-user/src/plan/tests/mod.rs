mod image;
mod kernel;
mod rocm;
mod stubs;
