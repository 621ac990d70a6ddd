//! How the demo speaks: headings, explanations, commands and what they print. Colours only where a person watches.
#![expect(clippy::print_stdout, reason = "the demo exists to print")]

use std::io::IsTerminal as _;

fn styled(style: &str, text: &str) -> String {
    if std::io::stdout().is_terminal() {
        format!("\x1b[{style}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// A new scene.
pub(crate) fn scene(title: &str) {
    println!("\n{}", styled("1;36", &format!("== {title}")));
}

/// What is about to be seen, or what was.
pub(crate) fn say(text: &str) {
    println!("{text}");
}

/// A command as a person would type it.
pub(crate) fn command(text: &str) {
    println!("{}", styled("1", &format!("$ {text}")));
}

/// What a command printed.
pub(crate) fn output(text: &str) {
    for line in text.lines() {
        println!("    {line}");
    }
}

/// The demo did not work.
pub(crate) fn failure(error: &anyhow::Error) {
    println!(
        "\n{}",
        styled("1;31", &format!("the demo failed: {error:#}"))
    );
}
