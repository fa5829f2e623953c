//! The gRPC port of a server: its calls for Python's event loop.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lmerge_transport::call::{self, Read, Write};
use lmerge_transport::events::Event;
use lmerge_transport::server::Server;
use lmerge_transport::settings::Settings;
use lmerge_transport::tls;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use tonic::{Code, Status};

use crate::columns::shared;
use crate::metadata::{Pairs, ShownPairs, metadata_of, pairs_of};

/// The bytes of a message that came, not copied yet.
#[pyclass(frozen, module = "lmerge._native")]
pub struct Message(pub Bytes);

#[pymethods]
impl Message {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0)
    }
}

/// A message as bytes of Python, or as it came.
#[derive(FromPyObject)]
pub enum AnyMessage<'py> {
    Came(PyRef<'py, Message>),
    Bytes(PyBackedBytes),
}

impl AnyMessage<'_> {
    pub fn bytes(self) -> Bytes {
        match self {
            AnyMessage::Came(message) => message.0.clone(),
            AnyMessage::Bytes(bytes) => shared(bytes),
        }
    }
}

/// The error in the form of Python, with its number if it has one.
pub fn os_error(problem: &std::io::Error) -> PyErr {
    match problem.raw_os_error() {
        Some(number) => PyOSError::new_err((number, problem.to_string())),
        None => PyOSError::new_err(problem.to_string()),
    }
}

/// Return what Python gets for a write: whether there is room for another one; None: an event will come.
pub fn shown(written: &Write) -> Option<bool> {
    match written {
        Write::Done => Some(true),
        Write::Wait => None,
        Write::Gone => Some(false),
    }
}

/// One call of a peer. None of its methods waits.
#[pyclass(frozen, module = "lmerge._native")]
pub struct Call(Arc<call::Call>);

#[pymethods]
impl Call {
    #[getter]
    fn id(&self) -> u64 {
        self.0.id
    }

    #[getter]
    fn path(&self) -> &str {
        &self.0.opening.path
    }

    #[getter]
    fn peer(&self) -> &str {
        &self.0.opening.peer
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> ShownPairs<'py> {
        pairs_of(py, &self.0.opening.metadata)
    }

    #[getter]
    fn certificate(&self) -> Option<(&str, Vec<String>, Vec<String>)> {
        let names = self.0.opening.names.as_deref()?;
        Some((&names.common_name, names.uris.clone(), names.dns.clone()))
    }

    /// A message; True: there will be none; None: an event will come; False: the call is over.
    fn read(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        Ok(match self.0.read() {
            Read::Message(message) => Some(Py::new(py, Message(message))?.into_any()),
            Read::End => Some(true.into_pyobject(py)?.to_owned().into_any().unbind()),
            Read::Gone => Some(false.into_pyobject(py)?.to_owned().into_any().unbind()),
            Read::Wait => None,
        })
    }

    /// True: there is room for another one; None: an event will come; False: the call is over.
    fn write(&self, answer: PyBackedBytes) -> Option<bool> {
        shown(&self.0.write(shared(answer)))
    }

    fn start(&self, metadata: Pairs) -> PyResult<()> {
        self.0.start(metadata_of(metadata)?);
        Ok(())
    }

    fn finish(&self, code: i32, message: String, metadata: Pairs) -> PyResult<()> {
        let status = Status::with_metadata(Code::from_i32(code), message, metadata_of(metadata)?);
        self.0.finish(status);
        Ok(())
    }

    #[getter]
    fn is_full(&self) -> bool {
        self.0.is_full()
    }

    #[getter]
    fn is_gone(&self) -> bool {
        self.0.is_gone()
    }
}

/// A port and its connections.
#[pyclass(frozen, module = "lmerge._native")]
pub struct Transport(Server);

#[pymethods]
impl Transport {
    #[new]
    #[pyo3(signature = (*, receive_bytes, connections, calls_per_connection, handshake_s, idle_s, keepalive_s,
        keepalive_timeout_s, threads))]
    #[expect(clippy::too_many_arguments, reason = "each by its name")]
    fn new(
        receive_bytes: usize,
        connections: usize,
        calls_per_connection: u32,
        handshake_s: f64,
        idle_s: f64,
        keepalive_s: f64,
        keepalive_timeout_s: f64,
        threads: usize,
    ) -> PyResult<Transport> {
        Ok(Transport(Server::new(Settings {
            receive_bytes,
            connections,
            calls_per_connection,
            handshake: Duration::from_secs_f64(handshake_s),
            idle: Duration::from_secs_f64(idle_s),
            keepalive: Duration::from_secs_f64(keepalive_s),
            keepalive_timeout: Duration::from_secs_f64(keepalive_timeout_s),
            threads,
        })?))
    }

    #[getter]
    fn file(&self) -> i32 {
        self.0.events().file()
    }

    /// Listen on all addresses of a host. Returns the port.
    fn listen(&self, py: Python<'_>, host: &str, port: u16) -> PyResult<u16> {
        py.detach(|| {
            let mut bound = port;
            let mut problem = None;
            let mut listens = false;
            for address in (host, port).to_socket_addrs().map_err(|problem| os_error(&problem))? {
                let listened = TcpListener::bind(SocketAddr::new(address.ip(), bound)).and_then(|listener| {
                    bound = listener.local_addr()?.port();
                    self.0.listen(listener)
                });
                match listened {
                    Ok(()) => listens = true,
                    Err(error) => problem = Some(error),
                }
            }
            match problem {
                Some(problem) if !listens => Err(os_error(&problem)),
                None if !listens => Err(PyOSError::new_err("the host has no address")),
                _ => Ok(bound),
            }
        })
    }

    #[pyo3(signature = (key, certificate, client_ca=None))]
    fn set_tls(&self, key: &[u8], certificate: &[u8], client_ca: Option<&[u8]>) -> PyResult<()> {
        let configuration = tls::configuration(key, certificate, client_ca).map_err(PyValueError::new_err)?;
        self.0.set_tls(configuration);
        Ok(())
    }

    /// What has happened: a call that was opened, or the number of one for which something has come.
    fn events<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let events = self.0.take_events().into_iter();
        let events = events.map(|event| match event {
            Event::Opened(call) => Ok(Bound::new(py, Call(call))?.into_any()),
            Event::Changed(id) => Ok(id.into_pyobject(py)?.into_any()),
        });
        events.collect()
    }

    fn drain(&self) {
        self.0.drain();
    }

    fn close(&self, py: Python<'_>, wait_s: f64) {
        py.detach(|| self.0.close(Duration::from_secs_f64(wait_s)));
    }
}
