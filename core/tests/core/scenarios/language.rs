//! The language of scenario files.
//!
//! ```text
//! a crashed member leaves no room for another      <- a title
//!   3 voters, b crashed                            <- facts, any number of lines
//!   > evict a                                      <- a question
//!     Wait NoHeadroom: …                           <- its answer, exactly
//! ```
//!
//! Lines that start with `#` are comments. The first fact is the number of voters. The questions of
//! a scenario are independent of each other and are asked about the same facts. A word that is not
//! understood is an error.

use super::facts::Setting;
use super::questions;

/// A parsed file: its lines, and the meaning of the questions among them.
pub(super) struct Script {
    lines: Vec<Line>,
    titles: usize,
}

enum Line {
    Text(String),
    Question { text: String, answer: String },
}

impl Script {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut script = Self {
            lines: Vec::new(),
            titles: 0,
        };
        let mut scenario: Option<Scenario> = None;
        for (index, line) in text.lines().enumerate() {
            let at = |problem: String| format!("line {}: {problem}", index + 1);
            if line.starts_with("    ") {
                let asked = scenario.as_ref().is_some_and(|s| s.questions > 0);
                if !asked {
                    return Err(at("an answer without a question".into()));
                }
                continue;
            }
            if let Some(indented) = line.strip_prefix("  ") {
                let scenario = scenario
                    .as_mut()
                    .ok_or_else(|| at("a title comes first".into()))?;
                if let Some(question) = indented.strip_prefix("> ") {
                    let answer = scenario.ask(question).map_err(at)?;
                    script.lines.push(Line::Question {
                        text: line.into(),
                        answer,
                    });
                    continue;
                }
                scenario.state(indented).map_err(at)?;
            } else if !line.is_empty() && !line.starts_with('#') {
                Scenario::close(scenario.take())?;
                script.titles += 1;
                scenario = Some(Scenario::new(line, index + 1));
            }
            script.lines.push(Line::Text(line.into()));
        }
        Scenario::close(scenario)?;
        Ok(script)
    }

    pub(super) fn scenarios(&self) -> usize {
        self.titles
    }

    /// The file with the right answers.
    pub(super) fn answer(&self) -> String {
        self.lines
            .iter()
            .map(|line| match line {
                Line::Text(text) => format!("{text}\n"),
                Line::Question { text, answer } => {
                    let answer: Vec<String> =
                        answer.lines().map(|l| format!("    {l}\n")).collect();
                    format!("{text}\n{}", answer.concat())
                }
            })
            .collect()
    }
}

struct Scenario {
    title: String,
    line: usize,
    setting: Option<Setting>,
    questions: usize,
}

impl Scenario {
    fn new(title: &str, line: usize) -> Self {
        Self {
            title: title.into(),
            line,
            setting: None,
            questions: 0,
        }
    }

    fn state(&mut self, facts: &str) -> Result<(), String> {
        if self.questions > 0 {
            return Err("facts come before questions".into());
        }
        for fact in facts.split(", ") {
            match &mut self.setting {
                Some(setting) => setting.state(fact)?,
                none => *none = Some(Setting::begin(fact)?),
            }
        }
        Ok(())
    }

    fn ask(&mut self, question: &str) -> Result<String, String> {
        self.questions += 1;
        let setting = self
            .setting
            .as_ref()
            .ok_or("the number of voters comes first")?;
        questions::answer(setting, question)
    }

    fn close(scenario: Option<Self>) -> Result<(), String> {
        match scenario {
            Some(Self {
                title,
                line,
                questions: 0,
                ..
            }) => Err(format!("line {line}: nothing is asked in: {title}")),
            Some(_) | None => Ok(()),
        }
    }
}
