//! The messages of a call in both directions, between its owner and the connection, and who waits for them.

use std::collections::VecDeque;
use std::task::{Context, Waker};

use bytes::Bytes;

use crate::settings::{BYTES_AHEAD, MESSAGES_AHEAD};

/// The messages of the peer that the owner has not read yet.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    messages: VecDeque<Bytes>,
    /// The owner waits for an event.
    pub waits: bool,
}

impl Incoming {
    pub fn push(&mut self, message: Bytes) {
        self.messages.push_back(message);
    }

    pub fn take(&mut self) -> Option<Bytes> {
        self.messages.pop_front()
    }

    /// Whether the connection has to wait before it reads more.
    pub fn is_full(&self) -> bool {
        self.messages.len() >= MESSAGES_AHEAD
    }
}

/// The messages of the owner that the connection has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    messages: VecDeque<Bytes>,
    bytes: usize,
    /// The owner waits for an event.
    pub waits: bool,
    sender: Option<Waker>,
}

impl Outgoing {
    pub fn push(&mut self, message: Bytes) {
        self.bytes += message.len();
        self.messages.push_back(message);
        self.wake();
    }

    /// Wake the connection.
    pub fn wake(&mut self) {
        if let Some(sender) = self.sender.take() {
            sender.wake();
        }
    }

    /// Wake the connection of this context when there is something to take.
    pub fn wait(&mut self, context: &Context<'_>) {
        self.sender = Some(context.waker().clone());
    }

    /// The next message, and whether an event is due: the owner waits, and there is room again.
    pub fn take(&mut self) -> Option<(Bytes, bool)> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.len();
        let is_due = self.waits && !self.is_over_limit();
        self.waits &= !is_due;
        Some((message, is_due))
    }

    /// Whether the owner has to wait; an event is due later, then.
    pub fn is_full(&mut self) -> bool {
        self.waits = self.is_over_limit();
        self.waits
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn is_over_limit(&self) -> bool {
        self.messages.len() > 1 && self.bytes > BYTES_AHEAD
    }
}
