//! The gRPC port of a server: it accepts connections, reads and writes the messages of calls, and runs no call.
//!
//! An owner in another language runs the calls, on one thread. It takes [`events`]: a call has been opened, or something
//! has come that the owner waits for. It reads messages from a [`call`], writes answers to it and finishes it. None of
//! these blocks. The threads of this crate do all I/O: TLS, HTTP/2 and its flow control, and the framing of messages.
//!
//! | module | what |
//! |---|---|
//! | `settings` | limits and times |
//! | `events` | what the owner has to look at, and how it wakes |
//! | `call` | one call: its messages, its answers, its end |
//! | `exchange` | an HTTP request as a call, by tonic's framing |
//! | `connection` | one connection: its handshake, its idle time, its end |
//! | `tls` | certificates, and the names in a peer's |
//! | `server` | the port, and all of its connections |

pub mod call;
mod connection;
pub mod events;
mod exchange;
pub mod server;
pub mod settings;
pub mod tls;
