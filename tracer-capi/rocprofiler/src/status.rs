//! The result of a function of the interface.

/// Makes [`Status`], each with its name and the sentence that says what it means.
macro_rules! statuses {
    ($($variant:ident $name:literal $text:literal,)*) => {
        /// `rocprofiler_status_t`, in the order of the 1.0 interface, which has all of them.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        pub enum Status {
            $(#[doc = $text] $variant,)*
        }

        impl Status {
            /// All of them, in their order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name of its constant, which ends in NUL.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!("ROCPROFILER_STATUS_", $name, "\0"),)*
                }
            }

            /// What it means, in a sentence that ends in NUL.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($text, "\0"),)*
                }
            }
        }
    };
}

statuses! {
    Success "SUCCESS" "Success",
    Error "ERROR" "General error",
    ContextNotFound "ERROR_CONTEXT_NOT_FOUND" "There is no context of this id",
    BufferNotFound "ERROR_BUFFER_NOT_FOUND" "There is no buffer of this id",
    KindNotFound "ERROR_KIND_NOT_FOUND" "There is no kind of this number",
    OperationNotFound "ERROR_OPERATION_NOT_FOUND" "The kind has no operation of this number",
    ThreadNotFound "ERROR_THREAD_NOT_FOUND" "There is no callback thread of this id",
    AgentNotFound "ERROR_AGENT_NOT_FOUND" "There is no agent of this id",
    CounterNotFound "ERROR_COUNTER_NOT_FOUND" "There is no counter of this id",
    ContextError "ERROR_CONTEXT_ERROR" "General error of a context",
    ContextInvalid "ERROR_CONTEXT_INVALID" "The context is not valid for this",
    ContextNotStarted "ERROR_CONTEXT_NOT_STARTED" "The context could not be started",
    ContextConflict "ERROR_CONTEXT_CONFLICT" "The context conflicts with one that is active",
    ContextIdNotZero "ERROR_CONTEXT_ID_NOT_ZERO" "The place for the id of a context does not hold 0",
    BufferBusy "ERROR_BUFFER_BUSY" "The buffer is being delivered",
    ServiceAlreadyConfigured "ERROR_SERVICE_ALREADY_CONFIGURED" "The service is configured already",
    ConfigurationLocked "ERROR_CONFIGURATION_LOCKED" "Only a tool's initialize function may configure this",
    NotImplemented "ERROR_NOT_IMPLEMENTED" "This is not implemented",
    IncompatibleAbi "ERROR_INCOMPATIBLE_ABI" "A structure does not have the size that this version expects",
    InvalidArgument "ERROR_INVALID_ARGUMENT" "An argument is not valid",
    MetricNotValidForAgent "ERROR_METRIC_NOT_VALID_FOR_AGENT" "The agent does not have this metric",
    Finalized "ERROR_FINALIZED" "The library is finalized",
    HsaNotLoaded "ERROR_HSA_NOT_LOADED" "The HSA runtime is not loaded",
    DimNotFound "ERROR_DIM_NOT_FOUND" "The counter has no such dimension",
    ProfileCounterNotFound "ERROR_PROFILE_COUNTER_NOT_FOUND" "The GPU has no counter that the profile asks for",
    AstGenerationFailed "ERROR_AST_GENERATION_FAILED" "The expression of a counter could not be evaluated",
    AstNotFound "ERROR_AST_NOT_FOUND" "The counter has no expression",
    AqlNoEventCoord "ERROR_AQL_NO_EVENT_COORD" "The counter has no coordinates in the hardware",
    IncompatibleKernel "ERROR_INCOMPATIBLE_KERNEL" "The service needs a newer kernel driver",
    OutOfResources "ERROR_OUT_OF_RESOURCES" "Memory, or another resource, does not suffice",
    ProfileNotFound "ERROR_PROFILE_NOT_FOUND" "There is no profile of this id",
    AgentDispatchConflict "ERROR_AGENT_DISPATCH_CONFLICT" "A context cannot count by agent and by dispatch at once",
    InternalNoAgentContext "INTERNAL_NO_AGENT_CONTEXT" "No context counts by agent",
    SampleRateExceeded "ERROR_SAMPLE_RATE_EXCEEDED" "A sample is still being taken",
    NoProfileQueue "ERROR_NO_PROFILE_QUEUE" "The agent has no queue for profiles",
    NoHardwareCounters "ERROR_NO_HARDWARE_COUNTERS" "None of the counters is of the hardware",
    AgentMismatch "ERROR_AGENT_MISMATCH" "The profile is of another agent than the context",
    NotAvailable "ERROR_NOT_AVAILABLE" "The service is not available here",
    ExceedsHwLimit "ERROR_EXCEEDS_HW_LIMIT" "The hardware cannot collect as much",
    AgentArchNotSupported "ERROR_AGENT_ARCH_NOT_SUPPORTED" "No metrics are known of the agent's architecture",
    PermissionDenied "ERROR_PERMISSION_DENIED" "The caller may not do this",
}

/// The result of a function of this crate: [`Status::Success`] is `Ok`.
pub type Result<T = ()> = core::result::Result<T, Status>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_name_and_its_text() {
        for (number, status) in Status::ALL.iter().enumerate() {
            assert_eq!(*status as usize, number);
        }
        assert_eq!(Status::ALL.len(), 41);
        assert_eq!(Status::Finalized.name(), "ROCPROFILER_STATUS_ERROR_FINALIZED\0");
        assert_eq!(Status::Success.text(), "Success\0");
    }
}
