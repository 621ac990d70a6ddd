#![no_main]

#[path = "../../tests/fuzz/budgets.rs"]
mod budgets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| budgets::run(bytes));
