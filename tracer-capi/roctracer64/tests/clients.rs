//! Programs in C99 and C++11 that use `libroctracer64.so.4`, linked as it is for users.

use capi_build::{ROCTRACER, clients::Clients, layouts::Language};

fn clients() -> Clients {
    Clients::new(&ROCTRACER, env!("CARGO_MANIFEST_DIR")).expect("the library")
}

#[test]
fn exports_are_as_listed() {
    clients().check().expect("the exports");
}

#[test]
fn every_function_and_its_errors() {
    clients().run(Language::C, "calls").expect("it runs");
}

#[test]
fn exceptions_of_the_clients_functions() {
    clients().run(Language::Cpp, "throws").expect("it runs");
}

#[test]
fn loaded_and_unloaded() {
    clients().run_loading("loads").expect("it runs");
}

#[test]
fn client_linked_without_versions() {
    clients().run_linked_against("unversioned.c", "old_client.c").expect("it runs");
}
