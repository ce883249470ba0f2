//! Runs commands, saying which.

use std::{
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

/// A cargo of this toolchain, in the workspace. What it builds is in the workspace's `target`, where the rest of xtask
/// looks for it, whatever the environment says.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).env("CARGO_TARGET_DIR", root().join("target"));
    command
}

/// A command for people to read.
pub fn show(command: &Command) -> String {
    let parts = std::iter::once(command.get_program()).chain(command.get_args());
    parts.map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A command for a shell to run.
pub fn show_quoted(command: &Command) -> String {
    let parts = std::iter::once(command.get_program()).chain(command.get_args());
    parts.map(|part| quoted(&part.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// A word of the shell's.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
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
    fn words_are_quoted() {
        assert_eq!(super::quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn times_are_words() {
        assert_eq!(super::in_words(Duration::from_millis(59_900)), "59 s");
        assert_eq!(super::in_words(Duration::from_secs(190)), "3 min 10 s");
    }
}
