//! The tests of the crate through its public interface: each operator against its definition over the tables of its
//! inputs, after every batch of random streams. Tests in Python compare each step with the operators there
//! (tests/temporal/native).

mod calls;
mod changes;
mod entrance;
mod expressions;
mod hopping;
mod joins;
mod lifetimes;
mod samples;
mod shapes;
mod structures;
mod windows;
mod world;
