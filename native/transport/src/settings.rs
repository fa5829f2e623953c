//! Limits and times of a port, and of its counterpart, the channel.

use std::time::Duration;

/// What a server sets for its port.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The largest message that is read.
    pub receive_bytes: usize,
    /// Connections at the same time. A further one is dropped.
    pub connections: usize,
    /// Calls of one connection at the same time.
    pub calls_per_connection: u32,
    /// A connection that has not begun to speak HTTP/2 by then is dropped.
    pub handshake: Duration,
    /// A connection without calls is closed after this time.
    pub idle: Duration,
    /// A ping is sent after so long without a frame, and the connection is dropped if nothing answers it in time.
    pub keepalive: Duration,
    pub keepalive_timeout: Duration,
    /// The threads that do the I/O.
    pub threads: usize,
}

/// What a peer may send ahead of the reader: enough for a fast stream over a WAN.
pub const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// The same of all calls of a connection together.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// The largest frame that a peer may send.
pub const FRAME_BYTES: u32 = 1 << 20;
/// Messages of a call that are read ahead of its owner.
pub const MESSAGES_AHEAD: usize = 2;
/// Messages of an owner that may wait for the socket before the owner has to wait. One always may, whatever its size.
pub const BYTES_AHEAD: usize = 64 << 10;
