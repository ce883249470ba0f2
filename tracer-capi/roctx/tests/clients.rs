//! Programs in C99 and C++11 that use `libroctx64.so.4`, linked as it is for users.

use capi_build::{ROCTX, clients::Clients, layouts::Language};

fn clients() -> Clients {
    Clients::new(&ROCTX, env!("CARGO_MANIFEST_DIR")).expect("the library")
}

#[test]
fn exports_are_as_listed() {
    clients().check().expect("the exports");
}

#[test]
fn c99_client() {
    clients().run(Language::C, "calls").expect("it runs");
}

#[test]
fn cpp11_client_and_exceptions() {
    clients().run(Language::Cpp, "calls").expect("it runs");
}

#[test]
fn loaded_and_unloaded() {
    clients().run_loading("loads").expect("it runs");
}

#[test]
fn client_linked_without_versions() {
    clients().run_linked_against("unversioned.c", "old_client.c").expect("it runs");
}
