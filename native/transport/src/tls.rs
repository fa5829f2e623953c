//! Certificates: those of a port, which can be replaced at any time, those of a client, and the names in a peer's.

use std::sync::Arc;

pub use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::ring;
pub use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
};
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
        let roots = roots(certificates("the authorities", client_ca)?)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
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

/// The configuration of a client. `ca`: the authorities of its servers; `identity`: its own key and certificate.
///
/// A certificate that stands among the authorities is accepted from a server itself, too: many self-signed ones are
/// used so, and `OpenSSL` accepts them. webpki alone does not.
///
/// # Errors
/// What is wrong with the files.
pub fn client_configuration(ca: &[u8], identity: Option<(&[u8], &[u8])>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let pinned = certificates("the authorities", ca)?;
    let roots = roots(pinned.clone())?;
    let signed = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
        .build()
        .map_err(|problem| format!("the authorities: {problem}"))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|problem| problem.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SignedOrPinned { signed, pinned }));
    let mut configuration = match identity {
        None => builder.with_no_client_auth(),
        Some((key, certificate)) => {
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|problem| format!("the key: {problem}"))?;
            builder
                .with_client_auth_cert(certificates("the certificate", certificate)?, key)
                .map_err(|problem| format!("the certificate and the key: {problem}"))?
        }
    };
    configuration.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(configuration))
}

/// Accepts servers that an authority has signed, and those whose certificate is one of the authorities'.
#[derive(Debug)]
struct SignedOrPinned {
    signed: Arc<WebPkiServerVerifier>,
    pinned: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for SignedOrPinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.pinned.iter().any(|pinned| pinned == end_entity) {
            return self
                .signed
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        }
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        let (_, parsed) = parse_x509_certificate(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        let (now, validity) = (i64::try_from(now.as_secs()).unwrap_or(i64::MAX), parsed.validity());
        if now < validity.not_before.timestamp() {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > validity.not_after.timestamp() {
            return Err(CertificateError::Expired.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// The authorities that can be used: the list of a system holds some that cannot.
fn roots(authorities: Vec<CertificateDer<'static>>) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(authorities);
    if added == 0 {
        return Err("the authorities: none of them can be used".to_owned());
    }
    Ok(Arc::new(roots))
}

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(format!("{what}: there is none")),
        Err(problem) => Err(format!("{what}: {problem}")),
    }
}
