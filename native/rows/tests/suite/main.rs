//! The tests of the crate through its public interface: the single rules, and hostile bytes. A test in Python compares
//! the bytes with those of the Python codec (tests/wire/test_arrow_native.py).

mod changes;
mod check;
mod decimal;
mod decode;
mod elements;
mod encode;
mod hostile;
mod pack;
mod round;
mod tables;
