//! Link arguments of `libroctap_shim.so`.

fn main() {
    // Its thread, its hooks in the runtime's tables and its exit handlers point into it, so it must
    // stay when the runtime closes its tools (`dlclose` in `hsa_shut_down`).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libroctap_shim.so");
    // Nothing is resolved later, in the middle of a doorbell.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo::rerun-if-changed=build.rs");
}
