//! Files, names and memory that a target chose, and that would have root wait, grow, or read what is not
//! the target's. Each time another program is recorded beside it, which nothing of that may touch.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{FileExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use e2e::{Ran, Recorded, Running, Scene, Signal, app, roctap_bin, run, send_signal, wait_until};
use hostile::{NOBODY, as_nobody};
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Memory that roctap may use while it records little, MiB: its rings are 256 of them.
const ENOUGH_MIB: u64 = 1024;
/// What a roctap that is tested can have at most: if it asks for more it ends, and the machine lives.
const LIMIT_KIB: u64 = 12 << 20;

/// The directory of what is built for these tests.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // Where the test programs are: other users can reach that.
        let directory = app("").with_file_name("hostile");
        fs::create_dir_all(&directory).expect("directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("targets");
        let build = |arguments: &[&str], from: &str, to: &str| {
            let mut cc = Command::new("cc");
            cc.args(["-O1", "-Wall", "-Werror", "-pthread"]).args(arguments);
            e2e::compile(cc.arg(source.join(from)), &directory.join(to));
        };
        build(&["-shared", "-fPIC"], "list.c", "list.so");
        build(&["-shared", "-fPIC"], "cycle.c", "cycle.so");
        build(&[], "mapper.c", "mapper");
        directory
    })
}

/// A scene whose programs run as nobody.
fn scene() -> Scene {
    let scene = Scene::default();
    scene.give_to(NOBODY);
    scene
}

/// A program that launches kernels, as nobody.
fn healthy(scene: &Scene) -> Running {
    Running::start(as_nobody(scene.command(app("loop")).args(["0", "1", "200"])))
}

/// The same, which lists these as its code objects too.
fn listing(scene: &Scene, uris: &[String]) -> Command {
    let mut program = scene.command(app("loop"));
    program.args(["0", "1", "200"]);
    program.env("LD_PRELOAD", built().join("list.so")).env("HOSTILE_URIS", uris.join(" "));
    program.env("HOSTILE_GO", scene.path("go"));
    program
}

/// Starts one that lists code objects: it does when it has loaded its own, and the emulated GPU, which follows the list
/// as well, has run each of its kernels once.
fn start_listing(scene: &Scene, program: &mut Command) -> Running {
    let target = Running::start(program);
    scene.wait_for_dispatches(10);
    fs::write(scene.path("go"), "").expect("a file");
    target
}

/// A code object that has one kernel.
fn code_object(path: &Path, kernel: &str) -> String {
    let source = path.with_extension("c");
    let text =
        format!("__attribute__((aligned(64))) char kernel[64] __asm__(\"{kernel}.kd\") = {{1}};");
    fs::write(&source, text).expect("source");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-nostdlib", "-fPIC", "-o"]).arg(path).arg(&source);
    assert!(cc.status().expect("cc").success(), "{kernel}");
    format!("file://{}", path.display())
}

/// `roctap record -p …` with a limit of its memory; ended when dropped.
struct Recording<'a> {
    scene: &'a Scene,
    roctap: Running,
}

impl<'a> Recording<'a> {
    fn of(scene: &'a Scene, pids: &[u32]) -> Self {
        let mut limited = limited(scene, LIMIT_KIB);
        limited.args(["record", "--gpu", "uprobes", "-o"]).arg(scene.trace_path());
        for pid in pids {
            limited.args(["-p", &pid.to_string()]);
        }
        Self { scene, roctap: Running::spawn(&mut limited) }
    }

    /// Waits until the trace is as it should be.
    fn wait(&self, what: &str, done: impl Fn(&Recorded) -> bool) {
        wait_until(what, || self.scene.trace_so_far().is_some_and(|trace| done(&trace)));
    }

    /// Waits until a kernel of that name was named, and process `pid` has launched kernels.
    fn wait_for(&self, kernel: &str, pid: u32) {
        let launched = |trace: &Recorded| trace.dispatches.iter().any(|d| d.process_id == pid);
        let what = format!("{kernel} is named and {pid} recorded");
        self.wait(&what, |trace| kernels(trace).contains(kernel) && launched(trace));
    }

    /// Ends it: it has had little memory, and wrote a whole trace.
    fn end(self) -> (Ran, Recorded) {
        self.end_with(0)
    }

    fn end_with(self, code: i32) -> (Ran, Recorded) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.roctap.pid()));
        let status = status.expect("it lives");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
        assert!(peak_kib >> 10 < ENOUGH_MIB, "roctap used {} MiB", peak_kib >> 10);
        send_signal(self.roctap.pid(), Signal::INT);
        let ran = self.roctap.ended().expect(code);
        assert!(!ran.stderr.contains("panicked"), "{ran:#?}");
        (ran, self.scene.trace())
    }
}

/// `roctap`, with a limit of its memory.
fn limited(scene: &Scene, kib: u64) -> Command {
    let mut shell = scene.command("sh");
    shell.args(["-c", &format!("ulimit -v {kib}; exec \"$@\""), "sh"]).arg(roctap_bin());
    shell
}

/// The names of the kernels that are known.
fn kernels(trace: &Recorded) -> BTreeSet<String> {
    let name =
        |kernel: &tracer_records::model::Kernel| trace.tables().text(kernel.name).into_owned();
    trace.tables().kernels.values().map(name).collect()
}

/// An ELF library with one section of symbols, of which the file is full to its end: most of it is a hole.
fn sparse_library(path: &Path, section: u32, bytes: u64) {
    const HEADERS: u64 = 4096;
    const SYMBOLS: u64 = 8192;
    let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    head.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    // Entry point, program headers, section headers, flags and sizes: no program headers, three sections, the last one
    // for names.
    head.extend([0, 0, HEADERS].iter().flat_map(|word: &u64| word.to_le_bytes()));
    head.extend([0, 0, 0, 0, 64, 0, 56, 0, 0, 0, 64, 0, 3, 0, 2, 0]);
    let header = |kind: u32, offset: u64, size: u64, link: u32, entry: u64| {
        let mut header = [0, kind.to_le()].map(u32::to_le_bytes).concat();
        header.extend([0, 0, offset, size].map(u64::to_le_bytes).concat());
        header.extend([link, 1].map(u32::to_le_bytes).concat());
        header.extend([8, entry].map(u64::to_le_bytes).concat());
        header
    };
    let headers =
        [vec![0; 64], header(section, SYMBOLS, bytes, 2, 24), header(3, 6000, 16, 0, 0)].concat();
    let file = fs::File::create(path).expect("file");
    file.set_len(4 << 40).expect("a hole");
    file.write_all_at(&head, 0).expect("head");
    file.write_all_at(&headers, HEADERS).expect("headers");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("mode");
}

const SYMTAB: u32 = 2;
const DYNSYM: u32 = 11;

#[test]
fn hostile_code_objects_that_are_no_files_are_passed_over() {
    let scene = scene();
    let fifo = scene.path("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("fifo");
    let behind = code_object(&scene.path("behind.so"), "behind_all");
    let named = |path: &Path| format!("file://{}", path.display());
    let uris = [
        named(&fifo),
        named(scene.path(".").as_path()),
        "file:///dev/zero#offset=0&size=0x1000000000".to_owned(),
        "file:///dev/tty".to_owned(),
        "memory://1#offset=0&size=0xffffffffffffffff".to_owned(),
        behind,
    ];
    let target = start_listing(&scene, as_nobody(&mut listing(&scene, &uris)));
    let other = healthy(&scene);
    let recording = Recording::of(&scene, &[target.pid(), other.pid()]);
    recording.wait_for("behind_all", other.pid());
    let (_, trace) = recording.end();
    assert!(kernels(&trace).contains("loop_t0"));
    target.end().expect(0);
    other.end().expect(0);
}

#[test]
fn hostile_sparse_code_object_does_not_fill_the_memory() {
    let scene = scene();
    let sparse = scene.path("sparse.so");
    sparse_library(&sparse, SYMTAB, 2 << 30);
    let behind = code_object(&scene.path("behind.so"), "behind_all");
    let uris = [format!("file://{}", sparse.display()), behind];
    let target = start_listing(&scene, as_nobody(&mut listing(&scene, &uris)));
    let recording = Recording::of(&scene, &[target.pid()]);
    recording.wait_for("behind_all", target.pid());
    recording.end();
    target.end().expect(0);
}

#[test]
fn hostile_sparse_library_does_not_fill_the_memory() {
    let scene = scene();
    let library = scene.path("libamdhip64.so.5");
    sparse_library(&library, DYNSYM, 2 << 30);
    let mut program = scene.command(built().join("mapper"));
    let target = Running::start(as_nobody(program.arg("map").arg(&library)));
    let other = healthy(&scene);
    let recording = Recording::of(&scene, &[other.pid(), target.pid()]);
    recording.wait_for("loop_t0", other.pid());
    // Not all that was asked for is in the trace.
    let (ran, _) = recording.end_with(3);
    ran.complains(&[&format!("process {} is not traced", target.pid()), "not a readable"]);
    target.end().expect(0);
    other.end().expect(0);
}

#[test]
fn hostile_fifo_among_the_libraries_of_a_command() {
    let scene = scene();
    let fifo = scene.path("libamdhip64.so.9");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("fifo");
    let mut command = scene.recording(&[], "basic", &[]);
    let paths = command.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH");
    let mut paths = paths.and_then(|(_, value)| value).expect("a path").to_owned();
    paths.push(":");
    paths.push(scene.path(""));
    let ran = run(command.env("LD_LIBRARY_PATH", paths)).expect(0);
    let trace = scene.trace();
    trace.expect_complete();
    trace.expect_counts(&ran);
}

/// The target may read the links, which lead out of its root from roctap's, but not the files.
#[test]
fn hostile_links_of_a_code_object_stay_inside_the_root() {
    let scene = scene();
    let hidden = scene.path("hidden");
    fs::create_dir(&hidden).expect("directory");
    code_object(&hidden.join("secret.so"), "outside_of_the_root");
    let behind = code_object(&scene.path("behind.so"), "behind_all");
    let root = scene.path("root");
    fs::create_dir(&root).expect("directory");
    let uris = [format!("file://{}/link", hidden.display()), behind];
    let program = listing(&scene, &uris);
    // In its root a link stands where the file is outside.
    let script = "mount --rbind / \"$1\" && mount -t tmpfs none \"$1/$2\" && \
        ln -s \"$2/secret.so\" \"$1/$2/link\" && root=$1 && shift 2 && \
        exec chroot --userspec=65534:65534 \"$root\" \"$@\"";
    let mut confined = scene.command("unshare");
    confined.args(["--mount", "sh", "-c", script, "sh"]).args([&root, &hidden]);
    confined.arg("env").args(program.get_envs().filter_map(|(name, value)| {
        let mut assignment = name.to_owned();
        assignment.push("=");
        assignment.push(value?);
        Some(assignment)
    }));
    confined.arg(program.get_program()).args(program.get_args());
    // What roctap would find.
    symlink(hidden.join("secret.so"), hidden.join("link")).expect("link");
    let target = start_listing(&scene, &mut confined);
    let recording = Recording::of(&scene, &[target.pid()]);
    recording.wait_for("behind_all", target.pid());
    let (_, trace) = recording.end();
    assert!(!kernels(&trace).contains("outside_of_the_root"), "{:?}", kernels(&trace));
    target.end().expect(0);
}

#[test]
fn hostile_code_object_that_only_root_can_read() {
    let scene = scene();
    let private = scene.path("private.so");
    let uri = code_object(&private, "only_for_root");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).expect("mode");
    let link = scene.path("link");
    symlink("/etc/shadow", &link).expect("link");
    let behind = code_object(&scene.path("behind.so"), "behind_all");
    let uris = [uri, format!("file://{}", link.display()), behind];
    let target = start_listing(&scene, as_nobody(&mut listing(&scene, &uris)));
    let recording = Recording::of(&scene, &[target.pid()]);
    recording.wait_for("behind_all", target.pid());
    let (_, trace) = recording.end();
    assert!(!kernels(&trace).contains("only_for_root"), "{:?}", kernels(&trace));
    target.end().expect(0);
}

/// 230 bytes that are 142 MB when they are demangled.
#[test]
fn hostile_name_that_demangles_without_end_stays_as_it_is() {
    let mut mangled = "_Z1f1PIiiE".to_owned();
    for nth in 0..22 {
        let one = match nth {
            0 => "S_".to_owned(),
            n => format!("S{}_", char::from_digit(n - 1, 36).expect("a digit").to_uppercase()),
        };
        mangled += &format!("S_I{one}{one}E");
    }
    let scene = scene();
    let uris = [code_object(&scene.path("name.so"), &mangled)];
    let target = start_listing(&scene, as_nobody(&mut listing(&scene, &uris)));
    let recording = Recording::of(&scene, &[target.pid()]);
    recording.wait_for(&mangled, target.pid());
    let (_, trace) = recording.end();
    let named =
        |kernel: &&tracer_records::model::Kernel| trace.tables().text(kernel.name) == mangled;
    assert!(trace.tables().kernels.values().any(|kernel| named(&kernel)));
    let longest = trace.tables().strings.values().max_by_key(|text| text.len()).expect("strings");
    assert!(longest.len() <= 4096, "{} bytes", longest.len());
    assert!(!trace.tables().strings.values().any(|text| text.starts_with("f(P<")));
    target.end().expect(0);
}

#[test]
fn hostile_list_of_libraries_that_leads_back_to_itself() {
    let scene = scene();
    let mut program = scene.command(built().join("mapper"));
    program.env("LD_PRELOAD", built().join("cycle.so"));
    let target = Running::start(as_nobody(program.arg("map").arg(roctap_bin())));
    let mut doctor = limited(&scene, 1 << 20);
    let ran = run(doctor.args(["doctor", "-p", &target.pid().to_string()]));
    let (out, errors) = (&ran.stdout, &ran.stderr);
    assert!(ran.code.is_some(), "it was ended: {ran:#?}");
    assert!(format!("{out}{errors}").contains("link_map without an end"), "{ran:#?}");
    target.end().expect(0);
}

/// A file's name that a parser of such texts took for shared memory of System V, and ended.
#[test]
fn hostile_name_of_a_mapped_file() {
    let scene = scene();
    let root = scene.path("root");
    fs::create_dir(&root).expect("directory");
    let mut program = scene.command(built().join("mapper"));
    let target = Running::start(program.arg("root").arg(&root).stdin(Stdio::null()));
    let maps = fs::read_to_string(format!("/proc/{}/maps", target.pid())).expect("maps");
    assert!(maps.lines().any(|line| line.ends_with(" /SYSVx")), "{maps}");
    let other = healthy(&scene);
    let recording = Recording::of(&scene, &[target.pid(), other.pid()]);
    recording.wait_for("loop_t0", other.pid());
    recording.end();
    target.end().expect(0);
    other.end().expect(0);
}
