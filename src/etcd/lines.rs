//! Pages of metrics that are read line by line.

/// The longest line that is read whole. The rest of a longer one is skipped: nothing of a page is
/// kept but the line that has not ended, because whoever runs pods can have one answer as a member.
const LONGEST_LINE: usize = 256;

/// The value of the metric `name`, labels included, if the line has it.
pub fn value(line: &str, name: &str) -> Option<f64> {
    let rest = line.strip_prefix(name)?.strip_prefix(' ')?;
    rest.split_whitespace().next()?.parse().ok()
}

/// A page that is read part by part, and handed on line by line.
pub struct Lines<F> {
    line: Vec<u8>,
    each: F,
}

impl<F: FnMut(&str)> Lines<F> {
    /// A page of which nothing has come yet.
    pub fn new(each: F) -> Self {
        Self {
            line: Vec::new(),
            each,
        }
    }

    /// Takes the next part.
    pub fn take(&mut self, mut part: &[u8]) {
        while let Some(end) = part.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = part.split_at(end);
            self.append(line);
            self.end_line();
            part = rest.get(1..).unwrap_or_default();
        }
        self.append(part);
    }

    fn append(&mut self, part: &[u8]) {
        let room = LONGEST_LINE - self.line.len();
        let (part, _) = part.split_at(part.len().min(room));
        self.line.extend_from_slice(part);
    }

    fn end_line(&mut self) {
        (self.each)(&String::from_utf8_lossy(&self.line));
        self.line.clear();
    }

    /// Takes the end, which ends the last line.
    pub fn end(mut self) {
        self.end_line();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_in_parts_has_the_lines_of_the_whole() {
        let page = "one 1\n# two\n\nthree{a=\"b\"} 3";
        for size in [1, 2, 7, 64] {
            let mut found = Vec::new();
            let mut lines = Lines::new(|line: &str| found.push(line.to_owned()));
            for part in page.as_bytes().chunks(size) {
                lines.take(part);
            }
            lines.end();
            assert_eq!(found, page.split('\n').collect::<Vec<_>>(), "by {size}");
        }
        assert_eq!(value("three{a=\"b\"} 3 170", "three{a=\"b\"}"), Some(3.0));
        assert_eq!(value("three_times 3", "three"), None);
    }

    #[test]
    fn of_a_page_only_the_line_that_has_not_ended_is_kept() {
        let mut last = String::new();
        let mut lines = Lines::new(|line: &str| last = line.to_owned());
        for _ in 0..1_000 {
            lines.take(&[b'x'; 4_096]);
        }
        assert!(lines.line.capacity() <= 2 * LONGEST_LINE);
        lines.take(b"\netcd_disk_defrag_inflight 1");
        lines.end();
        assert_eq!(last, "etcd_disk_defrag_inflight 1");
    }
}
