//! A client's channel to one server: its calls for Python's event loop.

use std::sync::Arc;
use std::time::Duration;

use lmerge_transport::call::Read;
use lmerge_transport::channel::{self, ChannelSettings, ClientOpening};
use lmerge_transport::client_call;
use lmerge_transport::events::Event;
use lmerge_transport::{threads, tls};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::columns::shared;
use crate::metadata::{Pairs, ShownPairs, metadata_of, pairs_of};
use crate::transport::{Message, os_error, shown};

/// Certificates of a client, and what it requires of its servers'.
#[pyclass(frozen, module = "lmerge._native")]
pub struct ClientTls(Arc<tls::ClientConfig>);

#[pymethods]
impl ClientTls {
    #[new]
    #[pyo3(signature = (ca, key=None, certificate=None))]
    fn new(ca: &[u8], key: Option<&[u8]>, certificate: Option<&[u8]>) -> PyResult<ClientTls> {
        let configuration = tls::client_configuration(ca, key.zip(certificate)).map_err(PyValueError::new_err)?;
        Ok(ClientTls(configuration))
    }
}

/// A call to a server. None of its methods waits.
#[pyclass(frozen, module = "lmerge._native")]
pub struct ClientCall {
    call: Arc<client_call::ClientCall>,
    process: u32,
}

#[pymethods]
impl ClientCall {
    #[getter]
    fn id(&self) -> u64 {
        self.call.id
    }

    /// An answer; None: an event will come; False: the call is over.
    fn read(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        Ok(match self.call.read() {
            Read::Message(message) => Some(Py::new(py, Message(message))?.into_any()),
            Read::Wait => None,
            Read::End | Read::Gone => Some(false.into_pyobject(py)?.to_owned().into_any().unbind()),
        })
    }

    /// True: there is room for another one; None: an event will come; False: it cannot be sent.
    fn write(&self, request: PyBackedBytes) -> Option<bool> {
        shown(&self.call.write(shared(request)))
    }

    /// The same, without a request.
    fn room(&self) -> Option<bool> {
        shown(&self.call.room())
    }

    fn end_requests(&self) {
        self.call.end_requests();
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> Option<ShownPairs<'py>> {
        self.call.headers().map(|headers| pairs_of(py, &headers))
    }

    #[getter]
    fn status<'py>(&self, py: Python<'py>) -> Option<(i32, String, ShownPairs<'py>)> {
        let status = self.call.status()?;
        let trailers = pairs_of(py, status.metadata());
        Some((status.code().into(), status.message().to_owned(), trailers))
    }

    fn cancel(&self) {
        if self.process == std::process::id() {
            self.call.cancel();
        }
    }
}

impl Drop for ClientCall {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The calls to one server.
#[pyclass(frozen, module = "lmerge._native")]
pub struct Channel {
    channel: Option<channel::Channel>, // until it is dropped
    process: u32,
}

impl Channel {
    fn channel(&self) -> &channel::Channel {
        self.channel.as_ref().expect("it is not dropped yet")
    }
}

#[pymethods]
impl Channel {
    #[new]
    #[pyo3(signature = (authority, *, tls, server_name, attempt_s, receive_bytes, keepalive_s, keepalive_timeout_s))]
    fn new(
        authority: String,
        tls: Option<PyRef<'_, ClientTls>>,
        server_name: String,
        attempt_s: f64,
        receive_bytes: usize,
        keepalive_s: f64,
        keepalive_timeout_s: f64,
    ) -> PyResult<Channel> {
        let tls = match tls {
            None => None,
            Some(tls) => {
                let name = tls::ServerName::try_from(server_name.clone())
                    .map_err(|_| PyValueError::new_err(format!("{server_name:?} is no name of a server")))?;
                Some((tls.0.clone(), name))
            }
        };
        let settings = ChannelSettings {
            authority,
            tls,
            attempt: Duration::from_secs_f64(attempt_s),
            receive_bytes,
            keepalive: Duration::from_secs_f64(keepalive_s),
            keepalive_timeout: Duration::from_secs_f64(keepalive_timeout_s),
        };
        let threads = threads::of_this_process().map_err(|problem| os_error(&problem))?;
        let channel = channel::Channel::new(settings, threads).map_err(|problem| os_error(&problem))?;
        Ok(Channel {
            channel: Some(channel),
            process: std::process::id(),
        })
    }

    #[getter]
    fn file(&self) -> i32 {
        self.channel().events().file()
    }

    #[getter]
    fn is_ready(&self) -> bool {
        self.channel().is_ready()
    }

    /// `deadline_s`: the time that the call may take.
    #[pyo3(signature = (path, metadata, deadline_s=None))]
    fn open(&self, path: &str, metadata: Pairs, deadline_s: Option<f64>) -> PyResult<ClientCall> {
        let opening = ClientOpening {
            path: path
                .try_into()
                .map_err(|_| PyValueError::new_err(format!("{path:?} is no path of a method")))?,
            metadata: metadata_of(metadata)?,
            deadline: deadline_s.map(Duration::from_secs_f64),
        };
        Ok(ClientCall {
            call: self.channel().open(opening),
            process: self.process,
        })
    }

    /// The numbers of the calls for which something has come.
    fn events(&self) -> Vec<u64> {
        let events = self.channel().events().take().into_iter();
        let numbers = events.filter_map(|event| match event {
            Event::Changed(number) => Some(number),
            Event::Opened(_) => None,
        });
        numbers.collect()
    }

    fn close(&self) {
        if self.process == std::process::id() {
            self.channel().close();
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.close();
        if self.process != std::process::id() {
            // A child after a fork: the parent goes on with the connection.
            std::mem::forget(self.channel.take());
        }
    }
}
