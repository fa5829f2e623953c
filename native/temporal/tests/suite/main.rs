//! The tests of the crate through its public interface: each operator against its definition over the tables of its
//! inputs, after every batch of random streams. Tests in Python compare each step with the operators there
//! (tests/temporal/native).

mod aggregates;
mod arena;
mod calls;
mod changes;
mod computed;
mod cost;
mod entrance;
mod expressions;
mod hopping;
mod joins;
mod lifetimes;
mod samples;
mod shapes;
mod spans;
mod structures;
mod trees;
mod windowed;
mod windows;
mod world;
