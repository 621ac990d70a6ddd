#![no_main]

#[path = "../../tests/fuzz/answers.rs"]
mod answers;
#[path = "../../tests/fuzz/memory.rs"]
mod memory;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| answers::run(bytes));
