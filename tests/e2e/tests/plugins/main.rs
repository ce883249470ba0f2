//! `roctap export --plugin` and `roctap record --plugin`: plugins of roctracer's are told what the text export
//! writes, and are never root.

mod ends;
mod fed;
mod recordings;
mod rights;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use capi_build::{FILE_PLUGIN, include_directory, link::Source};
use e2e::{Ran, Scene, run};

/// Debian's `nobody`.
const USER: u32 = 65534;

/// A scene whose directory is the user's.
fn scene() -> Scene {
    let scene = Scene::default();
    scene.give_to(USER);
    scene
}

/// Has a command be called by the user through `sudo`, in a directory that all may enter.
fn by_sudo(command: &mut Command) -> &mut Command {
    command.current_dir("/").env("SUDO_UID", USER.to_string()).env("SUDO_GID", USER.to_string())
}

/// Records a program, as root by `sudo`.
fn record(scene: &Scene, api: &str, name: &str, arguments: &[&str]) {
    run(by_sudo(&mut scene.recording(&["--api", api], name, arguments))).expect(0);
    scene.trace().expect_complete();
}

/// `roctap export TRACE --plugin LIB`, by `sudo`.
fn export(scene: &Scene, plugin: &Path) -> Command {
    let mut command = scene.roctap(&["export", "--plugin"]);
    by_sudo(command.arg(plugin).arg(scene.trace_path()));
    command
}

/// Our own plugin.
fn file_plugin(scene: &Scene) -> PathBuf {
    let source = Source::of_tests().expect("a target directory");
    FILE_PLUGIN.make(&source, &scene.path("lib")).expect("the plugin")
}

/// The plugin `tells.cpp`.
fn tells(scene: &Scene) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins/tells.cpp");
    let library = scene.path("libtells.so");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-shared", "-fPIC", "-w", "-D__HIP_PLATFORM_AMD__", "-I"]);
    compiler.arg(include_directory().expect("headers").join("roctracer"));
    let status = compiler.arg("-o").args([&library, &source]).status();
    assert!(status.expect("c++").success());
    library
}

/// A plugin in C.
fn compiled(scene: &Scene, source: &str) -> PathBuf {
    let (file, library) = (scene.path("plugin.c"), scene.path("libplugin.so"));
    fs::write(&file, source).expect("source");
    let mut compiler = Command::new("cc");
    let status = compiler.args(["-shared", "-fPIC", "-o"]).args([&library, &file]).status();
    assert!(status.expect("cc").success());
    library
}

/// The rest of the lines that begin so.
fn lines_of<'a>(ran: &'a Ran, beginning: &str) -> Vec<&'a str> {
    ran.stdout.lines().filter_map(|line| line.strip_prefix(beginning)).collect()
}

/// Asserts what a plugin may do that was told `tells.cpp`'s rights.
fn expect_the_users_rights(ran: &Ran) {
    assert_eq!(lines_of(ran, "users "), ["65534 65534 65534"]);
    assert!(lines_of(ran, "groups ")[0].split(' ').all(|group| group == "65534"), "{ran:#?}");
    assert_eq!(lines_of(ran, "root "), ["-1 -1"]);
    assert_eq!(lines_of(ran, "no new rights "), ["1"]);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        let rights = lines_of(ran, set)[0].trim();
        assert!(rights.bytes().all(|digit| digit == b'0'), "{set} {rights}");
    }
    assert_eq!(lines_of(ran, "terminal "), ["0"]);
}

/// Asserts that roctap said one thing.
fn expect_one_line(ran: &Ran, parts: &[&str]) {
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{ran:#?}");
    ran.complains(parts);
}
