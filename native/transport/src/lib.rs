//! gRPC without a language: ports of servers and channels of clients, whose owner runs the calls.
//!
//! The owner, in another language, runs all calls on one thread. It takes [`events`]: a call has been opened, or something
//! has come that the owner waits for. It reads messages from a [`call`] or a [`client_call`], writes messages to it and
//! ends it. None of these blocks. The threads of this crate do all I/O: TLS, HTTP/2 and its flow control, and the
//! framing of messages.
//!
//! | module | what |
//! |---|---|
//! | `settings` | limits and times |
//! | `events` | what the owner has to look at, and how it wakes |
//! | `queues` | the messages of a call on their way to and from its owner |
//! | `raw` | tonic's framing for messages that stay bytes |
//! | `watched` | a socket that notes what its peer has sent first |
//! | `tls` | certificates, and the names in a peer's |
//! | `call` | a server's side of a call: its messages, its answers, its end |
//! | `exchange` | an HTTP request as a call |
//! | `connection` | a server's side of a connection: its handshake, its idle time, its end |
//! | `server` | the port, and all of its connections |
//! | `client_call` | a client's side of a call |
//! | `channel` | a client's connection to one server, and its calls |
//! | `threads` | the threads of all channels of a process |

pub mod call;
pub mod channel;
pub mod client_call;
mod connection;
pub mod events;
mod exchange;
mod queues;
mod raw;
pub mod server;
pub mod settings;
pub mod threads;
pub mod tls;
mod watched;
