//! Runs of kubectl (or another program) to their end, with a deadline.

use std::ffi::{OsStr, OsString};
use std::future::IntoFuture;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The output of a program and its exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The exit code, or -1 if a signal ended the program.
    pub code: i32,
    /// The program's standard output.
    pub stdout: String,
    /// The program's standard error.
    pub stderr: String,
}

impl Output {
    /// Whether the exit code is 0.
    pub fn succeeded(&self) -> bool {
        self.code == 0
    }

    /// The standard output.
    ///
    /// # Errors
    ///
    /// Fails with the standard error unless the exit code is 0.
    pub fn success(self) -> Result<String> {
        if self.succeeded() {
            return Ok(self.stdout);
        }
        bail!("exit code {}: {}", self.code, self.stderr.trim());
    }
}

/// An invocation of a program, to be `.await`ed.
#[derive(Clone, Debug)]
#[must_use = "nothing runs until this is awaited"]
pub struct Invocation {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    stdin: Vec<u8>,
    timeout: Duration,
}

impl Invocation {
    /// `program` without arguments, with a time limit of a minute.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            stdin: Vec::new(),
            timeout: Duration::from_secs(60),
        }
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Runs as the user of this kubeconfig instead of the administrator.
    pub fn kubeconfig(self, path: &Path) -> Self {
        self.env("KUBECONFIG", path)
    }

    /// Sets the standard input, such as a manifest for `apply -f -`.
    pub fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stdin = text.into();
        self
    }

    /// Sets the time limit, after which the program is killed.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    async fn run(self) -> Result<Output> {
        let Self {
            program,
            args,
            env,
            stdin,
            timeout,
        } = self;
        let line = describe(&program, &args);
        let mut child = Command::new(&program)
            .args(args)
            .envs(env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run {line}"))?;
        let input = child.stdin.take();
        let feed = async {
            if let Some(mut input) = input {
                // A program that does not read its input may have ended already.
                let _ = input.write_all(&stdin).await;
            }
        };
        let (output, ()) = tokio::time::timeout(timeout, async {
            tokio::join!(child.wait_with_output(), feed)
        })
        .await
        .with_context(|| format!("{line} took longer than {timeout:?}"))?;
        let output = output.with_context(|| format!("cannot run {line}"))?;
        Ok(Output {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

impl IntoFuture for Invocation {
    type Output = Result<Output>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

fn describe(program: &OsStr, args: &[OsString]) -> String {
    let words = std::iter::once(program).chain(args.iter().map(OsString::as_os_str));
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    format!("`{}`", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_and_exit_code_are_kept_and_input_is_fed() {
        let script = "cat; echo $WORD >&2; exit 3";
        let output = Invocation::new("sh")
            .args(["-c", script])
            .env("WORD", "no")
            .stdin("in")
            .await
            .unwrap();
        assert_eq!(
            output,
            Output {
                code: 3,
                stdout: "in".into(),
                stderr: "no\n".into()
            }
        );
        assert_eq!(output.success().unwrap_err().to_string(), "exit code 3: no");
    }

    #[tokio::test]
    async fn a_program_that_takes_too_long_is_killed_and_named() {
        let slow = Invocation::new("sleep")
            .args(["60"])
            .timeout(Duration::from_millis(50));
        let error = slow.await.unwrap_err().to_string();
        assert!(
            error.contains("`sleep 60` took longer than 50ms"),
            "{error}"
        );
    }
}
