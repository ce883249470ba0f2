//! emulated GPU
