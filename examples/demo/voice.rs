//! The demo's output: headings, explanations, commands and their results. Colours are used on a
//! terminal only.
#![expect(clippy::print_stdout, reason = "the demo exists to print")]

use std::io::IsTerminal as _;

fn styled(style: &str, text: &str) -> String {
    if std::io::stdout().is_terminal() {
        format!("\x1b[{style}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Prints the heading of a scene.
pub(crate) fn scene(title: &str) {
    println!("\n{}", styled("1;36", &format!("== {title}")));
}

/// Prints an explanation.
pub(crate) fn say(text: &str) {
    println!("{text}");
}

/// Prints a command as a person would type it.
pub(crate) fn command(text: &str) {
    println!("{}", styled("1", &format!("$ {text}")));
}

/// Prints the output of a command.
pub(crate) fn output(text: &str) {
    for line in text.lines() {
        println!("    {line}");
    }
}

/// Prints that the demo failed, and why.
pub(crate) fn failure(error: &anyhow::Error) {
    println!(
        "\n{}",
        styled("1;31", &format!("the demo failed: {error:#}"))
    );
}
