//! Certificates: those of the port, which can be replaced at any time, and the names in a peer's.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// The names of the subject of a verified certificate.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PeerNames {
    pub common_name: String,
    pub uris: Vec<String>,
    pub dns: Vec<String>,
}

impl PeerNames {
    /// The names in a certificate; None if it cannot be read.
    pub fn of(certificate: &[u8]) -> Option<PeerNames> {
        let (_, certificate) = parse_x509_certificate(certificate).ok()?;
        let common_name = certificate.subject().iter_common_name().next();
        let mut names = PeerNames {
            common_name: common_name.and_then(|name| name.as_str().ok()).unwrap_or("").to_owned(),
            ..PeerNames::default()
        };
        if let Ok(Some(others)) = certificate.subject_alternative_name() {
            for name in &others.value.general_names {
                match name {
                    GeneralName::URI(uri) => names.uris.push((*uri).to_owned()),
                    GeneralName::DNSName(dns) => names.dns.push((*dns).to_owned()),
                    _ => {}
                }
            }
        }
        Some(names)
    }
}

/// The configuration of a port. `client_ca`: the authorities of its clients, which must show a certificate then.
///
/// # Errors
/// What is wrong with the files.
pub fn configuration(key: &[u8], certificate: &[u8], client_ca: Option<&[u8]>) -> Result<Arc<ServerConfig>, String> {
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|problem| format!("the key: {problem}"))?;
    let chain = certificates("the certificate", certificate)?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|problem| problem.to_string())?;
    let builder = if let Some(client_ca) = client_ca {
        let mut roots = RootCertStore::empty();
        for root in certificates("the authorities", client_ca)? {
            roots
                .add(root)
                .map_err(|problem| format!("the authorities: {problem}"))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|problem| format!("the authorities: {problem}"))?;
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let mut configuration = builder
        .with_single_cert(chain, key)
        .map_err(|problem| format!("the certificate and the key: {problem}"))?;
    configuration.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(configuration))
}

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(format!("{what}: there is none")),
        Err(problem) => Err(format!("{what}: {problem}")),
    }
}
