//! A line of each file, without its end.
//!
//! Names, arguments and results are written as they are given: the caller makes those of a program
//! [`clean`](crate::clean()) first.

use std::fmt::{self, Display, Formatter};

/// The begin of the lines of calls: `<begin>:<end> <pid>:<tid> `.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The time when it began.
    pub begin_ns: u64,
    /// The time when it returned.
    pub end_ns: u64,
    /// The process that made it.
    pub process_id: u32,
    /// The thread that made it.
    pub thread_id: u32,
    /// Joins it with the work that it started.
    pub correlation_id: u64,
}

impl Display for Call {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let Self { begin_ns, end_ns, process_id, thread_id, .. } = self;
        write!(to, "{begin_ns}:{end_ns} {process_id}:{thread_id} ")
    }
}

/// A line of `hip_api_trace.txt`:
/// `<begin>:<end> <pid>:<tid> <function>(<args>[, result=<result>])[ kernel=<kernel>] :<correlation id>`.
#[derive(Clone, Copy, Debug)]
pub struct HipCall<'a> {
    /// The call's process, thread and times.
    pub call: Call,
    /// The function.
    pub name: &'a str,
    /// Its arguments, without parentheses.
    pub args: &'a str,
    /// Its result; empty where it has none. It is written as one more argument: rocprof takes the arguments of HIP only
    /// from lines that end in their parenthesis, apart from the kernel and the id.
    pub result: &'a str,
    /// The kernel that it launched.
    pub kernel: Option<&'a str>,
}

impl Display for HipCall<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let Self { call, name, args, result, kernel } = self;
        write!(to, "{call}{name}({args}")?;
        match (args.is_empty(), result.is_empty()) {
            (_, true) => {}
            (true, false) => write!(to, "result={result}")?,
            (false, false) => write!(to, ", result={result}")?,
        }
        to.write_str(")")?;
        if let Some(kernel) = kernel {
            write!(to, " kernel={kernel}")?;
        }
        write!(to, " :{}", call.correlation_id)
    }
}

/// A line of `hsa_api_trace.txt`:
/// `<begin>:<end> <pid>:<tid> <function>(<args>) = <result> :<correlation id>`.
#[derive(Clone, Copy, Debug)]
pub struct HsaCall<'a> {
    /// The call's process, thread and times.
    pub call: Call,
    /// The function.
    pub name: &'a str,
    /// Its arguments, without parentheses.
    pub args: &'a str,
    /// Its result; empty where it has none, which is written as `void`.
    pub result: &'a str,
}

impl Display for HsaCall<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let Self { call, name, args, result } = self;
        let result = if result.is_empty() { "void" } else { result };
        write!(to, "{call}{name}({args}) = {result} :{}", call.correlation_id)
    }
}

/// A line of `hcc_ops_trace.txt`: `<begin>:<end> <device>:<queue> <name>:<correlation id>:<pid>`.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// The time when the GPU began.
    pub begin_ns: u64,
    /// The time when it was done.
    pub end_ns: u64,
    /// The GPU.
    pub device: u32,
    /// The queue.
    pub queue: u64,
    /// The name of the work; no colon is in it ([`operation_name`](crate::names::operation_name)).
    pub name: &'a str,
    /// The call that enqueued it.
    pub correlation_id: u64,
    /// The process of that call.
    pub process_id: u32,
}

impl Display for Operation<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let Self { begin_ns, end_ns, device, queue, name, correlation_id, process_id } = self;
        write!(to, "{begin_ns}:{end_ns} {device}:{queue} {name}:{correlation_id}:{process_id}")
    }
}

/// A line of `async_copy_trace.txt`: `<begin>:<end> async-copy:<correlation id>:<pid>`.
#[derive(Clone, Copy, Debug)]
pub struct AsyncCopy {
    /// The time when the copy began.
    pub begin_ns: u64,
    /// The time when it was done.
    pub end_ns: u64,
    /// The call that enqueued it.
    pub correlation_id: u64,
    /// The process of that call.
    pub process_id: u32,
}

impl Display for AsyncCopy {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let Self { begin_ns, end_ns, correlation_id, process_id } = self;
        write!(to, "{begin_ns}:{end_ns} async-copy:{correlation_id}:{process_id}")
    }
}

/// A line of `roctx_trace.txt`: `<time> <pid>:<tid> <operation>:<id>:"<message>"`.
#[derive(Clone, Copy, Debug)]
pub struct Mark<'a> {
    /// The time of the mark.
    pub time_ns: u64,
    /// The process that made it.
    pub process_id: u32,
    /// The thread that made it.
    pub thread_id: u32,
    /// The function of roctx, as `roctx_api_id_t`.
    pub operation: u32,
    /// The range's id, 0 where there is none.
    pub id: u64,
    /// Empty where there is none.
    pub message: &'a str,
}

impl Display for Mark<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let Self { time_ns, process_id, thread_id, operation, id, message } = self;
        write!(to, "{time_ns} {process_id}:{thread_id} {operation}:{id}:\"{message}\"")
    }
}

/// A line of `hsa_handles.txt`: `0x<handle> agent cpu|gpu`.
#[derive(Clone, Copy, Debug)]
pub struct Agent {
    /// The runtime's handle of the agent.
    pub handle: u64,
    /// Whether it is a CPU; every other agent counts as a GPU here.
    pub is_cpu: bool,
}

impl Display for Agent {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let Self { handle, is_cpu } = self;
        write!(to, "{handle:#x} agent {}", if *is_cpu { "cpu" } else { "gpu" })
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    const CALL: Call =
        Call { begin_ns: 10, end_ns: 20, process_id: 7, thread_id: 8, correlation_id: 5 };

    /// Whether all of `line` matches an expression of rocprof's `tblextr.py`.
    fn takes(expression: &str, line: &str) -> bool {
        Regex::new(expression).expect("an expression").is_match(line)
    }

    const API: &str = r"^(\d+):(\d+) (\d+):(\d+) ([^\(]+)(\(.*)$";
    const ID: &str = r" :(\d*)$";

    #[test]
    fn calls_of_hip() {
        let line = |args, result, kernel| {
            HipCall { call: CALL, name: "hipMalloc", args, result, kernel }.to_string()
        };
        let [id, kernel] =
            [ID, r"\s+kernel=(.*)$"].map(|of| Regex::new(of).expect("an expression"));
        for (line, expected) in [
            (line("", "", None), "10:20 7:8 hipMalloc() :5"),
            (line("a=1", "", None), "10:20 7:8 hipMalloc(a=1) :5"),
            (line("", "hipSuccess", None), "10:20 7:8 hipMalloc(result=hipSuccess) :5"),
            (
                line("a=1", "?", Some("void k()")),
                "10:20 7:8 hipMalloc(a=1, result=?) kernel=void k() :5",
            ),
        ] {
            assert_eq!(line, expected);
            assert!(takes(API, &line) && takes(ID, &line), "{line}");
            // The arguments are taken of the line without its id and its kernel.
            let bare = id.replace(&line, "").into_owned();
            let bare = kernel.replace(&bare, "");
            assert!(takes(r"^(\d+:\d+ \d+:\d+ \w+)\(\s*(.*)\)$", &bare), "{bare}");
        }
    }

    #[test]
    fn calls_of_hsa() {
        let line = |args, result| {
            HsaCall { call: CALL, name: "hsa_signal_destroy", args, result }.to_string()
        };
        assert_eq!(line("{handle=1}", "0"), "10:20 7:8 hsa_signal_destroy({handle=1}) = 0 :5");
        assert_eq!(line("", ""), "10:20 7:8 hsa_signal_destroy() = void :5");
        assert!(takes(API, &line("", "")) && takes(ID, &line("", "")));
    }

    #[test]
    fn work_of_gpus() {
        let line = Operation {
            begin_ns: 10,
            end_ns: 20,
            device: 1,
            queue: 2,
            name: "k",
            correlation_id: 5,
            process_id: 7,
        };
        let line = line.to_string();
        assert_eq!(line, "10:20 1:2 k:5:7");
        let groups = Regex::new(r"^(\d+):(\d+) (\d+):(\d+) (.*)$").expect("an expression");
        let label = groups.captures(&line).expect("taken")[5].to_owned();
        assert!(takes(r"^([^:]+):(\d+):(\d+)$", &label), "{label}");

        let copy = AsyncCopy { begin_ns: 10, end_ns: 20, correlation_id: 5, process_id: 7 };
        assert_eq!(copy.to_string(), "10:20 async-copy:5:7");
        assert!(takes(r"^(\d+):(\d+) (async-copy):(\d+):(\d+)$", &copy.to_string()));
    }

    #[test]
    fn marks_and_agents() {
        let mark = Mark {
            time_ns: 10,
            process_id: 7,
            thread_id: 8,
            operation: 3,
            id: 1,
            message: "a \"b\"",
        };
        assert_eq!(mark.to_string(), "10 7:8 3:1:\"a \"b\"\"");
        assert!(takes(r#"^(\d+) (\d+):(\d+) (\d+):(\d+):"(.*)"$"#, &mark.to_string()));
        let agents = [true, false].map(|is_cpu| Agent { handle: 0x1d2e480, is_cpu }.to_string());
        assert_eq!(agents, ["0x1d2e480 agent cpu", "0x1d2e480 agent gpu"]);
        assert!(takes("^(0x[0-9a-fA-F]+) agent cpu", &agents[0]));
    }
}
