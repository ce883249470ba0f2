mod hostile;
mod image;
mod kernel;
mod prologue;
mod property;
mod redirected;
mod rocm;
mod stubs;
