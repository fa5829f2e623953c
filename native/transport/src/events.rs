//! What the owner has to look at. A socket wakes it, so that it can wait for that and for its own sockets at once.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::call::Call;

/// Something that has happened to a call.
#[derive(Debug)]
pub enum Event {
    /// A peer has opened it.
    Opened(Arc<Call>),
    /// A message has come, or there is room for an answer, and the owner waits for it; or the peer has gone.
    Changed(u64),
}

/// Events in the order in which they happened.
#[derive(Debug)]
pub struct Events {
    calls: AtomicU64,
    waiting: Mutex<Vec<Event>>,
    waking: UnixStream,
    woken: UnixStream,
}

impl Events {
    /// # Errors
    /// If the process may open no more files.
    pub fn new() -> std::io::Result<Events> {
        let (waking, woken) = UnixStream::pair()?;
        waking.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        Ok(Events {
            calls: AtomicU64::new(0),
            waiting: Mutex::default(),
            waking,
            woken,
        })
    }

    /// The file that can be read while events wait.
    pub fn file(&self) -> RawFd {
        self.woken.as_raw_fd()
    }

    /// A number for another call.
    pub(crate) fn next_number(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Add an event, and wake the owner if it is the first.
    pub fn push(&self, event: Event) {
        let mut waiting = self.waiting.lock().expect("no panic while it is held");
        waiting.push(event);
        if waiting.len() == 1 {
            // A full socket has woken the owner already.
            let _ = (&self.waking).write(&[0]);
        }
    }

    /// Take the events that wait.
    pub fn take(&self) -> Vec<Event> {
        let mut bytes = [0; 64];
        // Before the events: one that comes in between wakes again.
        while let Ok(count) = (&self.woken).read(&mut bytes) {
            if count < bytes.len() {
                break;
            }
        }
        std::mem::take(&mut *self.waiting.lock().expect("no panic while it is held"))
    }
}
