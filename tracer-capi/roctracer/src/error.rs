//! Status codes, and the text of a thread's last error.

use std::cell::RefCell;

/// `roctracer_status_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Status(pub i32);

impl Status {
    /// It was done.
    pub const SUCCESS: Self = Self(0);
    /// No other code says what happened.
    pub const ERROR: Self = Self(-1);
    /// No such domain, or none that this can be done with.
    pub const INVALID_DOMAIN_ID: Self = Self(-2);
    /// An argument is not valid.
    pub const INVALID_ARGUMENT: Self = Self(-3);
    /// No pool was given, and there is no default pool.
    pub const DEFAULT_POOL_UNDEFINED: Self = Self(-4);
    /// There is a default pool already.
    pub const DEFAULT_POOL_ALREADY_DEFINED: Self = Self(-5);
    /// There is no memory.
    pub const MEMORY_ALLOCATION: Self = Self(-6);
    /// A thread has popped more external correlation ids than it has pushed.
    pub const MISMATCHED_EXTERNAL_CORRELATION_ID: Self = Self(-7);
}

/// The reason for which something was not done. The texts are those of AMD's library, where it has any: some begin with
/// the function of its own that found the error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// There is no such domain, or it has no operations.
    #[error("invalid domain ID")]
    InvalidDomain {
        /// `activity_domain_t`, as it was given.
        domain: u32,
    },

    /// The operations of the domain cannot be found by name.
    #[error("roctracer_op_code(), limited domain ID({domain})")]
    LimitedDomain {
        /// `activity_domain_t`, as it was given.
        domain: u32,
    },

    /// The domain has no properties.
    #[error("roctracer_set_properties(), invalid domain ID({domain})")]
    NoProperties {
        /// `activity_domain_t`, as it was given.
        domain: u32,
    },

    /// The domain has no such operation, there is no callback, or a pointer is null that may not be.
    #[error("invalid argument")]
    InvalidArgument,

    /// HSA has no such event, or operation of a GPU.
    #[error("invalid HSA {what} callback id")]
    InvalidOperation {
        /// `OPS` or `EVT`.
        what: &'static str,
    },

    /// No operation of the domain has this name.
    #[error("roctracer_op_code(), Invalid API name \"{name}\", domain ID({domain})")]
    InvalidName {
        /// The name that was given.
        name: String,
        /// `activity_domain_t`, as it was given.
        domain: u32,
    },

    /// No pool was given, and there is no default pool.
    #[error("roctracer_enable_activity_impl(), no default pool")]
    NoDefaultPool,

    /// There is a default pool already.
    #[error("roctracer_open_pool_impl(), default pool already set")]
    DefaultPoolDefined,

    /// The allocator gave no memory, or none that records can be stored in.
    #[error("roctracer_open_pool_impl(), MemoryPool() error")]
    NoMemory,

    /// The system did not start the pool's thread.
    #[error("cannot start the thread of a pool: {reason}")]
    NoThread {
        /// The system's reason.
        reason: String,
    },

    /// The pool is closed, or belongs to the process that this one was forked from.
    #[error("the pool is closed")]
    PoolClosed,

    /// The runtime that is loaded is of no release whose way of telling a tracer of calls is known.
    #[error(
        "calls of {library} cannot be traced: its release is not known, and later than {latest}"
    )]
    UnknownRuntime {
        /// Its file.
        library: String,
        /// The latest release that is known.
        latest: &'static str,
    },

    /// The thread has no external correlation id.
    #[error(
        "roctracer_activity_pop_external_correlation_id(), unbalanced external correlation id pop"
    )]
    NoExternalId,

    /// A fault of this library's own.
    #[error("a fault in this library, which is one to report")]
    Internal,
}

impl Error {
    /// The status code.
    pub const fn status(&self) -> Status {
        match self {
            Self::InvalidDomain { .. } | Self::LimitedDomain { .. } | Self::NoProperties { .. } => {
                Status::INVALID_DOMAIN_ID
            }
            Self::InvalidArgument | Self::InvalidOperation { .. } | Self::InvalidName { .. } => {
                Status::INVALID_ARGUMENT
            }
            Self::NoDefaultPool => Status::DEFAULT_POOL_UNDEFINED,
            Self::DefaultPoolDefined => Status::DEFAULT_POOL_ALREADY_DEFINED,
            Self::NoMemory => Status::MEMORY_ALLOCATION,
            Self::NoThread { .. }
            | Self::PoolClosed
            | Self::UnknownRuntime { .. }
            | Self::Internal => Status::ERROR,
            Self::NoExternalId => Status::MISMATCHED_EXTERNAL_CORRELATION_ID,
        }
    }
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps an error as the last one of the calling thread, for [`last`]. `function` is the function that the client
/// has called.
pub fn keep(function: &str, error: &Error) {
    // A thread that is ending has no text any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = format!("{function}(), {error}"));
}

/// The last error of the calling thread; empty if there was none. It is not cleared.
pub fn last() -> String {
    LAST.try_with(|last| last.borrow().clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_error_is_the_threads_own_and_stays() {
        assert_eq!(last(), "");
        keep("roctracer_open_pool", &Error::DefaultPoolDefined);
        let text = "roctracer_open_pool(), roctracer_open_pool_impl(), default pool already set";
        assert_eq!(last(), text);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(last(), ""));
        });
        assert_eq!(last(), text);
        keep("roctracer_op_code", &Error::InvalidName { name: "hipNo".into(), domain: 3 });
        let text =
            "roctracer_op_code(), roctracer_op_code(), Invalid API name \"hipNo\", domain ID(3)";
        assert_eq!(last(), text);
    }
}
