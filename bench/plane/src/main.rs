//! A prototype, for figures only: publish, merge and fan-out of one merge over gRPC, without Python.
//!
//! It takes the messages of lmerge's own clients. Left out: attach options, roles, feedback, comparison, the store,
//! recording, quotas, TLS, administration, and every error: a broken promise ends the process.
//!
//! `plane READY_FILE` serves on a free port of the loopback and writes it to the file, as JSON.

mod calls;
mod merge;
mod messages;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

/// Batches that wait for the merge.
const INBOX: usize = 32;
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
const FRAME_BYTES: u32 = 1 << 20;

fn main() {
    let ready = std::env::args().nth(1).expect("plane READY_FILE");
    let (inbox, received) = mpsc::channel(INBOX);
    std::thread::spawn(move || merge::run(received));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads");
    runtime.block_on(serve(ready, Arc::new(calls::Doors::new(inbox))));
}

async fn serve(ready: String, doors: Arc<calls::Doors>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::fs::write(&ready, format!("{{\"port\": {port}}}")).expect("the ready file");
    let connections = TcpListenerStream::new(listener).map(|connection| {
        if let Ok(connection) = &connection {
            connection.set_nodelay(true).expect("a socket");
        }
        connection
    });
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .add_service(calls::Plane(doors))
        .serve_with_incoming(connections)
        .await
        .expect("a server");
}
