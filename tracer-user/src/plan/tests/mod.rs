mod image;
mod kernel;
mod property;
mod rocm;
mod stubs;
