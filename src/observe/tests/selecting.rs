use kube::core::{Expression, Selector};
use proptest::prelude::*;

use crate::observe::selector::parse;

fn label() -> impl Strategy<Value = String> {
    "[a-z]([a-z./-]{0,8}[a-z])?".prop_filter("words of the grammar", |text| text != "in")
}

fn expression() -> impl Strategy<Value = Expression> {
    let values = || proptest::collection::btree_set("[a-z0-9]{1,5}", 1..4);
    prop_oneof![
        (label(), "[a-z0-9]{0,6}").prop_map(|(k, v)| Expression::Equal(k, v)),
        (label(), "[a-z0-9]{1,6}").prop_map(|(k, v)| Expression::NotEqual(k, v)),
        (label(), values()).prop_map(|(k, v)| Expression::In(k, v)),
        (label(), values()).prop_map(|(k, v)| Expression::NotIn(k, v)),
        label().prop_map(Expression::Exists),
        label().prop_map(Expression::DoesNotExist),
    ]
}

proptest! {
    #[test]
    fn a_selector_is_read_as_it_was_written(expressions in proptest::collection::vec(expression(), 1..5)) {
        let selector = Selector::from_iter(expressions);
        prop_assert_eq!(parse(&selector.to_string()), Some(selector));
    }

    #[test]
    fn no_text_makes_the_reading_panic(text in "\\PC{0,40}") {
        let _ = parse(&text);
    }
}

#[test]
fn what_would_select_everything_or_nothing_known_is_no_selector() {
    for text in ["", " ", ",", "a in b", "a in (b", "(a)"] {
        assert_eq!(parse(text), None, "{text:?}");
    }
}
