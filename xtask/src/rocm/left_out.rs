//! End-to-end tests, and those of libraries, that do not run on other releases of ROCm, each with the reason.
//!
//! What a release cannot do for good is asserted by the tests themselves. Here is what cannot be tested in
//! a root, and what is not done yet: lists that get shorter.

use super::root::is_release;

/// Tests that are left out for one reason.
pub struct LeftOut {
    pub why: &'static str,
    /// On these releases, or on all that are one of these: of `6`, whichever Debian has.
    releases: &'static [&'static str],
    /// Those of a library with its package: `roctracer64::rocm_…`.
    pub tests: &'static [&'static str],
}

impl LeftOut {
    /// Whether a test is left out on a release.
    pub fn has(&self, test: &str, release: &str) -> bool {
        self.releases.iter().any(|left| is_release(release, left)) && self.tests.contains(&test)
    }
}

pub const LEFT_OUT: &[LeftOut] = &[
    LeftOut {
        why: "the root has no mount, no unshare and no other allocators",
        releases: &["5.7", "6", "7.2"],
        tests: &[
            "root_a_full_disk",
            "root_a_pid_namespace_of_its_own",
            "root_a_pid_namespace_without_a_proc_of_its_own",
            "root_a_shim_that_was_not_loaded_at_start",
            "root_a_time_namespace",
            "root_attach_again_and_again_under_other_allocators",
            "root_attach_to_a_container",
        ],
    },
    LeftOut {
        why: "the file does not tell where this release's HSA functions are, and they are not looked for again once the runtime has made its tables: without the shim they and doorbells are probed with -p alone",
        releases: &["6", "7.2"],
        tests: &[
            "root_fibres",
            "root_more_processes_at_once_than_there_are_memories",
            "root_outside_hip_launches_are_seen_by_name",
            "root_outside_packets_of_four_producers",
            "root_outside_short_programs_whose_shim_is_helpless",
            "root_outside_times_of_packets_with_signals",
            "root_redirected_functions_are_probed_behind_the_other_tool",
            "root_shim_and_probes_record_the_same_calls",
        ],
    },
    LeftOut {
        why: "a worker that ends by _exit takes the ends of more of its kernels along than on 5.2.3; they are counted",
        releases: &["6", "7.2"],
        tests: &[
            "root_forked_workers_are_followed_with_their_gpu_work",
            "root_more_processes_one_after_the_other_than_there_are_memories",
        ],
    },
    LeftOut {
        why: "workers start and end faster on this release than shims get into them: few are recorded as a whole, what the others launched is told",
        releases: &["7.2"],
        tests: &["root_attach_to_a_parent_of_forked_workers"],
    },
    LeftOut {
        why: "some settings have this runtime use packets of AMD's own kind, which are counted and not recorded",
        releases: &["5.7", "6", "7.2"],
        tests: &["root_every_setting_of_the_runtime"],
    },
    LeftOut {
        why: "the program wants stacks near the block of its first thread, which this release's C library has elsewhere",
        releases: &["5.7"],
        tests: &["root_fibres"],
    },
    LeftOut {
        why: "HIP of this release crashes programs that launch and copy on several threads, also untraced (storm 5 of 40 times)",
        releases: &["7.2"],
        tests: &[
            "roctracer64::rocm_callbacks_and_pools_that_change",
            "roctracer64::rocm_callbacks_that_call_hip",
            "roctracer64::rocm_calls_of_hsa",
            "roctracer64::rocm_clients_like_profilers",
            "roctracer64::rocm_every_call_of_threads",
            "roctracer64::rocm_work_of_threads",
            "roctracer-tool::rocm_nothing_is_lost",
            "roctracer-tool::rocm_programs_that_use_hip",
        ],
    },
    LeftOut {
        why: "from outside, kernels have no names where a program's path is no text",
        releases: &["6", "7.2"],
        tests: &["root_names_that_are_no_text"],
    },
];
