//! Remembered answers of pure functions: the shipped code is asked once for each question of the
//! model.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::thread::LocalKey;

/// The answers by question. Each thread has a table of its own.
pub(crate) type Memo<Q, A> = RefCell<HashMap<Q, A>>;

/// The answer to a question, worked out when it is asked for the first time.
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
