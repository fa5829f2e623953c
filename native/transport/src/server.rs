//! The port: it accepts connections until it is closed.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::connection::{Closing, Connection, Shared};
use crate::events::{Event, Events};
use crate::settings::Settings;
use crate::tls::PeerNames;

/// How long a listener waits when the process may open no more files.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the threads may take to end.
const END: Duration = Duration::from_secs(1);

/// A server: one port, its threads, and the events of its calls.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    tls: Arc<RwLock<Option<Arc<ServerConfig>>>>,
    connections: watch::Sender<usize>,
    runtime: Mutex<Option<Runtime>>,
}

impl Server {
    /// # Errors
    /// If the process may open no more files or threads.
    pub fn new(settings: Settings) -> std::io::Result<Server> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(settings.threads)
            .thread_name("lmerge-io")
            .enable_all()
            .build()?;
        Ok(Server {
            shared: Arc::new(Shared {
                settings,
                events: Arc::new(Events::new()?),
                closing: watch::Sender::new(Closing::Open),
            }),
            tls: Arc::default(),
            connections: watch::Sender::new(0),
            runtime: Mutex::new(Some(runtime)),
        })
    }

    pub fn events(&self) -> &Events {
        &self.shared.events
    }

    /// Use this configuration for new connections.
    ///
    /// # Panics
    /// If a thread has panicked while it held the configuration.
    pub fn set_tls(&self, configuration: Arc<ServerConfig>) {
        *self.tls.write().expect("no panic while it is held") = Some(configuration);
    }

    /// Accept connections on an address. Returns the bound port.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    ///
    /// # Panics
    /// If the server is closed.
    pub fn listen(&self, listener: TcpListener) -> std::io::Result<()> {
        listener.set_nonblocking(true)?;
        let runtime = self.runtime.lock().expect("no panic while it is held");
        let runtime = runtime.as_ref().expect("a server that is open");
        let _inside = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (shared, tls, connections) = (self.shared.clone(), self.tls.clone(), self.connections.clone());
        runtime.spawn(async move {
            let mut closing = shared.closing.subscribe();
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = closing.changed() => return,
                };
                let Ok((socket, peer)) = accepted else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                if *connections.borrow() >= shared.settings.connections {
                    continue;
                }
                let place = Counted::enter(&connections);
                let configuration = tls.read().expect("no panic while it is held").clone();
                let shared = shared.clone();
                tokio::spawn(async move {
                    serve(socket, peer, configuration, shared).await;
                    drop(place);
                });
            }
        });
        Ok(())
    }

    /// The events that wait.
    pub fn take_events(&self) -> Vec<Event> {
        self.shared.events.take()
    }

    /// Accept no more connections and no more calls.
    pub fn drain(&self) {
        self.shared.closing.send_replace(Closing::Draining);
    }

    /// Wait up to `wait` until the connections have ended, then close those that are left, and end the threads.
    ///
    /// # Panics
    /// If a thread has panicked while it held the threads.
    pub fn close(&self, wait: Duration) {
        let Some(runtime) = self.runtime.lock().expect("no panic while it is held").take() else {
            return;
        };
        self.drain();
        let mut connections = self.connections.subscribe();
        // Past the time, they are closed below.
        let _ = runtime.block_on(async { timeout(wait, connections.wait_for(|&count| count == 0)).await.is_ok() });
        self.shared.closing.send_replace(Closing::Closed);
        runtime.shutdown_timeout(END);
    }
}

async fn serve(socket: TcpStream, peer: SocketAddr, tls: Option<Arc<ServerConfig>>, shared: Arc<Shared>) {
    // Only a socket that is broken already refuses it.
    let _ = socket.set_nodelay(true);
    let peer = shown(peer);
    let Some(configuration) = tls else {
        Connection::new(peer, None, shared).run(socket).await;
        return;
    };
    let handshake = timeout(
        shared.settings.handshake,
        TlsAcceptor::from(configuration).accept(socket),
    );
    if let Ok(Ok(socket)) = handshake.await {
        let certificate = socket.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let names = certificate
            .and_then(|certificate| PeerNames::of(certificate))
            .map(Arc::new);
        Connection::new(peer, names, shared).run(socket).await;
    }
}

/// An address in gRPC's notation.
fn shown(peer: SocketAddr) -> String {
    match peer.ip() {
        IpAddr::V4(ip) => format!("ipv4:{ip}:{}", peer.port()),
        IpAddr::V6(ip) => format!("ipv6:[{ip}]:{}", peer.port()),
    }
}

/// One of a count, while it is there.
struct Counted(watch::Sender<usize>);

impl Counted {
    fn enter(count: &watch::Sender<usize>) -> Counted {
        count.send_modify(|count| *count += 1);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
