//! A program that a test has started, which ends with the test: one that fails leaves none running.

use std::{
    io::{self, Read as _},
    ops::{Deref, DerefMut},
    process::{self, Command, Output},
    thread,
};

/// A started program, killed when dropped.
pub struct Child(process::Child);

impl Child {
    /// Starts a program.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self)
    }

    /// Waits for its end, and reads what it wrote to its pipes meanwhile.
    ///
    /// # Errors
    ///
    /// Those of reading and waiting.
    pub fn output(mut self) -> io::Result<Output> {
        let (out, err) = (self.stdout.take(), self.stderr.take());
        let errors = thread::spawn(move || {
            let mut errors = Vec::new();
            err.map_or(Ok(0), |mut err| err.read_to_end(&mut errors)).map(|_| errors)
        });
        let mut stdout = Vec::new();
        out.map_or(Ok(0), |mut out| out.read_to_end(&mut stdout))?;
        let stderr = errors.join().unwrap_or_else(|_| Err(io::Error::other("a panic")))?;
        Ok(Output { status: self.wait()?, stdout, stderr })
    }
}

impl Deref for Child {
    type Target = process::Child;

    fn deref(&self) -> &process::Child {
        &self.0
    }
}

impl DerefMut for Child {
    fn deref_mut(&mut self) -> &mut process::Child {
        &mut self.0
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Not of a test that went well: it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn cat() -> Child {
        let mut cat = Command::new("cat");
        Child::start(cat.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap()
    }

    #[test]
    fn a_test_that_fails_leaves_no_program() {
        let child = cat();
        let pid = child.id();
        thread::spawn(move || {
            let _child = child;
            std::panic::resume_unwind(Box::new("the test fails"));
        })
        .join()
        .unwrap_err();
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn what_it_wrote_is_read() {
        let mut child = cat();
        io::Write::write_all(&mut child.stdin.take().unwrap(), b"text").unwrap();
        let output = child.output().unwrap();
        assert!(output.status.success() && output.stdout == b"text" && output.stderr.is_empty());
    }
}
