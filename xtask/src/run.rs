//! Runs commands, saying which.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};

/// The workspace's root directory.
pub fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    manifest.and_then(|dir| dir.parent().map(Path::to_owned)).unwrap_or_else(|| ".".into())
}

/// A cargo of this toolchain, in the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

fn show(command: &Command) -> String {
    let parts = std::iter::once(command.get_program()).chain(command.get_args());
    parts.map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs a command, its output going where ours goes.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = show(command);
    println!("\n$ {shown}");
    let status = command.status().with_context(|| format!("cannot run: {shown}"))?;
    if !status.success() {
        bail!("failed with {status}: {shown}");
    }
    Ok(())
}

/// Runs a command, passing its standard output through and returning it too.
pub fn run_and_read(command: &mut Command) -> anyhow::Result<String> {
    let shown = show(command);
    println!("\n$ {shown}");
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run: {shown}"))?;
    let mut output = String::new();
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        output.push_str(&line);
        output.push('\n');
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("failed with {status}: {shown}");
    }
    Ok(output)
}

/// Runs a command, returning its standard output instead of passing it through.
pub fn run_silently(command: &mut Command) -> anyhow::Result<String> {
    let shown = show(command);
    println!("\n$ {shown}");
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run: {shown}"))?;
    if !output.status.success() {
        bail!("failed with {}: {shown}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a command prints, or nothing when it fails or is not there.
pub fn output(program: &str, arguments: &[&str]) -> Option<String> {
    output_of(Command::new(program).args(arguments))
}

/// The same of a command that was made elsewhere.
pub fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The sum of what the test runner's closing lines say.
pub fn passed(printed: &str) -> u64 {
    printed
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "))
        .filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// A time as people say it.
pub fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 60 {
        0 => format!("{seconds} s"),
        minutes => format!("{minutes} min {} s", seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn closing_lines_are_summed() {
        let printed =
            "running\ntest result: ok. 3 passed; 0 failed\nx\ntest result: ok. 4 passed; 1";
        assert_eq!(super::passed(printed), 7);
        assert_eq!(super::passed("test result: FAILED. 3 passed"), 0);
    }

    #[test]
    fn times_are_words() {
        assert_eq!(super::in_words(Duration::from_millis(59_900)), "59 s");
        assert_eq!(super::in_words(Duration::from_secs(190)), "3 min 10 s");
    }
}
