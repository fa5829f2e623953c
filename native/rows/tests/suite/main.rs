//! The tests of the crate by its public parts. That the bytes are Python's is tested in Python, with both at hand
//! (tests/wire/test_arrow_native.py); here stand the rules one by one, and what comes from strangers.

mod check;
mod decimal;
mod decode;
mod encode;
mod hostile;
mod pack;
mod round;
mod tables;
