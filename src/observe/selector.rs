//! Label selectors in the form in which a budget records them and the API server takes them: `a=b,c in (d,e),!f`.

use std::collections::BTreeSet;

use kube::core::{Expression, Selector};

/// Reads a selector as its `Display` writes it. `None` where it is none; an empty one, which would select everything, is none.
pub(super) fn parse(text: &str) -> Option<Selector> {
    let expressions: Option<Vec<_>> = terms(text).into_iter().map(expression).collect();
    expressions
        .filter(|expressions| !expressions.is_empty())
        .map(Selector::from_iter)
}

/// The terms between the commas that are not inside of parentheses.
fn terms(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let is_separator = move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    };
    let terms = text.split(is_separator).map(str::trim);
    terms.filter(|term| !term.is_empty()).collect()
}

fn expression(term: &str) -> Option<Expression> {
    if let Some((key, values)) = term.split_once(" notin ") {
        return Some(Expression::NotIn(key.to_owned(), set(values)?));
    }
    if let Some((key, values)) = term.split_once(" in ") {
        return Some(Expression::In(key.to_owned(), set(values)?));
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Some(Expression::NotEqual(key.to_owned(), value.to_owned()));
    }
    if let Some((key, value)) = term.split_once('=') {
        return Some(Expression::Equal(key.to_owned(), value.to_owned()));
    }
    if term.contains([' ', '(', ')']) {
        return None;
    }
    Some(match term.strip_prefix('!') {
        Some(key) => Expression::DoesNotExist(key.to_owned()),
        None => Expression::Exists(term.to_owned()),
    })
}

fn set(values: &str) -> Option<BTreeSet<String>> {
    let values = values.trim().strip_prefix('(')?.strip_suffix(')')?;
    Some(values.split(',').map(|v| v.trim().to_owned()).collect())
}
