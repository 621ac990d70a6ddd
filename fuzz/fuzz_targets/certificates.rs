#![no_main]

#[path = "../../tests/fuzz/memory.rs"]
mod memory;
#[path = "../../tests/fuzz/certificates.rs"]
mod certificates;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| certificates::run(bytes));
