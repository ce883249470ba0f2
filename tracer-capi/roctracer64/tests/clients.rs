//! Programs in C99 and C++11 that use `libroctracer64.so.4`, linked as it is for users.

use capi_build::{
    ROCTRACER, ROCTX,
    clients::{Clients, succeed},
    layouts::Language,
};

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

#[test]
fn marks_and_ranges() {
    let clients = clients().beside(&ROCTX).expect("the library of roctx");
    clients.run(Language::C, "marks").expect("it runs");
}

/// What is registered with roctx, and when: in the place of its library is one that tells.
#[test]
fn registered_while_wanted() {
    let clients = clients();
    let roctx = clients.directory().join(ROCTX.soname);
    let mut compiler = Language::C.compiler().expect("a compiler");
    compiler.args(["-shared", "-fPIC", "-Wl,-soname,libroctx64.so.4", "-o"]).arg(&roctx);
    succeed(compiler.arg(clients.source("fake_roctx.c"))).expect("the library");
    let program = clients.directory().join("registers");
    let mut compiler = Language::C.compiler().expect("a compiler");
    compiler.arg("-o").args([&program, &clients.source("registers.c"), &clients.library(), &roctx]);
    succeed(&mut compiler).expect("the client");
    succeed(&mut clients.command(&program)).expect("it runs");
}
