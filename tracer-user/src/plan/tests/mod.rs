mod hostile;
mod image;
mod kernel;
mod prologue;
mod property;
mod rocm;
mod stubs;
