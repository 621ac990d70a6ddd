#![no_main]

#[path = "../../tests/fuzz/memory.rs"]
mod memory;
#[path = "../../tests/fuzz/reviews.rs"]
mod reviews;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reviews::run(bytes));
