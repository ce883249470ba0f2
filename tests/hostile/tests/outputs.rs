//! Files that roctap makes, and those that somebody wants it to take for its own.

mod common;

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
    process::Command,
};

use common::{roctap_for_all, write_trace};
use e2e::{Ran, Scene, app, run};
use hostile::{NOBODY, as_nobody, fuse::Silent};

/// Owner and permissions.
fn whose(path: &Path) -> (u32, u32, u32) {
    let meta = path.symlink_metadata().expect("it is there");
    (meta.uid(), meta.gid(), meta.mode() & 0o777)
}

fn record(scene: &Scene, options: &[&str], sudo: &[(&str, &str)]) -> Ran {
    let mut record = scene.record(&["--api=hsa", "--gpu=off", "--include=hsa_init"]);
    record.env_remove("SUDO_UID").env_remove("SUDO_GID").envs(sudo.iter().copied());
    run(record.args(options).arg("--").arg(app("hsa_direct")).args(["s", "1"]))
}

const SUDO: [(&str, &str); 2] = [("SUDO_UID", "65534"), ("SUDO_GID", "65534")];

#[test]
fn hostile_files_are_private_and_of_the_user_behind_sudo() {
    let scene = Scene::default();
    record(&scene, &[], &[]).expect(0);
    assert_eq!(whose(&scene.trace_path()), (0, 0, 0o600));
    for options in [&["--force"][..], &[]] {
        if options.is_empty() {
            fs::remove_file(scene.trace_path()).expect("remove");
        }
        record(&scene, options, &SUDO).expect(0);
        assert_eq!(whose(&scene.trace_path()), (NOBODY, NOBODY, 0o600));
    }
    // Root reads what is the user's, and so does the user.
    let copy = roctap_for_all();
    scene.give_to(NOBODY);
    run(as_nobody(scene.command(&copy.1).arg("report").arg(scene.trace_path()))).expect(0);
    for format in ["csv", "text"] {
        let out = scene.path(format).join("below");
        let mut export = scene.roctap(&["export", "-f", format, "-o"]);
        run(export.arg(&out).arg(scene.trace_path()).envs(SUDO)).expect(0);
        for directory in [out.parent().expect("above"), &out] {
            let (user, group, _) = whose(directory);
            assert_eq!((user, group), (NOBODY, NOBODY));
        }
        let mut files = 0;
        for file in fs::read_dir(&out).expect("files") {
            assert_eq!(whose(&file.expect("file").path()), (NOBODY, NOBODY, 0o600));
            files += 1;
        }
        assert!(files > 0);
    }
}

/// Whoever is not root says nothing by that environment.
#[test]
fn hostile_sudos_variables_count_for_root_alone() {
    let scene = Scene::default();
    write_trace(&scene.trace_path(), "name");
    fs::set_permissions(scene.trace_path(), fs::Permissions::from_mode(0o644)).expect("chmod");
    scene.give_to(NOBODY);
    let copy = roctap_for_all();
    let out = scene.path("out");
    let mut export = scene.command(&copy.1);
    export.args(["export", "-f", "csv", "-o"]).arg(&out).arg(scene.trace_path());
    let ran = run(as_nobody(export.env("SUDO_UID", "0").env("SUDO_GID", "0"))).expect(0);
    assert!(!ran.stderr.contains("stays root's"), "{ran:#?}");
    assert_eq!(whose(&out.join("kernel_trace.csv")), (NOBODY, NOBODY, 0o600));
}

#[test]
fn hostile_links_are_followed_by_no_force() {
    let scene = Scene::default();
    write_trace(&scene.path("mine"), "name");
    let file = scene.path("file");
    fs::write(&file, "mine").expect("write");
    let (old, new) = (scene.path("old.rtrace"), scene.path("new"));
    fs::copy(scene.path("mine"), &old).expect("copy");
    let before = fs::read(&old).expect("read");
    // The directory is nobody's, who lays links in it.
    scene.give_to(NOBODY);
    let out = scene.path("out");
    fs::create_dir(&out).expect("mkdir");
    for target in [&file, &new] {
        let link = out.join("hip_api_trace.csv");
        symlink(target, &link).expect("link");
        let mut export = scene.roctap(&["export", "--force", "-f", "csv", "-o"]);
        let ran = run(export.arg(&out).arg(scene.path("mine"))).expect(1);
        ran.complains(&["hip_api_trace.csv", "symbolic link"]);
        assert_eq!(fs::read_to_string(&file).expect("read"), "mine");
        assert!(!new.exists() && link.is_symlink());
        fs::remove_file(link).expect("remove");
    }
    for target in [&old, &file, &new] {
        symlink(target, scene.trace_path()).expect("link");
        record(&scene, &[], &[]).expect(1).complains(&["test.rtrace", "exists already"]);
        let ran = record(&scene, &["--force"], &[]).expect(1);
        ran.complains(&["test.rtrace", "symbolic link"]);
        assert_eq!(fs::read(&old).expect("read"), before);
        assert_eq!(fs::read_to_string(&file).expect("read"), "mine");
        assert!(!new.exists());
        fs::remove_file(scene.trace_path()).expect("remove");
    }
    // Of a file with two names, the other keeps what it has.
    fs::hard_link(&old, scene.trace_path()).expect("link");
    record(&scene, &["--force"], &[]).expect(0);
    assert_eq!(fs::read(&old).expect("read"), before);
}

/// The path that `doctor` found the shim at.
fn shim(ran: &Ran) -> String {
    let line = ran.stdout.lines().find_map(|line| line.split_once("  shim ")).expect("a line");
    line.1.to_owned()
}

#[test]
fn hostile_shims_in_the_environment_are_not_taken() {
    let scene = Scene::default();
    let (directory, roctap) = roctap_for_all();
    let own = directory.path().join("libroctap_shim.so");
    let doctor = |named: &Path| {
        run(Command::new(&roctap)
            .arg("doctor")
            .env("ROCTAP_SHIM", named)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped()))
    };
    // Root's own, in a place of root's, is taken.
    let elsewhere = tempfile::tempdir().expect("directory");
    let trusted = elsewhere.path().canonicalize().expect("path").join("shim.so");
    fs::copy(&own, &trusted).expect("copy");
    assert_eq!(shim(&doctor(&trusted)), trusted.display().to_string());
    // One that somebody else owns or can write to, or whose directory is somebody else's, is not.
    let refused = |named: &Path, why: &str| {
        let ran = doctor(named);
        ran.complains(&["ROCTAP_SHIM", "is ignored", why]);
        assert_eq!(shim(&ran), own.canonicalize().expect("path").display().to_string());
    };
    fs::set_permissions(&trusted, fs::Permissions::from_mode(0o666)).expect("chmod");
    refused(&trusted, "others can write");
    fs::set_permissions(&trusted, fs::Permissions::from_mode(0o644)).expect("chmod");
    std::os::unix::fs::chown(&trusted, Some(NOBODY), None).expect("chown");
    refused(&trusted, "belongs to user 65534");
    let theirs = scene.path("shim.so");
    fs::copy(&own, &theirs).expect("copy");
    scene.give_to(NOBODY);
    refused(&theirs, "belongs to user 65534");
}

/// With a set-user-id bit, the environment is that of somebody who has fewer rights.
#[test]
fn hostile_environment_of_a_program_with_more_rights_names_no_shim() {
    let (directory, roctap) = roctap_for_all();
    let own = directory.path().join("libroctap_shim.so");
    let trusted = directory.path().canonicalize().expect("path").join("other.so");
    fs::copy(&own, &trusted).expect("copy");
    let doctor = || {
        let mut doctor = Command::new(&roctap);
        doctor.arg("doctor").env("ROCTAP_SHIM", &trusted).stdin(std::process::Stdio::null());
        doctor.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        run(as_nobody(&mut doctor))
    };
    let found = |path: &Path| path.canonicalize().expect("path").display().to_string();
    assert_eq!(shim(&doctor()), found(&trusted));
    fs::set_permissions(&roctap, fs::Permissions::from_mode(0o4755)).expect("chmod");
    let ran = doctor();
    ran.complains(&["ROCTAP_SHIM", "is ignored", "more rights"]);
    assert_eq!(shim(&ran), found(&own));
}

/// As on NFS with `root_squash`: the directory is the user's, and root is nobody there.
#[test]
fn hostile_root_is_told_that_a_file_system_keeps_it_out() {
    let scene = Scene::default();
    let directory = scene.path("users");
    fs::create_dir(&directory).expect("directory");
    let _mounted = Silent::mount(&directory, NOBODY);
    let causes = ["Permission denied", "for root too: the file system keeps root out"];
    let (trace, ran) = (directory.join("run.rtrace"), scene.path("ran"));
    let mut record = scene.roctap(&["record", "--gpu=off", "-o"]);
    run(record.arg(&trace).envs(SUDO).args(["--", "touch"]).arg(&ran))
        .expect(1)
        .complains(&[&[&*trace.to_string_lossy()], &causes[..]].concat());
    assert!(!ran.exists(), "the command is not started where nothing can be recorded");
    write_trace(&scene.trace_path(), "name");
    let out = directory.join("csv");
    let mut export = scene.roctap(&["export", "-f", "csv", "-o"]);
    run(export.arg(&out).arg(scene.trace_path()).envs(SUDO))
        .expect(1)
        .complains(&[&[&*out.to_string_lossy()], &causes[..]].concat());
}
