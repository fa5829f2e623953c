//! A socket that notes what its peer has sent first.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first bytes of the peer, once they have come.
pub(crate) type FirstBytes = Arc<OnceLock<Vec<u8>>>;

/// As many as show which protocol it is.
const FIRST_MAX: usize = 16;

/// The socket, and where its first bytes are noted.
pub(crate) struct Watched<S> {
    socket: S,
    first: FirstBytes,
}

impl<S> Watched<S> {
    pub fn new(socket: S) -> (Watched<S>, FirstBytes) {
        let first = FirstBytes::default();
        let noted = first.clone();
        (Watched { socket, first }, noted)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.socket).poll_read(context, into);
        let came = &into.filled()[before..];
        if !came.is_empty() {
            self.first.get_or_init(|| came[..came.len().min(FIRST_MAX)].to_vec());
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
