//! Gives the library the name and the version node that `libhsa-runtime64.so.1` asks for.

fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rerun-if-changed=hsakmt.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libhsakmt.so.1");
    // rustc passes an anonymous version script of its own, so that the symbols themselves stay
    // unversioned. The dynamic linker only wants the node to be *defined* by the library (it warns
    // otherwise) and binds a versioned reference to an unversioned definition.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={dir}/hsakmt.map");
    // Threads of this library outlive any dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
