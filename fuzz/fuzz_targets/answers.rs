#![no_main]

#[path = "../../tests/fuzz/answers.rs"]
mod answers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| answers::run(bytes));
