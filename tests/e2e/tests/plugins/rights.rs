//! Plugins have the rights of the user, and nothing of root's.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use e2e::{Ran, Scene, run};

use crate::{
    USER, by_sudo, expect_one_line, expect_the_users_rights, export, lines_of, record, scene, tells,
};

#[test]
fn root_plugins_are_the_users_and_have_nothing_of_roots() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = tells(&scene);
    // Root has a file open that is nobody else's business, groups and secrets in the environment.
    let mut command = Command::new("setpriv");
    command.args([
        "--groups",
        "0,4,27",
        "sh",
        "-c",
        r#"exec 9</etc/shadow </etc/shadow; exec "$0" "$@""#,
    ]);
    let export = export(&scene, &plugin);
    command.arg(export.get_program()).args(export.get_args());
    command.envs(export.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("SECRET", "root's").env("ROCP_OUTPUT_DIR", "out").env("HOME", "/root");
    // The environment's word; the user's group is that of the account.
    command.env("SUDO_GID", "0").current_dir("/");
    let ran = run(command.stdout(Stdio::piped()).stderr(Stdio::piped())).expect(0);
    expect_the_users_rights(&ran);
    let descriptors = lines_of(&ran, "descriptor ");
    let of = |descriptor: &&str| descriptor.split_once(' ').expect("two words").1.to_owned();
    let trace = scene.trace_path().display().to_string();
    let others = |of: &String| *of != trace && *of != "/dev/null" && !of.starts_with("pipe:");
    // Nor has the process that the plugin can trace.
    let parents = lines_of(&ran, "parents descriptor ");
    assert!(parents.len() >= 3, "{parents:?}");
    let all = descriptors.iter().chain(&parents);
    let others: Vec<String> = all.map(of).filter(others).collect();
    assert!(others.is_empty(), "{descriptors:?} {parents:?}");
    assert!(descriptors[0] == "0 /dev/null" && descriptors.len() == 5, "{descriptors:?}");
    let variables = lines_of(&ran, "variable ");
    assert!(variables.contains(&"ROCP_OUTPUT_DIR=out"), "{variables:?}");
    for secret in ["SECRET", "SUDO_UID", "EMUGPU_LOG"] {
        assert!(!variables.iter().any(|variable| variable.starts_with(secret)), "{variables:?}");
    }
    assert!(!variables.contains(&"HOME=/root"), "{variables:?}");
}

/// `roctap` for a user who may not look into the directory of the tests, with these bits.
fn roctap_for_all(scene: &Scene, mode: u32) -> PathBuf {
    let roctap = scene.path("roctap");
    fs::copy(e2e::roctap_bin(), &roctap).expect("copy");
    fs::set_permissions(&roctap, fs::Permissions::from_mode(mode)).expect("chmod");
    roctap
}

/// Nobody can type at the terminal that roctap was called from.
#[test]
fn root_plugins_have_no_terminal() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let export = export(&scene, &tells(&scene));
    let words = std::iter::once(export.get_program()).chain(export.get_args());
    let line: Vec<&str> = words.map(|word| word.to_str().expect("text")).collect();
    let mut terminal = scene.command("script");
    terminal.args(["-qec", &format!("tty && {}", line.join(" ")), "/dev/null"]);
    let ran = run(by_sudo(&mut terminal)).expect(0);
    let said: Vec<&str> = ran.stdout.lines().map(str::trim_end).collect();
    assert!(said[0].starts_with("/dev/pts/") && said.contains(&"terminal 0"), "{said:?}");
    assert!(said.contains(&"users 65534 65534 65534"), "{said:?}");
    // By the process that started it, which it can trace, it can not type either.
    assert!(said.contains(&"parents terminal 0"), "{said:?}");
    assert!(!said[1..].iter().any(|line| line.contains("/dev/pts/")), "{said:?}");
}

/// What root has in its session's keyring must not come along.
#[test]
fn root_plugins_have_no_keys_of_roots() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = tells(&scene);
    // Gives itself a session, and a user as many keys as he can have; then executes its arguments. Another user than
    // that of other tests: the kernel takes its time to count less again.
    fs::write(
        scene.path("keys.c"),
        r#"
        #include <stdio.h>
        #include <sys/prctl.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int main(int count, char** arguments) {
            enum { JOIN = 1, PROCESS = -2 };
            if (syscall(SYS_keyctl, JOIN, 0) < 0) return 77;
            int ready[2];
            pipe(ready);
            if (!fork()) {
                setresgid(1, 1, 1);
                setresuid(1, 1, 1);
                prctl(PR_SET_PDEATHSIG, 9);
                char name[32];
                for (int i = 0; i < 100000; i++) {
                    sprintf(name, "roctap:%d", i);
                    if (syscall(SYS_add_key, "user", name, "k", 1, PROCESS) < 0) break;
                }
                write(ready[1], "", 1);
                close(1);
                close(2);
                pause();
            }
            read(ready[0], arguments[0], 1);
            execv(arguments[1], arguments + 1);
            return 78;
        }
        "#,
    )
    .expect("source");
    let keys = scene.path("keys");
    let compiled =
        Command::new("cc").arg("-w").arg("-o").arg(&keys).arg(scene.path("keys.c")).status();
    assert!(compiled.expect("cc").success());
    let export = export(&scene, &plugin);
    let mut command = scene.command(&keys);
    command.arg(export.get_program()).args(export.get_args());
    let ran = run(by_sudo(&mut command).env("SUDO_UID", "1"));
    if ran.code == Some(77) {
        assert!(!Path::new("/proc/keys").exists(), "keys there are, and no session for them");
        return;
    }
    expect_one_line(&ran.expect(1), &["a session of its own for its keys", "quota exceeded"]);
}

#[test]
fn root_plugins_have_no_directory_of_roots() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let secret = scene.path("secret");
    fs::create_dir_all(secret.join("inner")).expect("directory");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).expect("chmod");
    let mut command = export(&scene, &tells(&scene));
    let ran = run(command.current_dir(secret.join("inner"))).expect(1);
    expect_one_line(&ran, &["its working directory", "may enter", "Permission denied"]);
}

/// Rights by a bit of the file that are not root's.
#[test]
fn root_plugins_have_no_rights_of_another_user_or_group() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = tells(&scene);
    for (owner, group, mode) in [(0, 0, 0o2755), (1, 1, 0o4755), (1, 1, 0o6755)] {
        let roctap = roctap_for_all(&scene, 0o755);
        std::os::unix::fs::chown(&roctap, Some(owner), Some(group)).expect("chown");
        fs::set_permissions(&roctap, fs::Permissions::from_mode(mode)).expect("chmod");
        let mut command = scene.command(&roctap);
        command.args(["export", "--plugin"]).args([&plugin, &scene.trace_path()]);
        let ran = run(command.current_dir("/").uid(USER).gid(USER)).expect(0);
        expect_the_users_rights_without_bounds(&ran);
        assert!(lines_of(&ran, "groups ")[0].split(' ').all(|group| group == "65534"), "{ran:#?}");
        // Nor by roctap's own subcommand.
        let mut host = scene.command(&roctap);
        host.args(["__plugin", "1", "1", "1"]).args([&plugin, &scene.trace_path()]);
        let ran = run(host.current_dir("/").uid(USER).gid(USER));
        ran.expect(127).complains(&["other rights than a user's"]);
    }
}

/// A program of root's that every user may run.
#[test]
fn root_plugins_of_a_user_who_calls_roctap_with_a_set_user_id_bit() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = tells(&scene);
    let mut command = scene.command(roctap_for_all(&scene, 0o4755));
    command.args(["export", "--plugin"]).args([&plugin, &scene.trace_path()]);
    // It is the caller's word.
    command.env("SUDO_UID", "1").env("SUDO_GID", "1").current_dir("/").uid(USER).gid(USER);
    let ran = run(&mut command).expect(0);
    expect_the_users_rights(&ran);
    assert!(!lines_of(&ran, "variable ").iter().any(|variable| variable.starts_with("SUDO_UID")));
}

/// Who has no root to give up has its environment.
#[test]
fn root_plugins_of_a_user() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = tells(&scene);
    let mut command = scene.command(roctap_for_all(&scene, 0o755));
    command.args(["export", "--plugin"]).args([&plugin, &scene.trace_path()]);
    command.env_remove("SUDO_UID").env("SECRET", "mine").uid(USER).gid(USER);
    let ran = run(&mut command).expect(0);
    expect_the_users_rights_without_bounds(&ran);
    assert!(lines_of(&ran, "variable ").contains(&"SECRET=mine"), "{ran:#?}");
    assert_eq!(lines_of(&ran, "call ").len(), scene.trace().calls.len());
    // `sudo -u nobody`, by another user.
    let ran = run(command.env("SUDO_UID", "1")).expect(1);
    expect_one_line(&ran, &["the rights of user 65534", "`sudo` was called by user 1"]);
    // `sudo -g nogroup`, by the same.
    let ran = run(by_sudo(&mut command).env("SUDO_GID", "1")).expect(1);
    expect_one_line(&ran, &["the rights of group 65534", "called by a user of group 1"]);
}

fn expect_the_users_rights_without_bounds(ran: &Ran) {
    assert_eq!(lines_of(ran, "users "), ["65534 65534 65534"]);
    assert_eq!(lines_of(ran, "root "), ["-1 -1"]);
    assert_eq!(lines_of(ran, "CapEff:")[0].trim(), "0000000000000000");
    assert_eq!(lines_of(ran, "CapPrm:")[0].trim(), "0000000000000000");
}

#[test]
fn root_plugins_are_not_even_loaded_without_a_user() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = tells(&scene);
    let loaded = scene.path("loaded");
    for user in [None, Some("0"), Some("nobody"), Some("4294967295")] {
        let mut command = export(&scene, &plugin);
        command.env_remove("SUDO_UID").env("ROCP_TEST_LOADED", &loaded);
        if let Some(user) = user {
            command.env("SUDO_UID", user);
        }
        let ran = run(&mut command).expect(1);
        expect_one_line(
            &ran,
            &["plugins never run as root", "run `roctap export --plugin` as a user"],
        );
        assert!(ran.stdout.is_empty() && !loaded.exists());
    }
    // Who is no user here.
    let mut command = export(&scene, &plugin);
    let ran = run(command.env("SUDO_UID", "54321").env("ROCP_TEST_LOADED", &loaded)).expect(1);
    expect_one_line(&ran, &["plugins never run as root", "no account of user 54321"]);
    assert!(ran.stdout.is_empty() && !loaded.exists());
    // Nor by whoever starts the process that has it.
    let mut host = scene.roctap(&["__plugin", "1", "1", "1"]);
    let ran = run(host.args([&plugin, &scene.trace_path()]).env("ROCP_TEST_LOADED", &loaded));
    ran.expect(127).complains(&["plugins never run as root"]);
    assert!(!loaded.exists());
}
