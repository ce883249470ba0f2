//! End-to-end tests that do not run on other releases of ROCm, each with the reason.
//!
//! What a release cannot do for good is asserted by the tests themselves. Here is what cannot be tested in
//! a root, and what is not done yet: lists that get shorter.

/// Tests that are left out for one reason.
pub struct LeftOut {
    pub why: &'static str,
    /// On these releases.
    releases: &'static [&'static str],
    pub tests: &'static [&'static str],
}

impl LeftOut {
    /// Whether a test is left out on a release.
    pub fn has(&self, test: &str, release: &str) -> bool {
        self.releases.contains(&release) && self.tests.contains(&test)
    }
}

pub const LEFT_OUT: &[LeftOut] = &[
    LeftOut {
        why: "the root has no mount, no unshare and no other allocators",
        releases: &["5.7", "6.4", "7.2"],
        tests: &[
            "root_a_full_disk",
            "root_a_pid_namespace_of_its_own",
            "root_attach_again_and_again_under_other_allocators",
            "root_attach_to_a_container",
        ],
    },
    LeftOut {
        why: "failed while the shim did not know these HSA tables, and has not been run since it does",
        releases: &["5.7", "6.4", "7.2"],
        tests: &[
            "root_attach_again_and_again",
            "root_attach_sees_every_kernel_with_its_call",
            "root_attach_to_a_parent_of_forked_workers",
            "root_attach_to_a_pure_hsa_program",
            "root_attach_to_all_that_run_and_that_start",
            "root_attach_to_another_users_process",
            "root_attach_to_fresh_processes",
            "root_calls_of_a_pure_hsa_program_are_those_that_it_made",
            "root_calls_that_are_open_at_the_end_are_marked",
            "root_calls_that_the_compiler_makes_are_recorded_where_asked_for",
            "root_copies_have_their_bytes_and_directions",
            "root_every_setting_of_the_runtime",
            "root_everything_stands_still_now_and_then",
            "root_exceptions_pass_through_recorded_functions",
            "root_full_rings_lose_calls_that_they_count",
            "root_graphs_modules_and_callbacks",
            "root_hsa_calls_are_inside_of_their_hip_calls",
            "root_included_functions_alone_are_recorded",
            "root_join_by_probe_and_by_time_agree",
            "root_more_processes_at_once_than_there_are_memories",
            "root_names_that_are_no_text",
            "root_nobody_listens",
            "root_outside_where_the_shim_does_not_know_the_tables",
            "root_redirected_functions_are_recorded_by_the_shim_where_it_is",
            "root_shim_and_probes_record_the_same_calls",
            "root_storm_of_8_threads_4_streams_5000_launches",
            "root_storm_with_clock_offset_and_drift",
            "root_tiny_shim_rings_lose_what_they_count",
        ],
    },
    LeftOut {
        why: "before the first call it is not known where HIP calls and doorbells can be probed cheaply",
        releases: &["6.4", "7.2"],
        tests: &[
            "root_a_corrupted_trace_file",
            "root_a_failed_start_leaves_nothing",
            "root_a_limit_of_file_sizes",
            "root_a_program_that_never_touches_the_gpu",
            "root_an_existing_output_file",
            "root_attach_by_uprobes_alone_is_marked_partial",
            "root_attach_follows_children_and_programs_that_are_executed",
            "root_attach_leaves_out_what_the_shim_calls",
            "root_attach_survives_a_killed_roctap",
            "root_attach_to_many_reads_the_first_meanwhile",
            "root_children_are_followed_with_their_gpu_work",
            "root_ctrl_c_ends_cleanly",
            "root_exceptions_pass_through_probed_functions",
            "root_killing_roctap_leaves_the_target_and_a_readable_trace",
            "root_killing_the_target_keeps_everything_up_to_then",
            "root_no_follow_leaves_children_alone",
            "root_nohup_and_a_command_that_goes_on",
            "root_outside_hip_launches_are_seen_by_name",
            "root_outside_of_a_running_process",
            "root_outside_packets_of_four_producers",
            "root_outside_short_programs_whose_shim_is_helpless",
            "root_outside_times_of_packets_with_signals",
            "root_signals_end_a_recording",
            "root_tiny_api_rings_lose_what_they_count",
            "root_what_the_shim_cannot_record_without_itself_is_told",
        ],
    },
    LeftOut {
        why: "on a busy machine a worker can end before its kernels' names are read from outside; not run since the shim knows these HSA tables",
        releases: &["5.7", "6.4", "7.2"],
        tests: &[
            "root_forked_workers_are_followed_with_their_gpu_work",
            "root_more_processes_one_after_the_other_than_there_are_memories",
        ],
    },
    LeftOut {
        why: "on a busy machine a call is now and then counted as lost since its entry was not seen, for a reason not found yet",
        releases: &["5.7", "6.4", "7.2"],
        tests: &[
            "root_redirected_functions_are_probed_where_the_user_chooses",
            "root_uprobes_alone_leave_nothing_in_the_target",
        ],
    },
];
