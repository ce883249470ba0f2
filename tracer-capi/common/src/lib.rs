//! The code that the libraries with C interfaces share.
//!
//! * [`hsa`], [`hip`]: the data of a call that roctracer's callbacks get, `hsa_api_data_t` and `hip_api_data_t`: the
//!   places of the arguments in it, and calls as the file plugin writes them. Of HSA the layout is that of ROCm 5.2.3
//!   in every release; of HIP each release has its own.
//! * [`memory`]: reads the value that an argument points at, if it can be read.
//! * [`loaded`]: libraries that the process has loaded; [`imports`]: functions that they import; [`hsa_tools`]:
//!   libraries that the HSA runtime is to load.
//! * [`plugin`]: a plugin of roctracer's, which is loaded and fed.
//! * [`messages`]: messages to the user of the program.
//! * [`quiet`], [`errno`]: writes of ours end no process, and our code changes no `errno`.
//!
//! It loads nothing but plugins, and of ROCm it calls one function, which names functions of HIP.

#![deny(unsafe_code)]

pub mod errno;
pub mod hip;
pub mod hsa;
pub mod hsa_tools;
pub mod imports;
pub mod loaded;
pub mod memory;
pub mod messages;
pub mod plugin;
pub mod quiet;
