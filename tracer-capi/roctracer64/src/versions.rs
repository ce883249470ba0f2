//! The second version of functions: the specification says of each that its version is "ROCTRACER_4.1" (3.1),
//! while programs that were linked against AMD's library ask most of them for "ROCTRACER_4.0".
//!
//! That one is the default (`exports.map`), which programs without versions get as well. The other one jumps
//! to it.

#![expect(unsafe_code, reason = "symbols of a second version")]

use core::arch::global_asm;

macro_rules! also_in_4_1 {
    ($($function:literal)*) => {
        $(global_asm!(
            concat!(".pushsection .text.", $function, ".4.1, \"ax\", @progbits"),
            concat!(".globl ", $function, "_in_4_1"),
            concat!(".type ", $function, "_in_4_1, @function"),
            concat!($function, "_in_4_1:"),
            concat!("jmp ", $function, "@PLT"),
            concat!(".size ", $function, "_in_4_1, . - ", $function, "_in_4_1"),
            concat!(".symver ", $function, "_in_4_1, ", $function, "@ROCTRACER_4.1"),
            ".popsection",
        );)*
    };
}

also_in_4_1! {
    "roctracer_activity_pop_external_correlation_id"
    "roctracer_activity_push_external_correlation_id"
    "roctracer_close_pool_expl"
    "roctracer_default_pool_expl"
    "roctracer_disable_domain_activity"
    "roctracer_disable_domain_callback"
    "roctracer_disable_op_activity"
    "roctracer_disable_op_callback"
    "roctracer_enable_domain_activity_expl"
    "roctracer_enable_domain_callback"
    "roctracer_enable_op_activity_expl"
    "roctracer_enable_op_callback"
    "roctracer_error_string"
    "roctracer_flush_activity_expl"
    "roctracer_get_timestamp"
    "roctracer_op_code"
    "roctracer_op_string"
    "roctracer_open_pool_expl"
    "roctracer_set_properties"
    "roctracer_start"
    "roctracer_stop"
    "roctracer_version_major"
    "roctracer_version_minor"
}
