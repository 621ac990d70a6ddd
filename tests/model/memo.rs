//! Answers of pure functions, remembered: the shipped code is asked once for each question that the model ever has.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::thread::LocalKey;

/// Answers by question, one table for each thread.
pub(crate) type Memo<Q, A> = RefCell<HashMap<Q, A>>;

/// The answer to a question, worked out at its first time.
pub(crate) fn remembered<Q: Eq + Hash + Copy, A: Copy>(
    memo: &'static LocalKey<Memo<Q, A>>,
    question: Q,
    answer: impl FnOnce(Q) -> A,
) -> A {
    let known = memo.with_borrow(|memo| memo.get(&question).copied());
    known.unwrap_or_else(|| {
        let answer = answer(question);
        memo.with_borrow_mut(|memo| memo.insert(question, answer));
        answer
    })
}
