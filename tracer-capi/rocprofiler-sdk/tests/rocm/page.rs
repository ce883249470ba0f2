//! The tool that the documentation shows.

use std::path::Path;

use capi_build::clients::succeed;
use capi_build::include_directory;
use capi_build::layouts::Language;

use crate::scene::scene;

/// The example of docs/rocprofiler-sdk.md.
#[test]
fn rocm_the_tool_of_the_page() {
    let Some(scene) = scene() else { return };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rocprofiler-sdk.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, source) = page.split_once("```cpp\n").expect("an example");
    let (source, _) = source.split_once("```").expect("its end");
    let (file, tool) = (scene.file("mytool.cpp"), scene.file("libmytool.so"));
    std::fs::write(&file, source).expect("written");
    let mut compiler = Language::Cpp.compiler().expect("a compiler");
    compiler.args(["-shared", "-fPIC", "-o"]).args([&tool, &file]);
    compiler.arg("-I").arg(include_directory().expect("headers"));
    compiler.arg("-L").arg(scene.clients.directory()).arg("-lrocprofiler-sdk");
    succeed(&mut compiler).expect("it compiles");
    let mut command = scene.command("LD_PRELOAD", &scene.apps.join("basic"));
    command.env("LD_PRELOAD", &tool);
    let output = scene.there(command).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let did = scene.outcome().did("dispatch").len();
    assert!(did > 0);
    assert_eq!(said.lines().filter(|line| line.starts_with("kernel ")).count(), did, "{said}");
}
