//! A kernel is supported, or it is refused quickly and in a few words. On those that are too old, this is
//! the one test that `cargo xtask test --kernels` runs.

use e2e::{Scene, run};
use roctap::plan::KernelVersion;

use crate::{kernel, tell};

/// What roctap cannot do without came in 5.15.
const OLDEST: KernelVersion = KernelVersion::new(5, 15);

#[test]
fn root_kernel_supported_or_refused() {
    let scene = Scene::default();
    let doctor = run(&mut scene.roctap(&["doctor"]));
    let options = ["--gpu", "off", "--api", "hsa"];
    let ran = scene.record_app(&options, "hsa_direct", &["s", "1"]);
    println!("{}", doctor.stdout);
    tell(&ran);
    if kernel() >= OLDEST {
        doctor.expect(0);
        ran.expect(0);
        return;
    }
    let version = format!("{}.{}.", kernel().major, kernel().minor);
    let doctor = doctor.expect(1);
    let missing = "cookies of probes (Linux 5.15)";
    for (what, said) in [("doctor", &doctor.stdout), ("record", &ran.stderr)] {
        assert!(said.contains(&version) && said.contains(missing), "{what}: {said}");
    }
    assert!(ran.stderr.lines().count() <= 20, "{ran:#?}");
    let ran = ran.expect(1);
    assert_eq!(ran.stdout, "", "the program was not started");
    assert!(!scene.trace_path().exists());
}
